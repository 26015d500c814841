import type { Environment } from "./environment.ts";
import { rangeOf } from "./fold.ts";
import { readJson, send } from "./http.ts";
import { parseJson } from "./json.ts";
import { Problem, Unanswered } from "./problem.ts";
import { never, sleep } from "./retry.ts";
import { readSse } from "./sse.ts";
import { type ReasonCode, reasonOf, type Transport, type TransportEvents } from "./transport.ts";
import type { EventPage, Frame } from "./wire.ts";

/**
 * Streams at once. A browser gives all tabs of an origin together six HTTP/1.1
 * connections: what is over this, and what nobody looks at, is asked for in pages.
 */
const streamsMost = 2;
/** Between two pages of a log, and between two looks at the list, in milliseconds. */
const pageEvery = { visible: 3_000, hidden: 15_000 };
/** Silence after which a stream is taken for dead. */
const silence = 45_000;
/**
 * How long an answer may take to begin. A browser keeps connections for later: after a
 * sleep they are dead and do not say so, and each costs a request this long.
 */
const patience = 6_000;

/** A log frame, or one of those that are no part of the log. */
type StreamFrame = Frame | { readonly type: "reset" | "deleted"; readonly session: string };

/** A log that is followed, as far as it has come. */
type Log = { readonly session: string; cursor: number; readonly stop: AbortController };

/** Plain HTTP: a stream of server-sent events for each session that is looked at. */
export class SseTransport implements Transport {
  readonly kind = "sse";
  readonly #env: Environment;
  readonly #base: string;
  readonly #tell: TransportEvents;
  readonly #logs = new Map<string, Log>();
  readonly #life = new AbortController();
  #stopList = () => {};
  readonly #stopSignals: () => void;

  constructor(baseUrl: string, env: Environment, tell: TransportEvents) {
    this.#env = env;
    this.#base = baseUrl.replace(/\/+$/, "");
    this.#tell = tell;
    this.#stopSignals = env.onSignal((signal) => {
      if (signal === "visible" || signal === "hidden") this.#again();
    });
    this.#ready().then(
      () => tell.opened(),
      (error: unknown) => this.#failed(error, "unreachable"),
    );
  }

  follow(session: string, after: number): void {
    this.#logs.get(session)?.stop.abort();
    const log = { session, cursor: after, stop: new AbortController() };
    this.#logs.set(session, log);
    void this.#run(log);
  }

  unfollow(session: string): void {
    this.#logs.get(session)?.stop.abort();
    if (this.#logs.delete(session)) this.#again();
  }

  followList(): void {
    this.#stopList();
    this.#tell.listed();
    this.#stopList = this.#env.after(this.#pause(), () => this.followList());
  }

  unfollowList(): void {
    this.#stopList();
  }

  /** A request shows whether the server is there. The streams may be dead all the same: they are begun anew. */
  probe(): void {
    this.#again();
    this.#ready().catch(() => {});
  }

  close(): void {
    this.#life.abort();
    for (const { stop } of this.#logs.values()) stop.abort();
    this.#stopSignals();
    this.#stopList();
  }

  async #ready(): Promise<void> {
    const ask = { patience, signal: this.#life.signal };
    await send(this.#env, `${this.#base}/readyz`, ask, (response) => response.text());
    this.#tell.heard();
  }

  #pause(): number {
    return this.#env.visible() ? pageEvery.visible : pageEvery.hidden;
  }

  /** Goes on with every log, in the way that is right by now. */
  #again(): void {
    for (const { session, cursor } of [...this.#logs.values()]) this.follow(session, cursor);
  }

  async #run(log: Log): Promise<void> {
    const { signal } = log.stop;
    const streams = this.#env.visible() && [...this.#logs.keys()].indexOf(log.session) < streamsMost;
    try {
      while (!signal.aborted) await (streams ? this.#stream(log, signal) : this.#page(log, signal));
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && (error.status === 404 || error.status === 400)) {
        this.#tell.refused(log.session, error.code);
      } else {
        this.#failed(error, "lost");
      }
    }
  }

  async #stream(log: Log, signal: AbortSignal): Promise<void> {
    let frames: StreamFrame[] = [];
    let retryAfterMs = 0;
    let goodbye = false;
    const read = readSse({
      event: (data) => frames.push(parseJson(data) as StreamFrame),
      comment: (text) => {
        goodbye ||= text === "goodbye";
      },
      retry: (ms) => {
        retryAfterMs = ms;
      },
    });
    const ask = { accept: "text/event-stream", patience, signal };
    await send(this.#env, this.#url(log), ask, async (response, alive) => {
      this.#tell.following(log.session, log.cursor); // a stream does not say how far it goes
      const chunks = (response.body as ReadableStream<Uint8Array>).getReader();
      const decoder = new TextDecoder();
      for (;;) {
        alive(silence);
        const { done, value } = await chunks.read();
        if (done || signal.aborted) return;
        this.#tell.heard();
        read(decoder.decode(value, { stream: true }));
        this.#take(log, frames);
        frames = [];
      }
    });
    throw goodbye
      ? new Problem(503, { code: "goodbye", retryAfterMs })
      : new Unanswered("the stream has ended");
  }

  async #page(log: Log, signal: AbortSignal): Promise<void> {
    const page = await send(this.#env, this.#url(log), { patience, signal }, readJson<EventPage>);
    if (signal.aborted) return;
    this.#tell.heard();
    this.#tell.following(log.session, page.head);
    const { session, reset, frames, more } = page;
    this.#take(log, reset ? [{ type: "reset", session }] : frames);
    if (!more) await sleep(this.#pause(), this.#env, never, signal);
  }

  #url({ session, cursor }: Log): string {
    return `${this.#base}/v1/sessions/${encodeURIComponent(session)}/events?after=${cursor}`;
  }

  #take(log: Log, frames: readonly StreamFrame[]): void {
    let piece: Frame[] = [];
    const tell = () => {
      const last = piece.at(-1);
      if (!last || log.stop.signal.aborted) return;
      log.cursor = rangeOf(last).to;
      this.#tell.frames(log.session, log.cursor, piece);
      piece = [];
    };
    for (const frame of frames) {
      if (frame.type === "reset") {
        tell();
        log.cursor = 0;
        this.#tell.reset(log.session);
      } else if (frame.type === "deleted") {
        tell();
        log.stop.abort();
        this.#tell.deleted(log.session);
      } else {
        piece.push(frame as Frame);
      }
    }
    tell();
  }

  #failed(error: unknown, otherwise: ReasonCode): void {
    if (this.#life.signal.aborted) return;
    this.close();
    if (error instanceof Problem) this.#tell.ended(reasonOf(error), error.retryAfterMs);
    else this.#tell.ended(otherwise, 0);
  }
}
