import { vi } from "vitest";
import type { Channel, Environment, KeyValues, Signal, Socket } from "../src/environment.ts";
import { browser } from "../src/environment.ts";
import { parseJson, stringifyJson } from "../src/json.ts";
import { FakeServer } from "./server.ts";

/** What `localStorage` is, in memory. */
export class Memory implements KeyValues {
  readonly values = new Map<string, string>();
  get length(): number {
    return this.values.size;
  }
  getItem(key: string): string | null {
    return this.values.get(key) ?? null;
  }
  setItem(key: string, value: string): void {
    this.values.set(key, value);
  }
  removeItem(key: string): void {
    this.values.delete(key);
  }
  key(index: number): string | null {
    return [...this.values.keys()][index] ?? null;
  }
}

/** What `BroadcastChannel` is, among the tabs of a test. */
export class Bus {
  readonly #channels = new Set<Channel & { name: string }>();

  open = (name: string): Channel => {
    const channels = this.#channels;
    const channel = {
      name,
      onmessage: null as Channel["onmessage"],
      postMessage(message: unknown) {
        for (const other of channels) {
          if (other === channel || other.name !== name) continue;
          const data = structuredClone(message);
          queueMicrotask(() => other.onmessage?.({ data } as MessageEvent));
        }
      },
      close: () => void channels.delete(channel),
    };
    channels.add(channel);
    return channel;
  };
}

/** One socket of a page to the server of a test. */
export class FakeSocket implements Socket {
  onopen: ((event: never) => void) | null = null;
  onmessage: ((event: never) => void) | null = null;
  onerror: ((event: never) => void) | null = null;
  onclose: ((event: never) => void) | null = null;
  /** What the page sent. */
  readonly sent: Record<string, unknown>[] = [];
  readonly #page: Page;
  state: "opening" | "open" | "closed" = "opening";
  /** Whether nothing goes through any more, in either direction, and nobody was told. */
  dead = false;

  constructor(page: Page) {
    this.#page = page;
  }

  open(): void {
    if (this.state !== "opening") return;
    this.state = "open";
    this.onopen?.({} as never);
  }

  send(text: string): void {
    if (this.state !== "open") return;
    const message = JSON.parse(text) as Record<string, unknown>;
    this.sent.push(message);
    if (this.dead || this.#page.world.deaf) return;
    this.#page.world.server.hear(this, message);
  }

  /** From the server, over the link of the world. */
  deliver(message: object): void {
    if (this.dead) return;
    for (const one of this.#page.world.link(message)) {
      if (this.state === "open") this.onmessage?.({ data: stringifyJson(one) } as never);
    }
  }

  /** By the page. */
  close(): void {
    this.state = "closed";
    this.#page.world.server.left(this);
  }

  /** By the network, or by the server. */
  cut(): void {
    if (this.state === "closed") return;
    this.close();
    this.onclose?.({} as never);
  }
}

/** One page: an environment that the test controls. */
export class Page {
  readonly world: World;
  readonly sockets: FakeSocket[] = [];
  readonly env: Environment;
  visible = true;
  online = true;
  readonly #ears = new Set<(signal: Signal) => void>();

  constructor(world: World, over: Partial<Environment> = {}) {
    this.world = world;
    const page = this;
    this.env = {
      ...browser(),
      fetch: (url, init) => world.fetch(url, init),
      WebSocket: class extends FakeSocket {
        constructor() {
          super(page);
          page.sockets.push(this);
          world.connects.push(Date.now());
          queueMicrotask(() => (world.up && !world.blocked ? this.open() : this.cut()));
        }
      },
      random: () => world.random(),
      frame: (run) => {
        const timer = setTimeout(run, 16);
        return () => clearTimeout(timer);
      },
      id: (prefix) => `${prefix}p${++world.ids}`,
      storage: world.storage,
      channel: world.bus.open,
      online: () => this.online,
      visible: () => this.visible,
      onSignal: (hear) => {
        this.#ears.add(hear);
        return () => this.#ears.delete(hear);
      },
      ...over,
    };
  }

  signal(signal: Signal): void {
    if (signal === "visible" || signal === "hidden") this.visible = signal === "visible";
    if (signal === "online" || signal === "offline") this.online = signal === "online";
    for (const hear of [...this.#ears]) hear(signal);
  }

  get socket(): FakeSocket {
    const socket = this.sockets.at(-1);
    if (!socket) throw new Error("the page has opened no socket");
    return socket;
  }
}

/** A server, a network, and the time. The test has to use fake timers. */
export class World {
  readonly server = new FakeServer();
  readonly storage = new Memory();
  readonly bus = new Bus();
  readonly requests: { method: string; path: string; body: unknown; at: number }[] = [];
  /** When WebSockets were tried. */
  readonly connects: number[] = [];
  ids = 0;
  /** Whether the server is there. */
  up = true;
  /** Whether something on the way lets no WebSocket through. */
  blocked = false;
  /** Whether what pages send over their sockets is lost. */
  deaf = false;
  random = (): number => 0.5;
  /** What becomes of a message on its way to a page. */
  link: (message: object) => object[] = (message) => [message];
  /** Answers in the server's place, or throws in the network's, or leaves it: undefined. */
  intercept: (method: string, path: string, init?: RequestInit) => Promise<Response> | undefined = () =>
    undefined;

  page(over: Partial<Environment> = {}): Page {
    return new Page(this, over);
  }

  fetch = async (url: string, init?: RequestInit): Promise<Response> => {
    const method = init?.method ?? "GET";
    const path = url.replace(/^https?:\/\/[^/]+/, "");
    const body = init?.body ? parseJson(String(init.body)) : undefined;
    this.requests.push({ method, path, body, at: Date.now() });
    const aborted = new Promise<never>((_, reject) => {
      const stop = () => reject(new DOMException("aborted", "AbortError"));
      if (init?.signal?.aborted) stop();
      init?.signal?.addEventListener("abort", stop);
    });
    const answer = async () => {
      await Promise.resolve();
      init?.signal?.throwIfAborted(); // what was given up does not reach the server
      const other = this.intercept(method, path, init);
      if (other) return other;
      if (!this.up) throw new TypeError("Failed to fetch");
      return this.server.answer(method, path, body, init);
    };
    return Promise.race([answer(), aborted]);
  };

  /** Lets time go by. */
  pass = (ms: number): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);

  asked(method: string, part: string): number {
    return this.requests.filter((r) => r.method === method && r.path.includes(part)).length;
  }
}
