package session

import "time"

// Status is where a run is: queued → running ⇄ waiting → completed | failed | cancelled.
type Status string

// The run statuses.
const (
	Queued    Status = "queued"
	Running   Status = "running"
	Waiting   Status = "waiting"
	Completed Status = "completed"
	Failed    Status = "failed"
	Cancelled Status = "cancelled"
)

// Terminal says that nothing more happens to a run.
func (s Status) Terminal() bool { return s == Completed || s == Failed || s == Cancelled }

// WaitingReason says what a waiting run waits for.
type WaitingReason string

// The waiting reasons.
const (
	WaitApproval    WaitingReason = "approval"     // a person's decision
	WaitToolOutcome WaitingReason = "tool_outcome" // a person's word on what a call did
	WaitChildRun    WaitingReason = "child_run"    // the end of a subagent's run
	WaitCallback    WaitingReason = "callback"     // the result of a call that others are working on
	WaitRetry       WaitingReason = "retry"        // the time of the next attempt
	WaitWorker      WaitingReason = "worker"       // a worker to carry on after a crash or a deploy
)

// ReconcileCause says why the system stepped in.
type ReconcileCause string

// The reconcile causes.
const (
	CauseLeaseExpired  ReconcileCause = "lease_expired"  // the worker was not heard of in time
	CauseRestart       ReconcileCause = "restart"        // the process that carried it is gone
	CauseDrain         ReconcileCause = "drain"          // the worker is shutting down
	CauseCancelTimeout ReconcileCause = "cancel_timeout" // the worker did not end a cancelled run in time
)

// Run is one execution. Times are UTC.
type Run struct {
	ID         string `json:"id"`
	Session    string `json:"session"`
	Status     Status `json:"status"`
	Agent      string `json:"agent"`
	Input      string `json:"input"`   // the user message it answers
	Message    string `json:"message"` // the assistant message it writes now
	Background bool   `json:"background,omitempty"`
	// Title is the beginning of what a background run was asked.
	Title   string `json:"title,omitempty"`
	RetryOf string `json:"retryOf,omitempty"`
	// FromStep is the step that a retry goes on with: its message begins with the steps before. 0: it began anew.
	FromStep    int    `json:"fromStep,omitempty"`
	ParentRunID string `json:"parentRunId,omitempty"`
	// Parent is the tool call whose work this run is: its result is the run's answer.
	Parent *ParentCall `json:"parent,omitempty"`
	// Depth counts the runs above this one; TokenLimit is what they leave it to use, 0: no limit but its agent's.
	Depth      int `json:"depth,omitempty"`
	TokenLimit int `json:"tokenLimit,omitempty"`

	CurrentStep   int           `json:"currentStep"`
	Attempt       int           `json:"attempt,omitempty"`
	WaitingReason WaitingReason `json:"waitingReason,omitempty"`
	WaitingUntil  *time.Time    `json:"waitingUntil,omitempty"`

	Worker string `json:"worker,omitempty"` // who carries it; empty when nobody does
	Fence  int64  `json:"fence"`            // grows with every claim
	// ClaimedAt is when the worker took it; CarriedMs is how long workers carried it before that, in milliseconds.
	ClaimedAt *time.Time `json:"claimedAt,omitempty"`
	CarriedMs int64      `json:"carriedMs,omitempty"`
	// Crashes counts workers lost since the last completed step.
	Crashes int `json:"crashes,omitempty"`

	QueuedAt   time.Time  `json:"queuedAt"`
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`

	CancelRequestedAt *time.Time `json:"cancelRequestedAt,omitempty"`
	CancelDeadline    *time.Time `json:"cancelDeadline,omitempty"`
	CancelBy          string     `json:"cancelBy,omitempty"`
	CancelReason      string     `json:"cancelReason,omitempty"`

	Error *Failure `json:"error,omitempty"`
	Usage Usage    `json:"usage"`
	Steps []Step   `json:"steps,omitempty"`
}

// ParentCall names a tool call of a run in another session.
type ParentCall struct {
	Session string `json:"session"`
	Run     string `json:"run"`
	Call    string `json:"call"`
}

// Child names the run that does the work of a tool call, in a session of its own.
type Child struct {
	Session string `json:"session"`
	Run     string `json:"run"`
	Agent   string `json:"agent"`
}

// Step is one attempt at one model call, with the tool calls it asked for.
// The attempts of one step follow each other.
type Step struct {
	Step        int          `json:"step"`
	Attempt     int          `json:"attempt"`
	Because     string       `json:"because,omitempty"`
	Message     string       `json:"message,omitempty"` // the assistant message it writes to
	Context     *StepContext `json:"context,omitempty"`
	StartedAt   time.Time    `json:"startedAt"`
	AnsweredAt  *time.Time   `json:"answeredAt,omitempty"`
	CompletedAt *time.Time   `json:"completedAt,omitempty"`
	Finish      string       `json:"finish,omitempty"`
	Usage       *Usage       `json:"usage,omitempty"`
	Error       *Failure     `json:"error,omitempty"`
	RetryAt     *time.Time   `json:"retryAt,omitempty"`
}

// Usage counts tokens, 0 where the provider does not say.
type Usage struct {
	InputTokens     int `json:"inputTokens"`
	OutputTokens    int `json:"outputTokens"`
	ReasoningTokens int `json:"reasoningTokens,omitempty"`
	CachedTokens    int `json:"cachedTokens,omitempty"`
}

// Add is the sum of two usages.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		InputTokens: u.InputTokens + v.InputTokens, OutputTokens: u.OutputTokens + v.OutputTokens,
		ReasoningTokens: u.ReasoningTokens + v.ReasoningTokens, CachedTokens: u.CachedTokens + v.CachedTokens,
	}
}

// Failure is why something failed, for people and programs.
type Failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	// Retryable says that trying again may help.
	Retryable bool `json:"retryable,omitempty"`
}

// OnBusy says what to do with a message when a run is active.
type OnBusy string

// The ways to be busy. Enqueue is the default.
const (
	Enqueue   OnBusy = "enqueue"   // run it after the active run
	Reject    OnBusy = "reject"    // refuse it, naming the active run
	Interrupt OnBusy = "interrupt" // cancel the active run, keep what it said, then run it
	Rollback  OnBusy = "rollback"  // cancel the active run and drop it from the active branch, then run it
	Steer     OnBusy = "steer"     // tell the active run before its next model call
)

// InboxItem is a message that was accepted and waits for its turn.
type InboxItem struct {
	Message Message `json:"message"`
	Mode    OnBusy  `json:"mode"`
	// Run will answer it.
	Run string `json:"run"`
	// Output is the id of the assistant message that will answer it.
	Output string `json:"output"`
	// SpareRun is the id of the run that answers a steer whose run ends first.
	SpareRun string    `json:"spareRun,omitempty"`
	Digest   string    `json:"digest,omitempty"`
	Agent    string    `json:"agent,omitempty"`
	QueuedAt time.Time `json:"queuedAt"`
}

// Decision is what a person decided.
type Decision string

// The decisions.
const (
	Approve Decision = "approve"
	Deny    Decision = "deny"
)

// ApprovalStatus is where an approval is: pending → approved | denied | expired | voided.
type ApprovalStatus string

// The approval statuses.
const (
	StatusPending  ApprovalStatus = "pending"
	StatusApproved ApprovalStatus = "approved"
	StatusDenied   ApprovalStatus = "denied"
	StatusExpired  ApprovalStatus = "expired"
	StatusVoided   ApprovalStatus = "voided"
)
