import type { Store } from "./store.ts";
import type { Tabs } from "./tabs.ts";

/**
 * How far each session has been read in this browser. A session that is seen
 * for the first time counts as read: what was before is no news.
 */
export class ReadMarks {
  readonly #store: Store;
  readonly #tabs: Tabs;
  readonly #marks: Map<string, number>;
  readonly #stop: () => void;

  constructor(store: Store, tabs: Tabs, changed: () => void) {
    this.#store = store;
    this.#tabs = tabs;
    this.#marks = new Map(Object.entries(parse(store.get("read"))));
    this.#stop = tabs.onMessage((message) => {
      if (message.type !== "read") return;
      this.#marks.set(message.session, Math.max(message.seq, this.#marks.get(message.session) ?? 0));
      changed();
    });
  }

  /** The last seq that was read; undefined if the session was never seen. */
  of(session: string): number | undefined {
    return this.#marks.get(session);
  }

  /** Whether that was news. */
  mark(session: string, seq: number): boolean {
    if (seq <= (this.#marks.get(session) ?? -1)) return false;
    this.#marks.set(session, seq);
    this.#keep();
    this.#tabs.tell({ type: "read", session, seq });
    return true;
  }

  forget(session: string): void {
    if (this.#marks.delete(session)) this.#keep();
  }

  close(): void {
    this.#stop();
  }

  /** Other tabs keep theirs in the same place: the furthest counts. */
  #keep(): void {
    this.#store.set("read", JSON.stringify(Object.fromEntries(this.#marks)));
  }
}

function parse(text: string | undefined): Record<string, number> {
  try {
    return JSON.parse(text ?? "{}") as Record<string, number>;
  } catch {
    return {};
  }
}
