package session

import (
	"encoding/json"
	"slices"
	"time"
)

// Apply folds one event into the state. It is total: an event that does not fit
// (it names a run that is not there, say) changes nothing but Seq. It has no
// clock and does no I/O. Events must come in the order of their seqs.
func (s *State) Apply(e Event) {
	s.Seq = e.Seq
	if !IsDelta(e.Data) {
		s.FactSeq, s.UpdatedAt = e.Seq, e.At
	}
	switch d := e.Data.(type) {
	case TextDelta:
		s.stream(e, d.Message, PartText, d.Part, d.Text)
	case ReasoningDelta:
		s.stream(e, d.Message, PartReasoning, d.Part, d.Text)
	case ToolInputDelta:
		s.streamCall(e, d)
	case ToolProgress:
		if c := s.call(d.Message, d.Call); c != nil {
			p := d.Progress
			c.Progress = &p
		}
	case Created:
		s.Tenant, s.Owner, s.Title, s.Agent, s.Metadata = d.Tenant, d.Owner, d.Title, d.Agent, d.Metadata
		s.Parent = d.Parent
		s.CreatedAt = e.At
		s.changes.Session = true
	case Updated:
		s.update(d)
	case Forked:
		from := Origin(d)
		s.ForkedFrom = &from
		s.changes.Session = true
	case MessageCreated:
		s.addMessage(e, d)
	case MessageCompleted:
		s.endMessage(d.Message, MessageWhole, "", d.Parts)
	case MessageInterrupted:
		s.endMessage(d.Message, MessageCut, d.Reason, d.Parts)
	case InboxQueued, InboxEdited, InboxRemoved, InboxDelivered:
		s.applyInbox(e)
	case ApprovalRequested, ApprovalDecided, ApprovalExpired, ApprovalVoided:
		s.applyApproval(e)
	case ToolCalled, ToolStarted, ToolDeferred, ToolCompleted, ToolFailed, ToolDenied, ToolCancelled, ToolUnknown, ToolResolved:
		s.applyTool(e)
	case RunQueued:
		s.addRun(e, d)
	default:
		s.applyRun(e)
	}
}

func (s *State) update(d Updated) {
	s.changes.Session = true
	if d.Title != nil {
		s.Title = *d.Title
	}
	if d.Metadata != nil {
		s.Metadata = d.Metadata
	}
	if d.Head != nil {
		s.Head = *d.Head
	}
}

func (s *State) addMessage(e Event, d MessageCreated) {
	if d.Message.ID == "" || s.messages[d.Message.ID] != nil {
		return
	}
	m := d.Message
	if s.messages[m.Parent] == nil {
		m.Parent = "" // a tree has no loops and no loose ends
	}
	m.Parts = cloneParts(m.Parts)
	m.Seq, m.CreatedAt = e.Seq, e.At
	if m.Status == "" {
		m.Status = MessageWhole
	}
	s.Messages = append(s.Messages, &m)
	s.messages[m.ID] = &m
	s.Results = slices.DeleteFunc(s.Results, func(told *Message) bool { return told.ID == m.ID })
	if m.Role == RoleUser {
		s.Submissions[m.ID] = Submission{Digest: d.Digest, Run: m.Run}
	}
	run := s.runs[m.Run]
	if run == nil || !run.Background {
		s.Head = m.ID
	}
	if run != nil && m.Role == RoleAssistant && run.Message != m.ID {
		run.Message = m.ID
		s.touchRun(run.ID)
	}
	if m.Status != MessageStreaming {
		s.changes.Messages = append(s.changes.Messages, m.ID)
	}
	s.changes.Session = true
}

// cloneParts copies parts as far as the fold changes them: an event belongs to whoever reads it.
func cloneParts(parts []Part) []Part {
	parts = slices.Clone(parts)
	for i := range parts {
		if t := parts[i].Tool; t != nil {
			call := *t
			parts[i].Tool = &call
		}
	}
	return parts
}

