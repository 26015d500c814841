import { Listeners } from "./listeners.ts";
import type { Store } from "./store.ts";
import type { Tabs } from "./tabs.ts";

/** What is typed and not sent, a session. It outlives the page, and other tabs see it. */
export class Drafts {
  readonly #store: Store;
  readonly #tabs: Tabs;
  readonly #listeners = new Listeners();
  readonly #texts = new Map<string, string>();
  readonly #stop: () => void;

  constructor(store: Store, tabs: Tabs) {
    this.#store = store;
    this.#tabs = tabs;
    this.#stop = tabs.onMessage((message) => {
      if (message.type !== "draft") return;
      this.#texts.set(message.session, message.text);
      this.#listeners.call();
    });
  }

  /** Calls back after each change of any draft, until the returned function is called. */
  subscribe = (listener: () => void): (() => void) => this.#listeners.add(listener);

  /** The draft of a session, or "". */
  get(session: string): string {
    const known = this.#texts.get(session);
    if (known !== undefined) return known;
    const kept = this.#store.get(`draft:${session}`) ?? "";
    this.#texts.set(session, kept);
    return kept;
  }

  /** Replaces the draft of a session; "" removes it. */
  set(session: string, text: string): void {
    if (this.get(session) === text) return;
    this.#texts.set(session, text);
    this.#store.set(`draft:${session}`, text);
    this.#tabs.tell({ type: "draft", session, text });
    this.#listeners.call();
  }

  close(): void {
    this.#stop();
  }
}
