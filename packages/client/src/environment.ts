/**
 * What the world gives to a client, in one argument, so that a test can be the
 * world.
 *
 * @module
 */

/** A change of the page or of its network after which things may have to be looked at again. */
export type Signal = "online" | "offline" | "visible" | "hidden" | "shown";

/** The part of `localStorage` that is used. Every method may throw. */
export type KeyValues = Pick<Storage, "getItem" | "setItem" | "removeItem" | "key" | "length">;

/** The part of `BroadcastChannel` that is used. */
export type Channel = {
  postMessage(message: unknown): void;
  onmessage: ((event: MessageEvent) => void) | null;
  close(): void;
};

/** The part of `WebSocket` that is used. */
export type Socket = {
  send(text: string): void;
  close(code?: number): void;
  onopen: ((event: never) => void) | null;
  onmessage: ((event: never) => void) | null;
  onerror: ((event: never) => void) | null;
  onclose: ((event: never) => void) | null;
};

/** The world of a client. All of it has a default: see {@link browser}. */
export type Environment = {
  readonly fetch: (url: string, init?: RequestInit) => Promise<Response>;
  /** Absent where there is none: then events come by HTTP. */
  readonly WebSocket: (new (url: string) => Socket) | undefined;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  /** A number from 0 up to 1. */
  readonly random: () => number;
  /** Runs something after some milliseconds, unless the returned function is called first. */
  readonly after: (ms: number, run: () => void) => () => void;
  /** Runs something before the next paint; a page that does not paint runs it a little later. */
  readonly frame: (run: () => void) => () => void;
  /** A new id: a prefix and 128 random bits. */
  readonly id: (prefix: string) => string;
  /** Where things outlive the page. Absent: they do not. */
  readonly storage: KeyValues | undefined;
  /** A way to the other tabs of this origin. Absent where there is none. */
  readonly channel: ((name: string) => Channel) | undefined;
  readonly online: () => boolean;
  readonly visible: () => boolean;
  /** Tells of signals until the returned function is called. */
  readonly onSignal: (hear: (signal: Signal) => void) => () => void;
};

/** A hidden page is not painted: what waits for a frame waits this long at most, in milliseconds. */
const frameLimit = 100;

/** The environment of this page. In Node and on a server, what a browser would give is absent. */
export function browser(): Environment {
  const world = globalThis as Partial<typeof globalThis>;
  const after = (ms: number, run: () => void) => {
    const timer = setTimeout(run, ms);
    return () => clearTimeout(timer);
  };
  return {
    fetch: (url, init) => globalThis.fetch(url, init),
    WebSocket: world.WebSocket,
    now: Date.now,
    random: Math.random,
    after,
    frame(run) {
      const stop = () => {
        stopTimer();
        waits = false;
      };
      const once = () => {
        if (!waits) return;
        stop();
        run();
      };
      let waits = true;
      const stopTimer = after(frameLimit, once);
      world.requestAnimationFrame?.(once);
      return stop;
    },
    id(prefix) {
      const random = crypto.getRandomValues(new Uint32Array(4));
      return prefix + Array.from(random, (n) => n.toString(36)).join("");
    },
    storage: localStore(),
    channel: world.BroadcastChannel && world.document ? (name) => new BroadcastChannel(name) : undefined,
    online: () => world.navigator?.onLine !== false,
    visible: () => world.document?.visibilityState !== "hidden",
    onSignal: listen,
  };
}

/** `localStorage`, unless the page may not have it: then even looking at it throws. */
function localStore(): KeyValues | undefined {
  try {
    return typeof document === "undefined" ? undefined : localStorage;
  } catch {
    return undefined;
  }
}

function listen(hear: (signal: Signal) => void): () => void {
  if (typeof document === "undefined" || typeof window === "undefined") return () => {};
  const stop = new AbortController();
  const options = { signal: stop.signal };
  window.addEventListener("online", () => hear("online"), options);
  window.addEventListener("offline", () => hear("offline"), options);
  window.addEventListener("pageshow", () => hear("shown"), options);
  document.addEventListener("resume", () => hear("shown"), options);
  const turned = () => hear(document.visibilityState === "hidden" ? "hidden" : "visible");
  document.addEventListener("visibilitychange", turned, options);
  return () => stop.abort();
}
