import { useSyncExternalStore } from "react";

/** What the person chose; `system` follows the machine. */
export type Theme = "system" | "light" | "dark";

const key = "holdfast:theme";
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();
let theme: Theme = read();

function read(): Theme {
  try {
    const kept = localStorage.getItem(key);
    return kept === "light" || kept === "dark" ? kept : "system";
  } catch {
    return "system"; // the browser keeps nothing for this page
  }
}

function show(): void {
  const shown = theme === "system" ? (dark.matches ? "dark" : "light") : theme;
  document.documentElement.dataset.theme = shown;
  for (const listener of [...listeners]) listener();
}

/** Chooses a theme, here and in the other tabs. */
export function setTheme(next: Theme): void {
  theme = next;
  try {
    localStorage.setItem(key, next);
  } catch {
    // It lasts as long as the page.
  }
  show();
}

/** Begins to follow the machine and the other tabs. */
export function startTheme(): void {
  dark.addEventListener("change", show);
  window.addEventListener("storage", (event) => {
    if (event.key !== key) return;
    theme = read();
    show();
  });
  show();
}

/** The choice. */
export function useTheme(): Theme {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => theme,
  );
}
