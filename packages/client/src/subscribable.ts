/**
 * What can be shown: one immutable view, which is replaced when something
 * changed, and one `subscribe`. Both can be handed around.
 */
export abstract class Subscribable<View extends object> {
  readonly #listeners = new Set<{ readonly listener: () => void }>();
  #view: View;

  constructor(view: View) {
    this.#view = view;
  }

  /** Calls back after each change, until the returned function is called. */
  subscribe = (listener: () => void): (() => void) => {
    const entry = { listener }; // the same function may listen twice
    this.#listeners.add(entry);
    if (this.#listeners.size === 1) this.started();
    return () => {
      if (this.#listeners.delete(entry) && this.#listeners.size === 0) this.stopped();
    };
  };

  /** The view. It is replaced, never changed, and what did not change is the same object in the next one. */
  getSnapshot = (): View => this.#view;

  /** The first listener came. */
  protected started(): void {}

  /** The last listener left. */
  protected stopped(): void {}

  /** Replaces the view and tells, unless it shows the same. */
  protected show(view: View): void {
    if (settled(this.#view, view) === this.#view) return;
    this.replace(view);
    this.tell();
  }

  /** Replaces the view without a word. */
  protected replace(view: View): void {
    this.#view = view;
  }

  /** Calls all listeners. What one throws is reported and keeps nothing from the others. */
  protected tell(): void {
    for (const { listener } of [...this.#listeners]) {
      try {
        listener();
      } catch (error) {
        report(error);
      }
    }
  }
}

/** Tells of an error as if nobody had caught it. */
export function report(error: unknown): void {
  (globalThis.reportError ?? console.error)(error);
}

/** The value before, if the new one shows the same. */
export function settled<T extends object>(before: T, next: T): T {
  const keys = Object.keys(next) as (keyof T)[];
  const isSame = keys.length === Object.keys(before).length && keys.every((key) => before[key] === next[key]);
  return isSame ? before : next;
}

/** The list before, if the new one holds the same. */
export function same<T>(before: readonly T[], next: readonly T[]): readonly T[] {
  return settled(before, next);
}
