import type { Store } from "./store.ts";
import { Subscribable } from "./subscribable.ts";
import type { Tabs } from "./tabs.ts";

/** A text for each session that outlives the page, and that other tabs see. */
export class Kept extends Subscribable<ReadonlyMap<string, string>> {
  readonly #name: string;
  readonly #store: Store;
  readonly #tabs: Tabs;
  /** Ends hearing the other tabs. */
  readonly close: () => void;

  /** `name` keeps it apart from what else is kept. */
  constructor(name: string, store: Store, tabs: Tabs) {
    const prefix = `${name}:`;
    super(new Map(store.keys(prefix).map((key) => [key.slice(prefix.length), store.get(key) ?? ""])));
    this.#name = name;
    this.#store = store;
    this.#tabs = tabs;
    this.close = tabs.onMessage((m) => {
      if (m.type === "kept" && m.name === name) this.#change(m.session, m.text);
    });
  }

  /** The text of a session, or "". */
  get(session: string): string {
    return this.getSnapshot().get(session) ?? "";
  }

  /** Replaces the text of a session; "" removes it. */
  set(session: string, text: string): void {
    if (this.get(session) === text) return;
    this.#store.set(`${this.#name}:${session}`, text);
    this.#tabs.tell({ type: "kept", name: this.#name, session, text });
    this.#change(session, text);
  }

  #change(session: string, text: string): void {
    const texts = new Map(this.getSnapshot());
    if (text) texts.set(session, text);
    else texts.delete(session);
    this.replace(texts);
    this.tell();
  }
}
