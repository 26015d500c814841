/**
 * The wire's objects, as PROTOCOL.md §6 and §7 name them. Times are RFC 3339
 * strings in UTC; ids are opaque strings.
 *
 * @module
 */

/** Any JSON value. Integers beyond 2^53 are `bigint` where the platform's parser allows (see `json.ts`). */
export type Json =
  | null
  | boolean
  | number
  | bigint
  | string
  | readonly Json[]
  | { readonly [key: string]: Json };

/** Where a run is: `queued → running ⇄ waiting → completed | failed | cancelled`. */
export type RunStatus = "queued" | "running" | "waiting" | "completed" | "failed" | "cancelled";

/** What a waiting run waits for. More reasons may come. */
export type WaitingReason =
  | "approval"
  | "tool_outcome"
  | "child_run"
  | "callback"
  | "retry"
  | "worker"
  | (string & {});

/** What to do with a message while a run is active. The default is `enqueue`. */
export type OnBusy = "enqueue" | "reject" | "interrupt" | "rollback" | "steer";

/** What a tool does to the world. */
export type Effects = "read_only" | "idempotent" | "unsafe";

/** Where a tool call is in its life. */
export type CallStatus =
  | "writing"
  | "called"
  | "started"
  | "deferred"
  | "completed"
  | "failed"
  | "denied"
  | "cancelled"
  | "unknown";

/** A person's word on a call whose outcome is unknown. */
export type Outcome = "happened" | "did_not" | "failed";

/** What a person decided. */
export type Decision = "approve" | "deny";

/** Why something failed. `code` is stable; `message` is for people. */
export type Failure = {
  readonly code: string;
  readonly message: string;
  readonly retryable?: boolean;
};

/** A large value kept beside the log; get its bytes by `hash`. `size` is in bytes. */
export type Blob = { readonly hash: string; readonly size: number; readonly mediaType: string };

/** Tokens, 0 where the provider does not say. */
export type Usage = {
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly reasoningTokens?: number;
  readonly cachedTokens?: number;
};

/** How far a running call is. `fraction` is 0 to 1. */
export type Progress = { readonly message?: string; readonly fraction?: number; readonly data?: Json };

/** One call of a tool. */
export type ToolCall = {
  readonly id: string;
  readonly name: string;
  readonly arguments?: Json;
  readonly rawArguments?: string;
  readonly argumentsBlob?: Blob;
  readonly effects?: Effects;
  readonly status: CallStatus;
  readonly approval?: string;
  readonly try?: number;
  readonly key?: string;
  readonly progress?: Progress;
  readonly result?: Json;
  readonly blob?: Blob;
  /** What the call gave beside its result: pictures, say. */
  readonly files?: readonly File[];
  readonly cut?: number;
  readonly error?: Failure;
  /** The subagent's run that does its work. */
  readonly child?: Child;
  /** When a deferred call is given up. */
  readonly until?: string;
  readonly by?: string;
  readonly note?: string;
  readonly startedAt?: string;
  readonly endedAt?: string;
};

/** A file that a message carries. */
export type File = {
  readonly mediaType: string;
  readonly name?: string;
  readonly url?: string;
  readonly blob?: Blob;
};

/** The kinds of part. A reader skips those it does not know. */
export type PartType = "text" | "reasoning" | "tool" | "file" | "source" | "data" | "step" | (string & {});

/** One piece of a message. Which fields are set follows from `type`. */
export type Part = {
  readonly type: PartType;
  readonly text?: string;
  readonly blob?: Blob;
  readonly signature?: string;
  readonly tool?: ToolCall;
  readonly file?: File;
  readonly data?: Json;
  readonly step?: number;
  readonly part?: number;
  readonly state?: "streaming" | "failed";
};

