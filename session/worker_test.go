package session_test

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/holdfast-run/holdfast/session"
)

// works has a worker that carries a run do the next thing, as a script of many
// minds: it answers, calls tools, asks, waits, fails and sometimes overlooks a cancel.
func (w *world) works() {
	var carried []string
	for _, r := range w.state.Open() {
		if r.Status == session.Running {
			carried = append(carried, r.ID)
		}
	}
	if len(carried) == 0 {
		w.rt.Skip("nothing is carried")
	}
	run := w.state.Run(pick(w.rt, "carried", carried...))
	cancelled := run.CancelRequestedAt != nil
	err := w.act(session.Carry(run.ID, run.Fence, w.next))
	if stopped := errors.Is(err, &session.Error{Code: session.CancelIsRequested}); err != nil && (!cancelled || !stopped) {
		w.rt.Fatalf("the worker of %s was refused: %v", run.ID, err)
	}
}

func (w *world) next(s *session.State, run *session.Run) ([]session.Event, error) {
	if run.CancelRequestedAt != nil && often(w.rt, 5, "heeds the cancel") {
		return s.End(run, session.RunCancelled{By: run.CancelBy, Usage: run.Usage}), nil
	}
	if len(run.Steps) == 0 {
		return w.step(s, run, max(run.FromStep, 1), 1, ""), nil
	}
	st := run.Steps[len(run.Steps)-1]
	switch {
	case st.CompletedAt != nil:
		if len(s.Calls(run)) > 0 || often(w.rt, 2, "goes on") {
			return w.step(s, run, st.Step+1, 1, ""), nil
		}
		return s.End(run, session.RunCompleted{Usage: run.Usage}), nil
	case st.AnsweredAt != nil:
		return w.tools(s, run), nil
	case st.Error != nil:
		return w.again(s, run, st), nil
	}
	return w.streams(run), nil
}

func emit(run *session.Run, d session.Data) session.Event {
	return session.Event{Run: run.ID, Step: run.CurrentStep, Attempt: run.Attempt, Data: d}
}

// step begins a model call, after telling the run its steers.
func (w *world) step(s *session.State, run *session.Run, step, attempt int, because string) []session.Event {
	events, message := s.DeliverSteers(run), run.Message
	if n := len(events); n > 0 {
		message = events[n-1].Data.(session.MessageCreated).Message.ID
	}
	if len(events) == 0 && often(w.rt, 2, "compacts") {
		return []session.Event{{Run: run.ID, Step: step, Attempt: attempt, Data: session.ContextCompacted{
			UpTo: &session.Mark{Message: run.Input}, Summary: w.id("t"), Because: "window", Before: 9, After: 1, Usage: session.Usage{InputTokens: 3, OutputTokens: 1},
		}}}
	}
	return append(events, session.Event{Run: run.ID, Step: step, Attempt: attempt, Data: session.StepStarted{Message: message, Because: because}})
}

// streams goes on with a model call that is under way.
func (w *world) streams(run *session.Run) []session.Event {
	m, said := run.Message, w.id("t")
	switch pick(w.rt, "streams", "text", "text", "reasoning", "input", "answer", "calls", "calls", "fails", "fails for good") {
	case "text":
		return []session.Event{emit(run, session.TextDelta{Message: m, Part: pick(w.rt, "part", 0, 1), Text: said})}
	case "reasoning":
		return []session.Event{emit(run, session.ReasoningDelta{Message: m, Part: pick(w.rt, "part", 0, 1), Text: said})}
	case "input":
		return []session.Event{emit(run, session.ToolInputDelta{Message: m, Part: 2, Call: "c_streamed", Name: "t", Text: said})}
	case "answer":
		return []session.Event{
			emit(run, session.ModelCompleted{Message: m, Parts: text(said), Finish: "stop", Usage: session.Usage{OutputTokens: 1}}),
			emit(run, session.StepCompleted{}),
		}
	case "calls":
		return w.answersWithCalls(run)
	}
	failed := session.AttemptFailed{
		Message: m, Parts: w.state.Message(m).Streamed(), Error: session.Failure{Code: "overloaded", Message: "busy", Retryable: true},
	}
	if often(w.rt, 7, "may retry") {
		at := w.clock().Add(time.Second)
		failed.RetryAt = &at
	}
	return []session.Event{emit(run, failed)}
}

// answersWithCalls answers with one to three calls, each with effects and a policy of its own.
func (w *world) answersWithCalls(run *session.Run) []session.Event {
	answer := session.ModelCompleted{Message: run.Message, Parts: text("let me see"), Finish: "tool_calls"}
	var calls []session.Event
	for range 1 + w.ids%3 {
		id := w.id("c")
		answer.Parts = append(answer.Parts, session.Part{Type: session.PartTool, Tool: &session.ToolCall{ID: id, Name: "t"}})
		c := session.ToolCalled{
			Message: run.Message, Call: id, Name: "t", Arguments: json.RawMessage(`{"n":9007199254740993}`),
			Effects: pick(w.rt, "effects", session.ReadOnly, session.Idempotent, session.Unsafe, session.Unsafe),
		}
		if often(w.rt, 4, "needs approval") {
			c.Approval = w.id("a")
			calls = append(calls, emit(run, session.ApprovalRequested{Approval: session.Approval{
				ID: c.Approval, Session: "ses_1", Run: run.ID, Message: run.Message, Call: id, Name: "t",
				Effects: c.Effects, Arguments: c.Arguments, ArgumentsHash: session.HashArguments(c.Arguments),
			}}))
		}
		calls = append(calls, emit(run, c))
	}
	return append([]session.Event{emit(run, answer)}, calls...)
}

