package session_test

import (
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
)

func (h *history) cancel(run string) []session.Event {
	h.t.Helper()
	return h.do(session.Cancel{Run: run, By: "ann", Reason: "enough", At: h.now(), Grace: 5 * time.Second}.Decide)
}

func TestACancelledQueuedRunEndsAtOnceAndNeverStarts(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.wantTypes(h.cancel("r_m1"), "run.cancel_requested", "run.cancelled")
	run := h.run("r_m1")
	if run.Status != session.Cancelled || run.CancelBy != "ann" || run.CancelReason != "enough" || run.FinishedAt == nil {
		t.Errorf("the run is %s", asJSON(t, run))
	}
	h.refused(session.NotDue, (&session.Claim{Run: "r_m1", Worker: "w", At: h.now()}).Decide)
	h.submit("m2")
	h.claim("r_m2")
	h.answer("r_m2", "still here")
}

func TestACancelledRunningRunHasUntilItsDeadline(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	at := h.now()
	h.wantTypes(h.cancel("r_m1"), "run.cancel_requested")
	run := h.run("r_m1")
	if run.Status != session.Running || !run.CancelDeadline.Equal(at.Add(5*time.Second)) {
		t.Errorf("the run is %s until %v", run.Status, run.CancelDeadline)
	}
	if w := h.state.WorkOf(run); !w.Held || !w.CancelBy.Equal(at.Add(5*time.Second)) {
		t.Errorf("it asks for %+v", w)
	}
	h.wantTypes(h.cancel("r_m1")) // asking again changes nothing
	h.end("r_m1", session.RunCancelled{By: run.CancelBy})
	h.wantStatus("r_m1", session.Cancelled)
}

func TestNothingStartsAfterACancelIsRecorded(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.call("r_m1", session.Unsafe, false, "send")
	h.cancel("r_m1")
	for name, d := range map[string]session.Data{
		"a step":           session.StepStarted{Message: "o_m1"},
		"a tool":           session.ToolStarted{Message: "o_m1", Call: "c_send", Try: 1},
		"an approval":      session.ApprovalRequested{Approval: session.Approval{ID: "a1", Run: "r_m1"}},
		"waiting":          session.RunWaiting{Reason: session.WaitApproval},
		"waiting to retry": session.RunWaiting{Reason: session.WaitRetry},
	} {
		t.Run(name, func(t *testing.T) {
			h.refused(session.CancelIsRequested, h.writes("r_m1", d))
			h.refused(session.CancelIsRequested, h.writes("r_m1", session.StepCompleted{}, d))
		})
	}
	// What was under way may still say what it did.
	h.carry("r_m1", session.TextDelta{Message: "o_m1", Text: "bye"})
}

func TestACancelledWaitingRunEndsAtOnceWithEverythingClosed(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.call("r_m1", session.Unsafe, true, "pay", "send")
	h.carry("r_m1", session.RunWaiting{Reason: session.WaitApproval})
	events := h.cancel("r_m1")
	h.wantTypes(events, "run.cancel_requested", "approval.voided", "approval.voided", "tool.cancelled", "tool.cancelled",
		"message.interrupted", "run.cancelled")
	if len(h.state.Approvals) != 0 {
		t.Errorf("%d approvals are left", len(h.state.Approvals))
	}
	for _, id := range []string{"c_pay", "c_send"} {
		if c := h.toolCall("o_m1", id); c.Status != session.CallCancelled || c.EndedAt == nil || c.Note != "run cancelled" {
			t.Errorf("the call is %s", asJSON(t, c))
		}
	}
	h.refused(session.NotFound, session.DecideApproval{ID: "a_pay", Decision: session.Approve}.Decide)
}

func TestNobodyCanApproveWhatIsBeingCancelled(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.call("r_m1", session.Unsafe, true, "pay") // the worker has not let go yet
	h.wantTypes(h.cancel("r_m1"), "run.cancel_requested", "approval.voided")
	err := h.refused(session.ApprovalGone, session.DecideApproval{ID: "a_pay", Decision: session.Approve}.Decide)
	if err.Approval == nil || err.Approval.Status != session.StatusVoided {
		t.Errorf("the refusal carries %+v", err.Approval)
	}
	h.wantTypes(h.end("r_m1", session.RunCancelled{By: "ann"}), "tool.cancelled", "message.interrupted", "run.cancelled")
}

func TestACancelledRunThatWaitedToRetryHasNoErrorOfItsOwn(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	until := h.now().Add(time.Hour)
	h.carry("r_m1", session.RunWaiting{Reason: session.WaitRetry, Until: &until, Error: &session.Failure{Code: "overloaded"}})
	h.cancel("r_m1")
	if run := h.run("r_m1"); run.Error != nil || run.WaitingReason != "" || run.WaitingUntil != nil {
		t.Errorf("the run is %s", asJSON(t, run))
	}
}

