import { useEffect, useRef } from "react";

/** Whether this machine's main modifier is the command key. */
export const isMac = /Mac|iPhone|iPad/.test(navigator.platform);

/** One key combination: `mod` is Ctrl, or ⌘ on a Mac. `code` is the key's place, so that layouts and Alt do not matter. */
export type Shortcut = {
  readonly code: string;
  readonly mod?: boolean;
  readonly alt?: boolean;
  readonly shift?: boolean;
  readonly words: string;
  readonly run: () => void;
};

/** Hears the page's shortcuts. All have a modifier: single letters belong to whoever types. */
export function useShortcuts(shortcuts: readonly Shortcut[]): void {
  const latest = useRef(shortcuts);
  useEffect(() => {
    latest.current = shortcuts;
  });
  useEffect(() => {
    const hear = (event: KeyboardEvent) => {
      const mod = isMac ? event.metaKey : event.ctrlKey;
      const found = latest.current.find(
        (s) =>
          s.code === event.code &&
          (s.mod ?? false) === mod &&
          (s.alt ?? false) === event.altKey &&
          (s.shift ?? false) === event.shiftKey,
      );
      if (!found || (document.querySelector("dialog:modal") && !found.shift)) return;
      event.preventDefault();
      found.run();
    };
    window.addEventListener("keydown", hear);
    return () => window.removeEventListener("keydown", hear);
  }, []);
}

/** A shortcut as its keys are labelled. */
export function keysOf(shortcut: Pick<Shortcut, "code" | "mod" | "alt" | "shift">): string[] {
  const names: Record<string, string> = { Period: ".", Slash: "/", ArrowUp: "↑", ArrowDown: "↓" };
  return [
    ...(shortcut.mod ? [isMac ? "⌘" : "Ctrl"] : []),
    ...(shortcut.alt ? [isMac ? "⌥" : "Alt"] : []),
    ...(shortcut.shift ? ["⇧"] : []),
    names[shortcut.code] ?? shortcut.code.replace(/^Key|^Digit/, ""),
  ];
}
