/**
 * The outbox: what a person has said and the server has not acknowledged. A
 * submission has its id before it is sent and keeps it, whatever happens to the
 * page, so that it is accepted once however often it is sent.
 *
 * @module
 */

import { parseJson, stringifyJson } from "./json.ts";
import type { Parts } from "./parts.ts";
import { failureOf } from "./problem.ts";
import { persist } from "./retry.ts";
import type { Failure, Submission } from "./wire.ts";

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

/** What outlives the page: `tab` sends it. */
type Entry = { readonly tab: string; readonly pending: Pending };

const queued: PendingState = { name: "queued" };
const prefix = "outbox:";

/** Submissions of all sessions. */
export class Outbox {
  readonly #parts: Parts;
  readonly #pending = new Map<string, Pending>();
  /** Ids that this tab sends, and what ends the sending. */
  readonly #mine = new Map<string, AbortController>();
  /** Sessions of which something is being sent. */
  readonly #sending = new Set<string>();
  readonly #ears = new Set<(session: string, accepted?: boolean) => void>();
  readonly #leave: (() => void)[];
  #over = false;

  constructor(parts: Parts) {
    this.#parts = parts;
    const { env, connection, tabs } = parts;
    const adopt = () => void this.#adopt();
    this.#leave = [
      tabs.onMessage((m) => {
        if (m.type === "outbox") this.#look(m.id, m.seq);
      }),
      connection.onReturn(adopt),
      env.onSignal((signal) => {
        if (signal === "visible" || signal === "online") adopt();
      }),
    ];
    adopt();
  }

  /** The submissions of a session, in the order in which they were sent. */
  of(session: string): Pending[] {
    return [...this.#pending.values()].filter((one) => one.session === session).sort((a, b) => a.at - b.at);
  }

  /** Hears of changes: of which session, and whether a submission of it was accepted here. */
  onChange(hear: (session: string, accepted?: boolean) => void): () => void {
    this.#ears.add(hear);
    return () => this.#ears.delete(hear);
  }

  /** Takes a submission. It is kept before this returns, and is sent in its turn. */
  send(session: string, submission: Submission): Pending {
    const pending: Pending = { ...submission, session, at: this.#parts.env.now(), state: queued };
    this.#put(pending);
    this.#keep(pending);
    void this.#drain(session);
    return this.#pending.get(pending.id) ?? pending;
  }

  /**
   * Gives a submission back to the composer and sends it no more. Undefined if
   * it was accepted, or is on its way at this moment. If an answer got lost it
   * may be in the log all the same; then the log shows it.
   */
  takeBack(id: string): Submission | undefined {
    const pending = this.#pending.get(id);
    if (!pending || pending.state.name === "accepted" || pending.state.name === "sending") return undefined;
    const { session, at, state, ...submission } = pending;
    this.#parts.store.set(prefix + id, undefined);
    this.#parts.tabs.tell({ type: "outbox", id });
    this.#forget(pending);
    return submission;
  }

  /** Forgets the accepted submissions that the log shows. It tells nobody: who looks at the log calls it. */
  settle(session: string, isShown: (id: string, seq: number) => boolean): void {
    for (const { id, state } of this.of(session)) {
      if (state.name === "accepted" && isShown(id, state.seq)) this.#pending.delete(id);
    }
  }

  /** Sends nothing more. What is kept stays for another page. */
  close(): void {
    this.#over = true;
    for (const leave of this.#leave) leave();
    for (const stop of this.#mine.values()) stop.abort();
  }

  /** Takes on what tabs have left that are no longer there. */
  async #adopt(): Promise<void> {
    for (const key of this.#parts.store.keys(prefix)) {
      const id = key.slice(prefix.length);
      this.#look(id);
      const tab = this.#read(id)?.tab;
      if (!tab || (await this.#parts.tabs.isThere(tab)) || this.#over) continue;
      const kept = this.#read(id);
      // It may have been taken on, or acknowledged, by another tab meanwhile.
      if (kept?.tab !== tab) continue;
      this.#keep(kept.pending);
      void this.#drain(kept.pending.session);
    }
  }

  /** Sends what is this tab's to send, one after the other. */
  async #drain(session: string): Promise<void> {
    if (this.#sending.has(session)) return;
    this.#sending.add(session);
    const next = () =>
      this.of(session).find(({ id, state }) => this.#mine.has(id) && state.name === "queued");
    for (let one = next(); one && !this.#over; one = next()) await this.#deliver(one);
    this.#sending.delete(session);
  }

  async #deliver(pending: Pending): Promise<void> {
    const { id, session, at, state, ...fields } = pending;
    const signal = this.#mine.get(id)?.signal;
    const become = (state: PendingState, accepted?: boolean) => this.#put({ ...pending, state }, accepted);
    const ask = (attempt: number) => {
      become({ name: "sending", attempt });
      return this.#parts.api.send(session, { id, ...fields });
    };
    const onFailure = (error: unknown, retryAt: number, attempt: number) => {
      become({ name: "waiting", attempt, retryAt, reason: failureOf(error) });
    };
    try {
      const { env, connection } = this.#parts;
      const { seq } = await persist(ask, { env, wake: connection.onReturn, signal, onFailure });
      this.#parts.store.set(prefix + id, undefined);
      this.#parts.tabs.tell({ type: "outbox", id, seq });
      become({ name: "accepted", seq }, true);
    } catch (error) {
      if (signal?.aborted) return;
      const failed: Pending = { ...pending, state: { name: "failed", reason: failureOf(error) } };
      this.#keep(failed);
      this.#put(failed);
    }
    this.#mine.delete(id); // whichever tab gives back what failed, it is gone in all
  }

  /** Keeps it, as this tab's to send. */
  #keep(pending: Pending): void {
    const { id } = pending;
    const entry: Entry = { tab: this.#parts.tabs.id, pending };
    this.#mine.set(id, new AbortController());
    this.#parts.store.set(prefix + id, stringifyJson(entry));
    this.#parts.tabs.tell({ type: "outbox", id });
  }

  #read(id: string): Entry | undefined {
    try {
      const kept = parseJson(this.#parts.store.get(prefix + id) ?? "") as Entry;
      return kept.pending.state.name ? kept : undefined;
    } catch {
      return undefined; // there is none, or another version wrote it
    }
  }

  /** Looks at what another tab has. With a seq, it was accepted there. */
  #look(id: string, seq?: number): void {
    if (this.#mine.has(id)) return;
    const known = this.#pending.get(id);
    const kept = this.#read(id)?.pending;
    if (known && seq) this.#put({ ...known, state: { name: "accepted", seq } });
    else if (kept) this.#put({ ...kept, state: kept.state.name === "failed" ? kept.state : queued });
    else if (known && known.state.name !== "accepted") this.#forget(known);
  }

  #put(pending: Pending, accepted?: boolean): void {
    this.#pending.set(pending.id, pending);
    for (const hear of [...this.#ears]) hear(pending.session, accepted);
  }

  #forget({ id, session }: Pending): void {
    this.#pending.delete(id);
    this.#mine.get(id)?.abort();
    this.#mine.delete(id);
    for (const hear of [...this.#ears]) hear(session);
  }
}
