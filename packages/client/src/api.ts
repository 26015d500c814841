/**
 * The HTTP API: commands and reads, one method a route. A refusal is a
 * `Problem`; a request without an answer is `Unanswered`.
 *
 * @module
 */

import type { Environment } from "./environment.ts";
import { readJson, send } from "./http.ts";
import { stringifyJson } from "./json.ts";
import type {
  Accepted,
  Agent,
  Approval,
  Decision,
  EventPage,
  InboxItem,
  Json,
  MessagePage,
  Outcome,
  OutgoingPart,
  Page,
  Run,
  SessionRow,
  Snapshot,
  Submission,
} from "./wire.ts";

/** What every request takes. */
export type RequestOptions = {
  /** Gives up. The promise is rejected with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
};

/** How a list is asked. `limit` is 1 to 200, by default 50; `cursor` is the `next` of the page before. */
export type PageOptions = RequestOptions & {
  readonly limit?: number | undefined;
  readonly cursor?: string | undefined;
};

type Query = Readonly<Record<string, string | number | undefined>>;

/** How long a request may take, in milliseconds, before it counts as unanswered. */
const patience = 30_000;

/** The server's HTTP API. It keeps nothing, and tries each request once. */
export class Api {
  readonly #base: string;
  readonly #env: Environment;

  /** `baseUrl` is where `/v1` is found: `""` for the page's own origin. */
  constructor(baseUrl: string, env: Environment) {
    this.#base = baseUrl.replace(/\/+$/, "");
    this.#env = env;
  }

  /** Begins a session without a message. Repeating is safe. */
  createSession(
    body: { id?: string; title?: string; agent?: string; metadata?: Json },
    options?: RequestOptions,
  ): Promise<{ session: SessionRow; seq: number }> {
    return this.#ask("POST", "/v1/sessions", { body, ...options });
  }

  /** Lists sessions without `metadata`, the last changed first. `search` is part of a title. */
  sessions(options: PageOptions & { search?: string } = {}): Promise<Page<SessionRow>> {
    const { search, limit, cursor, signal } = options;
    return this.#ask("GET", "/v1/sessions", {
      query: { search: search || undefined, limit, cursor },
      signal,
    });
  }

  /** What is true at a seq, with the last `window` messages (1 to 200, by default 50). */
  snapshot(session: string, options: RequestOptions & { window?: number } = {}): Promise<Snapshot> {
    const { window, signal } = options;
    return this.#ask("GET", path`/v1/sessions/${session}`, { query: { window }, signal });
  }

  /** Changes what is given. `head` chooses the branch that leads through a message. */
  updateSession(
    session: string,
    body: { title?: string; metadata?: Json; head?: string },
    options?: RequestOptions,
  ): Promise<{ session: SessionRow; seq: number }> {
    return this.#ask("PATCH", path`/v1/sessions/${session}`, { body, ...options });
  }

  /** Deletes a session for ever. A second time is a `not_found`. */
  deleteSession(session: string, options?: RequestOptions): Promise<void> {
    return this.#ask("DELETE", path`/v1/sessions/${session}`, { ...options });
  }

  /** The messages before one on its own branch, oldest first. */
  messages(
    session: string,
    options: RequestOptions & { before?: string; limit?: number } = {},
  ): Promise<MessagePage> {
    const { before, limit, signal } = options;
    return this.#ask("GET", path`/v1/sessions/${session}/messages`, { query: { before, limit }, signal });
  }

  /** Says something. The same submission again gives the same answer. */
  send(session: string, body: Submission, options?: RequestOptions): Promise<Accepted> {
    return this.#ask("POST", path`/v1/sessions/${session}/messages`, { body, ...options });
  }

  /** A page of the log after a cursor. */
  events(
    session: string,
    options: RequestOptions & { after?: number; limit?: number } = {},
  ): Promise<EventPage> {
    const { after, limit, signal } = options;
    return this.#ask("GET", path`/v1/sessions/${session}/events`, { query: { after, limit }, signal });
  }

  /** Replaces what a waiting message says. */
  editInbox(
    session: string,
    message: string,
    parts: readonly OutgoingPart[],
    options?: RequestOptions,
  ): Promise<{ inbox: InboxItem; seq: number }> {
    return this.#ask("PATCH", path`/v1/sessions/${session}/inbox/${message}`, {
      body: { parts },
      ...options,
    });
  }

  /** Takes a waiting message back, and cancels the run that would have answered it. */
  removeInbox(session: string, message: string, options?: RequestOptions): Promise<void> {
    return this.#ask("DELETE", path`/v1/sessions/${session}/inbox/${message}`, { ...options });
  }

  /** Where the bytes of a large value are. */
  blobUrl(session: string, hash: string): string {
    return this.#base + path`/v1/sessions/${session}/blobs/${hash}`;
  }

  /** The bytes of a large value. */
  blob(session: string, hash: string, options?: RequestOptions): Promise<Blob> {
    return this.#send("GET", path`/v1/sessions/${session}/blobs/${hash}`, { ...options }, (r) => r.blob());
  }

  /** Lists runs without their steps, the last queued first. */
  runs(
    options: PageOptions & { session?: string; status?: readonly Run["status"][]; reason?: string } = {},
  ): Promise<Page<Run>> {
    const { session, status, reason, limit, cursor, signal } = options;
    const query = { session, status: status?.join(",") || undefined, reason, limit, cursor };
    return this.#ask("GET", "/v1/runs", { query, signal });
  }

  /** One run with its steps. */
  run(run: string, options?: RequestOptions): Promise<Run> {
    return this.#ask("GET", path`/v1/runs/${run}`, { ...options });
  }

  /** Cancels this run and no other. It is terminal by its `cancelDeadline`. */
  cancelRun(
    run: string,
    body: { reason?: string } = {},
    options?: RequestOptions,
  ): Promise<{ run: Run; seq: number }> {
    return this.#ask("POST", path`/v1/runs/${run}/cancel`, { body, ...options });
  }

  /** Runs the input of a run that has ended again. With an `id`, repeating is safe. */
  retryRun(
    run: string,
    body: { id?: string } = {},
    options?: RequestOptions,
  ): Promise<{ run: Run; seq: number }> {
    return this.#ask("POST", path`/v1/runs/${run}/retry`, { body, ...options });
  }

  /** Says what a call did whose outcome nobody knows. */
  resolveTool(
    run: string,
    call: string,
    body: { outcome: Outcome; result?: Json; note?: string },
    options?: RequestOptions,
  ): Promise<{ run: Run; seq: number }> {
    return this.#ask("POST", path`/v1/runs/${run}/tools/${call}`, { body, ...options });
  }

  /** Lists approvals over all sessions, the last requested first. */
  approvals(
    options: PageOptions & { status?: Approval["status"]; session?: string; run?: string } = {},
  ): Promise<Page<Approval>> {
    const { status, session, run, limit, cursor, signal } = options;
    return this.#ask("GET", "/v1/approvals", { query: { status, session, run, limit, cursor }, signal });
  }

  /** One approval, decided or not. */
  approval(approval: string, options?: RequestOptions): Promise<Approval> {
    return this.#ask("GET", path`/v1/approvals/${approval}`, { ...options });
  }

  /** Decides. The first decision wins; the same again is fine. */
  decide(
    approval: string,
    body: { decision: Decision; note?: string; arguments?: Json },
    options?: RequestOptions,
  ): Promise<{ approval: Approval; seq: number }> {
    return this.#ask("POST", path`/v1/approvals/${approval}`, { body, ...options });
  }

  /** What can be asked. */
  agents(options?: RequestOptions): Promise<{ items: readonly Agent[]; default: string }> {
    return this.#ask("GET", "/v1/agents", { ...options });
  }

  #ask<T>(method: string, route: string, ask: Ask): Promise<T> {
    return this.#send(method, route, ask, readJson<T>);
  }

  #send<T>(method: string, route: string, ask: Ask, read: (response: Response) => Promise<T>): Promise<T> {
    const { query, body, signal } = ask;
    const text = body && stringifyJson(body);
    return send(
      this.#env,
      this.#base + route + queryOf(query),
      { method, body: text, signal, patience },
      read,
    );
  }
}

type Ask = RequestOptions & { readonly query?: Query; readonly body?: object };

function path(strings: TemplateStringsArray, ...ids: readonly string[]): string {
  return String.raw({ raw: strings }, ...ids.map(encodeURIComponent));
}

function queryOf(query: Query | undefined): string {
  const given = Object.entries(query ?? {}).flatMap(([k, v]) => (v === undefined ? [] : [[k, String(v)]]));
  return given.length > 0 ? `?${new URLSearchParams(given)}` : "";
}
