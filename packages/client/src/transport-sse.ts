import type { Environment } from "./environment.ts";
import { rangeOf } from "./fold.ts";
import { readJson, send } from "./http.ts";
import { parseJson } from "./json.ts";
import { Problem, Unanswered } from "./problem.ts";
import { SseReader } from "./sse.ts";
import { type ReasonCode, reasonOf, type Transport, type TransportEvents } from "./transport.ts";
import type { EventPage, Frame } from "./wire.ts";

/**
 * Streams at once. A browser gives all tabs of an origin together six HTTP/1.1
 * connections: what is over this, and what nobody looks at, is asked for in pages.
 */
const streamsMost = 2;
/** Between two pages of a log, and between two looks at the list, in milliseconds. */
const pageEvery = { visible: 3_000, hidden: 15_000 };
/** A stream that was silent for so long has missed a heartbeat. */
const heartbeat = 20_000;
/** Silence after which a stream is taken for dead. */
const silence = 45_000;
/** How long an answer may take to begin. */
const patience = 15_000;

/** A log frame, or one of those that are no part of the log. */
type StreamFrame = Frame | { readonly type: "reset" | "deleted"; readonly session: string };

/** Plain HTTP: a stream of server-sent events for each session that is looked at. */
export class SseTransport implements Transport {
  readonly kind = "sse";
  readonly #env: Environment;
  readonly #base: string;
  readonly #tell: TransportEvents;
  readonly #followed = new Map<string, AbortController>();
  readonly #life = new AbortController();
  /** Stops what is under way, to be gone about in another way. */
  #turn = new AbortController();
  #heardAt: number;
  #stopList: (() => void) | undefined;
  readonly #stopSignals: () => void;