func (s *State) endMessage(id string, status MessageStatus, reason string, streamed []Part) {
	m := s.writing(id)
	if m == nil {
		return
	}
	m.Status, m.Reason = status, reason
	// Argument text that never became a call is not a call, and of an attempt
	// that failed a message that is whole has what came in its place.
	m.Parts = slices.DeleteFunc(m.Parts, func(p Part) bool {
		return p.State == PartStreaming || p.Tool != nil && p.Tool.Status == CallWriting ||
			p.State == PartFailed && status == MessageWhole
	})
	for _, p := range cloneParts(streamed) {
		kept := func(q Part) bool { return q.Step == p.Step && q.Part == p.Part && q.Type == p.Type }
		if !slices.ContainsFunc(m.Parts, kept) {
			m.Parts = append(m.Parts, p)
		}
	}
	if status == MessageWhole { // a step goes on in the next message if a steer came between its attempts
		for n := len(m.Parts); n > 0 && m.Parts[n-1].Type == PartStep; n = len(m.Parts) {
			m.Parts = m.Parts[:n-1]
		}
	}
	s.changes.Messages = append(s.changes.Messages, id)
	s.changes.Session = true
}

// stream adds text to the part-th streamed part of the event's attempt.
func (s *State) stream(e Event, message string, kind PartType, part int, text string) {
	if p := s.streamed(e, message, kind, part); p != nil {
		p.appendText(text)
	}
}

func (s *State) streamCall(e Event, d ToolInputDelta) {
	p := s.streamed(e, d.Message, PartTool, d.Part)
	if p == nil {
		return
	}
	if p.Tool == nil {
		p.Tool = &ToolCall{ID: d.Call, Name: d.Name, Status: CallWriting}
	}
	p.Text = p.Tool.RawArguments // grow may have been left behind in another process
	p.appendText(d.Text)
	p.Tool.RawArguments, p.Text = p.Text, ""
}

func (s *State) streamed(e Event, message string, kind PartType, part int) *Part {
	m := s.writing(message)
	if m == nil {
		return nil
	}
	for i := len(m.Parts) - 1; i >= 0 && m.Parts[i].State == PartStreaming; i-- {
		if p := &m.Parts[i]; p.Part == part && p.Step == e.Step && p.Type == kind {
			return &m.Parts[i]
		}
	}
	m.Parts = append(m.Parts, Part{Type: kind, Step: e.Step, Part: part, State: PartStreaming})
	return &m.Parts[len(m.Parts)-1]
}

// writing finds a message that can still change, or gives nil. Nothing else may
// change: its parts may have been shed, and two folds of one log must agree.
func (s *State) writing(message string) *Message {
	if m := s.messages[message]; m != nil && m.Status == MessageStreaming {
		return m
	}
	return nil
}

// call finds a call of a message that can still change, or gives nil.
func (s *State) call(message, call string) *ToolCall {
	if m := s.writing(message); m != nil {
		return m.Call(call)
	}
	return nil
}

func (s *State) addRun(e Event, d RunQueued) {
	if e.Run == "" || s.runs[e.Run] != nil {
		return
	}
	run := &Run{
		ID: e.Run, Session: s.ID, Status: Queued, Agent: d.Agent, Input: d.Input, Message: d.Message,
		Background: d.Background, Title: d.Title, RetryOf: d.RetryOf, FromStep: d.FromStep, ParentRunID: d.ParentRunID,
		Parent: d.Parent, Depth: d.Depth, TokenLimit: d.TokenLimit, QueuedAt: e.At,
	}
	s.Runs = append(s.Runs, run)
	s.runs[run.ID] = run
	s.touchRun(run.ID)
	s.changes.Session = true
	// A steer whose run ended first now has a run of its own.
	if item := s.InboxItem(d.Input); item != nil && item.Mode == Steer {
		item.Mode, item.Run = Enqueue, run.ID
		s.Submissions[d.Input] = Submission{Digest: item.Digest, Run: run.ID}
	}
}

func (s *State) touchRun(id string) {
	if !slices.Contains(s.changes.Runs, id) {
		s.changes.Runs = append(s.changes.Runs, id)
	}
}

