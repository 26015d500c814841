package session

import (
	"encoding/json"
	"time"
)

// The payloads, by subject. Their names on the wire are in their Type methods.
// Fields are added, never changed.

// Created begins a session. Its owner never changes.
type Created struct {
	Tenant   string          `json:"tenant"`
	Owner    string          `json:"owner"`
	Title    string          `json:"title,omitempty"`
	Agent    string          `json:"agent,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// Parent is the tool call that a subagent's session is for.
	Parent *ParentCall `json:"parent,omitempty"`
}

// Updated changes what is set: a title, metadata, or the head message that
// chooses the active branch.
type Updated struct {
	Title    *string         `json:"title,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Head     *string         `json:"head,omitempty"`
}

// Forked says that the session began as a copy: message.created follow for what was copied.
type Forked Origin

// MessageCreated adds a message to the tree: a user message as it is delivered,
// or the assistant message that a run is about to write.
type MessageCreated struct {
	Message Message `json:"message"`
	// Digest is the fingerprint of the submission, for idempotency.
	Digest string `json:"digest,omitempty"`
}

// MessageCompleted ends an assistant message that said all it had to say.
type MessageCompleted struct {
	Message string `json:"message"`
	// Parts is what had been streamed and no fact carries yet: see [MessageInterrupted].
	Parts []Part `json:"parts,omitempty"`
}

// MessageInterrupted ends an assistant message whose run was cancelled or
// failed. What had been said is kept.
type MessageInterrupted struct {
	Message string `json:"message"`
	Reason  string `json:"reason"` // "cancelled" or "failed"
	// Parts is what an attempt without an answer had streamed, with the step of
	// each. It replaces the streamed parts, so that they survive their deltas. A
	// part that attempt.failed kept already is not added again.
	Parts []Part `json:"parts,omitempty"`
}

// InboxQueued accepts a message that waits for its turn.
type InboxQueued struct {
	Item InboxItem `json:"item"`
}

// InboxEdited replaces the parts of a waiting message.
type InboxEdited struct {
	ID    string `json:"id"`
	Parts []Part `json:"parts"`
	By    string `json:"by,omitempty"`
}

// InboxRemoved takes a waiting message back.
type InboxRemoved struct {
	ID string `json:"id"`
	By string `json:"by,omitempty"`
}

// InboxDelivered moves a waiting message out of the inbox. A message.created with its
// content follows at once, or, for a steer that outlived its run, a run.queued of its own.
type InboxDelivered struct {
	ID  string `json:"id"`
	Run string `json:"run"`
}

// RunQueued accepts a run.
type RunQueued struct {
	Agent      string `json:"agent"`
	Input      string `json:"input"`   // the user message it answers
	Message    string `json:"message"` // the assistant message it will write
	Background bool   `json:"background,omitempty"`
	// Title is the beginning of what a background run was asked.
	Title   string `json:"title,omitempty"`
	RetryOf string `json:"retryOf,omitempty"`
	// FromStep is the step it goes on with, if it does not begin anew.
	FromStep    int    `json:"fromStep,omitempty"`
	ParentRunID string `json:"parentRunId,omitempty"`
	// Parent, Depth and TokenLimit are those of a subagent's run: see [Run].
	Parent     *ParentCall `json:"parent,omitempty"`
	Depth      int         `json:"depth,omitempty"`
	TokenLimit int         `json:"tokenLimit,omitempty"`
}

// RunStarted is the first claim of a run.
type RunStarted struct {
	Worker string `json:"worker"`
	Fence  int64  `json:"fence"`
}

// RunWaiting says that nobody carries the run until something happens.
type RunWaiting struct {
	Reason WaitingReason `json:"reason"`
	// Until is when it goes on by itself, if it does.
	Until *time.Time `json:"until,omitempty"`
	Error *Failure   `json:"error,omitempty"`
}

// RunResumed is a later claim of a run that waited.
type RunResumed struct {
	Worker string        `json:"worker"`
	Fence  int64         `json:"fence"`
	After  WaitingReason `json:"after"`
}

