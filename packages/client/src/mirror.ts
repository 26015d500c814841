/**
 * The mirror of one session: a snapshot, then every event after it, once and in
 * order. It never guesses: what does not join is asked for again.
 *
 * @module
 */

import { backoff } from "./backoff.ts";
import { Commands } from "./commands.ts";
import type { Follower } from "./connection.ts";
import { foldAll, isDelta, rangeOf } from "./fold.ts";
import { Latest } from "./latest.ts";
import type { Outbox, Pending } from "./outbox.ts";
import type { Parts } from "./parts.ts";
import { failureOf, Problem, Unanswered } from "./problem.ts";
import { Publisher } from "./publisher.ts";
import { never, persist } from "./retry.ts";
import { adopt, empty, fromSnapshot, prepend, type State } from "./state.ts";
import { report, Subscribable, same, settled } from "./subscribable.ts";
import { blank, type OlderStatus, type SessionView, type SyncStatus } from "./view.ts";
import type {
  Approval,
  Decision,
  Failure,
  Frame,
  Json,
  Message,
  Outcome,
  OutgoingPart,
  Run,
  Snapshot,
  Submission,
} from "./wire.ts";

/** What a mirror is made with. */
export type MirrorParts = Parts & {
  readonly outbox: Outbox;
  /** Messages of a snapshot, and of a page of earlier ones. */
  readonly window: number;
  /** Somebody watches it, or nobody any more. */
  readonly onWatched?: (mirror: SessionMirror, watched: boolean) => void;
};

/** How something is said. See PROTOCOL.md, `POST …/messages`. */
export type SendOptions = Partial<Omit<Submission, "parts">>;

/** How long a mirror that nobody watches goes on, in milliseconds: a page that is drawn anew comes back. */
const linger = 5_000;
/** Frames that wait for a snapshot of another branch. With more, all begins anew. */
const waitingMost = 20_000;
/** For how long a page of earlier messages is tried, in milliseconds. */
const patience = 20_000;

const nothing = () => {};

/** Where the mirror is. */
type Phase =
  /** A snapshot is on its way, and nothing is known. */
  | "loading"
  /** The log is followed. With a state that is lost, a snapshot is on its way. */
  | "following"
  | "new"
  | "missing"
  | "deleted";

/** See the module. It follows its session while somebody subscribes. */
export class SessionMirror extends Subscribable<SessionView> {
  readonly id: string;
  readonly #parts: MirrorParts;
  readonly #commands: Commands;
  readonly #publisher: Publisher;
  #phase: Phase;
  /** Whether somebody watches. Without, nothing is asked for, and the phase is where it goes on. */
  #isAwake = false;
  #state: State | undefined;
  /** What came and joins, and is not folded yet. */
  #queue: Frame[] = [];
  /** The last seq that came. */
  #cursor = 0;
  /** Where the log ended when it was asked for. */
  #head = 0;
  /** Whether the log comes: the connection is there and has answered. */
  #flows = false;
  /** A gap was seen, and the log was asked for again. */
  #asking = false;
  #gaps = 0;
  /** For a lost state: what it will become, when the log has come to its seq. */
  #snapshot: Snapshot | undefined;
  readonly #load = new Latest();
  #trouble: { failure: Failure; retryAt: number } | undefined;
  #older: OlderStatus = { name: "idle" };
  #stopFollow = nothing;
  #stopLinger = nothing;
  #stopGap = nothing;
  #stopOutbox = nothing;
  #release = nothing;
  readonly #blank: SessionView;

  /** `fresh` says that the session is not on the server yet. */
  constructor(id: string, parts: MirrorParts, fresh = false) {
    const view = blank(id, { name: fresh ? "new" : "loading" });
    super(view);
    this.id = id;
    this.#parts = parts;
    this.#blank = view;
    this.#phase = fresh ? "new" : "loading";
    this.#publisher = new Publisher(parts.env, () => this.#publish());
    this.#commands = new Commands(parts, () => this.#publisher.now());
  }

  /** Whether somebody watches. */
  get isWatched(): boolean {
    return this.#isAwake;
  }

  // What a person does. Each shows at once.