  constructor(baseUrl: string, env: Environment, tell: TransportEvents) {
    this.#env = env;
    this.#base = baseUrl.replace(/\/+$/, "");
    this.#tell = tell;
    this.#heardAt = env.now();
    this.#stopSignals = env.onSignal((signal) => {
      if (signal === "visible" || signal === "hidden") this.#turnOver();
    });
    void this.#open();
  }

  follow(session: string, after: number): void {
    this.#followed.get(session)?.abort();
    const stop = new AbortController();
    this.#followed.set(session, stop);
    void this.#run(session, after, stop.signal);
  }

  unfollow(session: string): void {
    this.#followed.get(session)?.abort();
    if (this.#followed.delete(session)) this.#turnOver();
  }

  followList(): void {
    this.#stopList?.();
    this.#tell.listed();
    this.#stopList = this.#env.after(this.#pause(), () => this.followList());
  }

  unfollowList(): void {
    this.#stopList?.();
  }

  /** A request shows whether the server is there. Streams that should have spoken are begun anew. */
  probe(): void {
    if (this.#env.now() - this.#heardAt > heartbeat) this.#turnOver();
    void this.#ready().catch(() => {});
  }

  close(): void {
    this.#life.abort();
    this.#turn.abort();
    for (const stop of this.#followed.values()) stop.abort();
    this.#stopSignals();
    this.#stopList?.();
  }

  async #open(): Promise<void> {
    try {
      await this.#ready();
      if (!this.#over) this.#tell.opened();
    } catch (error) {
      this.#failed(error, "unreachable");
    }
  }

  async #ready(): Promise<void> {
    const ask = { patience, signal: this.#life.signal };
    await send(this.#env, `${this.#base}/readyz`, ask, (response) => response.text());
    if (!this.#over) this.#tell.heard();
  }

  get #over(): boolean {
    return this.#life.signal.aborted;
  }

  #heard(): void {
    this.#heardAt = this.#env.now();
    this.#tell.heard();
  }

  #pause(): number {
    return this.#env.visible() ? pageEvery.visible : pageEvery.hidden;
  }

  #turnOver(): void {
    this.#turn.abort();
    this.#turn = new AbortController();
  }

  /** Follows one log until it is told to stop, in whatever way is right at the moment. */
  async #run(session: string, after: number, signal: AbortSignal): Promise<void> {
    const log = new Log(session, after, this.#tell);
    while (!signal.aborted && !this.#over) {
      const turn = this.#turn.signal;
      const rank = [...this.#followed.keys()].indexOf(session);
      const streams = this.#env.visible() && rank < streamsMost;
      const both = AbortSignal.any([signal, turn]);
      try {
        if (streams) await this.#stream(log, both);
        else await this.#page(log, both);
      } catch (error) {
        if (signal.aborted || this.#over) return;
        if (turn.aborted) continue;
        if (error instanceof Problem && (error.status === 404 || error.status === 400)) {
          this.#tell.refused(session, error.code);
          return;
        }
        return this.#failed(error, "lost");
      }
      if (log.deleted || signal.aborted) return;
    }
  }

  async #stream(log: Log, signal: AbortSignal): Promise<void> {
    let retry = 0;
    let goodbye = false;
    const reader = new SseReader({
      event: (data) => log.take(parseJson(data) as StreamFrame),
      comment: (text) => {
        goodbye ||= text === "goodbye";
      },
      retry: (ms) => {
        retry = ms;
      },
    });
    const ask = { accept: "text/event-stream", patience, signal };
    await send(this.#env, this.#base + log.path(), ask, async (response, alive) => {
      log.begin();
      const chunks = (response.body as ReadableStream<Uint8Array>).getReader();
      const decoder = new TextDecoder();
      for (;;) {
        alive(silence);
        const { done, value } = await chunks.read();
        if (done || signal.aborted) break;
        this.#heard();
        reader.push(decoder.decode(value, { stream: true }));
        log.flush();
      }
    });
    if (log.deleted || signal.aborted) return;
    throw goodbye ? new Ended(retry) : new Unanswered("the stream has ended");
  }

  async #page(log: Log, signal: AbortSignal): Promise<void> {
    const page = await send(this.#env, this.#base + log.path(), { patience, signal }, readJson<EventPage>);
    if (signal.aborted) return;
    this.#heard();
    log.begin(page.head);
    if (page.reset) log.take({ type: "reset", session: page.session });
    for (const frame of page.frames) log.take(frame);
    log.flush();
    if (!page.more) await this.#sleep(this.#pause(), signal);
  }

  #sleep(ms: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const wake = () => {
        stop();
        resolve();
      };
      const stop = this.#env.after(ms, wake);
      signal.addEventListener("abort", wake, { once: true });
    });
  }

  #failed(error: unknown, otherwise: ReasonCode): void {
    if (this.#over) return;
    this.close();
    if (error instanceof Ended) this.#tell.ended("goodbye", error.retryAfterMs);
    else if (error instanceof Problem) this.#tell.ended(reasonOf(error), error.retryAfterMs);
    else this.#tell.ended(error instanceof Unanswered && error.silent ? "silent" : otherwise, 0);
  }
}

/** The server has said goodbye. */
class Ended extends Error {
  readonly retryAfterMs: number;

  constructor(retryAfterMs: number) {
    super();
    this.retryAfterMs = retryAfterMs;
  }
}

/** One log as it comes in, in pieces. */
class Log {
  deleted = false;
  readonly #session: string;
  readonly #tell: TransportEvents;
  #cursor: number;
  #begun = false;
  #frames: Frame[] = [];

  constructor(session: string, after: number, tell: TransportEvents) {
    this.#session = session;
    this.#cursor = after;
    this.#tell = tell;
  }

  path(): string {
    return `/v1/sessions/${encodeURIComponent(this.#session)}/events?after=${this.#cursor}`;
  }

  /** The log is there. A stream does not say how far it goes. */
  begin(head = this.#cursor): void {
    if (!this.#begun) this.#tell.following(this.#session, head);
    this.#begun = true;
  }

  take(frame: StreamFrame): void {
    if (frame.type === "reset") {
      this.flush();
      this.#cursor = 0;
      this.#tell.reset(this.#session);
    } else if (frame.type === "deleted") {
      this.flush();
      this.deleted = true;
      this.#tell.deleted(this.#session);
    } else {
      this.#frames.push(frame as Frame);
    }
  }

  /** Tells of the frames that came. */
  flush(): void {
    const frames = this.#frames;
    const [first, last] = [frames[0], frames.at(-1)];
    if (!first || !last) return;
    this.#frames = [];
    const to = rangeOf(last).to;
    this.#cursor = to;
    this.#tell.frames(this.#session, rangeOf(first).from, to, frames);
  }
}