/** What a person or the assistant said. */
export type Message = {
  readonly id: string;
  readonly role: "user" | "assistant";
  readonly parent?: string;
  readonly parts: readonly Part[];
  readonly status: "streaming" | "completed" | "interrupted";
  readonly reason?: string;
  readonly run?: string;
  /** Of a message that tells how a background run ended. */
  readonly background?: {
    readonly run: string;
    readonly input: string;
    /** The beginning of what was asked. */
    readonly title?: string;
    readonly error?: Failure;
  };
  readonly seq?: number;
  readonly createdAt?: string;
  readonly siblings?: readonly string[];
};

/** What the model is shown for a call, in tokens, and what else it takes to tell it again. */
type StepContext = {
  /** What the context was estimated at. */
  readonly tokens: number;
  /** The same without what the provider counted before. */
  readonly counted: number;
  readonly window: number;
  readonly room: number;
  /** The seq of the `context.compacted` in force. */
  readonly compaction?: number;
  /** The fingerprint of the agent's model, instructions and tools. */
  readonly agent: string;
};

/** A place on a branch: the end of a message, or of a step in it. */
type Mark = { readonly message: string; readonly step?: number };

/** One attempt at one model call. */
export type Step = {
  readonly step: number;
  readonly attempt: number;
  readonly because?: string;
  readonly message?: string;
  readonly context?: StepContext;
  readonly startedAt: string;
  readonly answeredAt?: string;
  readonly completedAt?: string;
  readonly finish?: string;
  readonly usage?: Usage;
  readonly error?: Failure;
  readonly retryAt?: string;
};

/** A tool call of a run in another session. */
type ParentCall = { readonly session: string; readonly run: string; readonly call: string };

/** The run that does the work of a tool call, in a session of its own. */
type Child = { readonly session: string; readonly run: string; readonly agent: string };

/** One execution. `steps` is there only when the run was asked for by its id. */
export type Run = {
  readonly id: string;
  readonly session: string;
  readonly status: RunStatus;
  readonly agent: string;
  readonly input: string;
  readonly message: string;
  readonly background?: boolean;
  /** The beginning of what a background run was asked. */
  readonly title?: string;
  readonly retryOf?: string;
  /** The step that a retry goes on with: its message begins with the ones before. */
  readonly fromStep?: number;
  readonly parentRunId?: string;
  readonly parent?: ParentCall;
  readonly depth?: number;
  readonly tokenLimit?: number;
  readonly currentStep: number;
  readonly attempt?: number;
  readonly waitingReason?: WaitingReason;
  readonly waitingUntil?: string;
  readonly worker?: string;
  readonly fence: number;
  readonly claimedAt?: string;
  readonly carriedMs?: number;
  readonly crashes?: number;
  readonly queuedAt: string;
  readonly startedAt?: string;
  readonly finishedAt?: string;
  readonly cancelRequestedAt?: string;
  readonly cancelDeadline?: string;
  readonly cancelBy?: string;
  readonly cancelReason?: string;
  readonly error?: Failure;
  readonly usage: Usage;
  readonly steps?: readonly Step[];
};

/** A question that a run waits on. */
export type Approval = {
  readonly id: string;
  readonly session: string;
  readonly run: string;
  readonly message: string;
  readonly call: string;
  readonly name: string;
  readonly effects: Effects;
  readonly arguments: Json;
  readonly argumentsHash: string;
  readonly status: "pending" | "approved" | "denied" | "expired" | "voided";
  readonly requestedAt: string;
  readonly expiresAt?: string;
  readonly decidedAt?: string;
  readonly by?: string;
  readonly note?: string;
  readonly edited?: Json;
};

/** A message that was accepted and waits for its turn. */
export type InboxItem = {
  readonly message: Message;
  readonly mode: OnBusy;
  readonly run: string;
  readonly output: string;
  readonly spareRun?: string;
  readonly agent?: string;
  readonly digest?: string;
  readonly queuedAt: string;
};

/** A session in a list. */
export type SessionRow = {
  readonly id: string;
  readonly title: string;
  readonly agent?: string;
  readonly status: "idle" | RunStatus;
  readonly run?: string;
  readonly approvals: number;
  readonly inbox: number;
  readonly seq: number;
  readonly createdAt: string;
  readonly updatedAt: string;
  /** The session whose tool call a subagent's session is for. */
  readonly parent?: string;
  readonly metadata?: Json;
  /** What a fork was copied from. */
  readonly forkedFrom?: { readonly session: string; readonly message: string };
};

