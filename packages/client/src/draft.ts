/**
 * A state that is being changed: what a batch of frames touches is copied once,
 * the rest is shared with the state before.
 *
 * @module
 */

import { below, branch, goesOn, isTerminal, place, placesBehind, type State, shownRuns } from "./state.ts";
import { same } from "./subscribable.ts";
import type { Message, Part, Run, SessionRow, Snapshot, ToolCall } from "./wire.ts";

/** The same, for who made it and has not shown it yet. */
export type Mutable<T> = { -readonly [K in keyof T]: T[K] };

/** A draft of the state after a batch. Only {@link foldAll} uses it. */
export class Draft {
  /** What it will show. The messages and runs are only there in the end. */
  readonly shown: Omit<Mutable<Snapshot>, "session"> & { session: Mutable<SessionRow> };
  readonly #before: State;
  readonly #state: Mutable<State>;
  #messages: readonly Message[];
  /** The ids of all messages, made when somebody asks. */
  #ids: Set<string> | undefined;
  /** Objects that were made here and nobody else has: they may be changed in place. */
  readonly #own = new Set<object>();

  constructor(before: State) {
    this.#before = before;
    this.#state = { ...before };
    this.shown = { ...before.shown, session: { ...before.shown.session } };
    this.#messages = before.shown.messages;
  }

  /** Whether a message is known. */
  knows(id: string): boolean {
    this.#ids ??= new Set([...this.#messages.map((m) => m.id), ...this.#state.aside.keys()]);
    return this.#ids.has(id);
  }

  /** A message that can still change, for writing. */
  writing(id: string): Mutable<Message> | undefined {
    const found = this.#find(id);
    return found?.status === "streaming" ? this.#writable(found) : undefined;
  }

  /** A part of a message from {@link writing}, for writing. */
  part(m: Mutable<Message>, index: number): Mutable<Part> {
    const parts = this.#parts(m);
    const p = this.#mine(parts[index] as Part);
    parts[index] = p;
    return p;
  }

  /** Adds a part to a message from {@link writing}. */
  addPart(m: Mutable<Message>, part: Part): Mutable<Part> {
    const p = this.#mine(part);
    this.#parts(m).push(p);
    return p;
  }

  /** A call of a message from {@link writing}, for writing. */
  call(m: Mutable<Message>, id: string): Mutable<ToolCall> | undefined {
    const index = m.parts.findIndex((p) => p.tool?.id === id);
    if (index < 0) return undefined;
    const p = this.part(m, index);
    const call = this.#mine(p.tool as ToolCall);
    p.tool = call;
    return call;
  }

  /**
   * Adds a message, which ends the shown branch. One whose parent or whose
   * siblings are not known can only be noted. What a background run was asked or
   * writes is on no branch.
   */
  addMessage(message: Message, isAside = false): void {
    const key = place(message.parent, message.role);
    const siblings = isAside ? [] : this.#state.places.get(key);
    // A page of earlier messages may have told of it already.
    const ids = [...(siblings ?? []).filter((id) => id !== message.id), message.id];
    if (siblings && !isAside) this.#state.places = this.#mine(this.#state.places).set(key, ids);
    if (siblings && (isAside || !message.parent || this.knows(message.parent))) this.#hang(message, isAside);
    else this.#state.lost = true;
    if (ids.length > 1) for (const id of ids) this.#sibling(id, ids);
  }