func (s *State) applyInbox(e Event) {
	s.changes.Session = true
	switch d := e.Data.(type) {
	case InboxQueued:
		item := d.Item
		item.QueuedAt = e.At
		s.Inbox = insertInbox(s.Inbox, &item)
		s.Submissions[item.Message.ID] = Submission{Digest: item.Digest, Run: item.Run}
		s.touchRun(item.Run)
	case InboxEdited:
		if item := s.InboxItem(d.ID); item != nil {
			item.Message.Parts = d.Parts
		}
	case InboxRemoved:
		s.dropInbox(d.ID)
	case InboxDelivered:
		s.dropInbox(d.ID)
	}
}

func (s *State) dropInbox(id string) {
	if item := s.InboxItem(id); item != nil {
		s.touchRun(item.Run) // it may be due now
		s.Inbox = slices.DeleteFunc(s.Inbox, func(it *InboxItem) bool { return it == item })
	}
}

func (s *State) applyApproval(e Event) {
	s.changes.Session = true
	switch d := e.Data.(type) {
	case ApprovalRequested:
		a := d.Approval
		if run := s.runs[a.Run]; run == nil || run.Status.Terminal() || s.Approval(a.ID) != nil {
			return
		}
		a.Status, a.RequestedAt = StatusPending, e.At
		s.Approvals = append(s.Approvals, &a)
		s.touchApproval(&a)
	case ApprovalDecided:
		status := StatusDenied
		if d.Decision == Approve {
			status = StatusApproved
		}
		if a := s.endApproval(e, d.ID, status); a != nil {
			a.By, a.Note, a.Edited = d.By, d.Note, d.Arguments
			if c := s.call(a.Message, a.Call); c != nil {
				c.By, c.Note = d.By, d.Note
				if d.Arguments != nil {
					c.Arguments, c.ArgumentsBlob = d.Arguments, nil
				}
			}
			s.touchApproval(a)
		}
	case ApprovalExpired:
		if a := s.endApproval(e, d.ID, StatusExpired); a != nil {
			s.touchApproval(a)
		}
	case ApprovalVoided:
		if a := s.endApproval(e, d.ID, StatusVoided); a != nil {
			a.Note = d.Reason
			s.touchApproval(a)
		}
	}
}

func (s *State) endApproval(e Event, id string, status ApprovalStatus) *Approval {
	a := s.Approval(id)
	if a == nil || a.Status != StatusPending {
		return nil
	}
	at := e.At
	a.Status, a.DecidedAt = status, &at
	s.touchRun(a.Run) // it may be due now
	return a
}

func (s *State) touchApproval(a *Approval) {
	if i := slices.Index(s.changes.Approvals, a.ID); i >= 0 {
		s.changes.Decided[i] = *a
		return
	}
	s.changes.Approvals = append(s.changes.Approvals, a.ID)
	s.changes.Decided = append(s.changes.Decided, *a)
}

