package session

import (
	"slices"
	"time"
)

// Cancel asks for the end of a run. A run that nobody carries is cancelled at
// once; one that is carried, and one that has a parent or children in other
// sessions, whom a worker must tell first, has until At+Grace. Asking again is fine.
type Cancel struct {
	Run    string
	By     string
	Reason string
	At     time.Time
	Grace  time.Duration
}

// Decide records the wish, and the end where it can. Cancelling a run that was
// cancelled is fine. Errors: NotFound, RunTerminal when it completed or failed first.
func (c Cancel) Decide(s *State) ([]Event, error) {
	run := s.Run(c.Run)
	if run == nil {
		return nil, notFound("run", c.Run)
	}
	return c.decide(s, run, s.Inbox)
}

func (c Cancel) decide(s *State, run *Run, inbox []*InboxItem) ([]Event, error) {
	if run.Status == Cancelled {
		return nil, nil
	}
	if run.Status.Terminal() {
		return nil, terminal(run)
	}
	var events []Event
	first := run.CancelRequestedAt == nil
	if first {
		events = append(events, Event{Run: run.ID, Data: RunCancelRequested{
			By: c.By, Reason: c.Reason, Deadline: c.At.Add(c.Grace).UTC().Truncate(time.Millisecond),
		}})
	}
	if run.Status == Running || s.HasFamily(run) {
		if first { // nobody may approve what will not be done
			events = append(events, s.void(run, "run cancelled")...)
		}
		return events, nil
	}
	return append(events, s.end(run, RunCancelled{By: c.By, Reason: c.Reason, Usage: run.Usage}, inbox)...), nil
}

// HasFamily says that runs in other sessions must be told of the end of run.
func (s *State) HasFamily(run *Run) bool { return run.Parent != nil || len(s.Children(run)) > 0 }

// Children are the runs that do the work of the run's open calls.
func (s *State) Children(run *Run) []Child {
	var children []Child
	for _, c := range s.Calls(run) {
		if c.Child != nil && !c.Status.Settled() {
			children = append(children, *c.Child)
		}
	}
	return children
}

// terminal refuses what a run that has ended cannot do any more.
func terminal(run *Run) *Error {
	ended := *run
	err := refuse(RunTerminal, "the run %s has already ended: it is %s", run.ID, run.Status)
	err.Run = &ended
	return err
}

// CancelOverdue ends a cancelled run whose worker did not end it in time.
type CancelOverdue struct {
	Run string
	At  time.Time
}

// Decide ends the run if its deadline has passed. Errors: NotFound, NotDue.
func (c CancelOverdue) Decide(s *State) ([]Event, error) {
	run := s.Run(c.Run)
	if run == nil {
		return nil, notFound("run", c.Run)
	}
	if run.Status.Terminal() || run.CancelDeadline == nil || c.At.Before(*run.CancelDeadline) {
		return nil, refuse(NotDue, "the run %s has no cancel that is overdue", run.ID)
	}
	events := []Event{{Run: run.ID, Data: RunReconciled{
		Cause: CauseCancelTimeout, Evidence: carriedBy(run), Decision: "cancel",
	}}}
	return append(events, s.end(run, RunCancelled{By: run.CancelBy, Reason: run.CancelReason, Usage: run.Usage}, s.Inbox)...), nil
}

// End is the way a run ends. terminal is RunCompleted, RunFailed or
// RunCancelled. Everything the run left open is closed first, in the same append: calls get
// a result, approvals are voided, the message is completed or interrupted; then
// the next waiting message is delivered.
func (s *State) End(run *Run, terminal Data) []Event { return s.end(run, terminal, s.Inbox) }

func (s *State) end(run *Run, terminal Data, inbox []*InboxItem) []Event {
	reason := ""
	switch terminal.(type) {
	case RunFailed:
		reason = "failed"
	case RunCancelled:
		reason = "cancelled"
	}
	var events []Event
	emit := func(d Data) {
		events = append(events, Event{Run: run.ID, Step: run.CurrentStep, Attempt: run.Attempt, Data: d})
	}
	events = append(events, s.void(run, "run "+firstOf(reason, "completed"))...)
	if m := s.Message(run.Message); m != nil && m.Status == MessageStreaming {
		for _, c := range s.Calls(run) {
			if !c.Status.Settled() {
				emit(ToolCancelled{Message: m.ID, Call: c.ID, Reason: "run " + firstOf(reason, "completed")})
			}
		}
		if reason == "" {
			emit(MessageCompleted{Message: m.ID, Parts: m.Streamed()})
		} else {
			emit(MessageInterrupted{Message: m.ID, Reason: reason, Parts: m.Streamed()})
		}
	}
	// A queued run may end while its message still waits.
	inbox = slices.Clone(inbox)
	for i, item := range inbox {
		if item.Mode != Steer && item.Run == run.ID {
			emit(InboxRemoved{ID: item.Message.ID})
			inbox = slices.Delete(inbox, i, i+1)
			break
		}
	}
	if run.Background {
		return append(events, s.endAside(run, terminal)...)
	}
	events = append(events, Event{Run: run.ID, Data: terminal})
	return append(events, s.next(run, inbox)...)
}

// void ends the run's pending approvals.
func (s *State) void(run *Run, reason string) []Event {
	var events []Event
	for _, a := range s.Approvals {
		if a.Run == run.ID && a.Status == StatusPending {
			events = append(events, Event{
				Run: run.ID, Step: run.CurrentStep, Attempt: run.Attempt,
				Data: ApprovalVoided{ID: a.ID, Reason: reason},
			})
		}
	}
	return events
}

func carriedBy(run *Run) string {
	if run.Worker == "" {
		return "nobody carried it"
	}
	return "worker " + run.Worker
}
