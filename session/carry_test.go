package session_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
)

func TestAClaimStartsTheRunOpensItsMessageAndRaisesTheFence(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	c := &session.Claim{Run: "r_m1", Worker: "w1", At: h.now()}
	h.wantTypes(h.do(c.Decide), "run.started", "message.created")
	run := h.run("r_m1")
	if run.Status != session.Running || run.Worker != "w1" || run.Fence != 1 || c.Fence != 1 || run.StartedAt == nil {
		t.Errorf("the run is %s, the fence %d", asJSON(t, run), c.Fence)
	}
	if m := h.message("o_m1"); m.Status != session.MessageStreaming || m.Parent != "m1" || m.Run != "r_m1" {
		t.Errorf("its message is %s", asJSON(t, m))
	}
	h.refused(session.NotDue, (&session.Claim{Run: "r_m1", Worker: "w2", At: h.now()}).Decide)
	h.refused(session.NotFound, (&session.Claim{Run: "r_nobody", Worker: "w2", At: h.now()}).Decide)
}

func TestALaterClaimResumesUnderAHigherFence(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	until := h.now().Add(time.Minute)
	h.carry("r_m1", session.RunWaiting{Reason: session.WaitRetry, Until: &until, Error: &session.Failure{Code: "overloaded"}})
	run := h.run("r_m1")
	if run.Status != session.Waiting || run.Worker != "" || run.Error == nil || !run.WaitingUntil.Equal(until) {
		t.Errorf("the waiting run is %s", asJSON(t, run))
	}
	h.refused(session.Fenced, h.writes("r_m1", session.StepCompleted{})) // it let go
	h.refused(session.NotDue, (&session.Claim{Run: "r_m1", Worker: "w2", At: until.Add(-time.Millisecond)}).Decide)
	c := &session.Claim{Run: "r_m1", Worker: "w2", At: until}
	h.wantTypes(h.do(c.Decide), "run.resumed")
	run = h.run("r_m1")
	if c.Fence != 2 || run.Fence != 2 || run.Worker != "w2" || run.WaitingReason != "" || run.WaitingUntil != nil || run.Error != nil {
		t.Errorf("the resumed run is %s", asJSON(t, run))
	}
}

func TestAWriteUnderAnOldFenceChangesNothing(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.do(session.Reconcile{Run: "r_m1", Fence: 1, Cause: session.CauseLeaseExpired}.Decide)
	fence := h.claim("r_m1")
	stale := func(s *session.State, run *session.Run) ([]session.Event, error) {
		return s.End(run, session.RunCompleted{}), nil
	}
	for _, old := range []int64{0, 1, fence - 1, fence + 1} {
		h.refused(session.Fenced, session.Carry("r_m1", old, stale))
	}
	h.do(session.Carry("r_m1", fence, stale))
	h.refused(session.Fenced, session.Carry("r_m1", fence, stale)) // it has ended
	h.refused(session.NotFound, session.Carry("r_nobody", 1, stale))
}

func TestAWorkersOwnErrorIsGivenBackAsItIs(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	mine := errors.New("mine")
	_, err := h.try(session.Carry("r_m1", 1, func(*session.State, *session.Run) ([]session.Event, error) { return nil, mine }))
	if !errors.Is(err, mine) {
		t.Errorf("the error is %v", err)
	}
}

// lostInATool has a run whose worker was lost after it started a call.
func lostInATool(t *testing.T, effects session.Effects) *history {
	t.Helper()
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.call("r_m1", effects, false, "send")
	h.carry("r_m1", session.ToolStarted{Message: "o_m1", Call: "c_send", Try: 1, Key: "k1"},
		session.ToolProgress{Message: "o_m1", Call: "c_send", Progress: session.Progress{Message: "half"}})
	h.do(session.Reconcile{Run: "r_m1", Fence: 1, Cause: session.CauseLeaseExpired, Evidence: "lease ended", At: h.now(), MaxCrashes: 3}.Decide)
	return h
}

func TestACallThatMayBeRepeatedIsLeftToTheNextWorker(t *testing.T) {
	for _, effects := range []session.Effects{session.ReadOnly, session.Idempotent} {
		t.Run(string(effects), func(t *testing.T) {
			h := lostInATool(t, effects)
			run := h.run("r_m1")
			if run.Status != session.Waiting || run.WaitingReason != session.WaitWorker || run.Crashes != 1 {
				t.Errorf("the run is %s", asJSON(t, run))
			}
			if c := h.toolCall("o_m1", "c_send"); c.Status != session.CallStarted || c.Key != "k1" {
				t.Errorf("the call is %s", asJSON(t, c))
			}
			h.claim("r_m1")
			h.carry("r_m1", session.ToolStarted{Message: "o_m1", Call: "c_send", Try: 2, Key: "k1"},
				session.ToolCompleted{Message: "o_m1", Call: "c_send"}, session.StepCompleted{})
			if run := h.run("r_m1"); run.Crashes != 0 {
				t.Errorf("%d crashes count after a completed step", run.Crashes)
			}
		})
	}
}