func TestARunThatWaitsForAWordOnAToolCanBeCancelled(t *testing.T) {
	h := lostInATool(t, session.Unsafe)
	h.wantTypes(h.cancel("r_m1"), "run.cancel_requested", "tool.cancelled", "message.interrupted", "run.cancelled")
}

func TestCancellingACancelledRunIsFineAndAnEndedOneIsNot(t *testing.T) {
	for name, end := range map[string]session.Data{
		"completed": session.RunCompleted{},
		"failed":    session.RunFailed{Error: session.Failure{Code: "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t)
			h.submit("m1")
			h.claim("r_m1")
			h.end("r_m1", end)
			err := h.refused(session.RunTerminal, session.Cancel{Run: "r_m1"}.Decide)
			if err.Run == nil || string(err.Run.Status) != name {
				t.Errorf("the refusal carries %+v", err.Run)
			}
		})
	}
	h := newHistory(t)
	h.submit("m1")
	h.cancel("r_m1")
	h.wantTypes(h.cancel("r_m1"))
	h.refused(session.NotFound, session.Cancel{Run: "r_nobody"}.Decide)
}

func TestALateCancelDoesNotTouchTheNextRun(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.answer("r_m1", "one")
	h.submit("m2")
	h.claim("r_m2")
	h.refused(session.RunTerminal, session.Cancel{Run: "r_m1"}.Decide)
	if run := h.run("r_m2"); run.Status != session.Running || run.CancelRequestedAt != nil {
		t.Errorf("the next run is %s", asJSON(t, run))
	}
}

func TestARunWhoseWorkerIsDeafIsEndedAfterItsDeadline(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.carry("r_m1", session.StepStarted{Message: "o_m1"}, session.TextDelta{Message: "o_m1", Text: "and on and"})
	h.refused(session.NotDue, session.CancelOverdue{Run: "r_m1", At: h.now().Add(time.Hour)}.Decide)
	h.cancel("r_m1")
	deadline := *h.run("r_m1").CancelDeadline
	h.refused(session.NotDue, session.CancelOverdue{Run: "r_m1", At: deadline.Add(-time.Millisecond)}.Decide)
	events := h.do(session.CancelOverdue{Run: "r_m1", At: deadline}.Decide)
	h.wantTypes(events, "run.reconciled", "message.interrupted", "run.cancelled")
	if r := events[0].Data.(session.RunReconciled); r.Cause != session.CauseCancelTimeout || r.Evidence != "worker w1" {
		t.Errorf("the cause is %+v", r)
	}
	h.refused(session.Fenced, session.Carry("r_m1", 1, func(*session.State, *session.Run) ([]session.Event, error) {
		t.Error("the deaf worker was heard")
		return nil, nil
	}))
	h.refused(session.NotDue, session.CancelOverdue{Run: "r_m1", At: deadline.Add(time.Hour)}.Decide)
	h.refused(session.NotFound, session.CancelOverdue{Run: "r_nobody"}.Decide)
	if m := h.message("o_m1"); m.Text() != "and on and" || m.Reason != "cancelled" {
		t.Errorf("what was said is %s", asJSON(t, m))
	}
}

func TestACompletionThatWasFasterThanTheCancelStands(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.carry("r_m1", session.StepStarted{Message: "o_m1"},
		session.ModelCompleted{Message: "o_m1", Parts: text("done"), Finish: "stop"}, session.StepCompleted{})
	h.cancel("r_m1")
	h.end("r_m1", session.RunCompleted{})
	h.wantStatus("r_m1", session.Completed)
}

func TestEveryOpenThingIsClosedBeforeARunEnds(t *testing.T) {
	for name, end := range map[string]struct {
		data   session.Data
		status session.MessageStatus
		reason string
	}{
		"completed": {session.RunCompleted{}, session.MessageWhole, ""},
		"failed":    {session.RunFailed{Error: session.Failure{Code: "x"}}, session.MessageCut, "failed"},
		"cancelled": {session.RunCancelled{By: "ann"}, session.MessageCut, "cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t)
			h.submit("m1")
			h.claim("r_m1")
			h.call("r_m1", session.Idempotent, true, "pay")
			h.call("r_m1", session.Idempotent, false, "send")
			h.carry("r_m1", session.ToolStarted{Message: "o_m1", Call: "c_send", Try: 1},
				session.ToolProgress{Message: "o_m1", Call: "c_send", Progress: session.Progress{Fraction: 0.5}})
			events := h.end("r_m1", end.data)
			if last := events[len(events)-1]; last.Type() != "run."+name {
				t.Errorf("the last event is %s", last.Type())
			}
			m := h.message("o_m1")
			if m.Status != end.status || m.Reason != end.reason {
				t.Errorf("the message is %s, %s", m.Status, m.Reason)
			}
			if c := m.Call("c_send"); c.Status != session.CallCancelled || c.Progress != nil {
				t.Errorf("the running call is %s", asJSON(t, c))
			}
			if len(h.state.Approvals) != 0 {
				t.Errorf("approvals are left: %s", asJSON(t, h.state.Approvals))
			}
		})
	}
}