// again is what follows a failed attempt.
func (w *world) again(s *session.State, run *session.Run, st session.Step) []session.Event {
	lost := st.Error.Code == "worker_lost" || st.Error.Code == "worker_left"
	switch {
	case lost:
		return w.step(s, run, st.Step, st.Attempt+1, "crash")
	case st.RetryAt == nil:
		return s.End(run, session.RunFailed{Error: *st.Error, Usage: run.Usage})
	case w.clock().Before(*st.RetryAt) && often(w.rt, 5, "waits"):
		return []session.Event{emit(run, session.RunWaiting{Reason: session.WaitRetry, Until: st.RetryAt, Error: st.Error})}
	}
	return w.step(s, run, st.Step, st.Attempt+1, "retry")
}

// tools brings one call on, or ends the step, or waits for what the calls wait for.
func (w *world) tools(s *session.State, run *session.Run) []session.Event {
	calls := s.Calls(run)
	unknown, pending, deferred, open := false, false, false, false
	for _, c := range calls {
		switch {
		case c.Status.Settled():
			continue
		case c.Status == session.CallUnknown:
			unknown = true
			continue
		case c.Status == session.CallDeferred:
			deferred = true
			continue
		case c.Status == session.CallStarted:
			return []session.Event{emit(run, w.result(run, c))}
		}
		open = true
		a := s.Approval(c.Approval)
		switch {
		case c.Approval == "" || a.Status == session.StatusApproved:
			started := session.ToolStarted{Message: run.Message, Call: c.ID, Try: c.Try + 1, Key: run.ID + c.ID}
			if often(w.rt, 2, "a subagent's") {
				started.Child = &session.Child{Session: "ses_" + c.ID, Run: "r_" + c.ID, Agent: "helper"}
			}
			return []session.Event{emit(run, started)}
		case a.Status == session.StatusPending && often(w.rt, 1, "expires"):
			return []session.Event{emit(run, session.ApprovalExpired{ID: a.ID}), emit(run, session.ToolDenied{Message: run.Message, Call: c.ID})}
		case a.Status == session.StatusPending:
			pending = true
		default:
			return []session.Event{emit(run, session.ToolDenied{Message: run.Message, Call: c.ID, By: a.By, Note: a.Note})}
		}
	}
	switch {
	case unknown:
		return []session.Event{emit(run, session.RunWaiting{Reason: session.WaitToolOutcome})}
	case pending:
		return []session.Event{emit(run, session.RunWaiting{Reason: session.WaitApproval})}
	case deferred:
		return []session.Event{emit(run, session.RunWaiting{Reason: session.WaitChildRun})}
	case open:
		w.rt.Fatal("a call is open and nothing can be done about it")
	}
	return []session.Event{emit(run, session.StepCompleted{})}
}

// result is what comes of a started call. One that may be repeated may just be started again.
func (w *world) result(run *session.Run, c *session.ToolCall) session.Data {
	if c.Effects != session.Unsafe && often(w.rt, 2, "starts again") {
		return session.ToolStarted{Message: run.Message, Call: c.ID, Try: c.Try + 1, Key: c.Key}
	}
	switch pick(w.rt, "result", "progress", "completed", "null", "failed", "deferred", "deferred") {
	case "deferred":
		return session.ToolDeferred{Message: run.Message, Call: c.ID}
	case "progress":
		return session.ToolProgress{Message: run.Message, Call: c.ID, Progress: session.Progress{Message: "half", Fraction: 0.5}}
	case "null":
		return session.ToolCompleted{Message: run.Message, Call: c.ID}
	case "failed":
		return session.ToolFailed{Message: run.Message, Call: c.ID, Error: session.Failure{Code: "tool_error", Message: "no"}}
	}
	return session.ToolCompleted{Message: run.Message, Call: c.ID, Result: json.RawMessage(`{"big":9007199254740993,"a":1,"a":2}`)}
}

// finishes brings a run a little nearer to its end, without chance: for [world.settles].
func (w *world) finishes(run *session.Run) {
	for _, a := range w.state.Approvals {
		if a.Run == run.ID && a.Status == session.StatusPending {
			_ = w.act(session.DecideApproval{ID: a.ID, Decision: session.Deny, By: "ann"}.Decide)
		}
	}
	for _, c := range w.state.Calls(run) {
		if c.Status == session.CallUnknown {
			_ = w.act(session.ResolveTool{Run: run.ID, Call: c.ID, Outcome: session.OutcomeFail, By: "ann"}.Decide)
		}
		if c.Status == session.CallDeferred {
			_ = w.act(session.CompleteCall{Run: run.ID, Call: c.ID, Error: &session.Failure{Code: "over"}}.Decide)
		}
	}
	if run.Status == session.Queued && !w.state.WorkOf(run).Due {
		return // its message waits for its turn
	}
	if run.Status != session.Running {
		if err := w.act((&session.Claim{Run: run.ID, Worker: "last", At: w.clock()}).Decide); err != nil {
			w.rt.Fatalf("a run that waits for nobody cannot be claimed: %v", err)
		}
	}
	err := w.act(session.Carry(run.ID, run.Fence, func(s *session.State, r *session.Run) ([]session.Event, error) {
		if r.CancelRequestedAt != nil {
			return s.End(r, session.RunCancelled{By: r.CancelBy, Usage: r.Usage}), nil
		}
		return s.End(r, session.RunFailed{Error: session.Failure{Code: "over", Message: "the test is over"}, Usage: r.Usage}), nil
	}))
	if err != nil {
		w.rt.Fatal(err)
	}
}