// RunCancelRequested records the wish to cancel. The run is terminal by Deadline.
type RunCancelRequested struct {
	By       string    `json:"by"`
	Reason   string    `json:"reason,omitempty"`
	Deadline time.Time `json:"deadline"`
}

// RunReconciled explains what the system did about a run that was not carried as it should be.
type RunReconciled struct {
	Cause    ReconcileCause `json:"cause"`
	Evidence string         `json:"evidence,omitempty"` // what was seen: the worker, its fence, the lease's end
	Decision string         `json:"decision"`           // "continue", "hand_over", "fail" or "cancel"
	// Until is when a continued run is due. Nil means now.
	Until *time.Time `json:"until,omitempty"`
}

// RunCompleted ends a run that did what it was asked.
type RunCompleted struct {
	Usage Usage `json:"usage"`
	// Result is what a background run has to tell when the active run ends: its message.created follows then.
	Result *Message `json:"result,omitempty"`
}

// RunFailed ends a run that cannot go on.
type RunFailed struct {
	Error  Failure  `json:"error"`
	Usage  Usage    `json:"usage"`
	Result *Message `json:"result,omitempty"` // as that of [RunCompleted]
}

// RunCancelled ends a run that was cancelled.
type RunCancelled struct {
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
	Usage  Usage  `json:"usage"`
}

// StepStarted begins a try of a step's model call. Attempt k+1 supersedes
// everything that attempt k of the same step streamed.
type StepStarted struct {
	Message string `json:"message"`           // the assistant message the step writes to
	Because string `json:"because,omitempty"` // for attempts after the first: "retry" or "crash"
	// Context says what the model is shown. Absent in logs from before it was kept.
	Context *StepContext `json:"context,omitempty"`
}

// AttemptFailed ends a try of a model call that gave no answer. Its parts
// replace what had been streamed, which it keeps: [Message.Streamed] gives them.
type AttemptFailed struct {
	Message string     `json:"message"`
	Error   Failure    `json:"error"`
	Parts   []Part     `json:"parts,omitempty"`
	RetryAt *time.Time `json:"retryAt,omitempty"` // nil: no further try
}

// TextDelta adds text to a streamed part. Part numbers the parts of this attempt from 0.
type TextDelta struct {
	Message string `json:"message"`
	Part    int    `json:"part"`
	Text    string `json:"text"`
}

// ReasoningDelta adds reasoning to a streamed part.
type ReasoningDelta struct {
	Message string `json:"message"`
	Part    int    `json:"part"`
	Text    string `json:"text"`
}

// ToolInputDelta adds raw argument text to a call that the model is still
// writing. It is for show: only tool.called makes a call.
type ToolInputDelta struct {
	Message string `json:"message"`
	Part    int    `json:"part"`
	Call    string `json:"call"`
	Name    string `json:"name"`
	Text    string `json:"text"`
}

// ModelCompleted is the whole answer of a model call. Its parts replace what was streamed.
type ModelCompleted struct {
	Message string `json:"message"`
	Parts   []Part `json:"parts"`
	Finish  string `json:"finish"` // stop, length, tool_calls or content_filter
	Usage   Usage  `json:"usage"`
}

// StepCompleted ends a step: its model call answered and each of its tool calls has a result.
type StepCompleted struct{}

// ToolCalled records a call that the model made.
type ToolCalled struct {
	Message string `json:"message"`
	Call    string `json:"call"`
	Name    string `json:"name"`
	// Arguments is the JSON object. Where the model wrote none, it is absent and RawArguments has the text.
	Arguments    json.RawMessage `json:"arguments,omitempty"`
	RawArguments string          `json:"rawArguments,omitempty"`
	// ArgumentsBlob holds arguments over 64 KiB; Arguments is then absent.
	ArgumentsBlob *Blob   `json:"argumentsBlob,omitempty"`
	Effects       Effects `json:"effects"`
	// Approval is the id of the approval it waits for, if it needs one.
	Approval string `json:"approval,omitempty"`
}

// ToolStarted is durable before the tool acts.
type ToolStarted struct {
	Message string `json:"message"`
	Call    string `json:"call"`
	Try     int    `json:"try"` // counts the starts of this call from 1
	Key     string `json:"key"` // the idempotency key, equal for every try
	// Child is the run that will do the work of a subagent's call.
	Child *Child `json:"child,omitempty"`
}

