import { useMemo, useSyncExternalStore } from "react";

/** Whether a media query holds. */
export function useMedia(query: string): boolean {
  const list = useMemo(() => window.matchMedia(query), [query]);
  return useSyncExternalStore(
    (listener) => {
      list.addEventListener("change", listener);
      return () => list.removeEventListener("change", listener);
    },
    () => list.matches,
  );
}
