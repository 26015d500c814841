package session_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/session"
)

func TestTheFirstMessageBeginsTheSessionAndItsRun(t *testing.T) {
	h := newHistory(t)
	c := submission("m1")
	events := h.do(c.Decide)
	h.wantTypes(events, "session.created", "run.queued", "message.created")
	if c.Accepted != "r_m1" || c.Repeated {
		t.Errorf("the message is answered by %q, repeated %v", c.Accepted, c.Repeated)
	}
	if s := h.state; s.Tenant != "acme" || s.Owner != "ann" || s.Agent != "demo" || s.Title != "say m1" || !s.CreatedAt.Equal(epoch) {
		t.Errorf("the session is %s", asJSON(t, s))
	}
	h.wantStatus("r_m1", session.Queued)
	h.wantBranch("m1")
	if m := h.message("m1"); m.Status != session.MessageWhole || m.Seq != 3 || m.Run != "r_m1" {
		t.Errorf("the message is %s", asJSON(t, m))
	}
}

func TestTheSameMessageAgainGivesTheSameRunWhateverHappenedSince(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	again := func() {
		t.Helper()
		c := submission("m1")
		c.Run, c.Output = "r_other", "o_other"
		if events := h.do(c.Decide); len(events) != 0 || c.Accepted != "r_m1" || !c.Repeated {
			t.Errorf("%v, answered by %q, repeated %v", types(events), c.Accepted, c.Repeated)
		}
	}
	again()
	h.claim("r_m1")
	again()
	h.answer("r_m1", "hello")
	again()
	h.submit("m2")
	again()
}

func TestAMessageIDWithAnotherBodyIsRefused(t *testing.T) {
	other := map[string]func(*session.Submit){
		"text":       func(c *session.Submit) { c.Parts = text("else") },
		"agent":      func(c *session.Submit) { c.Agent = "other" },
		"background": background,
		"onBusy":     onBusy(session.Reject),
		"parent":     after(""),
	}
	for name, change := range other {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t)
			h.submit("m1")
			if err := h.refused(session.Conflict, submission("m1", change).Decide); err.Field != "id" {
				t.Errorf("the field at fault is %q", err.Field)
			}
		})
	}
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.refused(session.Conflict, submission("o_m1").Decide) // the id of the answer
}

func TestDefaultsAreTheSameBodyAsTheirValues(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.do(submission("m1", onBusy(session.Enqueue)).Decide)
}

func TestAnotherOwnersSessionIsNotFound(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	for name, c := range map[string]*session.Submit{
		"another owner":   submission("m2", func(c *session.Submit) { c.Owner = "eve" }),
		"another tenant":  submission("m2", func(c *session.Submit) { c.Tenant = "evil" }),
		"a known message": submission("m1", func(c *session.Submit) { c.Owner = "eve" }),
	} {
		t.Run(name, func(t *testing.T) {
			if err := h.refused(session.NotFound, c.Decide); strings.Contains(err.Error(), "ann") {
				t.Errorf("the refusal says too much: %v", err)
			}
			if c.Accepted != "" {
				t.Errorf("the refusal gives the run %q away", c.Accepted)
			}
		})
	}
	h.refused(session.NotFound, session.Create{Tenant: "acme", Owner: "eve"}.Decide)
}

func TestCreatingASessionAgainIsFine(t *testing.T) {
	h := newHistory(t)
	c := session.Create{Tenant: "acme", Owner: "ann", Title: "mine", Agent: "helper"}
	h.wantTypes(h.do(c.Decide), "session.created")
	c.Title = "other"
	h.wantTypes(h.do(c.Decide))
	if h.state.Title != "mine" {
		t.Errorf("the title is %q", h.state.Title)
	}
	// Its agent answers, unless the message names another.
	h.submit("m1")
	if agent := h.run("r_m1").Agent; agent != "helper" {
		t.Errorf("the agent %q answers", agent)
	}
	h.submit("m2", func(c *session.Submit) { c.Agent = "third" })
	if agent := h.run("r_m2").Agent; agent != "third" {
		t.Errorf("the agent %q answers", agent)
	}
}

