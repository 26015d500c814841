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
import type { EventData, Frame, KnownEvent, Message, Part, Run, ToolCall, Usage } from "./wire.ts";

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
    if (to <= draft.seq) continue;
    if (from > draft.seq + 1) throw new RangeError(`the frame ${from}..${to} does not join ${draft.seq}`);
    draft.seq = to;
    if (!isFolded(frame)) apply(draft, frame as KnownEvent);
  }
  return draft.finish();
}

function isFolded(frame: Frame): frame is Extract<Frame, { type: "folded" }> {
  return frame.type === "folded" && "from" in frame;
}

function apply(draft: Draft, e: KnownEvent): void {
  if (!isDelta(e)) draft.fact(e.seq, e.at);
  switch (e.type) {
    case "text.delta":
      stream(draft, e, "text");
      break;
    case "reasoning.delta":
      stream(draft, e, "reasoning");
      break;
    case "tool.input.delta":
      streamCall(draft, e);
      break;
    case "session.created":
    case "session.updated":
      changeSession(draft, e);
      break;
    case "message.created":
      addMessage(draft, e);
      break;
    case "message.completed":
      endMessage(draft, e.data);
      break;
    case "message.interrupted":
      endMessage(draft, e.data, e.data.reason);
      break;
    case "inbox.queued":
    case "inbox.edited":
    case "inbox.removed":
    case "inbox.delivered":
      changeInbox(draft, e);
      break;
    case "approval.requested":
    case "approval.decided":
    case "approval.expired":
    case "approval.voided":
      changeApprovals(draft, e);
      break;
    case "run.queued":
      addRun(draft, e);
      break;
    case "tool.called":
      addCall(draft, e);
      break;
    case "step.started":
    case "attempt.failed":
    case "model.completed":
    case "step.completed":
      changeStep(draft, e);
      break;
    default:
      if (e.type.startsWith("tool.")) changeCall(draft, e);
      else if (e.type.startsWith("run.")) changeRun(draft, e);
  }
}

type Of<T extends keyof EventData> = Extract<KnownEvent, { type: T }>;

function changeSession(draft: Draft, e: Of<"session.created" | "session.updated">): void {
  const { title, metadata } = e.data;
  if (e.type === "session.created") {
    draft.session.createdAt = e.at;
    if (e.data.agent) draft.session.agent = e.data.agent;
  }
  if (title !== undefined) draft.session.title = title;
  if (metadata !== undefined) draft.session.metadata = metadata;
  if (e.type === "session.updated" && e.data.head) draft.moveHead(e.data.head);
}

function addMessage(draft: Draft, e: Of<"message.created">): void {
  const { message } = e.data;
  if (!message.id || draft.knows(message.id)) return;
  const run = draft.run(message.run);
  draft.addMessage(
    { ...message, status: message.status || "completed", seq: e.seq, createdAt: e.at },
    !run?.background,
  );
  if (run && message.role === "assistant" && run.message !== message.id) {
    draft.writableRun(run).message = message.id;
  }
}

function endMessage(
  draft: Draft,
  data: { readonly message: string; readonly parts?: readonly Part[] },
  reason?: string,
): void {
  const m = draft.writing(data.message);
  if (!m) return;
  const whole = reason === undefined;
  m.status = whole ? "completed" : "interrupted";
  if (reason) m.reason = reason;
  const parts = m.parts.filter(
    (p) => p.state !== "streaming" && p.tool?.status !== "writing" && !(whole && p.state === "failed"),
  );
  for (const p of data.parts ?? []) {
    if (!parts.some((q) => q.step === p.step && q.part === p.part && q.type === p.type)) parts.push(p);
  }
  while (whole && parts.at(-1)?.type === "step") parts.pop();
  m.parts = parts;
}