// ToolDeferred says that others work on a started call: a subagent's run, or a
// service that answers later. A tool.completed or tool.failed ends it.
type ToolDeferred struct {
	Message string `json:"message"`
	Call    string `json:"call"`
	// Until is when it is given up. Nil: never.
	Until *time.Time `json:"until,omitempty"`
}

// ToolProgress is the newest report of a running call.
type ToolProgress struct {
	Message string `json:"message"`
	Call    string `json:"call"`
	// Progress has a message of its own, so it is not embedded in the JSON.
	Progress Progress `json:"progress"`
}

// ToolCompleted is the result of a call.
type ToolCompleted struct {
	Message string `json:"message"`
	Call    string `json:"call"`
	// Result is the JSON value, or for a value over 64 KiB a preview as a JSON string, with Blob set.
	Result json.RawMessage `json:"result"`
	Blob   *Blob           `json:"blob,omitempty"`
	// Files are what the call gave beside its result, each with its Blob.
	Files []File `json:"files,omitempty"`
	// Cut is how many bytes of the tool's output were over the limit and not kept.
	Cut int64 `json:"cut,omitempty"`
	// By names the person who said that an unknown outcome was this one.
	By string `json:"by,omitempty"`
	// Usage is what a subagent's run used: it counts as its parent's.
	Usage *Usage `json:"usage,omitempty"`
}

// ToolFailed is a failed call. The model reads the error.
type ToolFailed struct {
	Message string  `json:"message"`
	Call    string  `json:"call"`
	Error   Failure `json:"error"`
	By      string  `json:"by,omitempty"`
	Usage   *Usage  `json:"usage,omitempty"` // as in [ToolCompleted]
}

// ToolDenied is a call that a person did not allow, or that nobody allowed in time.
type ToolDenied struct {
	Message string `json:"message"`
	Call    string `json:"call"`
	By      string `json:"by,omitempty"`
	Note    string `json:"note,omitempty"`
}

// ToolCancelled is a call that ended because its run did.
type ToolCancelled struct {
	Message string `json:"message"`
	Call    string `json:"call"`
	Reason  string `json:"reason,omitempty"`
}

// ToolUnknown is a call with side effects that had started when its worker died. A person must say what happened.
type ToolUnknown struct {
	Message  string `json:"message"`
	Call     string `json:"call"`
	Evidence string `json:"evidence,omitempty"`
}

// ToolResolved is a person's word on an unknown outcome. For "happened" and
// "failed" a tool.completed or tool.failed follows at once.
type ToolResolved struct {
	Message string  `json:"message"`
	Call    string  `json:"call"`
	Outcome Outcome `json:"outcome"`
	By      string  `json:"by"`
	Note    string  `json:"note,omitempty"`
}

// ApprovalRequested asks a person about one call with exactly these arguments.
type ApprovalRequested struct {
	Approval Approval `json:"approval"`
}

