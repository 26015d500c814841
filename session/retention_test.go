package session_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast/session"
)

// begin has a run carried, with an attempt that has streamed a word.
func (h *history) begin() {
	h.t.Helper()
	h.do((&session.Submit{
		ID: "m1", Run: "r1", Output: "o1", Tenant: "t", Owner: "o", DefaultAgent: "demo",
		Parts: []session.Part{{Type: session.PartText, Text: "hi"}},
	}).Decide)
	h.do((&session.Claim{Run: "r1", Worker: "w", At: epoch}).Decide)
	h.do(session.Carry("r1", 1, func(*session.State, *session.Run) ([]session.Event, error) {
		return []session.Event{
			{Step: 1, Attempt: 1, Data: session.StepStarted{Message: "o1"}},
			{Step: 1, Attempt: 1, Data: session.ReasoningDelta{Message: "o1", Part: 0, Text: "well"}},
			{Step: 1, Attempt: 1, Data: session.TextDelta{Message: "o1", Part: 1, Text: "half a "}},
			{Step: 1, Attempt: 1, Data: session.TextDelta{Message: "o1", Part: 1, Text: "word"}},
			{Step: 1, Attempt: 1, Data: session.ToolInputDelta{Message: "o1", Part: 2, Call: "c1", Name: "clock", Text: `{"zo`}},
		}, nil
	}))
}

// factsAlone checks that the fold does not need the deltas, and gives it.
func (h *history) factsAlone() *session.State {
	h.t.Helper()
	var facts []session.Event
	for _, e := range h.events {
		if !session.IsDelta(e.Data) {
			facts = append(facts, e)
		}
	}
	with, _ := json.Marshal(session.Fold("ses_1", h.events))
	folded := session.Fold("ses_1", facts)
	without, _ := json.Marshal(folded)
	if diff := cmp.Diff(string(with), string(without)); diff != "" {
		h.t.Errorf("the deltas of an ended run say what no fact does (-with +without):\n%s", diff)
	}
	return folded
}

func TestWhatACancelledRunHadSaidSurvivesItsDeltas(t *testing.T) {
	h := newHistory(t)
	h.begin()
	h.do(session.Cancel{Run: "r1", By: "ann", At: epoch, Grace: time.Second}.Decide)
	h.do(session.CancelOverdue{Run: "r1", At: epoch.Add(time.Minute)}.Decide)
	m := h.factsAlone().Message("o1")
	if m.Status != session.MessageCut || m.Text() != "half a word" || m.Call("c1") != nil {
		t.Errorf("the message is %s and says %q", m.Status, m.Text())
	}
}

func TestWhatAFailedAttemptHadSaidIsKeptOnceWhenItsRunFails(t *testing.T) {
	h := newHistory(t)
	h.begin()
	h.do(session.Reconcile{Run: "r1", Fence: 1, Cause: session.CauseLeaseExpired, MaxCrashes: 1}.Decide)
	m := h.factsAlone().Message("o1")
	if m.Status != session.MessageCut || m.Text() != "half a word" {
		t.Errorf("the message is %s and says %q", m.Status, m.Text())
	}
}

func TestAnAttemptAfterALostWorkerReplacesWhatWasSaid(t *testing.T) {
	h := newHistory(t)
	h.begin()
	h.do(session.Reconcile{Run: "r1", Fence: 1, Cause: session.CauseLeaseExpired}.Decide)
	if got := h.state.Message("o1").Parts[1].State; got != session.PartFailed {
		t.Errorf("what the lost attempt streamed is %q, not failed", got)
	}
	claim := session.Claim{Run: "r1", Worker: "v", At: epoch}
	h.do(claim.Decide)
	h.do(session.Carry("r1", claim.Fence, func(s *session.State, run *session.Run) ([]session.Event, error) {
		return append([]session.Event{
			{Step: 1, Attempt: 2, Data: session.StepStarted{Message: "o1", Because: "crash"}},
			{Step: 1, Attempt: 2, Data: session.TextDelta{Message: "o1", Text: "the wh"}},
			{Step: 1, Attempt: 2, Data: session.ModelCompleted{
				Message: "o1", Finish: "stop",
				Parts: []session.Part{{Type: session.PartText, Text: "the whole"}},
			}},
			{Step: 1, Attempt: 2, Data: session.StepCompleted{}},
		}, s.End(run, session.RunCompleted{})...), nil
	}))
	if text := h.factsAlone().Message("o1").Text(); text != "the whole" {
		t.Errorf("the message says %q", text)
	}
}

func TestAMessageThatEndedNoLongerChanges(t *testing.T) {
	h := newHistory(t)
	h.begin()
	h.do(func(s *session.State) ([]session.Event, error) {
		return s.End(s.Run("r1"), session.RunCompleted{}), nil
	})
	shed := h.state.Clone()
	shed.Shed()
	late := []session.Data{
		session.StepStarted{Message: "o1"},
		session.TextDelta{Message: "o1", Text: "late"},
		session.AttemptFailed{Message: "o1", Parts: []session.Part{{Type: session.PartText, Text: "late"}}},
		session.ModelCompleted{Message: "o1", Parts: []session.Part{{Type: session.PartText, Text: "late"}}},
		session.ToolCalled{Message: "o1", Call: "c9", Name: "clock"},
		session.MessageInterrupted{Message: "o1", Reason: "failed"},
	}
	// Another run may name the message of the first by mistake.
	h.do(func(*session.State) ([]session.Event, error) {
		return []session.Event{{Run: "r2", Data: session.RunQueued{Input: "m1", Message: "o2"}}}, nil
	})
	before, _ := json.Marshal(h.state.Message("o1"))
	for _, d := range late {
		h.do(func(*session.State) ([]session.Event, error) {
			return []session.Event{{Run: "r2", Step: 1, Attempt: 1, Data: d}}, nil
		})
	}
	after, _ := json.Marshal(h.state.Message("o1"))
	if diff := cmp.Diff(string(before), string(after)); diff != "" {
		t.Errorf("an ended message changed:\n%s", diff)
	}
	for _, e := range h.events[shed.Seq:] {
		shed.Apply(e)
	}
	h.state.Shed()
	want, _ := json.Marshal(h.state)
	got, _ := json.Marshal(shed)
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("a state that shed its parts earlier folds differently:\n%s", diff)
	}
}
