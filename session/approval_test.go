package session_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
)

func waitingForApproval(t *testing.T, names ...string) *history {
	t.Helper()
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.call("r_m1", session.Unsafe, true, names...)
	h.carry("r_m1", session.RunWaiting{Reason: session.WaitApproval})
	return h
}

func approve(id string) session.DecideApproval {
	return session.DecideApproval{ID: id, Decision: session.Approve, By: "ann"}
}

func deny(id, note string) session.DecideApproval {
	return session.DecideApproval{ID: id, Decision: session.Deny, By: "bob", Note: note}
}

func TestAnApprovalIsDecidedOnceAndTheSameAgainIsFine(t *testing.T) {
	h := waitingForApproval(t, "pay")
	h.wantTypes(h.do(approve("a_pay").Decide), "approval.decided")
	again := approve("a_pay")
	again.By = "somebody else"
	h.wantTypes(h.do(again.Decide))
	err := h.refused(session.ApprovalDone, deny("a_pay", "no").Decide)
	if err.Approval == nil || err.Approval.By != "ann" || err.Approval.Status != session.StatusApproved || err.Approval.DecidedAt == nil {
		t.Errorf("the refusal carries %+v", err.Approval)
	}
	edited := approve("a_pay")
	edited.Arguments = json.RawMessage(`{"of":"less"}`)
	h.refused(session.ApprovalDone, edited.Decide) // other arguments are another decision
	h.refused(session.NotFound, approve("a_nobody").Decide)
}

func TestADenialSaysWhoAndWhy(t *testing.T) {
	h := waitingForApproval(t, "pay")
	h.do(deny("a_pay", "too much").Decide)
	a := h.state.Approval("a_pay")
	if a.Status != session.StatusDenied || a.By != "bob" || a.Note != "too much" {
		t.Errorf("the approval is %s", asJSON(t, a))
	}
	h.do(deny("a_pay", "another reason").Decide)
	h.refused(session.ApprovalDone, approve("a_pay").Decide)
	h.claim("r_m1")
	h.carry("r_m1", session.ToolDenied{Message: "o_m1", Call: "c_pay"})
	if c := h.toolCall("o_m1", "c_pay"); c.Status != session.CallDenied || c.By != "bob" || c.Note != "too much" {
		t.Errorf("the call is %s", asJSON(t, c))
	}
}

func TestEditedArgumentsReplaceTheModels(t *testing.T) {
	h := waitingForApproval(t, "pay")
	c := approve("a_pay")
	c.Arguments = json.RawMessage(`{"of":"less"}`)
	h.do(c.Decide)
	a, call := h.state.Approval("a_pay"), h.toolCall("o_m1", "c_pay")
	if string(a.Edited) != `{"of":"less"}` || string(a.Arguments) != `{"of":"pay"}` || a.ArgumentsHash != session.HashArguments(a.Arguments) {
		t.Errorf("the approval is %s", asJSON(t, a))
	}
	if string(call.Arguments) != `{"of":"less"}` || call.By != "ann" {
		t.Errorf("the call is %s", asJSON(t, call))
	}
	h.wantTypes(h.do(c.Decide))
	h.refused(session.ApprovalDone, approve("a_pay").Decide)
}

func TestEditedArgumentsReplaceThoseThatWereTooLargeToCarry(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.carry("r_m1", session.StepStarted{Message: "o_m1"},
		session.ToolCalled{Message: "o_m1", Call: "c1", Name: "write", ArgumentsBlob: &session.Blob{Hash: "h", Size: 70_000}, Approval: "a1"},
		session.ApprovalRequested{Approval: session.Approval{ID: "a1", Run: "r_m1", Message: "o_m1", Call: "c1"}})
	c := approve("a1")
	c.Arguments = json.RawMessage(`{}`)
	h.do(c.Decide)
	if call := h.toolCall("o_m1", "c1"); string(call.Arguments) != "{}" || call.ArgumentsBlob != nil {
		t.Errorf("the call is %s", asJSON(t, call))
	}
}

