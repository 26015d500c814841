import { foldAll, isDelta, rangeOf } from "../src/fold.ts";
import { stringifyJson } from "../src/json.ts";
import { empty, isTerminal, type State } from "../src/state.ts";
import type { Frame, Message, SessionRow, Snapshot } from "../src/wire.ts";
import { json, problem } from "./answers.ts";
import { Script } from "./script.ts";

/** The end of a socket that a server has. */
type Peer = { deliver(message: object): void };

type Follow = { readonly socket: Peer; readonly session: string; sent: number; at: number };

/** The part of a session that a server shows in a window. */
export function windowed(shown: Snapshot, window: number): Snapshot {
  const messages = shown.messages.slice(-window);
  const named = new Set(messages.map((m) => m.run));
  return {
    ...shown,
    messages,
    hasMore: messages.length < shown.messages.length,
    runs: shown.runs.filter((run) => !isTerminal(run) || named.has(run.id)),
  };
}

/** A server in memory: logs that the test writes, and what PROTOCOL.md says of them. */
export class FakeServer {
  readonly #logs = new Map<string, Frame[]>();
  readonly #states = new Map<string, State>();
  readonly #follows = new Set<Follow>();
  readonly #lists = new Set<Peer>();
  readonly #scripts = new Map<string, Script>();
  /** Whether what is appended is also sent: false lets it be sent later, by `flush`. */
  live = true;
  /** Frames of one message. */
  batch = 1;

  /** Writes to a log, and sends it to those who follow. */
  append(session: string, frames: readonly Frame[]): void {
    const log = this.#logs.get(session) ?? [];
    this.#logs.set(session, log);
    log.push(...frames);
    this.#states.set(session, foldAll(this.state(session), frames));
    if (!this.live) return;
    this.flush();
    if (frames.some((frame) => !isDelta(frame))) this.tellList(session);
  }

  /** The writer of a log that obeys the rules. */
  script(session: string): Script {
    const known = this.#scripts.get(session);
    if (known) return known;
    const script = new Script(session, (frames) => this.append(session, frames));
    this.#scripts.set(session, script);
    return script;
  }

  state(session: string): State {
    return this.#states.get(session) ?? empty(session);
  }

  log(session: string): readonly Frame[] {
    return this.#logs.get(session) ?? [];
  }

