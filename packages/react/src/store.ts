import { useState, useSyncExternalStore } from "react";

/** A part of the client: one immutable snapshot, and one way to hear of the next. */
type Store<T> = { readonly subscribe: (listener: () => void) => () => void; readonly getSnapshot: () => T };

/**
 * What `select` picks of a store's snapshot. It must give the same value for the
 * same snapshot: pick what is there, do not build. A component is rendered
 * anew only when the value is another one.
 */
export function useStore<T, V>(store: Store<T>, select: (snapshot: T) => V): V {
  // On a server, and while its page is taken over, nothing is known yet.
  const [first] = useState(() => store.getSnapshot());
  return useSyncExternalStore(
    store.subscribe,
    () => select(store.getSnapshot()),
    () => select(first),
  );
}

/** The whole of a snapshot. */
export function whole<T>(snapshot: T): T {
  return snapshot;
}
