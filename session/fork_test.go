package session_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/session"
)

func TestAForkBeginsWithACopyAndIsMadeOnce(t *testing.T) {
	source := failing(t)
	c := session.Fork{
		From: session.Origin{Session: "ses_0", Message: "o_m1"}, Tenant: submission("x").Tenant, Owner: submission("x").Owner, Title: "x (fork)", Agent: "demo",
		Messages: []session.Message{*source.message("m1"), *source.message("o_m1")},
	}
	h := newHistory(t)
	h.wantTypes(h.do(c.Decide), "session.created", "session.forked", "message.created", "message.created")
	h.wantTypes(h.do(c.Decide))
	h.wantBranch("m1", "o_m1")
	if from := h.state.ForkedFrom; from == nil || *from != c.From {
		t.Errorf("it comes from %+v", from)
	}
	for _, id := range []string{"m1", "o_m1"} {
		was, is := source.message(id), h.message(id)
		if asJSON(t, was.Parts) != asJSON(t, is.Parts) || was.Status != is.Status || was.Reason != is.Reason || is.Run != "" {
			t.Errorf("%s became %s", asJSON(t, was), asJSON(t, is))
		}
	}
	other := c
	other.From.Message = "m1"
	if err := h.refused(session.Conflict, other.Decide); err.Field != "id" {
		t.Errorf("the field at fault is %q", err.Field)
	}
	other = c
	other.Owner = "eve"
	h.refused(session.NotFound, other.Decide)
	h.refused(session.Conflict, submission("m1").Decide) // the copy is no submission
	// It goes on like any session.
	h.submit("m2")
	h.claim("r_m2")
	h.answer("r_m2", "more")
	h.wantBranch("m1", "o_m1", "m2", "o_m2")
}
