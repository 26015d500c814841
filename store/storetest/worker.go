package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast/session"
)

// What a worker writes, as pure functions of what it sees.

// at places an event in the run's current attempt.
func at(run *session.Run, d session.Data) session.Event {
	return session.Event{Run: run.ID, Step: run.CurrentStep, Attempt: run.Attempt, Data: d}
}

// beginAttempt starts the next step, or the next attempt at a step that has no answer.
func beginAttempt(run *session.Run) []session.Event {
	e := session.Event{Run: run.ID, Step: run.CurrentStep + 1, Attempt: 1}
	d := session.StepStarted{Message: run.Message}
	if n := len(run.Steps); n > 0 && run.Steps[n-1].AnsweredAt == nil {
		e.Step, e.Attempt, d.Because = run.CurrentStep, run.Attempt+1, "retry"
	}
	e.Data = d
	return []session.Event{e}
}

func delta(run *session.Run, part int, text string) session.Event {
	return at(run, session.TextDelta{Message: run.Message, Part: part, Text: text})
}

// failAttempt ends a model call without an answer.
func failAttempt(s *session.State, run *session.Run) []session.Event {
	var streamed []session.Part
	if m := s.Message(run.Message); m != nil {
		streamed = m.Streamed()
	}
	return []session.Event{at(run, session.AttemptFailed{
		Message: run.Message, Parts: streamed,
		Error: session.Failure{Code: "overloaded", Message: "the model is busy", Retryable: true},
	})}
}

// wanted is a tool call that the model asks for.
type wanted struct {
	id, name  string
	arguments string
	effects   session.Effects
	approval  string // the id of the approval it needs, if it does
	expires   *time.Time
}

// answer is the model's whole answer: text, and the calls it wants.
func answer(run *session.Run, text string, calls ...wanted) []session.Event {
	done := session.ModelCompleted{
		Message: run.Message, Finish: "stop", Usage: session.Usage{InputTokens: 3, OutputTokens: 5},
		Parts: []session.Part{{Type: session.PartText, Text: text}},
	}
	var called []session.Event
	for _, c := range calls {
		done.Finish = "tool_calls"
		arguments := json.RawMessage(c.arguments)
		done.Parts = append(done.Parts, session.Part{Type: session.PartTool, Tool: &session.ToolCall{ID: c.id, Name: c.name, Arguments: arguments}})
		called = append(called, at(run, session.ToolCalled{
			Message: run.Message, Call: c.id, Name: c.name, Arguments: arguments, Effects: c.effects, Approval: c.approval,
		}))
		if c.approval != "" {
			called = append(called, at(run, session.ApprovalRequested{Approval: session.Approval{
				ID: c.approval, Session: run.Session, Run: run.ID, Message: run.Message, Call: c.id, Name: c.name,
				Effects: c.effects, Arguments: arguments, ArgumentsHash: session.HashArguments(arguments), ExpiresAt: c.expires,
			}}))
		}
	}
	return append([]session.Event{at(run, done)}, called...)
}

// move is one write of a worker, chosen before it sees the run: the same move
// on the same state gives the same events, however often it is asked.
type move struct {
	pick  int
	name  string // makes ids that are new
	text  string
	until time.Time // for waits
	rush  bool      // straight to a tool call that has started
}

// events gives one of the things that a worker may do next.
func (m move) events(s *session.State, run *session.Run) ([]session.Event, error) {
	options := m.options(s, run)
	if run.CancelRequestedAt != nil && m.pick%3 == 0 {
		return s.End(run, session.RunCancelled{By: run.CancelBy, Usage: run.Usage}), nil
	}
	return options[m.pick%len(options)], nil
}