func TestACallWithSideEffectsWhoseWorkerIsLostWaitsForAPerson(t *testing.T) {
	for _, effects := range []session.Effects{session.Unsafe, ""} {
		t.Run("effects "+string(effects), func(t *testing.T) {
			h := lostInATool(t, effects)
			run, c := h.run("r_m1"), h.toolCall("o_m1", "c_send")
			if run.Status != session.Waiting || run.WaitingReason != session.WaitToolOutcome || c.Status != session.CallUnknown || c.Progress != nil {
				t.Errorf("the run waits for %s, the call is %s", run.WaitingReason, asJSON(t, c))
			}
			if w := h.state.WorkOf(run); w.Due || w.Held {
				t.Errorf("it asks for %+v", w)
			}
			h.refused(session.NotDue, (&session.Claim{Run: "r_m1", Worker: "w2", At: h.now().Add(time.Hour)}).Decide)
		})
	}
}

func TestAnApprovalBesideAnUnknownOutcomeStillExpires(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.call("r_m1", session.Unsafe, true, "now", "soon", "later")
	soon, later := h.now().Add(time.Hour), h.now().Add(2*time.Hour)
	h.state.Approval("a_soon").ExpiresAt, h.state.Approval("a_later").ExpiresAt = &soon, &later
	h.do(approve("a_now").Decide)
	h.carry("r_m1", session.ToolStarted{Message: "o_m1", Call: "c_now", Try: 1})
	h.do(session.Reconcile{Run: "r_m1", Fence: 1, Cause: session.CauseLeaseExpired, At: h.now()}.Decide)
	if run := h.run("r_m1"); run.WaitingReason != session.WaitToolOutcome {
		t.Fatalf("the run is %s", asJSON(t, run))
	}
	if w := h.state.WorkOf(h.run("r_m1")); !w.Due || !w.At.Equal(soon) {
		t.Errorf("it asks for %+v and would miss the time of an approval", w)
	}
}

func TestALostAttemptIsClosedWithWhatItHadSaid(t *testing.T) {
	for cause, code := range map[session.ReconcileCause]string{
		session.CauseLeaseExpired: "worker_lost", session.CauseRestart: "worker_lost", session.CauseDrain: "worker_left",
	} {
		t.Run(string(cause), func(t *testing.T) {
			h := newHistory(t)
			h.submit("m1")
			h.claim("r_m1")
			h.carry("r_m1", session.StepStarted{Message: "o_m1"}, session.TextDelta{Message: "o_m1", Text: "half"})
			events := h.do(session.Reconcile{Run: "r_m1", Fence: 1, Cause: cause, Evidence: "seen"}.Decide)
			h.wantTypes(events, "run.reconciled", "attempt.failed")
			failed := events[1].Data.(session.AttemptFailed)
			if failed.Error.Code != code || !failed.Error.Retryable || len(failed.Parts) != 1 || failed.Parts[0].Text != "half" {
				t.Errorf("the attempt ends with %s", asJSON(t, failed))
			}
			if p := h.message("o_m1").Parts[1]; p.State != session.PartFailed || p.Text != "half" {
				t.Errorf("the part is %s", asJSON(t, p))
			}
		})
	}
}

func TestOnlyALostWorkerCountsAsACrash(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	for range 5 {
		fence := h.claim("r_m1")
		events := h.do(session.Reconcile{Run: "r_m1", Fence: fence, Cause: session.CauseDrain, MaxCrashes: 1}.Decide)
		if r := events[0].Data.(session.RunReconciled); r.Decision != "hand_over" || r.Until != nil {
			t.Errorf("the decision is %+v", r)
		}
	}
	if run := h.run("r_m1"); run.Crashes != 0 || run.Status != session.Waiting {
		t.Errorf("the run is %s", asJSON(t, run))
	}
	if w := h.state.WorkOf(h.run("r_m1")); !w.Due || !w.At.IsZero() {
		t.Errorf("it asks for %+v", w)
	}
}

