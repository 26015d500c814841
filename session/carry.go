package session

import (
	"fmt"
	"slices"
	"time"
)

// Claim takes a due run for a worker and raises its fence.
type Claim struct {
	Run    string
	Worker string
	At     time.Time

	// Fence is set by Decide.
	Fence int64
}

// Decide starts or resumes the run. Errors: NotFound, NotDue.
func (c *Claim) Decide(s *State) ([]Event, error) {
	run := s.Run(c.Run)
	if run == nil {
		return nil, notFound("run", c.Run)
	}
	w := s.WorkOf(run)
	if !w.Due || c.At.Before(w.At) {
		return nil, refuse(NotDue, "the run %s is %s and not due", run.ID, run.Status)
	}
	c.Fence = run.Fence + 1
	if run.Status == Waiting {
		return []Event{{Run: run.ID, Data: RunResumed{Worker: c.Worker, Fence: c.Fence, After: run.WaitingReason}}}, nil
	}
	started := Event{Run: run.ID, Data: RunStarted{Worker: c.Worker, Fence: c.Fence}}
	// Queued again is not a state of ours, but a log is a log. A retry has its message from the start.
	if run.StartedAt != nil || s.Message(run.Message) != nil {
		return []Event{started}, nil
	}
	open := Event{Run: run.ID, Data: MessageCreated{Message: answerOf(run.ID, run.Message, run.Input, nil)}}
	return []Event{started, open}, nil
}

// Carry is the rule of every write that a worker makes: the run must still be
// carried under fence. write sees the run and gives the events.
//
// Errors: Fenced when another worker has it or it has ended; CancelIsRequested
// when a cancel is recorded and the events would do anything but bring it to
// its end: start a step or a tool, ask for an approval, or wait.
func Carry(runID string, fence int64, write func(s *State, run *Run) ([]Event, error)) Decide {
	return func(s *State) ([]Event, error) {
		run := s.Run(runID)
		if run == nil {
			return nil, notFound("run", runID)
		}
		if run.Status != Running || run.Fence != fence {
			return nil, refuse(Fenced, "the run %s is %s under fence %d, not carried under fence %d", run.ID, run.Status, run.Fence, fence)
		}
		events, err := write(s, run)
		if err != nil {
			return nil, err
		}
		for i := range events {
			e := &events[i]
			if e.Run == "" && !tells(e.Data) {
				e.Run = run.ID
			}
			switch e.Data.(type) {
			case StepStarted, ToolStarted, ApprovalRequested, RunWaiting:
				if run.CancelRequestedAt != nil {
					return nil, refuse(CancelIsRequested, "the run %s is being cancelled", run.ID)
				}
			}
		}
		return events, nil
	}
}

// tells says that an event tells the conversation the result of a background run: it is no part of any run.
func tells(d Data) bool {
	m, ok := d.(MessageCreated)
	return ok && m.Message.Background != nil
}

// Reconcile takes a run away from a worker that is gone or leaving.
type Reconcile struct {
	Run   string
	Fence int64 // of the lease that ended; another fence means that somebody was faster
	Cause ReconcileCause
	// Evidence says what was seen.
	Evidence string
	At       time.Time
	// MaxCrashes ends the run when that many workers were lost since the last
	// completed step. Backoff says when the run is due after its n-th crash (n from 1).
	MaxCrashes int
	Backoff    func(n int) time.Duration
}

// Decide hands the run over, lets it continue later, or fails it. What the
// lost worker had half done is closed: a streaming attempt failed, and a call
// with side effects that had started has an unknown outcome. Errors: NotFound, Fenced.
func (c Reconcile) Decide(s *State) ([]Event, error) {
	run := s.Run(c.Run)
	if run == nil {
		return nil, notFound("run", c.Run)
	}
	if run.Status != Running || run.Fence != c.Fence {
		return nil, refuse(Fenced, "the run %s is %s under fence %d", run.ID, run.Status, run.Fence)
	}
	r := RunReconciled{Cause: c.Cause, Evidence: c.Evidence, Decision: "continue"}
	crash := c.Cause == CauseLeaseExpired || c.Cause == CauseRestart
	cut := s.cutOff(run, crash)
	switch {
	case run.CancelRequestedAt != nil:
		r.Decision = "cancel"
		// What was being said is kept as said: no attempt of it will follow.
		cut = slices.DeleteFunc(cut, func(e Event) bool { _, attempt := e.Data.(AttemptFailed); return attempt })
		events := append([]Event{{Run: run.ID, Data: r}}, cut...)
		return append(events, s.End(run, RunCancelled{By: run.CancelBy, Reason: run.CancelReason, Usage: run.Usage})...), nil
	case c.Cause == CauseDrain:
		r.Decision = "hand_over"
	case crash && c.MaxCrashes > 0 && run.Crashes+1 >= c.MaxCrashes:
		r.Decision = "fail"
		events := append([]Event{{Run: run.ID, Data: r}}, cut...)
		return append(events, s.End(run, RunFailed{Usage: run.Usage, Error: Failure{
			Code:    "crash",
			Message: fmt.Sprintf("%d workers in a row were lost while they carried this step", run.Crashes+1),
		}})...), nil
	case crash && c.Backoff != nil:
		if wait := c.Backoff(run.Crashes + 1); wait > 0 {
			until := c.At.Add(wait).UTC().Truncate(time.Millisecond)
			r.Until = &until
		}
	}
	events := append([]Event{{Run: run.ID, Data: r}}, cut...)
	if s.outcomeWillBeUnknown(run) {
		// Of its other calls one may wait for something that has a time.
		events = append(events, Event{Run: run.ID, Data: RunWaiting{Reason: WaitToolOutcome, Until: s.firstDeadline(run)}})
	}
	return events, nil
}