// ApprovalDecided is the first and only decision.
type ApprovalDecided struct {
	ID       string   `json:"id"`
	Decision Decision `json:"decision"`
	By       string   `json:"by"`
	Note     string   `json:"note,omitempty"`
	// Arguments replaces the call's arguments, if the person edited them.
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// ApprovalExpired ends an approval that nobody decided in time.
type ApprovalExpired struct {
	ID string `json:"id"`
}

// ApprovalVoided ends an approval whose run ended.
type ApprovalVoided struct {
	ID     string `json:"id"`
	Reason string `json:"reason,omitempty"`
}

// Type is "session.created".
func (Created) Type() string { return "session.created" }

// Type is "session.updated".
func (Updated) Type() string { return "session.updated" }

// Type is "session.forked".
func (Forked) Type() string { return "session.forked" }

// Type is "message.created".
func (MessageCreated) Type() string { return "message.created" }

// Type is "message.completed".
func (MessageCompleted) Type() string { return "message.completed" }

// Type is "message.interrupted".
func (MessageInterrupted) Type() string { return "message.interrupted" }

// Type is "inbox.queued".
func (InboxQueued) Type() string { return "inbox.queued" }

// Type is "inbox.edited".
func (InboxEdited) Type() string { return "inbox.edited" }

// Type is "inbox.removed".
func (InboxRemoved) Type() string { return "inbox.removed" }

// Type is "inbox.delivered".
func (InboxDelivered) Type() string { return "inbox.delivered" }

// Type is "run.queued".
func (RunQueued) Type() string { return "run.queued" }

// Type is "run.started".
func (RunStarted) Type() string { return "run.started" }

// Type is "run.waiting".
func (RunWaiting) Type() string { return "run.waiting" }

// Type is "run.resumed".
func (RunResumed) Type() string { return "run.resumed" }

// Type is "run.cancel_requested".
func (RunCancelRequested) Type() string { return "run.cancel_requested" }

// Type is "run.reconciled".
func (RunReconciled) Type() string { return "run.reconciled" }

// Type is "run.completed".
func (RunCompleted) Type() string { return "run.completed" }

// Type is "run.failed".
func (RunFailed) Type() string { return "run.failed" }

// Type is "run.cancelled".
func (RunCancelled) Type() string { return "run.cancelled" }

// Type is "step.started".
func (StepStarted) Type() string { return "step.started" }

// Type is "attempt.failed".
func (AttemptFailed) Type() string { return "attempt.failed" }

// Type is "text.delta".
func (TextDelta) Type() string { return "text.delta" }

// Type is "reasoning.delta".
func (ReasoningDelta) Type() string { return "reasoning.delta" }

// Type is "tool.input.delta".
func (ToolInputDelta) Type() string { return "tool.input.delta" }

// Type is "model.completed".
func (ModelCompleted) Type() string { return "model.completed" }

// Type is "step.completed".
func (StepCompleted) Type() string { return "step.completed" }

// Type is "tool.called".
func (ToolCalled) Type() string { return "tool.called" }

// Type is "tool.started".
func (ToolStarted) Type() string { return "tool.started" }

// Type is "tool.deferred".
func (ToolDeferred) Type() string { return "tool.deferred" }

// Type is "tool.progress".
func (ToolProgress) Type() string { return "tool.progress" }

// Type is "tool.completed".
func (ToolCompleted) Type() string { return "tool.completed" }

// Type is "tool.failed".
func (ToolFailed) Type() string { return "tool.failed" }

// Type is "tool.denied".
func (ToolDenied) Type() string { return "tool.denied" }

// Type is "tool.cancelled".
func (ToolCancelled) Type() string { return "tool.cancelled" }

// Type is "tool.unknown".
func (ToolUnknown) Type() string { return "tool.unknown" }

// Type is "tool.resolved".
func (ToolResolved) Type() string { return "tool.resolved" }

// Type is "approval.requested".
func (ApprovalRequested) Type() string { return "approval.requested" }

// Type is "approval.decided".
func (ApprovalDecided) Type() string { return "approval.decided" }

// Type is "approval.expired".
func (ApprovalExpired) Type() string { return "approval.expired" }

// Type is "approval.voided".
func (ApprovalVoided) Type() string { return "approval.voided" }

var _ = []struct{}{
	register[Created](), register[Updated](), register[Forked](),
	register[MessageCreated](), register[MessageCompleted](), register[MessageInterrupted](),
	register[InboxQueued](), register[InboxEdited](), register[InboxRemoved](), register[InboxDelivered](),
	register[RunQueued](), register[RunStarted](), register[RunWaiting](), register[RunResumed](),
	register[RunCancelRequested](), register[RunReconciled](),
	register[RunCompleted](), register[RunFailed](), register[RunCancelled](),
	register[StepStarted](), register[AttemptFailed](), register[TextDelta](), register[ReasoningDelta](),
	register[ToolInputDelta](), register[ModelCompleted](), register[StepCompleted](),
	register[ToolCalled](), register[ToolStarted](), register[ToolDeferred](), register[ToolProgress](), register[ToolCompleted](),
	register[ToolFailed](), register[ToolDenied](), register[ToolCancelled](), register[ToolUnknown](), register[ToolResolved](),
	register[ApprovalRequested](), register[ApprovalDecided](), register[ApprovalExpired](), register[ApprovalVoided](),
}