/** The messages that follow the head on other branches, by role, oldest first. */
export type Below = { readonly [role: string]: readonly string[] };

/**
 * A session at one seq: what a page is rebuilt from. `messages` are the last of
 * the active branch, oldest first; `hasMore` says that it goes on before them.
 */
export type Snapshot = {
  readonly session: SessionRow;
  readonly seq: number;
  readonly head?: string;
  readonly messages: readonly Message[];
  readonly hasMore: boolean;
  readonly below?: Below | undefined;
  /** What open background runs were asked and write: no branch shows it. */
  readonly aside?: readonly Message[] | undefined;
  readonly runs: readonly Run[];
  readonly approvals: readonly Approval[];
  readonly inbox: readonly InboxItem[];
};

/** What an event belongs to, and when it was. */
type Envelope = {
  readonly session: string;
  readonly seq: number;
  readonly at: string;
  readonly run?: string;
  readonly step?: number;
  readonly attempt?: number;
};

type OfMessage = { readonly message: string };
type OfCall = { readonly message: string; readonly call: string };
type Streamed = OfMessage & { readonly part: number; readonly text: string };

/** The payload of each type of event. */
export type EventData = {
  "session.created": {
    readonly tenant: string;
    readonly owner: string;
    readonly title?: string;
    readonly agent?: string;
    readonly metadata?: Json;
    readonly parent?: ParentCall;
  };
  "session.forked": { readonly session: string; readonly message: string };
  "session.updated": { readonly title?: string; readonly metadata?: Json; readonly head?: string };
  "message.created": { readonly message: Message; readonly digest?: string };
  "message.completed": OfMessage & { readonly parts?: readonly Part[] };
  "message.interrupted": OfMessage & { readonly reason: string; readonly parts?: readonly Part[] };
  "inbox.queued": { readonly item: InboxItem };
  "inbox.edited": { readonly id: string; readonly parts: readonly Part[]; readonly by?: string };
  "inbox.removed": { readonly id: string; readonly by?: string };
  "inbox.delivered": { readonly id: string; readonly run: string };
  "run.queued": {
    readonly agent: string;
    readonly input: string;
    readonly message: string;
    readonly background?: boolean;
    readonly title?: string;
    readonly retryOf?: string;
    readonly fromStep?: number;
    readonly parentRunId?: string;
    readonly parent?: ParentCall;
    readonly depth?: number;
    readonly tokenLimit?: number;
  };
  "run.started": { readonly worker: string; readonly fence: number };
  "run.waiting": { readonly reason: WaitingReason; readonly until?: string; readonly error?: Failure };
  "run.resumed": { readonly worker: string; readonly fence: number; readonly after: string };
  "run.cancel_requested": { readonly by: string; readonly reason?: string; readonly deadline: string };
  "run.reconciled": {
    readonly cause: string;
    readonly evidence?: Json;
    readonly decision: string;
    readonly until?: string;
  };
  "run.completed": { readonly usage: Usage };
  "run.failed": { readonly error: Failure; readonly usage: Usage };
  "run.cancelled": { readonly by: string; readonly reason?: string; readonly usage: Usage };
  "step.started": OfMessage & { readonly because?: string; readonly context?: StepContext };
  "context.compacted": {
    readonly upTo?: Mark;
    readonly summary?: string;
    readonly told?: Mark;
    readonly shortened?: Mark;
    readonly because: string;
    readonly window?: number;
    readonly before: number;
    readonly after: number;
    readonly error?: Failure;
    readonly usage: Usage;
  };
  "attempt.failed": OfMessage & {
    readonly error: Failure;
    readonly parts?: readonly Part[];
    readonly retryAt?: string;
  };
  "text.delta": Streamed;
  "reasoning.delta": Streamed;
  "tool.input.delta": Streamed & { readonly call: string; readonly name: string };
  "model.completed": OfMessage & {
    readonly parts: readonly Part[];
    readonly finish: string;
    readonly usage: Usage;
  };
  "step.completed": { readonly [key: string]: never };
  "tool.called": OfCall & {
    readonly name: string;
    readonly arguments?: Json;
    readonly rawArguments?: string;
    readonly argumentsBlob?: Blob;
    readonly effects: Effects;
    readonly approval?: string;
  };
  "tool.started": OfCall & { readonly try: number; readonly key: string; readonly child?: Child };
  "tool.deferred": OfCall & { readonly until?: string };
  "tool.progress": OfCall & { readonly progress: Progress };
  "tool.completed": OfCall & {
    readonly result: Json;
    readonly blob?: Blob;
    readonly files?: readonly File[];
    readonly cut?: number;
    readonly by?: string;
    readonly usage?: Usage;
  };
  "tool.failed": OfCall & { readonly error: Failure; readonly by?: string; readonly usage?: Usage };
  "tool.denied": OfCall & { readonly by?: string; readonly note?: string };
  "tool.cancelled": OfCall & { readonly reason?: string };
  "tool.unknown": OfCall & { readonly evidence?: Json };
  "tool.resolved": OfCall & { readonly outcome: Outcome; readonly by: string; readonly note?: string };
  "approval.requested": { readonly approval: Approval };
  "approval.decided": {
    readonly id: string;
    readonly decision: Decision;
    readonly by: string;
    readonly note?: string;
    readonly arguments?: Json;
  };
  "approval.expired": { readonly id: string };
  "approval.voided": { readonly id: string; readonly reason?: string };
};

