/**
 * The fold: what an event does to a state, as PROTOCOL.md §7 has it. It is the
 * same function as the server's, and both replay `protocol/cases`. It has no
 * clock and does no I/O. An event that does not fit changes nothing but the
 * cursor.
 *
 * @module
 */

import { Draft, type Mutable } from "./draft.ts";
import { isTerminal, type State } from "./state.ts";
import type { Approval, EventData, Failure, Frame, KnownEvent, Part, Run, ToolCall, Usage } from "./wire.ts";

const deltas = new Set(["text.delta", "reasoning.delta", "tool.input.delta", "tool.progress"]);

/** Whether a frame is of a type that retention may fold away. All others are facts. */
export function isDelta(frame: Frame): boolean {
  return deltas.has(frame.type);
}

/** The seqs that a frame covers. */
export function rangeOf(frame: Frame): { from: number; to: number } {
  return isFolded(frame) ? frame : { from: frame.seq, to: frame.seq };
}

/** Folds one frame. See {@link foldAll}. */
export function fold(state: State, frame: Frame): State {
  return foldAll(state, [frame]);
}

/**
 * Folds frames in the order of their log. What the state has already is passed
 * over. The given state is not changed, and the new one shares with it what is
 * the same. A frame that does not join what came before is a `RangeError`: who
 * reads a log has to see the gap before.
 */
export function foldAll(state: State, frames: readonly Frame[]): State {
  const draft = new Draft(state);
  for (const frame of frames) {
    const { from, to } = rangeOf(frame);
    const { shown } = draft;
    if (to <= shown.seq) continue;
    if (from > shown.seq + 1) throw new RangeError(`no frame joins ${shown.seq}`);
    shown.seq = to;
    if (isFolded(frame)) continue;
    if (!isDelta(frame)) Object.assign(shown.session, { seq: to, updatedAt: frame.at });
    if (Object.hasOwn(effects, frame.type))
      effects[frame.type as "run.queued"](draft, frame as Of<"run.queued">);
  }
  return draft.finish();
}

function isFolded(frame: Frame): frame is Extract<Frame, { type: "folded" }> {
  return frame.type === "folded" && "from" in frame;
}

type Of<T extends keyof EventData> = Extract<KnownEvent, { type: T }>;

