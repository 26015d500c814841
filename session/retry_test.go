package session_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast/session"
)

// goOn retries a run from where it ended, as a runtime does.
func (h *history) goOn(run, id, output string) session.Decide {
	old := h.run(run)
	done := session.FinishedOf(old, h.message(old.Message))
	return session.Retry{Run: run, ID: id, Output: output, Done: done}.Decide
}

// shape is what a message has, a word a part.
func shape(m *session.Message) []string {
	var words []string
	for _, p := range m.Parts {
		word := string(p.Type)
		if p.Tool != nil {
			word = p.Tool.Name + " " + string(p.Tool.Status)
		} else if p.Text != "" {
			word = p.Text
		}
		words = append(words, word)
	}
	return words
}

// failing is a run that made two calls in its first step, and failed in the second.
func failing(t *testing.T) *history {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.call("r_m1", session.Unsafe, false, "pay", "ship")
	h.carry("r_m1", session.ToolStarted{Message: "o_m1", Call: "c_pay", Try: 1, Key: "k"},
		session.ToolCompleted{Message: "o_m1", Call: "c_pay", Result: json.RawMessage("1")},
		session.ToolFailed{Message: "o_m1", Call: "c_ship", Error: session.Failure{Code: "x"}}, session.StepCompleted{})
	h.carry("r_m1", session.StepStarted{Message: "o_m1"}, session.TextDelta{Message: "o_m1", Text: "It is"})
	h.end("r_m1", session.RunFailed{Error: session.Failure{Code: "x"}})
	return h
}

func TestARetryGoesOnBehindTheStepsThatAreDone(t *testing.T) {
	h := failing(t)
	again := h.goOn("r_m1", "r_again", "o_again")
	h.wantTypes(h.do(again), "run.queued", "message.created")
	h.wantTypes(h.do(again))
	if run := h.run("r_again"); run.FromStep != 2 || run.Usage != (session.Usage{}) {
		t.Errorf("the retry is %s", asJSON(t, run))
	}
	h.wantTypes(h.do((&session.Claim{Run: "r_again", Worker: "w1", At: h.now()}).Decide), "run.started")
	m := h.message("o_again")
	if diff := cmp.Diff([]string{"step", "pay completed", "ship failed"}, shape(m)); diff != "" || m.Status != session.MessageStreaming {
		t.Errorf("the message is %s (-want +got):\n%s", m.Status, diff)
	}
	old := h.message("o_m1")
	if diff := cmp.Diff(old.Parts[:3], m.Parts, cmp.AllowUnexported(session.Part{})); diff != "" {
		t.Errorf("the steps are not as they were (-old +new):\n%s", diff)
	}
	if got := shape(old); !slices.Equal(got, []string{"step", "pay completed", "ship failed", "step", "It is"}) {
		t.Errorf("the old message became %v", got)
	}
	h.refused(session.Conflict, session.Retry{Run: "r_m1", ID: "r_again", Output: "o_other"}.Decide) // anew, under the same id
}

func TestARetryTellsACallThatACancelCutShortAndDoesNotMakeIt(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.call("r_m1", session.Unsafe, false, "pay")
	h.carry("r_m1", session.ToolStarted{Message: "o_m1", Call: "c_pay", Try: 1, Key: "k"})
	h.do(session.Cancel{Run: "r_m1", At: h.now(), Grace: time.Second}.Decide)
	h.end("r_m1", session.RunCancelled{})
	h.do(h.goOn("r_m1", "r_again", "o_again"))
	h.claim("r_again")
	m := h.message("o_again")
	if got := shape(m); !slices.Equal(got, []string{"step", "pay cancelled"}) || m.Parts[1].Tool.Try != 1 {
		t.Errorf("the retry begins with %v", got)
	}
	if calls := h.state.Calls(h.run("r_again")); len(calls) > 0 {
		t.Errorf("the retry has %d calls to make", len(calls))
	}
}

func TestARetryOfARetryKeepsWhatBothDid(t *testing.T) {
	h := failing(t)
	h.do(h.goOn("r_m1", "r_two", "o_two"))
	h.claim("r_two")
	h.carry("r_two", session.StepStarted{Message: "o_two"}) // the first step of this run has the number of the step it goes on with
	h.end("r_two", session.RunFailed{Error: session.Failure{Code: "x"}})
	h.do(h.goOn("r_two", "r_three", "o_three"))
	if run := h.run("r_three"); run.FromStep != 2 || run.RetryOf != "r_two" || run.Input != "m1" {
		t.Errorf("the third is %s", asJSON(t, run))
	}
	h.wantBranch("m1", "o_three")
	if got := shape(h.message("o_three")); !slices.Equal(got, []string{"step", "pay completed", "ship failed"}) {
		t.Errorf("the third begins with %v", got)
	}
	// One that ended before it began lost nothing.
	h.do(session.Cancel{Run: "r_three", At: h.now()}.Decide)
	h.do(h.goOn("r_three", "r_four", "o_four"))
	if got := shape(h.message("o_four")); h.run("r_four").FromStep != 2 || len(got) != 3 {
		t.Errorf("the fourth begins with %v", got)
	}
}

