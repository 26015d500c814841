import type { ReactElement } from "react";

/** The mark: a holdfast, by which kelp stays where it is. */
export function Logo(): ReactElement {
  return (
    <svg viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="8" fill="#0d6e6a" />
      <path
        d="M16 6v9M16 15c0 5-2.6 8.6-7 10.5M16 15c0 5 2.6 8.6 7 10.5M16 15v11M16 9.5c-2.4 0-4.3-1-5.2-2.9M16 12.4c2.4 0 4.3-1 5.2-2.9"
        fill="none"
        stroke="#fff"
        strokeWidth="2.2"
        strokeLinecap="round"
      />
    </svg>
  );
}
