package session_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/session"
)

func TestASteerIsToldToTheRunBeforeItsNextModelCall(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.call("r_m1", session.ReadOnly, false, "clock")
	c := h.submit("m2", onBusy(session.Steer))
	if c.Accepted != "r_m1" {
		t.Errorf("the steer is answered by %q", c.Accepted)
	}
	if item := h.state.InboxItem("m2"); item.Message.Run != "r_m1" || item.Run != "r_m1" || item.SpareRun != "r_m2" {
		t.Errorf("the steer waits as %s", asJSON(t, item))
	}
	h.submit("m3", onBusy(session.Steer))
	h.carry("r_m1",
		session.ToolStarted{Message: "o_m1", Call: "c_clock", Try: 1},
		session.ToolCompleted{Message: "o_m1", Call: "c_clock"}, session.StepCompleted{})
	events := h.do(session.Carry("r_m1", 1, func(s *session.State, run *session.Run) ([]session.Event, error) {
		return s.DeliverSteers(run), nil
	}))
	h.wantTypes(events, "message.completed", "inbox.delivered", "message.created", "inbox.delivered", "message.created", "message.created")
	h.wantInbox()
	h.wantBranch("m1", "o_m1", "m2", "m3", "o_m3")
	if run := h.run("r_m1"); run.Message != "o_m3" || run.Input != "m1" {
		t.Errorf("the run answers %s in %s", run.Input, run.Message)
	}
	h.answer("r_m1", "as you say")
	for _, id := range []string{"m2", "m3"} {
		if sub := h.state.Submissions[id]; sub.Run != "r_m1" || h.message(id).Run != "r_m1" {
			t.Errorf("%s is answered by %s and %s", id, sub.Run, h.message(id).Run)
		}
	}
	again := submission("m2", onBusy(session.Steer))
	h.do(again.Decide)
	if again.Accepted != "r_m1" || !again.Repeated {
		t.Errorf("the steer again is answered by %q", again.Accepted)
	}
}

func TestARunWithoutSteersIsToldNothing(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.submit("m2")
	if events := h.state.DeliverSteers(h.run("r_m1")); len(events) != 0 {
		t.Errorf("an enqueued message is told as a steer: %v", types(events))
	}
}

func TestASteerWaitsUntilEveryCallOfTheStepHasItsResult(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.call("r_m1", session.ReadOnly, false, "clock")
	h.submit("m2", onBusy(session.Steer))
	if events := h.state.DeliverSteers(h.run("r_m1")); len(events) != 0 {
		t.Errorf("it is told between a call and its result: %v", types(events))
	}
}

func TestAnIDThatIsSpokenForIsRefused(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.submit("m2")
	h.submit("m3", onBusy(session.Steer))
	for _, id := range []string{"o_m1", "o_m2", "o_m3"} { // answers to come
		if err := h.refused(session.Conflict, submission(id).Decide); err.Field != "id" {
			t.Errorf("the field at fault is %q", err.Field)
		}
	}
	h.refused(session.Conflict, session.Retry{Run: "r_m1", ID: "r_m3", Output: "o_again"}.Decide) // the steer's own run
}

func TestASteerThatOutlivesItsRunGetsARunOfItsOwn(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.submit("m2")
	h.submit("m3", onBusy(session.Steer), func(c *session.Submit) { c.Agent = "helper" })
	h.answer("r_m1", "too late")
	h.wantInbox("m3") // m2 came first
	if item := h.state.Inbox[0]; item.Mode != session.Enqueue || item.Run != "r_m3" {
		t.Errorf("the steer waits as %s for %s", item.Mode, item.Run)
	}
	if agent := h.run("r_m3").Agent; agent != "helper" {
		t.Errorf("the agent %s answers it", agent)
	}
	again := submission("m3", onBusy(session.Steer), func(c *session.Submit) { c.Agent = "helper" })
	h.do(again.Decide)
	if again.Accepted != "r_m3" {
		t.Errorf("the steer is answered by %q", again.Accepted)
	}
	h.claim("r_m2")
	h.answer("r_m2", "two")
	h.claim("r_m3")
	h.answer("r_m3", "three")
	h.wantBranch("m1", "o_m1", "m2", "o_m2", "m3", "o_m3")
}

