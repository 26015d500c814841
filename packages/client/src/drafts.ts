import type { Store } from "./store.ts";
import { Subscribable } from "./subscribable.ts";
import type { Tabs } from "./tabs.ts";

/** What is typed and not sent, a session. It outlives the page, and other tabs see it. */
export class Drafts extends Subscribable<ReadonlyMap<string, string>> {
  readonly #store: Store;
  readonly #tabs: Tabs;
  readonly #stop: () => void;

  constructor(store: Store, tabs: Tabs) {
    super(new Map(store.keys("draft:").map((key) => [key.slice(6), store.get(key) ?? ""])));
    this.#store = store;
    this.#tabs = tabs;
    this.#stop = tabs.onMessage((message) => {
      if (message.type !== "draft") return;
      this.#change(message.session, message.text);
    });
  }

  /** The draft of a session, or "". */
  get(session: string): string {
    return this.getSnapshot().get(session) ?? "";
  }

  /** Replaces the draft of a session; "" removes it. */
  set(session: string, text: string): void {
    if (this.get(session) === text) return;
    this.#store.set(`draft:${session}`, text);
    this.#tabs.tell({ type: "draft", session, text });
    this.#change(session, text);
  }

  close(): void {
    this.#stop();
  }

  #change(session: string, text: string): void {
    const texts = new Map(this.getSnapshot());
    if (text) texts.set(session, text);
    else texts.delete(session);
    this.replace(texts);
    this.tell();
  }
}
