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
