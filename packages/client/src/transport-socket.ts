import type { Environment, Socket } from "./environment.ts";
import { send } from "./http.ts";
import { parseJson } from "./json.ts";
import { Problem } from "./problem.ts";
import { type ReasonCode, reasonOf, type Transport, type TransportEvents } from "./transport.ts";
import type { Frame, SessionRow } from "./wire.ts";

/** How long the upgrade may take, in milliseconds. */
const patience = 10_000;

/** What the server sends, as PROTOCOL.md §5 has it. */
type Message =
  | { type: "subscribed" | "unsubscribed"; id: string; session?: string; head?: number }
  | { type: "events"; session: string; from: number; to: number; events: readonly Frame[] }
  | { type: "sessions"; upsert: readonly SessionRow[]; removed: readonly string[] }
  | { type: "reset" | "deleted"; session: string }
  | { type: "error"; id?: string; session?: string; code: string }
  | { type: "goodbye"; retryAfterMs?: number }
  | { type: "heartbeat" };

/** The WebSocket of a page. */
export class SocketTransport implements Transport {
  readonly kind = "socket";
  readonly #env: Environment;
  readonly #url: string;
  readonly #tell: TransportEvents;
  readonly #socket: Socket;
  /** The last request for each session and, as `""`, for the list: only its answer counts, and what follows it. */
  readonly #asked = new Map<string, { readonly id: string; answered: boolean }>();
  #count = 0;
  #open = false;
  #goodbye: number | undefined;
  #stopTimer: () => void;

  constructor(baseUrl: string, env: Environment, tell: TransportEvents) {
    this.#env = env;
    this.#tell = tell;
    this.#url = `${baseUrl.replace(/\/+$/, "")}/v1/connect`;
    const url = new URL(this.#url, globalThis.location?.href);
    url.protocol = url.protocol.replace("http", "ws");
    this.#socket = new (env.WebSocket as new (url: string) => Socket)(url.href);
    this.#socket.onopen = () => this.#opened();
    this.#socket.onmessage = (event: MessageEvent) => this.#hear(event.data);
    this.#socket.onerror = () => {}; // a close follows, and Node's ws wants it heard
    this.#socket.onclose = () => void this.#closed();
    this.#stopTimer = env.after(patience, () => void this.#closed());
  }

  follow(session: string, after: number): void {
    this.#ask(session, { type: "subscribe", session, after });
  }

  unfollow(session: string): void {
    if (this.#asked.delete(session)) this.#send({ type: "unsubscribe", session });
  }

  followList(): void {
    this.#ask("", { type: "subscribe", sessions: true });
  }

  unfollowList(): void {
    if (this.#asked.delete("")) this.#send({ type: "unsubscribe", sessions: true });
  }

  /** A page cannot send a ping. To stop what was never begun is answered all the same. */
  probe(): void {
    this.#send({ type: "unsubscribe", session: "probe" });
  }

  close(): void {
    this.#open = false;
    this.#stopTimer();
    const socket = this.#socket;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  }

  #ask(key: string, request: object): void {
    this.#asked.set(key, { id: String(this.#count + 1), answered: false });
    this.#send(request);
  }

  #send(request: object): void {
    const id = String(++this.#count);
    if (this.#open) this.#socket.send(JSON.stringify({ ...request, id }));
  }

  #opened(): void {
    this.#open = true;
    this.#stopTimer();
    this.#tell.opened();
  }

  #hear(text: unknown): void {
    this.#tell.heard();
    const message = parseJson(String(text)) as Message;
    switch (message.type) {
      case "subscribed": {
        const key = message.session ?? "";
        const asked = this.#asked.get(key);
        if (asked?.id !== message.id) return;
        asked.answered = true;
        if (message.session) this.#tell.following(message.session, message.head ?? 0);
        else this.#tell.listed();
        return;
      }
      case "events":
        if (!this.#current(message.session)) return;
        this.#tell.frames(message.session, message.to, message.events);
        return;
      case "sessions":
        if (this.#current("")) this.#tell.rows(message.upsert, message.removed);
        return;
      case "reset":
        if (this.#current(message.session)) this.#tell.reset(message.session);
        return;
      case "deleted":
        if (this.#asked.delete(message.session)) this.#tell.deleted(message.session);
        return;
      case "error": {
        const key = message.session ?? "";
        const asked = this.#asked.get(key);
        // Without an id it ends a subscription that was answered.
        if (!asked || (message.id ? message.id !== asked.id : !asked.answered)) return;
        this.#asked.delete(key);
        this.#tell.refused(message.session ?? null, message.code);
        return;
      }
      case "goodbye":
        this.#goodbye = message.retryAfterMs ?? 0;
    }
  }

  #current(key: string): boolean {
    return this.#asked.get(key)?.answered === true;
  }

  async #closed(): Promise<void> {
    const wasOpen = this.#open;
    this.close();
    if (wasOpen) {
      this.#tell.ended(this.#goodbye === undefined ? "lost" : "goodbye", this.#goodbye ?? 0);
    } else {
      // A page is not told why an upgrade failed. The same route, asked plainly, says it.
      this.#tell.ended(...(await why(this.#env, this.#url)));
    }
  }
}

async function why(env: Environment, url: string): Promise<[reason: ReasonCode, retryAfterMs: number]> {
  try {
    await send(env, url, { patience }, async () => {});
  } catch (error) {
    if (!(error instanceof Problem)) return ["unreachable", 0];
    if (error.status !== 426) return [reasonOf(error), error.retryAfterMs];
  }
  return ["blocked", 0];
}
