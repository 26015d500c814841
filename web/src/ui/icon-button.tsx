import type { ButtonHTMLAttributes, ReactElement, ReactNode } from "react";

type Props = Omit<ButtonHTMLAttributes<HTMLButtonElement>, "aria-label" | "title"> & {
  /** What it does: its name for screen readers, and its tooltip. */
  readonly label: string;
  readonly small?: boolean;
  readonly children: ReactNode;
};

/** A button that is only an icon. */
export function IconButton({ label, small, className = "", children, ...rest }: Props): ReactElement {
  return (
    <button
      type="button"
      aria-label={label}
      title={label}
      className={`icon-button ${small ? "small" : ""} ${className}`}
      {...rest}
    >
      {children}
    </button>
  );
}