func TestMessagesThatAreEnqueuedRunInTheOrderTheyCame(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.submit("m2")
	h.submit("m3")
	h.wantInbox("m2", "m3")
	h.wantStatus("r_m2", session.Queued)
	h.refused(session.NotDue, (&session.Claim{Run: "r_m2", At: h.now()}).Decide)
	h.answer("r_m1", "one")
	h.wantInbox("m3")
	h.claim("r_m2")
	h.answer("r_m2", "two")
	h.claim("r_m3")
	h.answer("r_m3", "three")
	h.wantInbox()
	h.wantBranch("m1", "o_m1", "m2", "o_m2", "m3", "o_m3")
}

func TestRejectRefusesWhileARunIsActiveAndNamesIt(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	err := h.refused(session.RunActive, submission("m2", onBusy(session.Reject)).Decide)
	if err.Run == nil || err.Run.ID != "r_m1" || err.Field != "onBusy" {
		t.Errorf("the refusal names %+v, field %q", err.Run, err.Field)
	}
	h.claim("r_m1")
	h.answer("r_m1", "done")
	h.submit("m2", onBusy(session.Reject))
	h.wantStatus("r_m2", session.Queued)
}

func TestInterruptCancelsWhatRunsKeepsWhatWasSaidAndComesNext(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.carry("r_m1", session.StepStarted{Message: "o_m1"}, session.TextDelta{Message: "o_m1", Text: "half a"})
	h.submit("m2")
	h.wantTypes(h.do(submission("m3", onBusy(session.Interrupt)).Decide), "run.queued", "inbox.queued", "run.cancel_requested")
	h.wantInbox("m3", "m2")
	h.end("r_m1", session.RunCancelled{})
	h.wantInbox("m2")
	h.wantBranch("m1", "o_m1", "m3")
	if m := h.message("o_m1"); m.Text() != "half a" || m.Status != session.MessageCut || m.Reason != "cancelled" {
		t.Errorf("what was said is %s", asJSON(t, m))
	}
	if active := h.state.Active(); active.ID != "r_m3" {
		t.Errorf("the run %s is next", active.ID)
	}
}

func TestInterruptDeliversAtOnceWhenNobodyCarriesTheRun(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	events := h.do(submission("m2", onBusy(session.Interrupt)).Decide)
	h.wantTypes(events, "run.queued", "inbox.queued", "run.cancel_requested", "run.cancelled", "inbox.delivered", "message.created")
	h.wantInbox()
	h.wantBranch("m1", "m2")
	h.wantStatus("r_m1", session.Cancelled)
}

func TestInterruptsComeInTheirOwnOrderBeforeWhatWaits(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.submit("m2")
	h.submit("m3", onBusy(session.Interrupt))
	h.submit("m4", onBusy(session.Rollback))
	h.submit("m5", onBusy(session.Interrupt))
	h.wantInbox("m3", "m4", "m5", "m2")
	h.end("r_m1", session.RunCancelled{})
	// The run of m3 is queued, so the next interrupt ends it at once; m4 was before.
	h.submit("m6", onBusy(session.Interrupt))
	h.wantStatus("r_m3", session.Cancelled)
	if active := h.state.Active(); active.ID != "r_m4" {
		t.Errorf("the run %s is next, not that of m4", active.ID)
	}
	h.wantInbox("m5", "m6", "m2")
}

func TestRollbackTakesThePlaceOfTheMessageItDrops(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.answer("r_m1", "one")
	h.submit("m2")
	h.claim("r_m2")
	h.submit("m3", onBusy(session.Rollback))
	h.end("r_m2", session.RunCancelled{})
	h.wantBranch("m1", "o_m1", "m3")
	if ids := h.state.SiblingIndex()[session.Place{Parent: "o_m1", Role: session.RoleUser}]; fmt.Sprint(ids) != "[m2 m3]" {
		t.Errorf("the siblings are %v", ids)
	}
}

