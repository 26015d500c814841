package session_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/session"
)

func TestABackgroundRunGoesBesideTheOthersAndLeavesTheHead(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.submit("m2", background)
	h.wantInbox()
	h.wantBranch("m1", "o_m1")
	if active := h.state.Active(); active.ID != "r_m1" {
		t.Errorf("the run %s is active", active.ID)
	}
	h.claim("r_m2")
	h.submit("m3")
	h.answer("r_m2", "aside")
	h.wantInbox("m3") // a background run that ends gives no turn
	h.answer("r_m1", "one")
	h.wantInbox()
	h.wantBranch("m1", "o_m1", "o_m2_result", "m3") // it is told when the active run has ended, before what waits
	if m := h.message("o_m2"); m.Text() != "aside" || m.Parent != "m2" {
		t.Errorf("the background run said %s", asJSON(t, m))
	}
}

func TestTheResultOfABackgroundRunIsToldAtOnceInAnIdleSession(t *testing.T) {
	h := talked(t)
	h.submit("aside", background)
	h.claim("r_aside")
	h.carry("r_aside", session.StepStarted{Message: "o_aside"},
		session.ModelCompleted{Message: "o_aside", Parts: text("let me see"), Finish: "tool_calls"}, session.StepCompleted{})
	h.answer("r_aside", "found")
	h.wantBranch("m1", "o_m1", "m2", "o_m2", "o_aside_result")
	m := h.message("o_aside_result")
	if b := m.Background; b == nil || b.Run != "r_aside" || b.Input != "aside" || b.Title != "say aside" || m.Run != "" || m.Text() != "found" {
		t.Errorf("it is told as %s", asJSON(t, m))
	}
	for place, ids := range h.state.SiblingIndex() {
		if len(ids) > 1 {
			t.Errorf("behind %s are the siblings %v", place.Parent, ids)
		}
	}
}

func TestResultsAreToldInTheOrderTheirRunsEnded(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	for _, id := range []string{"a", "b", "c"} {
		h.submit(id, background)
		h.claim("r_" + id)
	}
	h.answer("r_b", "second")
	h.end("r_c", session.RunFailed{Error: session.Failure{Code: "x", Message: "no"}})
	h.do(session.Cancel{Run: "r_a", At: h.now()}.Decide)
	h.end("r_a", session.RunCancelled{})
	h.wantBranch("m1", "o_m1")
	if n := len(h.state.Results); n != 2 {
		t.Fatalf("%d results wait", n)
	}
	h.submit("m2", onBusy(session.Interrupt))
	h.end("r_m1", session.RunCancelled{})
	h.wantBranch("m1", "o_m1", "o_b_result", "o_c_result", "m2")
	if m := h.message("o_c_result"); m.Reason != "failed" || m.Background.Error == nil || m.Background.Error.Message != "no" {
		t.Errorf("the failure is told as %s", asJSON(t, m))
	}
	if len(h.state.Results) > 0 {
		t.Errorf("%d results still wait", len(h.state.Results))
	}
}

func TestABackgroundRunFollowsWhatWasSaidBeforeTheActiveRun(t *testing.T) {
	h := talked(t)
	h.submit("m3")
	h.claim("r_m3")
	h.submit("aside", background)
	if m := h.message("aside"); m.Parent != "o_m2" {
		t.Errorf("it follows %q", m.Parent)
	}
	// A first message may be one in the background, too.
	h = newHistory(t)
	h.submit("aside", background)
	h.claim("r_aside")
	h.answer("r_aside", "done")
	h.submit("m1")
	h.wantBranch("o_aside_result", "m1")
}