/** What each event does, in the order of the protocol's page. What is not here changes nothing but the cursor. */
const effects: { readonly [T in keyof EventData]: (draft: Draft, e: Of<T>) => void } = {
  "session.created"(draft, { at, data: { title, agent, metadata, parent } }) {
    const fields = { title, agent, metadata, parent: parent?.session };
    Object.assign(draft.shown.session, given(fields), { createdAt: at });
  },
  "session.forked"(draft, { data }) {
    draft.shown.session.forkedFrom = data;
  },
  "session.updated"(draft, { data: { title, metadata, head } }) {
    if (title !== undefined) draft.shown.session.title = title;
    if (metadata !== undefined) draft.shown.session.metadata = metadata;
    if (head) draft.moveHead(head);
  },

  "message.created"(draft, { seq, at, data: { message } }) {
    if (!message.id || draft.knows(message.id)) return;
    const run = draft.run(message.run);
    const status = message.status || "completed";
    draft.addMessage({ ...message, status, seq, createdAt: at }, run?.background);
    if (run && message.role === "assistant" && run.message !== message.id) {
      draft.writableRun(run).message = message.id;
    }
  },
  "message.completed": (draft, { data }) => endMessage(draft, data, "completed"),
  "message.interrupted": (draft, { data }) => endMessage(draft, data, "interrupted"),

  "inbox.queued"(draft, { at, data }) {
    const item = { ...data.item, queuedAt: at };
    const jumps = (mode: string) => mode === "interrupt" || mode === "rollback";
    const { inbox } = draft.shown;
    const behind = jumps(item.mode) ? inbox.findIndex((other) => !jumps(other.mode)) : -1;
    draft.shown.inbox =
      behind < 0 ? [...inbox, item] : [...inbox.slice(0, behind), item, ...inbox.slice(behind)];
  },
  "inbox.edited"(draft, { data: { id, parts } }) {
    draft.shown.inbox = draft.shown.inbox.map((item) =>
      item.message.id === id ? { ...item, message: { ...item.message, parts } } : item,
    );
  },
  "inbox.removed": (draft, { data }) => dropInbox(draft, data.id),
  "inbox.delivered": (draft, { data }) => dropInbox(draft, data.id),

  "run.queued"(draft, e) {
    const { run: id, data } = e;
    if (!id || draft.run(id)) return;
    draft.writableRun({
      ...data,
      id,
      session: e.session,
      status: "queued",
      currentStep: 0,
      fence: 0,
      queuedAt: e.at,
      usage: { inputTokens: 0, outputTokens: 0 },
    });
    // A steer whose run ended first now has a run of its own.
    const steer = draft.shown.inbox.find((item) => item.message.id === data.input && item.mode === "steer");
    if (!steer) return;
    draft.shown.inbox = draft.shown.inbox.map((item) =>
      item === steer ? { ...item, mode: "enqueue", run: id } : item,
    );
  },
  "run.started": (draft, e) => carry(draft, e, { startedAt: e.at }),
  "run.resumed": (draft, e) => carry(draft, e),
  "run.waiting"(draft, e) {
    const run = openRun(draft, e);
    if (!run) return;
    const { reason, until, error } = e.data;
    leave(run, e.at);
    delete run.error;
    wait(run, reason, until, error);
  },
  "run.cancel_requested"(draft, e) {
    const run = openRun(draft, e);
    if (!run || run.cancelRequestedAt) return;
    const { by, reason, deadline } = e.data;
    const fields = { cancelDeadline: deadline, cancelBy: by, cancelReason: reason };
    Object.assign(run, { cancelRequestedAt: e.at }, given(fields));
  },
  "run.reconciled"(draft, e) {
    const run = openRun(draft, e);
    if (!run) return;
    const { cause, until } = e.data;
    if (cause === "lease_expired" || cause === "restart") {
      run.crashes = (run.crashes ?? 0) + 1;
      delete run.claimedAt; // nobody knows how long its worker lived
    }
    leave(run, e.at);
    wait(run, "worker", until);
    run.fence++;
  },
  "run.completed": (draft, e) => endRun(draft, e, "completed"),
  "run.failed": (draft, e) => endRun(draft, e, "failed", { error: e.data.error }),
  "run.cancelled"(draft, e) {
    const run = draft.run(e.run);
    const { by, reason } = e.data;
    endRun(draft, e, "cancelled", {
      cancelBy: run?.cancelBy || by,
      cancelReason: run?.cancelReason || reason,
    });
  },

  "step.started"(draft, e) {
    const run = openRun(draft, e);
    if (!run) return;
    Object.assign(run, { currentStep: e.step ?? 0 }, given({ attempt: e.attempt }));
    // An attempt supersedes the one before.
    replaceParts(draft, e, () => true, [{ type: "step", ...place(e) }]);
  },
  "attempt.failed"(draft, e) {
    if (!openRun(draft, e)) return;
    const parts = e.data.parts?.map((p): Part => ({ ...p, ...place(e), state: "failed" }));
    replaceParts(draft, e, (p) => p.state === "streaming", parts ?? []);
  },
  "text.delta": (draft, e) => stream(draft, e, "text"),
  "reasoning.delta": (draft, e) => stream(draft, e, "reasoning"),
  "tool.input.delta"(draft, e) {
    const part = streamed(draft, e, "tool");
    if (!part) return;
    const { call: id, name, text } = e.data;
    const call = part.tool ?? { id, name, status: "writing" };
    part.tool = { ...call, rawArguments: (call.rawArguments ?? "") + text };
  },
  "model.completed"(draft, e) {
    const run = openRun(draft, e);
    if (!run) return;
    run.usage = sum(run.usage, e.data.usage);
    const parts = e.data.parts.map(({ part: _, ...p }, i): Part => {
      // Its calls are none until their `tool.called`, which follow in the same append.
      const tool: ToolCall | undefined = p.tool && { ...p.tool, status: "writing" };
      return { ...p, ...place(e), ...given({ part: i, tool }) };
    });
    replaceParts(draft, e, (p) => p.type !== "step", parts);
  },
  "context.compacted"(draft, e) {
    const run = openRun(draft, e);
    if (run) run.usage = sum(run.usage, e.data.usage);
  },
  "step.completed"(draft, e) {
    const run = openRun(draft, e);
    if (run) delete run.crashes;
  },

  "tool.called"(draft, e) {
    const { message, call: id, ...fields } = e.data;
    const m = draft.writing(message);
    if (!m) return;
    m.parts = m.parts.filter((p) => p.state !== "streaming" || p.tool?.id !== id);
    if (!m.parts.some((p) => p.tool?.id === id)) {
      draft.addPart(m, { type: "tool", ...place(e), tool: { id, name: fields.name, status: "writing" } });
    }
    const call = draft.call(m, id);
    if (call?.status !== "writing") return;
    delete call.arguments;
    delete call.rawArguments;
    delete call.argumentsBlob;
    Object.assign(call, fields, { status: "called" });
  },
  "tool.started": (draft, e) => change(draft, e, "started", { startedAt: e.at }),
  "tool.deferred": (draft, e) => change(draft, e, "deferred"),
  "tool.progress"(draft, e) {
    const call = openCall(draft, e);
    if (call) call.progress = e.data.progress;
  },
  "tool.completed": (draft, e) => endCall(draft, e, "completed", { result: null }),
  "tool.failed": (draft, e) => endCall(draft, e, "failed", {}),
  "tool.denied": (draft, e) => change(draft, e, "denied", { endedAt: e.at }),
  "tool.cancelled": (draft, e) => change(draft, e, "cancelled", { endedAt: e.at, note: e.data.reason }),
  "tool.unknown": (draft, e) => change(draft, e, "unknown"),
  "tool.resolved"(draft, e) {
    const call = openCall(draft, e);
    if (call?.status === "unknown") said(call, e.data).status = "called";
  },

  "approval.requested"(draft, { at, data: { approval } }) {
    const run = draft.run(approval.run);
    if (!run || isTerminal(run) || draft.shown.approvals.some((a) => a.id === approval.id)) return;
    draft.shown.approvals = [...draft.shown.approvals, { ...approval, status: "pending", requestedAt: at }];
  },
  "approval.decided"(draft, { data }) {
    const approval = endApproval(draft, data.id);
    const m = approval && draft.writing(approval.message);
    const call = m && draft.call(m, approval.call);
    if (!call) return;
    said(call, data);
    if (data.arguments === undefined) return;
    call.arguments = data.arguments;
    delete call.argumentsBlob;
  },
  "approval.expired": (draft, { data }) => endApproval(draft, data.id),
  "approval.voided": (draft, { data }) => endApproval(draft, data.id),
};