func TestRollbackOfTheFirstMessageBeginsANewRoot(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.submit("m2", onBusy(session.Rollback))
	h.end("r_m1", session.RunCancelled{})
	h.wantBranch("m2")
}

func TestRollbackWithAParentGoesWhereItSays(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.submit("m2", onBusy(session.Rollback), after("o_m1"))
	h.end("r_m1", session.RunCancelled{})
	h.wantBranch("m1", "o_m1", "m2")
}

func TestAMessageGoesWhereItsParentSays(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.answer("r_m1", "one")
	h.submit("m2", after("")) // a new root
	h.wantBranch("m2")
	h.submit("m3", after("o_m1")) // waits
	h.submit("m4", after(""))     // waits
	h.submit("m5")                // waits, for after the head
	h.claim("r_m2")
	h.answer("r_m2", "two")
	h.wantBranch("m1", "o_m1", "m3")
	h.claim("r_m3")
	h.answer("r_m3", "three")
	h.wantBranch("m4")
	h.claim("r_m4")
	h.answer("r_m4", "four")
	h.wantBranch("m4", "o_m4", "m5")
	err := h.refused(session.NotFound, submission("m6", after("m_nobody")).Decide)
	if err.Field != "parent" {
		t.Errorf("the field at fault is %q", err.Field)
	}
}

func TestTheInboxIsBounded(t *testing.T) {
	h := newHistory(t)
	h.submit("m0")
	for i := range session.MaxInbox {
		h.submit(fmt.Sprint("m", i+1))
	}
	h.refused(session.InboxFull, submission("one_more").Decide)
	h.refused(session.InboxFull, submission("one_more", onBusy(session.Steer)).Decide)
	h.submit("aside", background)
	h.do(submission("m7").Decide) // repeating is still fine
}

func TestATitleIsTheFirstWords(t *testing.T) {
	long := strings.Repeat("word ", 40)
	for name, c := range map[string]struct {
		parts []session.Part
		want  string
	}{
		"short":             {text("plan a trip"), "plan a trip"},
		"spaces and breaks": {text("  plan\n\ta   trip  "), "plan a trip"},
		"cut at a word":     {text(long), strings.TrimSuffix(strings.Repeat("word ", 16), " ") + "…"},
		"one long word":     {text(strings.Repeat("x", 200)), strings.Repeat("x", 80) + "…"},
		"no half character": {text(strings.Repeat("😀", 50)), strings.Repeat("😀", 20) + "…"},
		"blank first":       {append(text(" \n"), text("then this")...), "then this"},
		"no text":           {[]session.Part{{Type: session.PartData}}, ""},
		"a NUL":             {text("a\x00b"), "a\x00b"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t)
			h.submit("m1", func(s *session.Submit) { s.Parts = c.parts })
			if h.state.Title != c.want {
				t.Errorf("the title is %q, not %q", h.state.Title, c.want)
			}
		})
	}
	h := newHistory(t)
	h.submit("m1", func(c *session.Submit) { c.Title = "mine" })
	if h.state.Title != "mine" {
		t.Errorf("the title is %q", h.state.Title)
	}
}

func TestARefusalSaysItsCodeToErrorsIs(t *testing.T) {
	_, err := session.Cancel{Run: "r_nobody"}.Decide(session.New("ses_1"))
	if !errors.Is(err, &session.Error{Code: session.NotFound}) || errors.Is(err, &session.Error{Code: session.Invalid}) {
		t.Errorf("%v is not found, and nothing else", err)
	}
	if want := `there is no run "r_nobody" (not_found)`; err.Error() != want {
		t.Errorf("the error is %q, not %q", err, want)
	}
}