// cutOff closes what a worker left half done, lost or leaving.
func (s *State) cutOff(run *Run, lost bool) []Event {
	m := s.Message(run.Message)
	if m == nil {
		return nil
	}
	var events []Event
	emit := func(d Data) {
		events = append(events, Event{Run: run.ID, Step: run.CurrentStep, Attempt: run.Attempt, Data: d})
	}
	if st := lastStep(run); st != nil && st.AnsweredAt == nil && st.Error == nil {
		failure := Failure{Code: "worker_left", Message: "the worker that made this model call is shutting down", Retryable: true}
		if lost {
			failure.Code, failure.Message = "worker_lost", "the worker that made this model call was lost"
		}
		emit(AttemptFailed{Message: m.ID, Parts: m.Streamed(), Error: failure})
	}
	for _, c := range s.Calls(run) {
		if c.Status == CallStarted && c.Effects != ReadOnly && c.Effects != Idempotent {
			emit(ToolUnknown{Message: m.ID, Call: c.ID, Evidence: "its worker went away after it started this call"})
		}
	}
	return events
}

// firstDeadline is when the first of the run's pending approvals expires or of
// its deferred calls is given up, or nil if none is.
func (s *State) firstDeadline(run *Run) *time.Time {
	var first *time.Time
	consider := func(at *time.Time) {
		if at != nil && (first == nil || at.Before(*first)) {
			copied := *at
			first = &copied
		}
	}
	for _, a := range s.Approvals {
		if a.Run == run.ID && a.Status == StatusPending {
			consider(a.ExpiresAt)
		}
	}
	for _, c := range s.Calls(run) {
		if c.Status == CallDeferred {
			consider(c.Until)
		}
	}
	return first
}

func (s *State) outcomeWillBeUnknown(run *Run) bool {
	for _, c := range s.Calls(run) {
		if c.Status == CallUnknown || c.Status == CallStarted && c.Effects != ReadOnly && c.Effects != Idempotent {
			return true
		}
	}
	return false
}

// Steers are the waiting messages that the run must hear before its next model call.
func (s *State) Steers(run *Run) []*InboxItem {
	var steers []*InboxItem
	for _, item := range s.Inbox {
		if item.Mode == Steer && item.Run == run.ID {
			steers = append(steers, item)
		}
	}
	return steers
}

// DeliverSteers are the events that tell the run its steers: what it said so
// far ends as one message, the steers follow, and a new message is opened for
// what it says next. None while a call of the step has no result: it must come first.
func (s *State) DeliverSteers(run *Run) []Event {
	steers := s.Steers(run)
	open := func(c *ToolCall) bool { return !c.Status.Settled() }
	if len(steers) == 0 || slices.ContainsFunc(s.Calls(run), open) {
		return nil
	}
	events := []Event{{Run: run.ID, Data: MessageCompleted{Message: run.Message}}}
	parent := run.Message
	for _, item := range steers {
		m := item.Message
		m.Parent, m.Run = parent, run.ID
		events = append(events,
			Event{Run: run.ID, Data: InboxDelivered{ID: m.ID, Run: run.ID}},
			Event{Run: run.ID, Data: MessageCreated{Message: m, Digest: item.Digest}})
		parent = m.ID
	}
	last := steers[len(steers)-1]
	return append(events, Event{Run: run.ID, Data: MessageCreated{Message: answerOf(run.ID, last.Output, parent, nil)}})
}