  delete(session: string): void {
    this.#logs.delete(session);
    this.#states.delete(session);
    for (const follow of this.#follows) {
      if (follow.session !== session) continue;
      this.#follows.delete(follow);
      follow.socket.deliver({ type: "deleted", session });
    }
    for (const socket of this.#lists) socket.deliver({ type: "sessions", upsert: [], removed: [session] });
  }

  /** Puts another log in the place of a session's, as a restored backup does. */
  replace(session: string, frames: readonly Frame[]): void {
    this.#logs.set(session, [...frames]);
    this.#states.set(session, foldAll(empty(session), frames));
    for (const follow of this.#follows) {
      if (follow.session !== session || follow.sent <= this.state(session).shown.seq) continue;
      follow.sent = follow.at = 0;
      follow.socket.deliver({ type: "reset", session, head: this.state(session).shown.seq });
    }
    this.flush();
  }

  /** Sends everybody what they have not been sent, some frames a message. */
  flush(): void {
    for (const follow of [...this.#follows]) {
      const log = this.log(follow.session);
      while (follow.at < log.length) {
        const events = log
          .slice(follow.at, follow.at + this.batch)
          .flatMap((frame) => after(frame, follow.sent));
        follow.at += this.batch;
        const [first, last] = [events[0], events.at(-1)];
        if (!first || !last) continue;
        const { session } = follow;
        follow.sent = rangeOf(last).to;
        follow.socket.deliver({
          type: "events",
          session,
          from: rangeOf(first).from,
          to: follow.sent,
          events,
        });
      }
      follow.at = Math.min(follow.at, log.length);
    }
  }

  /** Lets retention drop the deltas of runs that have ended. */
  fold(session: string): void {
    const state = this.state(session);
    const ended = new Set(state.runs.filter(isTerminal).map((run) => run.id));
    const kept: Frame[] = [];
    for (const frame of this.log(session)) {
      const { from, to } = rangeOf(frame);
      const last = kept.at(-1);
      const goes = isDelta(frame) && "run" in frame && ended.has(frame.run ?? "");
      if (!goes && frame.type !== "folded") kept.push(frame);
      else if (last?.type === "folded" && "to" in last) kept.splice(-1, 1, { ...last, to });
      else kept.push({ type: "folded", session, from, to });
    }
    this.#logs.set(session, kept);
    for (const follow of this.#follows) if (follow.session === session) follow.at = 0;
  }

  /** Sends a message to those who follow a session, as it is. */
  deliver(session: string, message: object): void {
    for (const follow of this.#follows) if (follow.session === session) follow.socket.deliver(message);
  }

  rows(): SessionRow[] {
    return [...this.#states.values()]
      .map((state) => {
        const { metadata: _, ...row } = state.shown.session;
        return row;
      })
      .sort((a, b) => Date.parse(b.updatedAt) - Date.parse(a.updatedAt) || (a.id < b.id ? 1 : -1));
  }

  tellList(session: string): void {
    const upsert = this.rows().filter((row) => row.id === session);
    for (const socket of this.#lists) socket.deliver({ type: "sessions", upsert, removed: [] });
  }

  /** Hears a page on its socket. */
  hear(socket: Peer, message: Record<string, unknown>): void {
    const { id, type, after = 0 } = message as { id: string; type: string; after?: number };
    const session = message.session as string | undefined;
    for (const follow of this.#follows) {
      if (follow.socket === socket && follow.session === session) this.#follows.delete(follow);
    }
    if (type === "unsubscribe") {
      socket.deliver({ type: "unsubscribed", id, ...(session ? { session } : { sessions: true }) });
      return;
    }
    if (!session) {
      this.#lists.add(socket);
      socket.deliver({ type: "subscribed", id, sessions: true });
      return;
    }
    if (!this.#logs.has(session)) {
      socket.deliver({ type: "error", id, session, code: "not_found", detail: "there is no such session" });
      return;
    }
    const head = this.state(session).shown.seq;
    const ahead = after > head;
    socket.deliver({ type: "subscribed", id, session, after: ahead ? 0 : after, head });
    if (ahead) socket.deliver({ type: "reset", session, head });
    this.#follows.add({ socket, session, sent: ahead ? 0 : after, at: 0 });
    this.flush();
  }

  left(socket: Peer): void {
    this.#lists.delete(socket);
    for (const follow of this.#follows) if (follow.socket === socket) this.#follows.delete(follow);
  }

  /** Answers a request. */
  answer(method: string, url: string, body: unknown, init?: RequestInit): Response {
    const { pathname, searchParams: query } = new URL(url, "http://server");
    const [, , kind, id = "", sub] = pathname.split("/");
    const limit = Number(query.get("limit") ?? query.get("window") ?? 50);
    if (pathname === "/readyz") return json(200, { status: "ready" });
    if (pathname === "/v1/connect") return problem(426, "upgrade_required");
    if (kind === "approvals" && method === "GET" && !id) {
      const items = [...this.#states.values()].flatMap((state) => state.shown.approvals).reverse();
      return json(200, { items: items.slice(0, limit) });
    }
    if (kind !== "sessions") return problem(404, "not_found");
    if (!id) return this.#list(query, limit);
    if (sub === "messages" && method === "POST") return this.#submit(id, body as { id: string });
    if (!this.#logs.has(id)) return problem(404, "not_found");
    if (method === "DELETE") {
      this.delete(id);
      return json(204, undefined);
    }
    const { shown } = this.state(id);
    if (sub === "messages") return this.#page(id, query.get("before"), limit);
    if (sub === "events") return this.#events(id, Number(query.get("after") ?? 0), init);
    return json(200, windowed(shown, limit));
  }

  #list(query: URLSearchParams, limit: number): Response {
    const search = (query.get("search") ?? "").toLowerCase();
    const rows = this.rows().filter((row) => row.title.toLowerCase().includes(search));
    const start = Number(query.get("cursor") ?? 0);
    const items = rows.slice(start, start + limit);
    const next = start + limit < rows.length ? String(start + limit) : undefined;
    return json(200, { items, next });
  }

  #page(session: string, before: string | null, limit: number): Response {
    const { shown, aside } = this.state(session);
    const known = new Map([...aside, ...shown.messages.map((m) => [m.id, m] as const)]);
    const messages: Message[] = [];
    let at = known.get(known.get(before ?? "")?.parent ?? "");
    for (; at && messages.length < limit; at = known.get(at.parent ?? "")) messages.unshift(at);
    return json(200, { messages, hasMore: at !== undefined, seq: shown.seq });
  }

  #events(session: string, cursor: number, init?: RequestInit): Response {
    const frames = this.log(session).flatMap((frame) => after(frame, cursor));
    const head = this.state(session).shown.seq;
    if (!JSON.stringify(init?.headers).includes("event-stream")) {
      return json(200, { session, after: cursor, frames, head, more: false });
    }
    return this.#stream(session, cursor, init?.signal);
  }

  /** The streams that are open: how to end them. */
  readonly streams = new Set<(how: "cut" | "goodbye" | Error) => void>();
  /** What sends a heartbeat on each of them. */
  readonly beats = new Set<() => void>();
  /** Whether nothing comes over streams. */
  mute = false;
  /** How long a stream lives, in milliseconds, as behind a proxy that ends it. */
  life: number | undefined;

  #stream(session: string, cursor: number, signal: AbortSignal | null | undefined): Response {
    const head = this.state(session).shown.seq;
    const ahead = cursor > head;
    let out: ReadableStreamDefaultController<Uint8Array>;
    const write = (text: string) => {
      if (!this.mute) out.enqueue(new TextEncoder().encode(text));
    };
    const beat = () => write(": hb\n\n");
    const peer: Peer = {
      deliver(message) {
        const { type, events } = message as { type: string; events?: Frame[] };
        if (type !== "events") write(`data: ${stringifyJson(message)}\n\n`);
        for (const event of events ?? [])
          write(`id: ${rangeOf(event).to}\ndata: ${stringifyJson(event)}\n\n`);
      },
    };
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        out = controller;
      },
    });
    const leave = () => {
      this.streams.delete(end);
      this.beats.delete(beat);
      this.left(peer);
    };
    const end = (how: "cut" | "goodbye" | Error) => {
      leave();
      if (how instanceof Error) {
        out.error(how);
        return;
      }
      if (how === "goodbye") write("retry: 4000\n: goodbye\n\n");
      out.close();
    };
    this.streams.add(end);
    this.beats.add(beat);
    if (this.life) setTimeout(() => this.streams.has(end) && end("cut"), this.life);
    signal?.addEventListener("abort", () => {
      if (!this.streams.has(end)) return;
      leave();
      out.error(signal.reason);
    });
    write("retry: 2317\n\n");
    if (ahead) peer.deliver({ type: "reset", session, head });
    this.#follows.add({ socket: peer, session, sent: ahead ? 0 : cursor, at: 0 });
    this.flush();
    return new Response(body, { status: 200, headers: { "Content-Type": "text/event-stream" } });
  }

  /** Accepts a message once, and answers the same again with the same. */
  #submit(session: string, body: { id: string }): Response {
    // A request is strict: a field that the server does not know is refused.
    const known = ["id", "parts", "onBusy", "agent", "background", "parent"];
    const wrong = Object.keys(body).filter((field) => !known.includes(field));
    if (wrong.length > 0)
      return problem(422, "invalid", { errors: [{ field: wrong[0], message: "unknown" }] });
    const script = this.script(session);
    const again = script.submitted.get(body.id);
    if (again && JSON.stringify(again.body) !== stringifyJson(body)) return problem(409, "message_conflict");
    if (!again) script.submit(body as Parameters<Script["submit"]>[0]);
    const { seq, run } = script.submitted.get(body.id) ?? { seq: 0, run: "" };
    return json(again ? 200 : 202, { message: { id: body.id }, run: { id: run }, seq });
  }
}

/** What a frame has after a cursor: a folded range begins there. */
function after(frame: Frame, cursor: number): Frame[] {
  const { from, to } = rangeOf(frame);
  if (to <= cursor) return [];
  return [from <= cursor && "from" in frame ? { ...frame, from: cursor + 1 } : frame];
}