func (s *State) applyTool(e Event) {
	at := e.At
	settle := func(message, id string, status CallStatus) *ToolCall {
		c := s.call(message, id)
		if c == nil || c.Status.Settled() {
			return nil
		}
		c.Status, c.EndedAt, c.Progress, c.Until = status, &at, nil, nil
		if run := s.runs[e.Run]; run != nil && run.Status == Waiting {
			s.touchRun(run.ID) // it may be due now
		}
		return c
	}
	count := func(u *Usage) {
		if run := s.runs[e.Run]; run != nil && u != nil {
			run.Usage = run.Usage.Add(*u)
			s.touchRun(run.ID)
		}
	}
	switch d := e.Data.(type) {
	case ToolCalled:
		s.addCall(e, d)
	case ToolStarted:
		if c := s.call(d.Message, d.Call); c != nil && !c.Status.Settled() {
			c.Status, c.Try, c.Key, c.StartedAt, c.Progress = CallStarted, d.Try, d.Key, &at, nil
			c.Until = nil
			if d.Child != nil {
				c.Child = d.Child
			}
		}
	case ToolDeferred:
		if c := s.call(d.Message, d.Call); c != nil && !c.Status.Settled() {
			c.Status, c.Until, c.Progress = CallDeferred, d.Until, nil
		}
	case ToolCompleted:
		if c := settle(d.Message, d.Call, CallCompleted); c != nil {
			c.Result, c.Blob, c.Cut, c.Files = d.Result, d.Blob, d.Cut, d.Files
			if c.Result == nil {
				c.Result = json.RawMessage("null") // as the log has it
			}
			c.By = firstOf(d.By, c.By)
			count(d.Usage)
		}
	case ToolFailed:
		if c := settle(d.Message, d.Call, CallFailed); c != nil {
			f := d.Error
			c.Error, c.By = &f, firstOf(d.By, c.By)
			count(d.Usage)
		}
	case ToolDenied:
		if c := settle(d.Message, d.Call, CallDenied); c != nil {
			c.By, c.Note = firstOf(d.By, c.By), firstOf(d.Note, c.Note)
		}
	case ToolCancelled:
		if c := settle(d.Message, d.Call, CallCancelled); c != nil {
			c.Note = firstOf(d.Reason, c.Note)
		}
	case ToolUnknown:
		if c := s.call(d.Message, d.Call); c != nil && !c.Status.Settled() {
			c.Status, c.Progress, c.Until = CallUnknown, nil, nil
		}
	case ToolResolved:
		if c := s.call(d.Message, d.Call); c != nil && c.Status == CallUnknown {
			// Called again: a worker may start it, or the result follows at once.
			c.Status, c.By, c.Note = CallCalled, d.By, d.Note
			s.touchRun(e.Run)
		}
	}
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// addCall turns the answer's mention of a call into a call.
func (s *State) addCall(e Event, d ToolCalled) {
	m := s.writing(d.Message)
	if m == nil {
		return
	}
	// What was streamed of it was for show.
	m.Parts = slices.DeleteFunc(m.Parts, func(p Part) bool { return p.State == PartStreaming && p.Tool != nil && p.Tool.ID == d.Call })
	c := m.Call(d.Call)
	if c == nil {
		c = &ToolCall{ID: d.Call, Status: CallWriting}
		m.Parts = append(m.Parts, Part{Type: PartTool, Step: e.Step, Tool: c})
	}
	if c.Status != CallWriting {
		return
	}
	c.Name, c.Arguments, c.RawArguments, c.ArgumentsBlob = d.Name, d.Arguments, d.RawArguments, d.ArgumentsBlob
	c.Effects, c.Approval, c.Status = d.Effects, d.Approval, CallCalled
}

func (s *State) applyRun(e Event) {
	run := s.runs[e.Run]
	if run == nil || run.Status.Terminal() {
		return
	}
	s.touchRun(run.ID)
	s.changes.Session = true
	at := e.At
	switch d := e.Data.(type) {
	case RunStarted:
		run.StartedAt = &at
		run.carriedBy(d.Worker, d.Fence, at)
	case RunResumed:
		run.carriedBy(d.Worker, d.Fence, at)
	case RunWaiting:
		run.leave(at)
		run.Status = Waiting
		run.WaitingReason, run.WaitingUntil, run.Error = d.Reason, d.Until, d.Error
	case RunCancelRequested:
		if run.CancelRequestedAt == nil {
			deadline := d.Deadline
			run.CancelRequestedAt, run.CancelDeadline, run.CancelBy, run.CancelReason = &at, &deadline, d.By, d.Reason
		}
	case RunReconciled:
		s.reconcile(run, d, at)
	case RunCompleted:
		run.Usage = d.Usage
		s.hold(d.Result)
		s.endRun(run, Completed, at)
	case RunFailed:
		f := d.Error
		run.Usage, run.Error = d.Usage, &f
		s.hold(d.Result)
		s.endRun(run, Failed, at)
	case RunCancelled:
		run.Usage = d.Usage
		run.CancelBy, run.CancelReason = firstOf(run.CancelBy, d.By), firstOf(run.CancelReason, d.Reason)
		s.endRun(run, Cancelled, at)
	case StepStarted:
		s.startStep(run, e, d)
	case AttemptFailed:
		s.failAttempt(run, e, d)
	case ContextCompacted:
		s.compact(run, e, d)
	case ModelCompleted:
		s.answer(run, e, d)
	case StepCompleted:
		if st := lastStep(run); st != nil {
			st.CompletedAt = &at
		}
		run.Crashes = 0
	}
}

func (s *State) reconcile(run *Run, d RunReconciled, at time.Time) {
	if d.Cause == CauseLeaseExpired || d.Cause == CauseRestart {
		run.Crashes++
		run.ClaimedAt = nil // nobody knows how long its worker lived, and it may be hours ago
	}
	run.leave(at)
	run.Status, run.WaitingReason, run.WaitingUntil = Waiting, WaitWorker, d.Until
	run.Fence++ // whoever carried it may write no more
}

func (s *State) endRun(run *Run, status Status, at time.Time) {
	run.leave(at)
	run.Status, run.FinishedAt = status, &at
	run.WaitingReason, run.WaitingUntil = "", nil
	if status != Failed {
		run.Error = nil
	}
	s.Approvals = slices.DeleteFunc(s.Approvals, func(a *Approval) bool { return a.Run == run.ID })
}

// carriedBy begins the time in which a worker carries the run.
func (r *Run) carriedBy(worker string, fence int64, at time.Time) {
	r.Status, r.Worker, r.Fence, r.ClaimedAt = Running, worker, fence, &at
	r.WaitingReason, r.WaitingUntil, r.Error = "", nil, nil
}

// leave ends the time in which a worker carried the run.
func (r *Run) leave(at time.Time) {
	if r.ClaimedAt != nil {
		r.CarriedMs += max(0, at.Sub(*r.ClaimedAt).Milliseconds())
	}
	r.Worker, r.ClaimedAt = "", nil
}

func lastStep(run *Run) *Step {
	if len(run.Steps) == 0 {
		return nil
	}
	return &run.Steps[len(run.Steps)-1]
}

func (s *State) startStep(run *Run, e Event, d StepStarted) {
	run.CurrentStep, run.Attempt = e.Step, e.Attempt
	run.Steps = append(run.Steps, Step{Step: e.Step, Attempt: e.Attempt, Because: d.Because, StartedAt: e.At, Message: d.Message, Context: d.Context})
	if m := s.writing(d.Message); m != nil {
		m.Parts = slices.DeleteFunc(m.Parts, func(p Part) bool { return p.Step == e.Step })
		m.Parts = append(m.Parts, Part{Type: PartStep, Step: e.Step})
	}
}

func (s *State) failAttempt(run *Run, e Event, d AttemptFailed) {
	if st := lastStep(run); st != nil {
		f := d.Error
		st.Error, st.RetryAt = &f, d.RetryAt
	}
	m := s.writing(d.Message)
	if m == nil {
		return
	}
	m.Parts = slices.DeleteFunc(m.Parts, func(p Part) bool { return p.Step == e.Step && p.State == PartStreaming })
	for _, p := range cloneParts(d.Parts) {
		p.Step, p.State = e.Step, PartFailed
		m.Parts = append(m.Parts, p)
	}
}

func (s *State) answer(run *Run, e Event, d ModelCompleted) {
	at, usage := e.At, d.Usage
	run.Usage = run.Usage.Add(usage)
	if st := lastStep(run); st != nil {
		st.AnsweredAt, st.Finish, st.Usage = &at, d.Finish, &usage
		s.measure(run, st, usage)
	}
	m := s.writing(d.Message)
	if m == nil {
		return
	}
	m.Parts = slices.DeleteFunc(m.Parts, func(p Part) bool { return p.Step == e.Step && p.Type != PartStep })
	for i, p := range cloneParts(d.Parts) {
		p.Step, p.Part = e.Step, i
		if p.Tool != nil {
			p.Tool.Status = CallWriting // until its tool.called, which follows in the same append
		}
		m.Parts = append(m.Parts, p)
	}
}

// MarshalParts is the JSON of parts, for fingerprints.
func MarshalParts(parts []Part) json.RawMessage {
	raw, err := marshal(parts)
	if err != nil {
		panic(err)
	}
	return raw
}