func (m move) options(s *session.State, run *session.Run) [][]session.Event {
	fail := s.End(run, session.RunFailed{Usage: run.Usage, Error: session.Failure{Code: "model", Message: m.text}})
	retry := []session.Event{at(run, session.RunWaiting{
		Reason: session.WaitRetry, Until: &m.until, Error: &session.Failure{Code: "overloaded", Message: m.text, Retryable: true},
	})}
	var last *session.Step
	if n := len(run.Steps); n > 0 {
		last = &run.Steps[n-1]
	}
	switch {
	case m.rush && (last == nil || last.CompletedAt != nil || last.Error != nil):
		return [][]session.Event{beginAttempt(run)}
	case m.rush && last.AnsweredAt == nil:
		return [][]session.Event{m.askTools(run, "")}
	case last == nil:
		return [][]session.Event{beginAttempt(run)}
	case last.CompletedAt != nil:
		if steers := s.DeliverSteers(run); len(steers) > 0 {
			return [][]session.Event{steers}
		}
		return [][]session.Event{beginAttempt(run), s.End(run, session.RunCompleted{Usage: run.Usage}), retry}
	case last.AnsweredAt != nil:
		return m.callOptions(s, run)
	case last.Error != nil:
		return [][]session.Event{beginAttempt(run), beginAttempt(run), retry, fail}
	}
	stream := []session.Event{
		at(run, session.ReasoningDelta{Message: run.Message, Part: 0, Text: "so " + m.text}),
		delta(run, 1, m.text), delta(run, 1, "."),
		at(run, session.ToolInputDelta{Message: run.Message, Part: 2, Call: "call_" + m.name, Name: "look", Text: `{"q`}),
	}
	return [][]session.Event{
		stream, stream[1:2], stream, failAttempt(s, run), fail,
		answer(run, m.text), answer(run, m.text), m.askTools(run, ""), m.askTools(run, "apr_"+m.name),
	}
}

func (m move) askTools(run *session.Run, approval string) []session.Event {
	effects := []session.Effects{session.Unsafe, session.ReadOnly, session.Unsafe, session.Idempotent}
	calls := []wanted{{
		id: "call_" + m.name, name: "look", effects: effects[m.pick/7%4], approval: approval,
		arguments: fmt.Sprintf(`{"q":%s,"n":12345678901234567890}`, session.JSONString(m.text)),
	}}
	if approval != "" && m.pick%2 == 0 {
		calls[0].expires = &m.until
	}
	if m.pick%3 == 0 {
		calls = append(calls, wanted{id: "call_" + m.name + "b", name: "touch", effects: session.Unsafe, arguments: "{}"})
	}
	return answer(run, m.text, calls...)
}

// callOptions moves the first call that has no result yet, or ends the step.
func (m move) callOptions(s *session.State, run *session.Run) [][]session.Event {
	calls := s.Calls(run)
	i := slices.IndexFunc(calls, func(c *session.ToolCall) bool { return !c.Status.Settled() })
	if i < 0 {
		return [][]session.Event{{at(run, session.StepCompleted{})}}
	}
	c := calls[i]
	if c.Status == session.CallStarted {
		return [][]session.Event{
			{at(run, session.ToolProgress{Message: run.Message, Call: c.ID, Progress: session.Progress{Message: m.text, Fraction: 0.25}})},
			{at(run, session.ToolCompleted{Message: run.Message, Call: c.ID, Result: session.JSONString(m.text)})},
			{at(run, session.ToolFailed{Message: run.Message, Call: c.ID, Error: session.Failure{Code: "tool", Message: m.text}})},
		}
	}
	start := []session.Event{at(run, session.ToolStarted{Message: run.Message, Call: c.ID, Try: c.Try + 1, Key: run.ID + "/" + c.ID})}
	a := s.Approval(c.Approval)
	switch {
	case a == nil || a.Status == session.StatusApproved:
		return [][]session.Event{start}
	case a.Status != session.StatusPending:
		return [][]session.Event{{at(run, session.ToolDenied{Message: run.Message, Call: c.ID, By: a.By, Note: a.Note})}}
	case a.ExpiresAt != nil && run.WaitingUntil == nil && m.pick%5 == 0:
		return [][]session.Event{{at(run, session.ApprovalExpired{ID: a.ID})}}
	}
	return [][]session.Event{{at(run, session.RunWaiting{Reason: session.WaitApproval, Until: a.ExpiresAt})}}
}
