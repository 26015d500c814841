import type { Channel, Environment } from "./environment.ts";

/** What tabs of one origin tell each other. Each is a hint: who misses it is late, not wrong. */
export type TabMessage =
  /** A submission changed; with `seq` it was accepted. */
  | { readonly type: "outbox"; readonly id: string; readonly seq?: number }
  /** What is kept of a session changed. */
  | { readonly type: "kept"; readonly name: string; readonly session: string; readonly text: string }
  /** Is that tab there? */
  | { readonly type: "who"; readonly tab: string }
  | { readonly type: "here"; readonly tab: string };

/** How long a tab has to say that it is there, in milliseconds. */
const patience = 500;

/** The other tabs of this origin, if the browser lets us speak to them. */
export class Tabs {
  /** This tab. A reload is another one. */
  readonly id: string;
  readonly #env: Environment;
  readonly #channel: Channel | undefined;
  readonly #ears = new Set<(message: TabMessage) => void>();

  constructor(name: string, env: Environment) {
    this.#env = env;
    this.id = env.id("tab_");
    this.#channel = env.channel?.(name);
    if (this.#channel) this.#channel.onmessage = (event) => this.#hear(event.data as TabMessage);
  }

  /** Tells the others. */
  tell(message: TabMessage): void {
    this.#channel?.postMessage(message);
  }

  /** Hears the others, until the returned function is called. */
  onMessage(hear: (message: TabMessage) => void): () => void {
    this.#ears.add(hear);
    return () => this.#ears.delete(hear);
  }

  /** Whether a tab is there. It takes half a second. One that cannot be asked is not there. */
  async isThere(tab: string): Promise<boolean> {
    let isThere = tab === this.id;
    const stop = this.onMessage((message) => {
      isThere ||= message.type === "here" && message.tab === tab;
    });
    this.tell({ type: "who", tab });
    await new Promise<void>((resolve) => this.#env.after(patience, resolve));
    stop();
    return isThere;
  }

  close(): void {
    this.#ears.clear();
    this.#channel?.close();
  }

  #hear(message: TabMessage): void {
    if (message.type === "who") {
      if (message.tab === this.id) this.tell({ type: "here", tab: this.id });
      return;
    }
    for (const hear of [...this.#ears]) hear(message);
  }
}
