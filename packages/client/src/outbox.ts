/**
 * The outbox: what a person has said and the server has not acknowledged. A
 * submission has its id before it is sent and keeps it, whatever happens to the
 * page, so that it is accepted once however often it is sent.
 *
 * @module
 */

import type { Api } from "./api.ts";
import type { Environment } from "./environment.ts";
import { parseJson, stringifyJson } from "./json.ts";
import { failureOf } from "./problem.ts";
import { persist, type Wake } from "./retry.ts";
import type { Store } from "./store.ts";
import type { Tabs } from "./tabs.ts";
import type { Accepted, Failure, Submission } from "./wire.ts";

/** Where a submission is. Times are milliseconds since 1970. */
export type PendingState =
  /** Behind another one, or in the hands of another tab. */
  | { readonly name: "queued" }
  | { readonly name: "sending"; readonly attempt: number }
  | { readonly name: "waiting"; readonly attempt: number; readonly retryAt: number; readonly reason: Failure }
  /** The server has it: it is in the log by this seq. */
  | { readonly name: "accepted"; readonly seq: number }
  /** The server will not take it. Take it back to the composer. */
  | { readonly name: "failed"; readonly reason: Failure };

/** A submission that is not known to be in the log. */
export type Pending = Submission & {
  readonly session: string;
  /** When the person sent it, in milliseconds since 1970. */
  readonly at: number;
  readonly state: PendingState;
};

type Kept = { session: string; submission: Submission; at: number; tab: string; failed?: Failure };

const queued: PendingState = { name: "queued" };
const none: readonly Pending[] = [];

/** Submissions of all sessions. */
export class Outbox {
  readonly #api: Api;
  readonly #env: Environment;
  readonly #store: Store;
  readonly #tabs: Tabs;
  readonly #wake: Wake;
  /** By session, in the order in which they were sent. */
  readonly #pending = new Map<string, readonly Pending[]>();
  /** Ids that this tab sends. */
  readonly #mine = new Set<string>();
  readonly #sending = new Set<string>();
  readonly #ears = new Set<(session: string, accepted?: Accepted) => void>();
  /** What ends the sending of a submission. */
  readonly #stops = new Map<string, AbortController>();
  readonly #leave: (() => void)[];
  #over = false;

  constructor(api: Api, env: Environment, store: Store, tabs: Tabs, wake: Wake) {
    this.#api = api;
    this.#env = env;
    this.#store = store;
    this.#tabs = tabs;
    this.#wake = wake;
    this.#leave = [
      tabs.onMessage((m) => {
        if (m.type !== "outbox") return;
        if (m.accepted && this.#find(m.id)) this.#set(m.id, { name: "accepted", seq: m.accepted.seq });
        else this.#reread(m.id, m.session);
      }),
      wake(() => void this.adopt()),
      env.onSignal((signal) => {
        if (signal === "visible" || signal === "online") void this.adopt();
      }),
    ];
    void this.adopt();
  }

  /** The submissions of a session. The array is replaced, never changed. */
  of(session: string): readonly Pending[] {
    return this.#pending.get(session) ?? none;
  }

  /** Hears of changes: of which session, and what a submission became when it was accepted here. */
  onChange(hear: (session: string, accepted?: Accepted) => void): () => void {
    this.#ears.add(hear);
    return () => this.#ears.delete(hear);
  }