type InMessage = { readonly message: string; readonly parts?: readonly Part[]; readonly reason?: string };

function endMessage(draft: Draft, data: InMessage, status: "completed" | "interrupted"): void {
  const m = draft.writing(data.message);
  if (!m) return;
  const whole = status === "completed";
  const parts = m.parts.filter(
    (p) => p.state !== "streaming" && p.tool?.status !== "writing" && !(whole && p.state === "failed"),
  );
  for (const p of data.parts ?? []) {
    if (!parts.some((q) => q.step === p.step && q.part === p.part && q.type === p.type)) parts.push(p);
  }
  while (whole && parts.at(-1)?.type === "step") parts.pop();
  Object.assign(m, { status, parts }, given({ reason: data.reason }));
}

/** Puts parts in the place of those of the event's step that go. */
function replaceParts(
  draft: Draft,
  e: Of<"step.started" | "attempt.failed" | "model.completed">,
  goes: (part: Part) => boolean,
  parts: readonly Part[],
): void {
  const m = draft.writing(e.data.message);
  if (m) m.parts = [...m.parts.filter((p) => p.step !== e.step || !goes(p)), ...parts];
}

function place(e: KnownEvent): { step?: number } {
  return e.step ? { step: e.step } : {};
}

type Delta = Of<"text.delta" | "reasoning.delta" | "tool.input.delta">;

/** The part of the event's attempt that is growing, for writing. Undefined if the message cannot change. */
function streamed(draft: Draft, e: Delta, type: string): Mutable<Part> | undefined {
  const { message, part } = e.data;
  const m = draft.writing(message);
  if (!m) return undefined;
  for (let i = m.parts.length - 1; m.parts[i]?.state === "streaming"; i--) {
    const p = m.parts[i];
    if (p && (p.part ?? 0) === part && p.step === e.step && p.type === type) return draft.part(m, i);
  }
  return draft.addPart(m, { type, ...place(e), ...given({ part }), state: "streaming" });
}

function stream(draft: Draft, e: Delta, type: string): void {
  const p = streamed(draft, e, type);
  if (p) p.text = (p.text ?? "") + e.data.text;
}

type InCall = {
  readonly data: {
    readonly message: string;
    readonly call: string;
    readonly reason?: string;
    readonly usage?: Usage;
    readonly evidence?: unknown;
  };
};