func TestASteerAtTheHeadOfTheInboxIsDeliveredWhenItsRunEnds(t *testing.T) {
	for name, end := range map[string]session.Data{
		"completed": session.RunCompleted{},
		"failed":    session.RunFailed{Error: session.Failure{Code: "x"}},
		"cancelled": session.RunCancelled{By: "ann"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t)
			h.submit("m1")
			h.claim("r_m1")
			h.submit("m2", onBusy(session.Steer))
			h.end("r_m1", end)
			h.wantInbox()
			h.wantBranch("m1", "o_m1", "m2")
			h.claim("r_m2")
			h.answer("r_m2", "here")
			if m := h.message("o_m2"); m.Text() != "here" || m.Run != "r_m2" {
				t.Errorf("the answer is %s", asJSON(t, m))
			}
		})
	}
}

func TestASteerBetweenTwoAttemptsTakesNothingOfTheFailedOneAlong(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.carry("r_m1", session.StepStarted{Message: "o_m1"}, session.TextDelta{Message: "o_m1", Text: "The ans"},
		session.AttemptFailed{Message: "o_m1", Parts: text("The ans"), Error: session.Failure{Code: "overloaded"}})
	h.submit("m2", onBusy(session.Steer))
	h.do(session.Carry("r_m1", 1, func(s *session.State, run *session.Run) ([]session.Event, error) {
		return s.DeliverSteers(run), nil
	}))
	if m := h.message("o_m1"); len(m.Parts) != 0 || m.Status != session.MessageWhole {
		t.Errorf("the first message keeps %s", asJSON(t, m))
	}
	h.carry("r_m1", session.StepStarted{Message: "o_m2", Because: "retry"},
		session.ModelCompleted{Message: "o_m2", Parts: text("The answer."), Finish: "stop"}, session.StepCompleted{})
	h.end("r_m1", session.RunCompleted{})
	if m := h.message("o_m2"); m.Text() != "The answer." {
		t.Errorf("the second message says %q", m.Text())
	}
}

func TestAWaitingMessageCanBeEditedUntilItIsDelivered(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.submit("m2")
	h.wantTypes(h.do(session.EditInbox{ID: "m2", Parts: text("better"), By: "ann"}.Decide), "inbox.edited")
	h.answer("r_m1", "one")
	if m := h.message("m2"); m.Text() != "better" {
		t.Errorf("the message says %q", m.Text())
	}
	h.refused(session.NotInInbox, session.EditInbox{ID: "m2", Parts: text("again")}.Decide)
	h.refused(session.NotInInbox, session.EditInbox{ID: "m1", Parts: text("again")}.Decide)
	h.refused(session.NotFound, session.EditInbox{ID: "m_nobody", Parts: text("again")}.Decide)
	// The submission as it was is still the same submission.
	h.do(submission("m2").Decide)
}

func TestAWaitingMessageCanBeTakenBackWithItsRun(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.submit("m2")
	h.submit("m3")
	events := h.do(session.RemoveInbox{ID: "m2", By: "ann", At: h.now()}.Decide)
	h.wantTypes(events, "run.cancel_requested", "inbox.removed", "run.cancelled")
	h.wantStatus("r_m2", session.Cancelled)
	h.wantStatus("r_m1", session.Running)
	h.wantInbox("m3")
	h.refused(session.NotInInbox, session.RemoveInbox{ID: "m2"}.Decide)
	h.refused(session.NotFound, session.RemoveInbox{ID: "m_nobody"}.Decide)
	h.answer("r_m1", "one")
	h.wantBranch("m1", "o_m1", "m3")
	again := submission("m2")
	if events := h.do(again.Decide); len(events) != 0 || again.Accepted != "r_m2" {
		t.Errorf("a message that was taken back came again: %v, %q", types(events), again.Accepted)
	}
	h.claim("r_m3")
	h.answer("r_m3", "three")
	h.refused(session.NotFound, session.Retry{Run: "r_m2", ID: "r_new", Output: "o_new"}.Decide)
}

func TestASteerThatIsTakenBackLeavesItsRunAlone(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.submit("m2", onBusy(session.Steer))
	h.wantTypes(h.do(session.RemoveInbox{ID: "m2", By: "ann"}.Decide), "inbox.removed")
	h.wantStatus("r_m1", session.Running)
	h.answer("r_m1", "one")
	h.wantBranch("m1", "o_m1")
	if h.state.Run("r_m2") != nil {
		t.Error("a steer that was taken back got a run")
	}
}

func TestCancellingARunWhoseMessageWaitsTakesTheMessageBack(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.submit("m2")
	h.do(session.Cancel{Run: "r_m2", By: "ann", At: h.now()}.Decide)
	h.wantInbox()
	h.wantStatus("r_m2", session.Cancelled)
	if active := h.state.Active(); active.ID != "r_m1" {
		t.Errorf("the run %s is active", active.ID)
	}
}