  /** Takes a submission. It is kept before this returns, and is sent in its turn. */
  send(session: string, submission: Submission): Pending {
    const pending: Pending = { ...submission, session, at: this.#env.now(), state: queued };
    this.#mine.add(pending.id);
    this.#put(pending);
    this.#keep(pending);
    void this.#drain(session);
    return this.#find(pending.id) ?? pending;
  }

  /**
   * Gives a submission back to the composer and sends it no more. Undefined if
   * it was accepted, or is on its way at this moment. If an answer got lost it
   * may be in the log all the same; then the log shows it.
   */
  takeBack(id: string): Submission | undefined {
    const pending = this.#find(id);
    if (!pending || pending.state.name === "accepted" || pending.state.name === "sending") return undefined;
    const { session, at, state, ...submission } = pending;
    this.#remove(pending);
    this.#store.set(`outbox:${id}`, undefined);
    this.#tabs.tell({ type: "outbox", session, id });
    return submission;
  }

  /** Forgets the accepted submissions that the log shows. It tells nobody: who looks at the log calls it. */
  settle(session: string, isShown: (id: string, seq: number) => boolean): void {
    const known = this.of(session);
    const left = known.filter(({ id, state }) => state.name !== "accepted" || !isShown(id, state.seq));
    if (left.length < known.length) this.#replace(session, left);
  }

  /** Takes on what tabs have left that are no longer there. */
  async adopt(): Promise<void> {
    const left = this.#store.keys("outbox:").flatMap((key) => this.#read(key) ?? []);
    for (const kept of left) this.#reread(kept.submission.id, kept.session);
    for (const tab of new Set(left.map((kept) => kept.tab))) {
      const there = await this.#tabs.isThere(tab);
      if (this.#over) return;
      if (there) continue;
      for (const kept of left) {
        const pending = this.#find(kept.submission.id);
        // It may have been taken on, or acknowledged, by another tab meanwhile.
        if (kept.tab !== tab || !pending || this.#read(`outbox:${pending.id}`)?.tab !== tab) continue;
        this.#mine.add(pending.id);
        this.#keep(pending);
      }
    }
    for (const session of this.#pending.keys()) void this.#drain(session);
  }

  /** Sends nothing more. What is kept stays for another page. */
  close(): void {
    this.#over = true;
    for (const leave of this.#leave) leave();
    for (const stop of this.#stops.values()) stop.abort();
  }

  /** Sends what is this tab's to send, one after the other. */
  async #drain(session: string): Promise<void> {
    if (this.#sending.has(session)) return;
    this.#sending.add(session);
    for (let next = this.#next(session); next && !this.#over; next = this.#next(session)) {
      await this.#deliver(next);
    }
    this.#sending.delete(session);
  }

  #next(session: string): Pending | undefined {
    return this.of(session).find(
      ({ id, state }) => this.#mine.has(id) && state.name !== "accepted" && state.name !== "failed",
    );
  }

  async #deliver({ id, session, at: _, state: __, ...fields }: Pending): Promise<void> {
    const stop = new AbortController();
    this.#stops.set(id, stop);
    const send = (attempt: number) => {
      this.#set(id, { name: "sending", attempt });
      return this.#api.send(session, { id, ...fields });
    };
    const onFailure = (error: unknown, retryAt: number, attempt: number) => {
      this.#set(id, { name: "waiting", attempt, retryAt, reason: failureOf(error) });
    };
    try {
      const how = { env: this.#env, wake: this.#wake, signal: stop.signal, onFailure };
      const accepted = await persist(send, how);
      this.#store.set(`outbox:${id}`, undefined);
      this.#set(id, { name: "accepted", seq: accepted.seq }, accepted);
      this.#tabs.tell({ type: "outbox", session, id, accepted: { seq: accepted.seq } });
    } catch (error) {
      if (stop.signal.aborted) return;
      this.#mine.delete(id); // whichever tab gives it back, it is gone in all
      this.#set(id, { name: "failed", reason: failureOf(error) });
      const pending = this.#find(id);
      if (pending) this.#keep(pending);
    } finally {
      this.#stops.delete(id);
    }
  }

  #keep({ session, at, state, ...submission }: Pending): void {
    const kept: Kept = { session, submission, at, tab: this.#tabs.id };
    if (state.name === "failed") kept.failed = state.reason;
    this.#store.set(`outbox:${submission.id}`, stringifyJson(kept));
    this.#tabs.tell({ type: "outbox", session, id: submission.id });
  }

  #read(key: string): Kept | undefined {
    try {
      const kept = parseJson(this.#store.get(key) ?? "null") as Kept | null;
      return kept?.submission?.id && kept.session ? kept : undefined;
    } catch {
      return undefined; // written by another version
    }
  }

  /** Looks at what another tab keeps. */
  #reread(id: string, session: string): void {
    if (this.#mine.has(id)) return;
    const kept = this.#read(`outbox:${id}`);
    const known = this.#find(id);
    if (!kept) {
      if (known && known.state.name !== "accepted") this.#remove(known);
      return;
    }
    const state: PendingState = kept.failed ? { name: "failed", reason: kept.failed } : queued;
    this.#put({ ...kept.submission, session, at: kept.at, state });
  }

  #find(id: string): Pending | undefined {
    for (const list of this.#pending.values()) {
      const found = list.find((pending) => pending.id === id);
      if (found) return found;
    }
    return undefined;
  }

  #set(id: string, state: PendingState, accepted?: Accepted): void {
    const pending = this.#find(id);
    if (pending) this.#put({ ...pending, state }, accepted);
  }

  #put(pending: Pending, accepted?: Accepted): void {
    const known = this.of(pending.session);
    const list = known.some(({ id }) => id === pending.id)
      ? known.map((other) => (other.id === pending.id ? pending : other))
      : [...known, pending].sort((a, b) => a.at - b.at);
    this.#pending.set(pending.session, list);
    for (const hear of [...this.#ears]) hear(pending.session, accepted);
  }

  #remove(pending: Pending): void {
    this.#replace(
      pending.session,
      this.of(pending.session).filter(({ id }) => id !== pending.id),
    );
    this.#mine.delete(pending.id);
    this.#stops.get(pending.id)?.abort();
    for (const hear of [...this.#ears]) hear(pending.session);
  }

  #replace(session: string, list: readonly Pending[]): void {
    if (list.length > 0) this.#pending.set(session, list);
    else this.#pending.delete(session);
  }
}
