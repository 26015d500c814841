/**
 * What a reader knows of a session: a snapshot with a window, and what it needs
 * to go on from it. Everything here is pure and shares what did not change.
 *
 * @module
 */

import type { Below, Message, MessagePage, Run, SessionRow, Snapshot } from "./wire.ts";

/** A session as a reader knows it. `shown` is what a page shows; all of it is of one seq. */
export type State = {
  readonly shown: Snapshot;
  /** Messages that are known and not on the shown branch, by id. */
  readonly aside: ReadonlyMap<string, Message>;
  /** All runs that are known, oldest first. */
  readonly runs: readonly Run[];
  /** The ids of the messages in each {@link place}, oldest first. A place that is not here may hold any. */
  readonly places: ReadonlyMap<string, readonly string[]>;
  /**
   * The log went on about messages that this state does not have: the branch
   * that is shown is not the active one. {@link adopt} a new snapshot.
   */
  readonly lost: boolean;
};

/** Where a message hangs in the tree. Messages in one place are siblings. */
export function place(parent: string | undefined, role: string): string {
  return `${role} ${parent ?? ""}`;
}

/** The places right behind a message, or of the roots. */
export function placesBehind(parent: string | undefined): string[] {
  return [place(parent, "user"), place(parent, "assistant")];
}

/** The state before a session's first event. */
export function empty(id: string): State {
  const session: SessionRow = {
    id,
    title: "",
    status: "idle",
    approvals: 0,
    inbox: 0,
    seq: 0,
    createdAt: "",
    updatedAt: "",
  };
  const shown = { session, seq: 0, messages: [], hasMore: false, runs: [], approvals: [], inbox: [] };
  const places = new Map(placesBehind(undefined).map((key) => [key, []]));
  return { shown, aside: new Map(), runs: [], places, lost: false };
}

/** The state of a reader that has nothing but a snapshot. */
export function fromSnapshot(snapshot: Snapshot): State {
  const none = { ...snapshot, messages: [], runs: [] };
  return adopt({ shown: none, aside: new Map(), runs: [], places: new Map(), lost: false }, snapshot);
}

/**
 * Takes a new snapshot, which has to be of the same seq, without forgetting what
 * was known: the window keeps the older messages that lead to the snapshot's.
 */
export function adopt(state: State, snapshot: Snapshot): State {
  const runs = new Map([...state.runs, ...snapshot.runs].map((run) => [run.id, run]));
  const sorted = [...runs.values()].sort((a, b) => Date.parse(a.queuedAt) - Date.parse(b.queuedAt));
  // Behind the head a snapshot names all. Without a head there may be roots that it does not name, but for the very first.
  const { head, below, seq } = snapshot;
  const places = new Map(state.places);
  if (head !== undefined || seq === 1) for (const key of placesBehind(head)) places.set(key, []);
  for (const [role, ids] of Object.entries(below ?? {})) places.set(place(head, role), ids);
  const known = {
    ...state,
    shown: { ...snapshot, messages: state.shown.messages },
    aside: new Map([...state.aside, ...(snapshot.aside ?? []).map((m) => [m.id, m] as const)]),
    runs: sorted,
    places,
    lost: false,
  };
  return learn(known, snapshot.messages);
}

/**
 * Puts a page of earlier messages before the shown ones. A page that does not
 * end where the window begins changes nothing. Messages of the page that are
 * still streaming must be of the state's seq.
 */
export function prepend(state: State, page: MessagePage): State {
  const first = state.shown.messages[0];
  return first?.parent && first.parent === page.messages.at(-1)?.id ? learn(state, page.messages) : state;
}

/** Adds messages to what is known, and shows as much of the branch as is known then. */
function learn(state: State, learnt: readonly Message[]): State {
  const { shown, runs } = state;
  const { messages, aside } = branch(state.aside, [...shown.messages, ...learnt], shown.head);
  const places = new Map(state.places);
  const hidden = new Set(runs.flatMap((run) => (run.background ? [run.id] : [])));
  for (const m of learnt)
    if (!hidden.has(m.run ?? "")) places.set(place(m.parent, m.role), m.siblings ?? [m.id]);
  return {
    ...state,
    shown: { ...shown, messages, hasMore: goesOn(messages), runs: shownRuns(runs, messages) },
    aside,
    places,
  };
}

/** The branch that ends in `head`, as far as it is known, and what is not on it. */
export function branch(
  others: ReadonlyMap<string, Message>,
  known: readonly Message[],
  head: string | undefined,
): { messages: Message[]; aside: Map<string, Message> } {
  const aside = new Map([...others, ...known.map((m) => [m.id, m] as const)]);
  const messages: Message[] = [];
  for (let m = aside.get(head ?? ""); m; m = aside.get(m.parent ?? "")) {
    messages.push(m);
    aside.delete(m.id);
  }
  return { messages: messages.reverse(), aside };
}

/** Whether a branch has messages before these: only a root has no parent. */
export function goesOn(messages: readonly Message[]): boolean {
  return messages[0]?.parent !== undefined;
}

/** The runs that are open, or that the messages name. */
export function shownRuns(runs: readonly Run[], messages: readonly Message[]): readonly Run[] {
  const named = new Set(messages.map((m) => m.run));
  const shown = runs.filter((run) => !isTerminal(run) || named.has(run.id));
  return shown.length === runs.length ? runs : shown;
}

/** The messages that follow the head, if there are any. */
export function below(places: State["places"], head: string | undefined): Below | undefined {
  if (head === undefined) return undefined;
  const roles = ["user", "assistant"].flatMap((role) => {
    const ids = places.get(place(head, role));
    return ids?.length ? [[role, ids] as const] : [];
  });
  return roles.length > 0 ? Object.fromEntries(roles) : undefined;
}

/** Whether nothing more happens to a run. */
export function isTerminal(run: { readonly status: string }): boolean {
  return run.status === "completed" || run.status === "failed" || run.status === "cancelled";
}