func TestARetryOfASteeredRunFollowsTheSteer(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.call("r_m1", session.ReadOnly, false, "look")
	h.carry("r_m1", session.ToolCompleted{Message: "o_m1", Call: "c_look", Result: json.RawMessage("1")}, session.StepCompleted{})
	h.submit("m2", onBusy(session.Steer))
	h.do(session.Carry("r_m1", h.run("r_m1").Fence, func(s *session.State, r *session.Run) ([]session.Event, error) {
		return s.DeliverSteers(r), nil
	}))
	h.end("r_m1", session.RunFailed{Error: session.Failure{Code: "x"}})
	h.do(h.goOn("r_m1", "r_again", "o_again"))
	h.wantBranch("m1", "o_m1", "m2", "o_again")
	if run := h.run("r_again"); run.FromStep != 2 || run.Input != "m2" {
		t.Errorf("the retry is %s", asJSON(t, run))
	}
}

func TestARunThatCompletedIsAnsweredAnew(t *testing.T) {
	h := talked(t)
	h.do(h.goOn("r_m1", "r_again", "o_again"))
	if run, m := h.run("r_again"), h.message("o_again"); run.FromStep != 0 || len(m.Parts) > 0 {
		t.Errorf("it goes on: %s", asJSON(t, m))
	}
}

func TestARetryAnswersTheSameMessageAgain(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	c := session.Retry{Run: "r_m1", ID: "r_again", Output: "o_again"}
	if err := h.refused(session.RunNotTerminal, c.Decide); err.Run.ID != "r_m1" {
		t.Errorf("the refusal names %s", err.Run.ID)
	}
	h.end("r_m1", session.RunFailed{Error: session.Failure{Code: "x"}})
	h.wantTypes(h.do(c.Decide), "run.queued", "message.created")
	h.wantTypes(h.do(c.Decide)) // asking again is fine
	if run := h.run("r_again"); run.RetryOf != "r_m1" || run.Input != "m1" || run.Agent != "demo" {
		t.Errorf("the retry is %s", asJSON(t, run))
	}
	h.refused(session.RunNotTerminal, session.Retry{Run: "r_again", ID: "r_third", Output: "o_third"}.Decide)
	h.claim("r_again")
	h.answer("r_again", "now")
	h.wantBranch("m1", "o_again")
	if ids := h.state.SiblingIndex()[session.Place{Parent: "m1", Role: session.RoleAssistant}]; !slices.Equal(ids, []string{"o_m1", "o_again"}) {
		t.Errorf("the answers are %v", ids)
	}
	if m := h.message("o_m1"); m.Status != session.MessageCut || m.Reason != "failed" {
		t.Errorf("the old answer is %s", asJSON(t, m))
	}
}

func TestARetryGoesBackToItsQuestion(t *testing.T) {
	h := talked(t)
	h.do(session.Retry{Run: "r_m1", ID: "r_again", Output: "o_again"}.Decide)
	h.wantBranch("m1", "o_again")
	h.claim("r_again")
	h.answer("r_again", "else")
	h.wantBranch("m1", "o_again")
}

func TestARetryIsRefusedWhileAnotherRunIsActive(t *testing.T) {
	h := talked(t)
	h.submit("m3")
	if err := h.refused(session.RunActive, session.Retry{Run: "r_m1", ID: "r_again", Output: "o_again"}.Decide); err.Run.ID != "r_m3" {
		t.Errorf("the refusal names %s", err.Run.ID)
	}
	h.refused(session.NotFound, session.Retry{Run: "r_nobody", ID: "r_again"}.Decide)
	h.refused(session.Conflict, session.Retry{Run: "r_m1", ID: "r_m2", Output: "o_again"}.Decide)
}

func TestABackgroundRunIsRetriedInTheBackground(t *testing.T) {
	h := talked(t)
	h.submit("aside", background)
	h.claim("r_aside")
	h.end("r_aside", session.RunFailed{Error: session.Failure{Code: "x"}})
	h.submit("m3")
	h.wantTypes(h.do(session.Retry{Run: "r_aside", ID: "r_again", Output: "o_again"}.Decide), "run.queued", "message.created")
	if run := h.run("r_again"); !run.Background {
		t.Error("the retry came to the foreground")
	}
	h.wantBranch("m1", "o_m1", "m2", "o_m2", "o_aside_result", "m3")
}
