import { useSyncExternalStore } from "react";

const listeners = new Set<() => void>();
let second = Math.floor(Date.now() / 1000);
let timer: ReturnType<typeof setInterval> | undefined;

function tick(): void {
  const next = Math.floor(Date.now() / 1000);
  if (next === second) return;
  second = next;
  for (const listener of [...listeners]) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(tick, 250);
  tick();
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  };
}

/** The time, in milliseconds since 1970, every `step` seconds. One timer serves all who look. */
export function useNow(step = 1): number {
  return useSyncExternalStore(subscribe, () => Math.floor(second / step) * step) * 1000;
}