/** The part of the event's attempt that is growing, for writing. Undefined if the message cannot change. */
function streamed(draft: Draft, e: Of<"text.delta" | "reasoning.delta" | "tool.input.delta">, type: string) {
  const { message, part } = e.data;
  const m = draft.writing(message);
  if (!m) return undefined;
  for (let i = m.parts.length - 1; m.parts[i]?.state === "streaming"; i--) {
    const p = m.parts[i];
    if (p && (p.part ?? 0) === part && p.step === e.step && p.type === type) return draft.part(m, i);
  }
  const place = { ...(e.step && { step: e.step }), ...(part && { part }) };
  return draft.addPart(m, { type, ...place, state: "streaming" });
}

function stream(draft: Draft, e: Of<"text.delta" | "reasoning.delta">, type: string): void {
  const p = streamed(draft, e, type);
  if (p) p.text = (p.text ?? "") + e.data.text;
}

function streamCall(draft: Draft, e: Of<"tool.input.delta">): void {
  const p = streamed(draft, e, "tool");
  if (!p) return;
  const { call: id, name, text } = e.data;
  const call = p.tool ?? { id, name, status: "writing" as const };
  p.tool = { ...call, rawArguments: (call.rawArguments ?? "") + text };
}

function addCall(draft: Draft, e: Of<"tool.called">): void {
  const { message, call: id, ...fields } = e.data;
  const m = draft.writing(message);
  if (!m) return;
  m.parts = m.parts.filter((p) => p.state !== "streaming" || p.tool?.id !== id);
  if (!m.parts.some((p) => p.tool?.id === id)) {
    const tool: ToolCall = { id, name: fields.name, status: "writing" };
    draft.addPart(m, { type: "tool", ...(e.step && { step: e.step }), tool });
  }
  const call = draft.call(m, id);
  if (call?.status !== "writing") return;
  delete call.arguments;
  delete call.rawArguments;
  delete call.argumentsBlob;
  const { name, arguments: args, rawArguments, argumentsBlob, effects, approval } = fields;
  Object.assign(call, given({ name, arguments: args, rawArguments, argumentsBlob, effects, approval }));
  call.status = "called";
}

function isSettled(call: Pick<ToolCall, "status">): boolean {
  const { status } = call;
  return status === "completed" || status === "failed" || status === "denied" || status === "cancelled";
}

function changeCall(draft: Draft, e: KnownEvent): void {
  const data = e.data as { message: string; call: string };
  const m = draft.writing(data.message);
  const call = m && draft.call(m, data.call);
  if (!call || isSettled(call)) return;
  const settle = (status: ToolCall["status"], fields: object) => {
    delete call.progress;
    Object.assign(call, given(fields), { status, endedAt: e.at });
  };
  switch (e.type) {
    case "tool.started":
      delete call.progress;
      Object.assign(call, given({ try: e.data.try, key: e.data.key }), {
        status: "started",
        startedAt: e.at,
      });
      break;
    case "tool.progress":
      call.progress = e.data.progress;
      break;
    case "tool.completed":
      settle("completed", { blob: e.data.blob, cut: e.data.cut, by: e.data.by });
      call.result = e.data.result ?? null;
      break;
    case "tool.failed":
      settle("failed", { error: e.data.error, by: e.data.by });
      break;
    case "tool.denied":
      settle("denied", { by: e.data.by, note: e.data.note });
      break;
    case "tool.cancelled":
      settle("cancelled", { note: e.data.reason });
      break;
    case "tool.unknown":
      call.status = "unknown";
      delete call.progress;
      break;
    case "tool.resolved":
      if (call.status !== "unknown") break;
      call.status = "called";
      said(call, e.data);
      break;
  }
}

/** Sets who spoke on a call, and what they said. */
function said(call: Mutable<ToolCall>, data: { by?: string; note?: string }): void {
  delete call.by;
  delete call.note;
  Object.assign(call, given({ by: data.by, note: data.note }));
}