/** The call, for writing, if something can still happen to it. */
function openCall(draft: Draft, { data }: InCall): Mutable<ToolCall> | undefined {
  const m = draft.writing(data.message);
  const call = m && draft.call(m, data.call);
  return call && !isSettled(call) ? call : undefined;
}

function isSettled(call: ToolCall): boolean {
  return isTerminal(call) || call.status === "denied";
}

type CallFields = { [K in keyof ToolCall]?: ToolCall[K] | undefined };

/** Gives the call another status, and sets what is given and what the event says, if something can still happen to it. */
function change(
  draft: Draft,
  e: InCall,
  status: ToolCall["status"],
  fields: CallFields = {},
): Mutable<ToolCall> | undefined {
  const call = openCall(draft, e);
  if (!call) return undefined;
  delete call.progress;
  delete call.until;
  const { message: _, call: __, reason: ___, evidence: ____, usage: _____, ...said } = e.data;
  return Object.assign(call, { status }, given(fields), said);
}

/** Ends a call that was made. What a subagent used counts as its parent's. */
function endCall(
  draft: Draft,
  e: Of<"tool.completed" | "tool.failed">,
  status: ToolCall["status"],
  fields: CallFields,
): void {
  const { usage } = e.data;
  const run = change(draft, e, status, { ...fields, endedAt: e.at }) && usage && openRun(draft, e);
  if (run) run.usage = sum(run.usage, usage);
}

/** Sets who spoke on a call, and what they said. */
function said(call: Mutable<ToolCall>, { by, note }: { by?: string; note?: string }): Mutable<ToolCall> {
  delete call.by;
  delete call.note;
  return Object.assign(call, given({ by, note }));
}

function dropInbox(draft: Draft, id: string): void {
  draft.shown.inbox = draft.shown.inbox.filter((item) => item.message.id !== id);
}

function endApproval(draft: Draft, id: string): Approval | undefined {
  const approval = draft.shown.approvals.find((a) => a.id === id);
  if (approval) draft.shown.approvals = draft.shown.approvals.filter((a) => a !== approval);
  return approval;
}

/** The run, for writing, if something can still happen to it. */
function openRun(draft: Draft, e: { readonly run?: string }): Mutable<Run> | undefined {
  const run = draft.run(e.run);
  return run && !isTerminal(run) ? draft.writableRun(run) : undefined;
}

function endRun(
  draft: Draft,
  e: { readonly run?: string; readonly at: string; readonly data: { readonly usage: Usage } },
  status: "completed" | "failed" | "cancelled",
  fields: object = {},
): void {
  const run = openRun(draft, e);
  if (!run) return;
  leave(run, e.at);
  forgetWait(run);
  delete run.error;
  Object.assign(run, { status, finishedAt: e.at, usage: e.data.usage }, given(fields));
  draft.shown.approvals = draft.shown.approvals.filter((a) => a.run !== run.id);
}

/** Has a worker carry the run. */
function carry(draft: Draft, e: Of<"run.started" | "run.resumed">, fields?: { startedAt: string }): void {
  const run = openRun(draft, e);
  if (!run) return;
  const { worker, fence } = e.data;
  forgetWait(run);
  delete run.error;
  Object.assign(run, { status: "running", claimedAt: e.at, worker, fence }, fields);
}

function wait(run: Mutable<Run>, waitingReason: string, waitingUntil?: string, error?: Failure): void {
  forgetWait(run);
  Object.assign(run, { status: "waiting" }, given({ waitingReason, waitingUntil, error }));
}

function forgetWait(run: Mutable<Run>): void {
  delete run.waitingReason;
  delete run.waitingUntil;
}

/** Ends the time in which a worker carried the run. */
function leave(run: Mutable<Run>, at: string): void {
  const ms = run.claimedAt ? Date.parse(at) - Date.parse(run.claimedAt) : 0;
  if (ms > 0) run.carriedMs = (run.carriedMs ?? 0) + ms;
  delete run.worker;
  delete run.claimedAt;
}

function sum(a: Usage, b: Usage): Usage {
  const total: Record<string, number> = { ...a };
  for (const [key, tokens] of Object.entries(b)) total[key] = (total[key] ?? 0) + tokens;
  return total as Usage;
}

/** The fields that say something: on the wire, what is empty is absent. */
function given<T extends object>(fields: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value)) as {
    [K in keyof T]?: Exclude<T[K], undefined>;
  };
}