func TestAnApprovedCallNeedNotWaitForItsSiblings(t *testing.T) {
	h := waitingForApproval(t, "two", "three")
	asks := func() session.Work { return h.state.WorkOf(h.run("r_m1")) }
	if w := asks(); w.Due || w.Held {
		t.Errorf("a run that waits for people asks for %+v", w)
	}
	h.refused(session.NotDue, (&session.Claim{Run: "r_m1", Worker: "w", At: h.now().Add(time.Hour)}).Decide)
	h.do(approve("a_three").Decide)
	if w := asks(); !w.Due || !w.At.IsZero() {
		t.Errorf("with one call allowed it asks for %+v", w)
	}
	if a, b := h.state.Approval("a_three"), h.state.Approval("a_two"); a.Status != session.StatusApproved || b.Status != session.StatusPending {
		t.Errorf("the decision went to the wrong call: %s, %s", a.Status, b.Status)
	}
	h.claim("r_m1")
	h.carry("r_m1", session.ToolStarted{Message: "o_m1", Call: "c_three", Try: 1},
		session.ToolCompleted{Message: "o_m1", Call: "c_three"}, session.RunWaiting{Reason: session.WaitApproval})
	if w := asks(); w.Due {
		t.Error("with nothing left to do but wait it is due")
	}
	h.do(deny("a_two", "no").Decide)
	if w := asks(); !w.Due {
		t.Errorf("when all is decided it asks for %+v", w)
	}
}

func TestAnApprovalThatExpiresWakesItsRunAndCannotBeDecidedAfterwards(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.call("r_m1", session.Unsafe, true, "pay")
	until := h.now().Add(time.Hour)
	h.carry("r_m1", session.RunWaiting{Reason: session.WaitApproval, Until: &until})
	if w := h.state.WorkOf(h.run("r_m1")); !w.Due || !w.At.Equal(until) {
		t.Errorf("it asks for %+v", w)
	}
	h.do((&session.Claim{Run: "r_m1", Worker: "w", At: until}).Decide)
	h.carry("r_m1", session.ApprovalExpired{ID: "a_pay"}, session.ToolDenied{Message: "o_m1", Call: "c_pay", Note: "nobody decided in time"})
	err := h.refused(session.ApprovalGone, approve("a_pay").Decide)
	if err.Approval.Status != session.StatusExpired || err.Approval.DecidedAt == nil {
		t.Errorf("the refusal carries %s", asJSON(t, err.Approval))
	}
}

func TestADecisionAfterTheTimeIsTooLateWhoeverNoticedIt(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.call("r_m1", session.Unsafe, true, "pay")
	until := h.now().Add(time.Hour)
	h.state.Approval("a_pay").ExpiresAt = &until
	h.carry("r_m1", session.RunWaiting{Reason: session.WaitApproval, Until: &until})
	late := approve("a_pay")
	late.At = until
	// No worker has recorded it yet: all may be busy, or the process may just have started.
	err := h.refused(session.ApprovalGone, late.Decide)
	if err.Approval.Status != session.StatusExpired {
		t.Errorf("the refusal carries %s", asJSON(t, err.Approval))
	}
	in := approve("a_pay")
	in.At = until.Add(-time.Millisecond)
	h.wantTypes(h.do(in.Decide), "approval.decided")
	h.wantTypes(h.do(late.Decide)) // the same again is fine, for ever
}

func TestADecisionInTimeMakesTheRunDueAtOnce(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.call("r_m1", session.Unsafe, true, "pay")
	until := h.now().Add(time.Hour)
	h.carry("r_m1", session.RunWaiting{Reason: session.WaitApproval, Until: &until})
	h.do(approve("a_pay").Decide)
	if w := h.state.WorkOf(h.run("r_m1")); !w.Due || !w.At.IsZero() {
		t.Errorf("it asks for %+v", w)
	}
}

func TestADecisionAgainstWhatTheReadModelRemembers(t *testing.T) {
	gone := &session.Approval{ID: "a1", Status: session.StatusVoided}
	for _, a := range []*session.Approval{gone, {ID: "a1", Status: session.StatusExpired}} {
		if err := approve("a1").Against(a); !errors.Is(err, &session.Error{Code: session.ApprovalGone}) {
			t.Errorf("%s: %v", a.Status, err)
		}
	}
	done := &session.Approval{ID: "a1", Status: session.StatusDenied, By: "bob"}
	if err := approve("a1").Against(done); !errors.Is(err, &session.Error{Code: session.ApprovalDone}) {
		t.Errorf("%v", err)
	}
	if err := deny("a1", "").Against(done); err != nil {
		t.Errorf("the same decision is refused: %v", err)
	}
}

