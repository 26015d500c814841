package session_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast/session"
)

// talked has two questions and answers.
func talked(t *testing.T) *history {
	t.Helper()
	h := newHistory(t)
	for _, id := range []string{"m1", "m2"} {
		h.submit(id)
		h.claim("r_" + id)
		h.answer("r_"+id, "answer "+id)
	}
	return h
}

func TestEditingAMessageMakesASiblingAndABranch(t *testing.T) {
	h := talked(t)
	h.submit("m3", after("o_m1"))
	h.wantBranch("m1", "o_m1", "m3")
	if ids := h.state.SiblingIndex()[session.Place{Parent: "o_m1", Role: session.RoleUser}]; !slices.Equal(ids, []string{"m2", "m3"}) {
		t.Errorf("the siblings are %v", ids)
	}
}

func TestTheHeadChoosesTheBranch(t *testing.T) {
	h := talked(t)
	h.submit("m3", after("o_m1"))
	head := "o_m2"
	err := h.refused(session.RunActive, session.Update{Head: &head}.Decide)
	if err.Run.ID != "r_m3" || err.Field != "head" {
		t.Errorf("the refusal names %s, field %s", err.Run.ID, err.Field)
	}
	h.claim("r_m3")
	h.answer("r_m3", "three")
	h.wantTypes(h.do(session.Update{Head: &head}.Decide), "session.updated")
	h.wantBranch("m1", "o_m1", "m2", "o_m2")
	h.wantTypes(h.do(session.Update{Head: &head}.Decide)) // it is so already
	nobody := "m_nobody"
	if err := h.refused(session.NotFound, session.Update{Head: &nobody}.Decide); err.Field != "head" {
		t.Errorf("the field at fault is %s", err.Field)
	}
	h.submit("m4")
	h.wantBranch("m1", "o_m1", "m2", "o_m2", "m4")
}

func TestOnlyWhatDiffersIsUpdated(t *testing.T) {
	h := talked(t)
	title := "a new title"
	u := session.Update{Title: &title, Metadata: json.RawMessage(`{"a":1}`)}
	h.wantTypes(h.do(u.Decide), "session.updated")
	if h.state.Title != title || string(h.state.Metadata) != `{"a":1}` {
		t.Errorf("the session is %s", asJSON(t, h.state))
	}
	h.wantTypes(h.do(u.Decide))
	h.wantTypes(h.do(session.Update{}.Decide))
	empty := ""
	h.do(session.Update{Title: &empty}.Decide)
	if h.state.Title != "" || string(h.state.Metadata) != `{"a":1}` {
		t.Errorf("the session is %s", asJSON(t, h.state))
	}
	newHistory(t).refused(session.NotFound, session.Update{Title: &title}.Decide)
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
	h.wantTypes(h.do(c.Decide), "session.updated", "run.queued")
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
	h.wantBranch("m1")
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
	h.wantTypes(h.do(session.Retry{Run: "r_aside", ID: "r_again", Output: "o_again"}.Decide), "run.queued")
	if run := h.run("r_again"); !run.Background {
		t.Error("the retry came to the foreground")
	}
	h.wantBranch("m1", "o_m1", "m2", "o_m2", "m3")
}