function addRun(draft: Draft, e: Of<"run.queued">): void {
  if (!e.run || draft.run(e.run)) return;
  const { agent, input, message, background, retryOf, parentRunId } = e.data;
  draft.addRun({
    id: e.run,
    session: e.session,
    status: "queued",
    agent,
    input,
    message,
    ...given({ background, retryOf, parentRunId }),
    currentStep: 0,
    fence: 0,
    queuedAt: e.at,
    usage: { inputTokens: 0, outputTokens: 0 },
  });
  const run = e.run;
  const steer = draft.inbox.find((item) => item.message.id === input && item.mode === "steer");
  if (!steer) return;
  draft.inbox = draft.inbox.map((item) => (item === steer ? { ...item, mode: "enqueue", run } : item));
}

type OpenRun = Mutable<Run>;

/** The run, for writing, if something can still happen to it. */
function openRun(draft: Draft, id: string | undefined): OpenRun | undefined {
  const run = draft.run(id);
  return run && !isTerminal(run) ? draft.writableRun(run) : undefined;
}

function changeRun(draft: Draft, e: KnownEvent): void {
  const run = openRun(draft, e.run);
  if (!run) return;
  switch (e.type) {
    case "run.started":
    case "run.resumed":
      if (e.type === "run.started") run.startedAt = e.at;
      else forgetWait(run, true);
      Object.assign(
        run,
        { status: "running", fence: e.data.fence, claimedAt: e.at },
        given({ worker: e.data.worker }),
      );
      break;
    case "run.waiting": {
      leave(run, e.at);
      forgetWait(run, true);
      const { reason: waitingReason, until: waitingUntil, error } = e.data;
      Object.assign(run, { status: "waiting" }, given({ waitingReason, waitingUntil, error }));
      break;
    }
    case "run.cancel_requested":
      if (run.cancelRequestedAt) break;
      Object.assign(run, { cancelRequestedAt: e.at, cancelDeadline: e.data.deadline });
      Object.assign(run, given({ cancelBy: e.data.by, cancelReason: e.data.reason }));
      break;
    case "run.reconciled":
      if (e.data.cause === "lease_expired" || e.data.cause === "restart")
        run.crashes = (run.crashes ?? 0) + 1;
      leave(run, e.at);
      forgetWait(run, false);
      Object.assign(
        run,
        { status: "waiting", waitingReason: "worker" },
        given({ waitingUntil: e.data.until }),
      );
      run.fence++;
      break;
    case "run.completed":
      endRun(draft, run, "completed", e);
      break;
    case "run.failed":
      run.error = e.data.error;
      endRun(draft, run, "failed", e);
      break;
    case "run.cancelled":
      Object.assign(
        run,
        given({ cancelBy: run.cancelBy || e.data.by, cancelReason: run.cancelReason || e.data.reason }),
      );
      endRun(draft, run, "cancelled", e);
      break;
  }
}

function endRun(
  draft: Draft,
  run: OpenRun,
  status: "completed" | "failed" | "cancelled",
  e: { readonly at: string; readonly data: { readonly usage: Usage } },
): void {
  leave(run, e.at);
  forgetWait(run, status !== "failed");
  Object.assign(run, { status, finishedAt: e.at, usage: e.data.usage });
  if (draft.approvals.some((a) => a.run === run.id)) {
    draft.approvals = draft.approvals.filter((a) => a.run !== run.id);
  }
}

function forgetWait(run: OpenRun, error: boolean): void {
  delete run.waitingReason;
  delete run.waitingUntil;
  if (error) delete run.error;
}

/** Ends the time in which a worker carried the run. */
function leave(run: OpenRun, at: string): void {
  const ms = run.claimedAt ? Date.parse(at) - Date.parse(run.claimedAt) : 0;
  if (ms > 0) run.carriedMs = (run.carriedMs ?? 0) + ms;
  delete run.worker;
  delete run.claimedAt;
}