/** An event of a type that this version knows. */
export type KnownEvent = {
  [T in keyof EventData]: Envelope & { readonly type: T; readonly data: EventData[T] };
}[keyof EventData];

/** One entry of a session's log. Types that this version does not know are carried as they came. */
export type LogEvent = KnownEvent | (Envelope & { readonly type: string & {}; readonly data: unknown });

/** A range of deltas that retention dropped because a fact says the same. */
export type Folded = {
  readonly type: "folded";
  readonly session: string;
  readonly from: number;
  readonly to: number;
  readonly into?: string;
};

/** A piece of a log: an event or a folded range. Frames of a log join without a hole. */
export type Frame = LogEvent | Folded;

/** A piece of a log with its end: `more` says that it goes on after the last frame. */
export type EventPage = {
  readonly session: string;
  readonly after: number;
  readonly frames: readonly Frame[];
  readonly head: number;
  readonly more: boolean;
  readonly reset?: boolean;
};

/** Earlier messages of a branch, oldest first, as they were at `seq`. */
export type MessagePage = {
  readonly messages: readonly Message[];
  readonly hasMore: boolean;
  readonly seq: number;
};

/** A page of a list. No `next`: the end. */
export type Page<T> = { readonly items: readonly T[]; readonly next?: string };

/** A part of a message that a person sends. */
export type OutgoingPart =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "file"; readonly file: { mediaType: string; name?: string; url: string } }
  | { readonly type: "data"; readonly data: Json };

/** What is asked of the server to say something. `parent: ""` begins a new root. */
export type Submission = {
  readonly id: string;
  readonly parts: readonly OutgoingPart[];
  readonly onBusy?: OnBusy;
  readonly agent?: string;
  readonly background?: boolean;
  readonly parent?: string;
};

/** What a message became. `inbox` is there while it waits. */
export type Accepted = {
  readonly message: Message;
  readonly run: Run;
  readonly seq: number;
  readonly inbox?: InboxItem;
};

/** One thing that can be asked, and with what tools. */
export type Agent = {
  readonly name: string;
  readonly description?: string;
  readonly model: string;
  readonly tools: readonly {
    readonly name: string;
    readonly description: string;
    readonly effects: Effects;
    readonly approval: "never" | "always" | "unless_read_only" | "rule" | (string & {});
  }[];
};