func TestAPersonsWordSettlesAnUnknownOutcome(t *testing.T) {
	word := func(o session.Outcome) session.ResolveTool {
		return session.ResolveTool{Run: "r_m1", Call: "c_send", Outcome: o, By: "ann", Note: "I looked"}
	}
	t.Run("it happened", func(t *testing.T) {
		h := lostInATool(t, session.Unsafe)
		w := word(session.Happened)
		w.Result = json.RawMessage(`{"sent":true}`)
		h.wantTypes(h.do(w.Decide), "tool.resolved", "tool.completed")
		c := h.toolCall("o_m1", "c_send")
		if c.Status != session.CallCompleted || string(c.Result) != `{"sent":true}` || c.By != "ann" || c.Note != "I looked" || c.Try != 1 {
			t.Errorf("the call is %s", asJSON(t, c))
		}
	})
	t.Run("it happened, without a result", func(t *testing.T) {
		h := lostInATool(t, session.Unsafe)
		h.do(word(session.Happened).Decide)
		if c := h.toolCall("o_m1", "c_send"); string(c.Result) != "null" {
			t.Errorf("the result is %s", c.Result)
		}
	})
	t.Run("it did not", func(t *testing.T) {
		h := lostInATool(t, session.Unsafe)
		h.wantTypes(h.do(word(session.DidNot).Decide), "tool.resolved")
		h.claim("r_m1")
		h.carry("r_m1", session.ToolStarted{Message: "o_m1", Call: "c_send", Try: 2, Key: "k1"})
		if c := h.toolCall("o_m1", "c_send"); c.Status != session.CallStarted || c.Try != 2 || c.Key != "k1" {
			t.Errorf("the call is %s", asJSON(t, c))
		}
	})
	t.Run("treat it as failed", func(t *testing.T) {
		h := lostInATool(t, session.Unsafe)
		h.wantTypes(h.do(word(session.OutcomeFail).Decide), "tool.resolved", "tool.failed")
		c := h.toolCall("o_m1", "c_send")
		if c.Status != session.CallFailed || c.Error.Code != "outcome_unknown" || !strings.Contains(c.Error.Message, "I looked") || c.By != "ann" {
			t.Errorf("the call is %s", asJSON(t, c))
		}
	})
	for _, o := range []session.Outcome{session.Happened, session.DidNot, session.OutcomeFail} {
		h := lostInATool(t, session.Unsafe)
		h.do(word(o).Decide)
		if w := h.state.WorkOf(h.run("r_m1")); !w.Due {
			t.Errorf("after %s the run is not due: %+v", o, w)
		}
		h.refused(session.OutcomeKnown, word(o).Decide)
		h.refused(session.NotFound, session.ResolveTool{Run: "r_m1", Call: "c_nobody"}.Decide)
		h.refused(session.NotFound, session.ResolveTool{Run: "r_nobody", Call: "c_send"}.Decide)
	}
	h := lostInATool(t, session.Unsafe)
	h.cancel("r_m1")
	h.refused(session.RunTerminal, word(session.DidNot).Decide)
}

func TestEveryUnknownOutcomeHasToBeSettledBeforeTheRunGoesOn(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.call("r_m1", session.Unsafe, false, "one", "two")
	h.carry("r_m1", session.ToolStarted{Message: "o_m1", Call: "c_one", Try: 1}, session.ToolStarted{Message: "o_m1", Call: "c_two", Try: 1})
	h.do(session.Reconcile{Run: "r_m1", Fence: 1, Cause: session.CauseRestart}.Decide)
	h.do(session.ResolveTool{Run: "r_m1", Call: "c_one", Outcome: session.Happened, By: "ann"}.Decide)
	if w := h.state.WorkOf(h.run("r_m1")); w.Due {
		t.Error("the run is due while the outcome of a call is unknown")
	}
	h.do(session.ResolveTool{Run: "r_m1", Call: "c_two", Outcome: session.DidNot, By: "ann"}.Decide)
	if w := h.state.WorkOf(h.run("r_m1")); !w.Due {
		t.Error("the run is not due when all is settled")
	}
}
