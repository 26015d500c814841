/** A set of listeners. A resource starts with the first and stops after the last. */
export class Listeners {
  readonly #all = new Set<{ listener: () => void }>();
  readonly #onFirst: () => void;
  readonly #onLast: () => void;

  constructor(onFirst: () => void = () => {}, onLast: () => void = () => {}) {
    this.#onFirst = onFirst;
    this.#onLast = onLast;
  }

  /** Whether somebody listens. */
  get any(): boolean {
    return this.#all.size > 0;
  }

  /** Adds a listener. The returned function removes it, and may be called twice. */
  add(listener: () => void): () => void {
    const entry = { listener }; // the same function may listen twice
    this.#all.add(entry);
    if (this.#all.size === 1) this.#onFirst();
    return () => {
      if (this.#all.delete(entry) && this.#all.size === 0) this.#onLast();
    };
  }

  /** Calls all. What one throws is reported and keeps nothing from the others. */
  call(): void {
    for (const { listener } of [...this.#all]) {
      try {
        listener();
      } catch (error) {
        queueMicrotask(() => {
          throw error;
        });
      }
    }
  }
}