function changeStep(
  draft: Draft,
  e: Of<"step.started" | "attempt.failed" | "model.completed" | "step.completed">,
): void {
  const run = openRun(draft, e.run);
  if (!run) return;
  if (e.type === "step.started")
    Object.assign(run, { currentStep: e.step ?? 0 }, given({ attempt: e.attempt }));
  if (e.type === "model.completed") run.usage = sum(run.usage, e.data.usage);
  if (e.type === "step.completed") {
    delete run.crashes;
    return;
  }
  const m = draft.writing(e.data.message);
  if (!m) return;
  const place = e.step ? { step: e.step } : {};
  if (e.type === "step.started") {
    m.parts = m.parts.filter((p) => p.step !== e.step);
    m.parts = [...m.parts, { type: "step", ...place }];
  } else if (e.type === "attempt.failed") {
    const kept = m.parts.filter((p) => p.step !== e.step || p.state !== "streaming");
    m.parts = [...kept, ...(e.data.parts ?? []).map((p): Part => ({ ...p, ...place, state: "failed" }))];
  } else {
    const kept = m.parts.filter((p) => p.step !== e.step || p.type === "step");
    m.parts = [...kept, ...e.data.parts.map((p, i) => answered(p, i, place))];
  }
}

/** A part of an answer. Its call is not one until its `tool.called`, which follows in the same append. */
function answered(part: Part, index: number, place: { step?: number }): Part {
  const { part: _, ...rest } = part;
  return {
    ...rest,
    ...place,
    ...(index && { part: index }),
    ...(part.tool && { tool: { ...part.tool, status: "writing" } }),
  };
}

function sum(a: Usage, b: Usage): Usage {
  const both = (key: keyof Usage) => (a[key] ?? 0) + (b[key] ?? 0) || undefined;
  return {
    inputTokens: a.inputTokens + b.inputTokens,
    outputTokens: a.outputTokens + b.outputTokens,
    ...given({ reasoningTokens: both("reasoningTokens"), cachedTokens: both("cachedTokens") }),
  };
}

function changeInbox(
  draft: Draft,
  e: Of<"inbox.queued" | "inbox.edited" | "inbox.removed" | "inbox.delivered">,
): void {
  if (e.type === "inbox.queued") {
    const item = { ...e.data.item, queuedAt: e.at };
    const jumps = (mode: string) => mode === "interrupt" || mode === "rollback";
    const behind = draft.inbox.findIndex((other) => !jumps(other.mode));
    const at = jumps(item.mode) && behind >= 0 ? behind : draft.inbox.length;
    draft.inbox = [...draft.inbox.slice(0, at), item, ...draft.inbox.slice(at)];
    return;
  }
  const { id } = e.data;
  if (!draft.inbox.some((item) => item.message.id === id)) return;
  if (e.type === "inbox.edited") {
    const { parts } = e.data;
    draft.inbox = draft.inbox.map((item) =>
      item.message.id === id ? { ...item, message: { ...item.message, parts } } : item,
    );
  } else {
    draft.inbox = draft.inbox.filter((item) => item.message.id !== id);
  }
}

function changeApprovals(
  draft: Draft,
  e: Of<"approval.requested" | "approval.decided" | "approval.expired" | "approval.voided">,
): void {
  if (e.type === "approval.requested") {
    const { approval } = e.data;
    if (!openRun(draft, approval.run) || draft.approvals.some((a) => a.id === approval.id)) return;
    draft.approvals = [...draft.approvals, { ...approval, status: "pending", requestedAt: e.at }];
    return;
  }
  const approval = draft.approvals.find((a) => a.id === e.data.id);
  if (!approval) return;
  draft.approvals = draft.approvals.filter((a) => a !== approval);
  if (e.type !== "approval.decided") return;
  const m: Mutable<Message> | undefined = draft.writing(approval.message);
  const call = m && draft.call(m, approval.call);
  if (!call) return;
  said(call, e.data);
  if (e.data.arguments !== undefined) {
    call.arguments = e.data.arguments;
    delete call.argumentsBlob;
  }
}

/** The fields that say something: on the wire, what is empty is absent. */
function given<T extends object>(fields: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(
    Object.entries(fields).filter(([, v]) => v !== undefined && v !== "" && v !== 0 && v !== false),
  ) as { [K in keyof T]?: Exclude<T[K], undefined> };
}
