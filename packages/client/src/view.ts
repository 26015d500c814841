import type { Gesture } from "./commands.ts";
import type { Pending } from "./outbox.ts";
import { empty } from "./state.ts";
import type { Approval, Below, Failure, InboxItem, Message, Run, SessionRow } from "./wire.ts";

/** How current a view is. Times are milliseconds since 1970. */
export type SyncStatus =
  /** The snapshot is on its way; with `failure`, it is tried again at `retryAt`. */
  | { readonly name: "loading"; readonly failure?: Failure; readonly retryAt?: number }
  /** Everything there is, as it happens. */
  | { readonly name: "live" }
  /** What is shown was true; the rest is on its way. */
  | { readonly name: "behind"; readonly failure?: Failure; readonly retryAt?: number }
  /** What is shown was true; the connection is gone, and its state says when it comes back. */
  | { readonly name: "paused" }
  /** The session is not on the server yet: its first message makes it. */
  | { readonly name: "new" }
  /** There is no such session, or it is somebody else's. */
  | { readonly name: "missing" }
  /** The session was deleted. */
  | { readonly name: "deleted" };

/** Whether earlier messages are on their way. */
export type OlderStatus =
  | { readonly name: "idle" }
  | { readonly name: "loading" }
  | { readonly name: "failed"; readonly failure: Failure };

/**
 * A session as a page shows it, all of it at one seq. It is replaced, never
 * changed, and what did not change is the same object in the next one.
 */
export type SessionView = {
  readonly id: string;
  readonly status: SyncStatus;
  /** Absent as long as nothing is known of it. */
  readonly session: SessionRow | undefined;
  readonly seq: number;
  /** The last message of the active branch. */
  readonly head: string | undefined;
  /** The end of the active branch, as far as it is loaded, oldest first. */
  readonly messages: readonly Message[];
  /** Whether the branch goes on before the first message: see `loadOlder`. */
  readonly hasMore: boolean;
  readonly older: OlderStatus;
  /** The messages that follow the head on other branches, by role. */
  readonly below: Below | undefined;
  /** What open background runs were asked and write: no branch shows it. */
  readonly aside: readonly Message[] | undefined;
  /** The runs that are open or that the messages name, oldest first. */
  readonly runs: readonly Run[];
  /** The active foreground run. */
  readonly run: Run | undefined;
  /** The pending approvals, oldest first. */
  readonly approvals: readonly Approval[];
  /** Messages that wait for their turn, in that order. */
  readonly inbox: readonly InboxItem[];
  /** What was said here and is not known to be in the log, oldest first. */
  readonly pending: readonly Pending[];
  /** What the person did that is not a fact yet. */
  readonly gestures: readonly Gesture[];
};

/** The view of a session of which nothing is known. */
export function blank(id: string, status: SyncStatus): SessionView {
  return {
    ...empty(id).shown,
    id,
    status,
    session: undefined,
    head: undefined,
    older: { name: "idle" },
    below: undefined,
    aside: undefined,
    run: undefined,
    pending: [],
    gestures: [],
  };
}