  /** Shows the branch that ends in a message. Not to know it, or what follows it, is to be lost. */
  moveHead(id: string): void {
    this.#state.lost ||= !placesBehind(id).every((behind) => this.#state.places.has(behind));
    if (!this.knows(id)) return;
    const { messages, aside } = branch(this.#state.aside, this.#messages, id);
    this.#own.add(messages).add(aside);
    this.#messages = messages;
    this.#state.aside = aside;
    this.shown.head = id;
  }

  /** A run. */
  run(id: string | undefined): Run | undefined {
    return this.#state.runs.findLast((run) => run.id === id);
  }

  /** A run from {@link run}, for writing, or a new one. */
  writableRun(run: Run): Mutable<Run> {
    const own = this.#mine(run);
    this.#state.runs = put(this.#mine(this.#state.runs), run, own);
    return own;
  }

  /** The state after the batch. */
  finish(): State {
    const { shown } = this;
    const before = this.#before;
    if (shown.seq === before.shown.seq) return before;
    const { runs, places } = this.#state;
    const messages = this.#messages;
    const moved = messages.length !== shown.messages.length || shown.head !== before.shown.head;
    shown.messages = messages;
    if (moved || runs !== before.runs) shown.runs = same(shown.runs, shownRuns(runs, messages));
    const open = shown.runs.filter((run) => run.background && !isTerminal(run));
    const ids = new Set(open.flatMap((run) => [run.input, run.message]));
    const aside = [...ids].flatMap((id) => this.#find(id) ?? []);
    shown.aside = aside[0] && same(shown.aside ?? [], aside);
    // Without a fact nothing else has changed.
    if (shown.session.seq === before.shown.session.seq) shown.session = before.shown.session;
    else this.#conclude(places);
    return { ...this.#state, shown };
  }

  #conclude(places: State["places"]): void {
    const { shown } = this;
    const { session, approvals, inbox } = shown;
    const waits = new Set(inbox.flatMap((item) => (item.mode === "steer" ? [] : [item.run])));
    const active = this.#state.runs.findLast(
      (run) => !isTerminal(run) && !run.background && !waits.has(run.id),
    );
    session.status = active?.status ?? "idle";
    if (active) session.run = active.id;
    else delete session.run;
    session.approvals = approvals.length;
    session.inbox = inbox.length;
    shown.approvals = same(this.#before.shown.approvals, approvals);
    shown.inbox = same(this.#before.shown.inbox, inbox);
    shown.hasMore = goesOn(shown.messages);
    shown.below = below(places, shown.head);
  }

  #hang(message: Message, isAside: boolean): void {
    const places = this.#mine(this.#state.places);
    for (const behind of placesBehind(message.id)) places.set(behind, []);
    this.#state.places = places;
    const m = this.#mine(message);
    this.#ids?.add(m.id);
    if (!isAside && message.parent === this.shown.head) {
      const messages = this.#mine(this.#messages);
      messages.push(m);
      this.#messages = messages;
      this.shown.head = m.id;
      return;
    }
    this.#state.aside = this.#mine(this.#state.aside).set(m.id, m);
    if (!isAside) this.moveHead(m.id);
  }

  /** The newest first: what streams is at the end. */
  #find(id: string): Message | undefined {
    return this.#messages.findLast((m) => m.id === id) ?? this.#state.aside.get(id);
  }

  #writable(m: Message): Mutable<Message> {
    const own = this.#mine(m);
    if (this.#state.aside.has(m.id)) this.#state.aside = this.#mine(this.#state.aside).set(m.id, own);
    else this.#messages = put(this.#mine(this.#messages), m, own);
    return own;
  }

  #sibling(id: string, siblings: readonly string[]): void {
    const m = this.#find(id);
    if (m) this.#writable(m).siblings = siblings;
  }

  #parts(m: Mutable<Message>): Part[] {
    const parts = this.#mine(m.parts);
    m.parts = parts;
    return parts;
  }

  /** A copy that may be changed in place, made once. */
  #mine<V>(value: ReadonlyMap<string, V>): Map<string, V>;
  #mine<V>(value: readonly V[]): V[];
  #mine<T extends object>(value: T): Mutable<T>;
  #mine(value: object): object {
    if (this.#own.has(value)) return value;
    const own = value instanceof Map ? new Map(value) : Array.isArray(value) ? [...value] : { ...value };
    this.#own.add(own);
    return own;
  }
}

/** Puts an item in the place of another, or at the end if that is not there. */
function put<T>(list: T[], before: T, item: T): T[] {
  const index = list.lastIndexOf(before);
  list[index < 0 ? list.length : index] = item;
  return list;
}