func TestARunThatKillsItsWorkersStopsAtTheLimitAfterGrowingDelays(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	var waits []time.Duration
	lose := func() []session.Event {
		fence := h.run("r_m1").Fence
		return h.do(session.Reconcile{
			Run: "r_m1", Fence: fence, Cause: session.CauseRestart, At: h.now(), MaxCrashes: 3,
			Backoff: func(n int) time.Duration {
				waits = append(waits, time.Duration(n)*time.Second)
				return waits[len(waits)-1]
			},
		}.Decide)
	}
	for range 2 {
		h.do((&session.Claim{Run: "r_m1", Worker: "w", At: h.now().Add(time.Hour)}).Decide)
		at := h.now()
		lose()
		if w := h.state.WorkOf(h.run("r_m1")); !w.Due || !w.At.Equal(at.Add(waits[len(waits)-1])) {
			t.Errorf("it asks for %+v", w)
		}
	}
	h.do((&session.Claim{Run: "r_m1", Worker: "w", At: h.now().Add(time.Hour)}).Decide)
	events := lose()
	h.wantTypes(events, "run.reconciled", "message.interrupted", "run.failed")
	if run := h.run("r_m1"); run.Status != session.Failed || run.Error.Code != "crash" || !strings.Contains(run.Error.Message, "3 workers") {
		t.Errorf("the run is %s", asJSON(t, run))
	}
	if len(waits) != 2 {
		t.Errorf("it waited %v", waits)
	}
}

func TestACancelledRunWhoseWorkerGoesAwayIsCancelledThenAndThere(t *testing.T) {
	for _, cause := range []session.ReconcileCause{session.CauseLeaseExpired, session.CauseRestart, session.CauseDrain} {
		t.Run(string(cause), func(t *testing.T) {
			h := newHistory(t)
			h.submit("m1")
			h.claim("r_m1")
			h.carry("r_m1", session.StepStarted{Message: "o_m1"}, session.TextDelta{Message: "o_m1", Text: "half"})
			h.cancel("r_m1")
			events := h.do(session.Reconcile{Run: "r_m1", Fence: 1, Cause: cause, MaxCrashes: 1}.Decide)
			h.wantTypes(events, "run.reconciled", "message.interrupted", "run.cancelled")
			if m := h.message("o_m1"); m.Text() != "half" || m.Parts[1].State != "" {
				t.Errorf("what was said is %s", asJSON(t, m))
			}
		})
	}
}

func TestOnlyTheHolderOfTheFenceIsReconciled(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.refused(session.Fenced, session.Reconcile{Run: "r_m1", Fence: 0, Cause: session.CauseRestart}.Decide)
	h.claim("r_m1")
	h.refused(session.Fenced, session.Reconcile{Run: "r_m1", Fence: 2, Cause: session.CauseRestart}.Decide)
	h.do(session.Reconcile{Run: "r_m1", Fence: 1, Cause: session.CauseRestart}.Decide)
	h.refused(session.Fenced, session.Reconcile{Run: "r_m1", Fence: 1, Cause: session.CauseRestart}.Decide)
	h.refused(session.NotFound, session.Reconcile{Run: "r_nobody", Fence: 1}.Decide)
}

func TestTheTimeWorkersCarriedARunIsCounted(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1") // seq 4
	h.carry("r_m1", session.RunWaiting{Reason: session.WaitApproval})
	if run := h.run("r_m1"); run.CarriedMs != 2000 || run.ClaimedAt != nil {
		t.Errorf("it was carried for %d ms, since %v", run.CarriedMs, run.ClaimedAt)
	}
	h.claim("r_m1")
	h.carry("r_m1", session.StepStarted{Message: "o_m1"})
	h.end("r_m1", session.RunCompleted{})
	if run := h.run("r_m1"); run.CarriedMs != 5000 || run.ClaimedAt != nil {
		t.Errorf("it was carried for %d ms, since %v", run.CarriedMs, run.ClaimedAt)
	}
}

func TestTheTimeOfALostWorkerIsNotCounted(t *testing.T) {
	for cause, want := range map[session.ReconcileCause]int64{
		session.CauseLeaseExpired: 0, session.CauseRestart: 0, session.CauseDrain: 2000, session.CauseCancelTimeout: 2000,
	} {
		h := newHistory(t)
		h.submit("m1")
		h.claim("r_m1") // seq 4
		h.carry("r_m1", session.RunReconciled{Cause: cause})
		if run := h.run("r_m1"); run.CarriedMs != want || run.ClaimedAt != nil {
			t.Errorf("after %s it was carried for %d ms, since %v", cause, run.CarriedMs, run.ClaimedAt)
		}
	}
}
