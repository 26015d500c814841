package session

import "slices"

// Retry asks for a new run on the input of one that ended: its answer becomes a sibling of the old one.
type Retry struct {
	Run        string // the run to retry
	ID, Output string // fresh ids: of the new run, and of the message it writes
	// Done is what the new run goes on from. The zero value: it begins anew.
	Done Finished
}

// Finished are the steps of a run that ended which its retry does not repeat.
type Finished struct {
	// Parts are the steps as the run's last message has them, with the result of every call.
	Parts []Part
	// Next is the step that follows them; 0: none is finished.
	Next int
}

// FinishedOf are the finished steps of a run that failed or was cancelled: those whose
// model call was answered. run has its steps, and wrote is the last message it wrote,
// with its parts. A run that completed, or did not end, has none.
func FinishedOf(run *Run, wrote *Message) Finished {
	if run.Status != Failed && run.Status != Cancelled {
		return Finished{}
	}
	last := max(run.FromStep-1, 0)
	for i := range run.Steps {
		if st := &run.Steps[i]; st.AnsweredAt != nil {
			last = max(last, st.Step)
		}
	}
	if last == 0 {
		return Finished{}
	}
	done := Finished{Next: last + 1}
	for _, p := range wrote.Parts {
		if p.Step <= last && p.State == "" && (p.Tool == nil || p.Tool.Status.Settled()) {
			done.Parts = append(done.Parts, p)
		}
	}
	return done
}

// Decide queues the new run and opens its message, which begins with what is
// done. It follows what the old run's last message followed: what was steered
// into that run is not said again. The same ID again is fine. Errors: NotFound,
// Conflict (the ID is taken, or was used to retry otherwise), RunNotTerminal, RunActive.
func (c Retry) Decide(s *State) ([]Event, error) {
	old := s.Run(c.Run)
	if old == nil {
		return nil, notFound("run", c.Run)
	}
	again := s.Run(c.ID)
	spare := slices.ContainsFunc(s.Inbox, func(item *InboxItem) bool { return item.SpareRun == c.ID })
	if spare || again != nil && (again.RetryOf != c.Run || again.FromStep != c.Done.Next) {
		err := refuse(Conflict, "the run id %q is taken: choose a new id", c.ID)
		err.Field = "id"
		return nil, err
	}
	if again != nil {
		return nil, nil
	}
	if !old.Status.Terminal() {
		return nil, NotTerminal(old)
	}
	if active := s.Active(); active != nil && !old.Background {
		run := *active
		err := refuse(RunActive, "the run %s is %s: wait for it or cancel it", active.ID, active.Status)
		err.Run = &run
		return nil, err
	}
	input := old.Input
	if m := s.Message(old.Message); m != nil && m.Parent != "" {
		input = m.Parent
	}
	if s.Message(input) == nil {
		return nil, refuse(NotFound, "the message that the run %s would have answered was removed: send it again", old.ID)
	}
	return []Event{
		{Run: c.ID, Data: RunQueued{
			Agent: old.Agent, Input: input, Message: c.Output, Background: old.Background, RetryOf: old.ID,
			FromStep: c.Done.Next, Title: old.Title, ParentRunID: old.ParentRunID,
		}},
		{Run: c.ID, Data: MessageCreated{Message: answerOf(c.ID, c.Output, input, c.Done.Parts)}},
	}, nil
}

// answerOf is the message that a run is about to write.
func answerOf(run, id, input string, parts []Part) Message {
	if parts == nil {
		parts = []Part{}
	}
	return Message{ID: id, Role: RoleAssistant, Parent: input, Parts: parts, Status: MessageStreaming, Run: run}
}

// NotTerminal refuses to retry a run that has not ended.
func NotTerminal(old *Run) error {
	run := *old
	run.Steps = nil
	err := refuse(RunNotTerminal, "the run %s is %s: only a run that has ended can be retried", old.ID, old.Status)
	err.Run = &run
	return err
}