  /** Says something. The submission is kept until the server has it, even over a reload. */
  send = (what: string | readonly OutgoingPart[], options: SendOptions = {}): Pending => {
    const { env, outbox } = this.#parts;
    const pending = outbox.send(this.id, { id: env.id("msg_"), parts: partsOf(what), ...options });
    if (!this.#isAwake && this.#phase === "new") this.#phase = "loading"; // nobody hears when it is there
    this.#publisher.now();
    return pending;
  };

  /** Gives a submission that failed, or waits to be sent, back to the composer. */
  takeBack = (id: string): Submission | undefined => {
    const submission = this.#parts.outbox.takeBack(id);
    this.#publisher.now();
    return submission;
  };

  /** Says something else in the place of a message: a new branch. */
  edit = (message: string, what: string | readonly OutgoingPart[], options: SendOptions = {}): Pending => {
    return this.send(what, { parent: this.#message(message).parent ?? "", ...options });
  };

  /** Stops the active run, or the given one and no other. Undefined if there is none. That it has ended already is no error. */
  stop = async (run: string | undefined = this.getSnapshot().run?.id): Promise<Run | undefined> => {
    if (!run) return undefined;
    try {
      return (await this.#commands.send({ kind: "stop", run }, () => this.#parts.api.cancelRun(run))).run;
    } catch (error) {
      if (error instanceof Problem && error.code === "run_terminal") return error.run;
      throw error;
    }
  };

  /**
   * Goes on from the step where a run failed or was cancelled: no finished step and no tool call is
   * repeated. With `fresh`, and for a run that completed, it answers anew. The new answer is a sibling of the old one.
   */
  retry = async (run: string, options?: { fresh?: boolean }): Promise<Run> => {
    const { api, env } = this.#parts;
    const body = { id: env.id("run_"), ...options };
    return (await this.#commands.send({ kind: "retry", run }, () => api.retryRun(run, body))).run;
  };

  /** Makes an answer again, from its beginning. */
  regenerate = async (message: string): Promise<Run> =>
    this.retry(this.#message(message).run ?? "", { fresh: true });

  /** Decides an approval. A `Problem` with `approval_decided` has the approval as somebody else decided it. */
  decide = async (
    approval: string,
    decision: Decision,
    options: { note?: string; arguments?: Json } = {},
  ): Promise<Approval> => {
    const ask = () => this.#parts.api.decide(approval, { decision, ...options });
    return (await this.#commands.send({ kind: "decide", approval, decision }, ask)).approval;
  };

  /** Says what a call did whose outcome nobody knows. */
  resolve = async (
    run: string,
    call: string,
    outcome: Outcome,
    options: { result?: Json; note?: string } = {},
  ): Promise<Run> => {
    const ask = () => this.#parts.api.resolveTool(run, call, { outcome, ...options });
    return (await this.#commands.send({ kind: "resolve", run, call }, ask)).run;
  };

  /** Replaces what a waiting message says. */
  editInbox = async (message: string, what: string | readonly OutgoingPart[]): Promise<void> => {
    const ask = () => this.#parts.api.editInbox(this.id, message, partsOf(what));
    await this.#commands.send({ kind: "editInbox", message }, ask);
  };

  /** Takes a waiting message back. */
  removeInbox = (message: string): Promise<void> => {
    const ask = () => gone(this.#parts.api.removeInbox(this.id, message));
    return this.#commands.send({ kind: "removeInbox", message }, ask, (shown) => !waits(shown, message));
  };

  /** Shows the branch that leads through a message. */
  switchTo = async (message: string): Promise<void> => {
    const ask = () => this.#parts.api.updateSession(this.id, { head: message });
    await this.#commands.send({ kind: "switch", message }, ask);
  };

  /** Gives the session another title. */
  rename = async (title: string): Promise<void> => {
    const ask = () => this.#parts.api.updateSession(this.id, { title });
    await this.#commands.send({ kind: "rename", title }, ask);
  };

  /** Deletes the session for ever. */
  delete = async (): Promise<void> => {
    await this.#commands.send({ kind: "delete" }, () => gone(this.#parts.api.deleteSession(this.id)));
    this.#enter("deleted");
  };

  /** Loads earlier messages. It may be called at any time; what fails shows in `older`. */
  loadOlder = async (): Promise<void> => {
    if (this.#older.name === "loading" || !this.getSnapshot().hasMore) return;
    this.#setOlder({ name: "loading" });
    try {
      await this.#page();
      this.#setOlder({ name: "idle" });
    } catch (error) {
      this.#setOlder({ name: "failed", failure: failureOf(error) });
    }
  };

  /** The session may exist now: somebody else was told of it. */
  appeared(): void {
    // Of a message of ours the answer comes, and says more.
    const isNews = this.#phase === "new" && this.#parts.outbox.of(this.id).length === 0;
    if (isNews || this.#phase === "missing") this.#enter("loading");
  }

  /** Follows no more. */
  close(): void {
    this.#stopLinger();
    if (this.#isAwake) this.#rest();
  }

  // How it follows.

  protected override started(): void {
    this.#stopLinger();
    if (this.#isAwake) return;
    this.#isAwake = true;
    const { connection, outbox, onWatched } = this.#parts;
    this.#release = connection.use(); // it opens while the snapshot comes
    this.#stopOutbox = outbox.onChange((session, accepted) => {
      if (session !== this.id) return;
      if (accepted) this.#accepted();
      this.#publisher.now();
    });
    this.#enter(this.#phase === "missing" ? "loading" : this.#phase);
    onWatched?.(this, true);
  }

  protected override stopped(): void {
    this.#stopLinger = this.#parts.env.after(linger, () => this.#rest());
  }

  #rest(): void {
    this.#isAwake = false;
    const isSent = this.#phase === "new" && this.#parts.outbox.of(this.id).length > 0;
    this.#enter(isSent ? "loading" : this.#phase);
    this.#stopOutbox();
    this.#release();
    this.#parts.onWatched?.(this, false);
  }

  /** The one door between phases. */
  #enter(phase: Phase): void {
    this.#phase = phase;
    this.#load.end();
    this.#trouble = undefined;
    this.#snapshot = undefined;
    this.#stopFollow();
    this.#stopFollow = nothing;
    this.#stopGap();
    this.#flows = false;
    this.#asking = false;
    if (phase === "missing" || phase === "deleted") {
      this.#state = undefined;
      this.#queue = [];
      this.#cursor = 0;
    }
    if (this.#isAwake && phase === "following") {
      this.#stopFollow = this.#parts.connection.follow(this.id, this.#follower);
    }
    if (this.#isAwake && (phase === "loading" || this.#state?.lost)) void this.#fetch();
    this.#publisher.soon();
  }

  #begin(state: State): void {
    this.#state = state;
    this.#queue = [];
    this.#cursor = state.shown.seq;
    this.#gaps = 0;
    this.#enter("following");
  }

  readonly #follower: Follower = {
    cursor: () => this.#cursor,
    following: (head) => {
      this.#head = head;
      this.#flows = true;
      this.#asking = false;
      this.#publisher.soon();
    },
    frames: (to, frames) => this.#take(to, frames),
    paused: () => {
      this.#flows = false;
      this.#asking = false;
      this.#stopGap();
      this.#publisher.soon();
    },
    reset: () => this.#enter("loading"),
    deleted: () => this.#enter("deleted"),
    refused: (code) => {
      if (code === "not_found") this.#enter("deleted");
      else if (code === "invalid_cursor") this.#enter("loading");
      else this.#askAgain();
    },
  };

  #take(to: number, frames: readonly Frame[]): void {
    if (this.#asking) return; // what comes now was sent before the answer
    const before = this.#cursor;
    let facts = false;
    for (const frame of frames) {
      const range = rangeOf(frame);
      if (range.to <= this.#cursor) continue;
      if (range.from > this.#cursor + 1) break;
      this.#queue.push(frame);
      this.#cursor = range.to;
      facts ||= !isDelta(frame);
    }
    if (this.#cursor > before) this.#gaps = 0;
    if (this.#cursor < to) this.#askAgain();
    const behind = this.#cursor < this.#head;
    if (!behind && (facts || before < this.#head)) this.#publisher.soon();
    else this.#publisher.frame();
    if (this.#queue.length > waitingMost && this.#state?.lost) this.#enter("loading");
  }

  /** Asks for the log again, after what is here: at once, and with backoff if that does not help. */
  #askAgain(): void {
    const { connection, env } = this.#parts;
    const wait = this.#gaps && backoff(this.#gaps, env.random());
    this.#gaps++;
    this.#asking = true;
    this.#stopGap = env.after(wait, () => connection.again(this.id));
  }

  /** Gets a snapshot, however long it takes. The connection's return starts it anew: an answer may be lost with the old one. */
  async #fetch(): Promise<void> {
    const { api, connection, env, window } = this.#parts;
    const signal = this.#load.begin();
    const stopWake = connection.onReturn(() => void this.#fetch());
    signal.addEventListener("abort", stopWake);
    const ask = async () => {
      const snapshot = await api.snapshot(this.id, { window, signal });
      if (this.#state && this.#phase === "following" && snapshot.seq < this.#state.shown.seq) {
        throw new RangeError("an old snapshot");
      }
      return snapshot;
    };
    const onFailure = (error: unknown, retryAt: number) => {
      this.#trouble = { failure: failureOf(error), retryAt };
      this.#publisher.soon();
    };
    try {
      const how = { env, wake: never, signal, passes: (error: unknown) => !isMissing(error), onFailure };
      this.#arrived(await persist(ask, how));
    } catch {
      if (!signal.aborted) this.#enter(this.#state ? "deleted" : "missing");
    } finally {
      stopWake();
    }
  }

  #arrived(snapshot: Snapshot): void {
    this.#trouble = undefined;
    if (this.#phase === "loading") {
      this.#begin(fromSnapshot(snapshot));
      return;
    }
    this.#snapshot = snapshot;
    this.#publisher.soon();
  }

  /** A submission was accepted: the session exists, and its log is short. */
  #accepted(): void {
    if (this.#phase === "missing" || this.#phase === "new") this.#begin(empty(this.id));
  }

  #fold(): void {
    if (!this.#state || (this.#state.lost && !this.#snapshot)) return;
    let frames = this.#queue;
    this.#queue = [];
    if (this.#snapshot) {
      const { seq } = this.#snapshot;
      const split = frames.findIndex((frame) => rangeOf(frame).to > seq);
      const [until, rest] = split < 0 ? [frames, []] : [frames.slice(0, split), frames.slice(split)];
      this.#state = foldAll(this.#state, until);
      if (this.#state.shown.seq < seq && rest.length === 0) return; // the log is not there yet
      frames = rest;
      if (this.#state.shown.seq === seq) this.#state = adopt(this.#state, this.#snapshot);
      this.#snapshot = undefined;
    }
    if (!this.#state.lost) this.#state = foldAll(this.#state, frames);
    else this.#queue = frames;
    if (this.#state.lost) void this.#fetch();
  }

  /** Puts the page before the window there. */
  async #page(): Promise<void> {
    const { api, connection, env, window } = this.#parts;
    const ask = async () => {
      const first = this.#state?.shown.messages[0];
      if (!first?.parent) return;
      const page = await api.messages(this.id, { before: first.id, limit: window });
      this.#fold();
      const state = this.#state;
      if (!state) return;
      // What is still written is of the page's time: later events would be told twice, or missed.
      const writing = page.messages.some((m) => m.status === "streaming");
      const next = prepend(state, page);
      if (next === state || (writing && page.seq !== state.shown.seq)) {
        throw new Unanswered("the branch has changed");
      }
      this.#state = next;
    };
    await persist(ask, { env, wake: connection.onReturn, patience });
  }

  #message(id: string): Message {
    const found = this.getSnapshot().messages.find((m) => m.id === id);
    if (!found) throw new RangeError(`the message ${id} is not shown`);
    return found;
  }

  #setOlder(older: OlderStatus): void {
    this.#older = older;
    this.#publisher.now();
  }

  // What it shows.

  #publish(): void {
    try {
      this.#fold();
    } catch (error) {
      // An event that makes no sense here. What the server makes of it does.
      this.#enter("loading");
      report(error);
    }
    const { outbox } = this.#parts;
    const shown = this.#state?.shown;
    const seq = shown?.seq ?? 0;
    const has = (id: string) =>
      shown !== undefined && (shown.messages.some((m) => m.id === id) || waits(shown, id));
    const follows = this.#phase === "following";
    this.#commands.settle(follows ? shown : undefined);
    if (follows) outbox.settle(this.id, (id, at) => at <= seq || has(id));
    const pending = outbox.of(this.id).filter(({ id }) => !has(id));
    const before = this.getSnapshot();
    this.show({
      ...this.#blank,
      ...shown,
      session: seq > 0 ? shown?.session : undefined,
      run: shown?.runs.find((run) => run.id === shown.session.run),
      status: settled(before.status, this.#status()),
      older: this.#older,
      pending: same(before.pending, pending),
      gestures: this.#commands.gestures,
    });
  }

  #status(): SyncStatus {
    const { connection, outbox } = this.#parts;
    const phase = this.#phase;
    if (phase === "following") {
      if (!this.#flows && connection.getSnapshot().name !== "open") return { name: "paused" };
      const behind = !this.#flows || this.#asking || this.#cursor < this.#head || this.#state?.lost;
      return { name: behind ? "behind" : "live", ...this.#trouble };
    }
    if (phase === "loading") return { name: phase, ...this.#trouble };
    if (phase === "missing" && outbox.of(this.id).length > 0) return { name: "new" };
    return { name: phase };
  }
}

function partsOf(what: string | readonly OutgoingPart[]): readonly OutgoingPart[] {
  return typeof what === "string" ? [{ type: "text", text: what }] : what;
}

function waits(shown: Snapshot, message: string): boolean {
  return shown.inbox.some((item) => item.message.id === message);
}

/** What was asked to go and is not there is gone. */
async function gone(ask: Promise<void>): Promise<undefined> {
  try {
    await ask;
  } catch (error) {
    if (!isMissing(error)) throw error;
  }
  return undefined;
}

/** The server says so: a proxy's 404 says nothing of a session. */
function isMissing(error: unknown): boolean {
  return error instanceof Problem && error.code === "not_found";
}
