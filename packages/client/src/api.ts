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

/**
 * How long a request may take, in milliseconds, before it counts as unanswered. It may
 * have been sent on a connection that died in a sleep and did not say so: see the SSE transport.
 */
const patience = 10_000;

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
    return this.#ask("POST", "/v1/sessions", options, body);
  }

  /** Lists sessions without `metadata`, the last changed first. `search` is part of a title. */
  sessions(options?: PageOptions & { search?: string | undefined }): Promise<Page<SessionRow>> {
    return this.#ask("GET", "/v1/sessions", options);
  }

  /** What is true at a seq, with the last `window` messages (1 to 200, by default 50). */
  snapshot(session: string, options?: RequestOptions & { window?: number }): Promise<Snapshot> {
    return this.#ask("GET", path`/v1/sessions/${session}`, options);
  }

  /** Changes what is given. `head` chooses the branch that leads through a message. */
  updateSession(
    session: string,
    body: { title?: string; metadata?: Json; head?: string },
    options?: RequestOptions,
  ): Promise<{ session: SessionRow; seq: number }> {
    return this.#ask("PATCH", path`/v1/sessions/${session}`, options, body);
  }

  /** Deletes a session for ever. A second time is a `not_found`. */
  deleteSession(session: string, options?: RequestOptions): Promise<void> {
    return this.#ask("DELETE", path`/v1/sessions/${session}`, options);
  }

  /** Begins a session with a copy of the branch up to a message. With an `id`, repeating is safe. */
  fork(
    session: string,
    body: { id?: string; message: string },
    options?: RequestOptions,
  ): Promise<{ session: SessionRow; seq: number }> {
    return this.#ask("POST", path`/v1/sessions/${session}/fork`, options, body);
  }

  /** The messages before one on its own branch, or from one on, `through` which a branch leads, oldest first. `limit` is 1 to 200, by default 50. */
  messages(
    session: string,
    options?: RequestOptions & { before?: string; through?: string; limit?: number },
  ): Promise<MessagePage> {
    return this.#ask("GET", path`/v1/sessions/${session}/messages`, options);
  }

  /** Says something. The same submission again gives the same answer. */
  send(session: string, body: Submission, options?: RequestOptions): Promise<Accepted> {
    return this.#ask("POST", path`/v1/sessions/${session}/messages`, options, body);
  }

  /** A page of the log after a cursor. `limit` is 1 to 10,000, by default 1,000. */
  events(session: string, options?: RequestOptions & { after?: number; limit?: number }): Promise<EventPage> {
    return this.#ask("GET", path`/v1/sessions/${session}/events`, options);
  }

  /** Replaces what a waiting message says. */
  editInbox(
    session: string,
    message: string,
    parts: readonly OutgoingPart[],
    options?: RequestOptions,
  ): Promise<{ inbox: InboxItem; seq: number }> {
    return this.#ask("PATCH", path`/v1/sessions/${session}/inbox/${message}`, options, { parts });
  }

  /** Takes a waiting message back, and cancels the run that would have answered it. */
  removeInbox(session: string, message: string, options?: RequestOptions): Promise<void> {
    return this.#ask("DELETE", path`/v1/sessions/${session}/inbox/${message}`, options);
  }

  /** Where the bytes of a large value are. */
  blobUrl(session: string, hash: string): string {
    return this.#base + path`/v1/sessions/${session}/blobs/${hash}`;
  }

  /** The bytes of a large value. */
  blob(session: string, hash: string, options?: RequestOptions): Promise<Blob> {
    return send(this.#env, this.blobUrl(session, hash), { patience, ...options }, (response) =>
      response.blob(),
    );
  }

  /** Lists runs without their steps, the last queued first. `status` may be several, with commas. */
  runs(options?: PageOptions & { session?: string; status?: string; reason?: string }): Promise<Page<Run>> {
    return this.#ask("GET", "/v1/runs", options);
  }

  /** One run with its steps. */
  run(run: string, options?: RequestOptions): Promise<Run> {
    return this.#ask("GET", path`/v1/runs/${run}`, options);
  }

  /** Cancels this run and no other. It is terminal by its `cancelDeadline`. */
  cancelRun(
    run: string,
    body?: { reason?: string },
    options?: RequestOptions,
  ): Promise<{ run: Run; seq: number }> {
    return this.#ask("POST", path`/v1/runs/${run}/cancel`, options, body);
  }

  /** Goes on from where a run failed or was cancelled. With an `id`, repeating is safe. */
  retryRun(
    run: string,
    body?: { id?: string; fresh?: boolean },
    options?: RequestOptions,
  ): Promise<{ run: Run; seq: number }> {
    return this.#ask("POST", path`/v1/runs/${run}/retry`, options, body);
  }

  /** Says what a call did whose outcome nobody knows. */
  resolveTool(
    run: string,
    call: string,
    body: { outcome: Outcome; result?: Json; note?: string },
    options?: RequestOptions,
  ): Promise<{ run: Run; seq: number }> {
    return this.#ask("POST", path`/v1/runs/${run}/tools/${call}`, options, body);
  }

  /** Lists approvals over all sessions, the last requested first. */
  approvals(
    options?: PageOptions & { status?: Approval["status"]; session?: string; run?: string },
  ): Promise<Page<Approval>> {
    return this.#ask("GET", "/v1/approvals", options);
  }

  /** One approval, decided or not. */
  approval(approval: string, options?: RequestOptions): Promise<Approval> {
    return this.#ask("GET", path`/v1/approvals/${approval}`, options);
  }

  /** Decides. The first decision wins; the same again is fine. */
  decide(
    approval: string,
    body: { decision: Decision; note?: string; arguments?: Json },
    options?: RequestOptions,
  ): Promise<{ approval: Approval; seq: number }> {
    return this.#ask("POST", path`/v1/approvals/${approval}`, options, body);
  }

  /** What can be asked. */
  agents(options?: RequestOptions): Promise<{ items: readonly Agent[]; default: string }> {
    return this.#ask("GET", "/v1/agents", options);
  }

  /** All options but the signal go into the query. */
  #ask<T>(method: string, route: string, options: RequestOptions = {}, content?: object): Promise<T> {
    const { signal, ...query } = options;
    const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
    const search = given.length > 0 ? `?${new URLSearchParams(given as [string, string][])}` : "";
    const body = content && stringifyJson(content);
    return send(this.#env, this.#base + route + search, { method, body, signal, patience }, readJson<T>);
  }
}

function path(strings: TemplateStringsArray, ...ids: readonly string[]): string {
  return String.raw({ raw: strings }, ...ids.map(encodeURIComponent));
}
