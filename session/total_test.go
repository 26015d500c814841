package session_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/session"
)

// Whatever a log says, in whatever order, the fold takes it: a damaged log can be looked at.
func TestTheFoldTakesAnyEventsInAnyOrder(t *testing.T) {
	ids := rapid.SampledFrom([]string{"", "a", "b", "c", "/"})
	rapid.Check(t, func(rt *rapid.T) {
		var events []session.Event
		for i := range rapid.IntRange(0, 40).Draw(rt, "events") {
			e := arbitrary{rt: rt, text: ids}.event()
			e.Seq = int64(i) + 1
			events = append(events, e)
		}
		before := asJSON(rt, events)
		s := session.New("ses_1")
		for k, e := range events {
			s.Apply(e)
			look(s)
			if k%7 == 6 {
				reloads(rt, s, events[k+1:])
			}
		}
		if after := asJSON(rt, events); after != before {
			rt.Fatalf("folding changed the events:\n%s\n%s", before, after)
		}
		if got, want := asJSON(rt, session.Fold("ses_1", events)), asJSON(rt, s); got != want {
			rt.Fatalf("two folds of one log differ:\n%s\n%s", want, got)
		}
		s.Shed()
		look(s)
	})
}

// look asks a state everything that can be asked of it.
func look(s *session.State) {
	s.Active()
	s.Open()
	s.SiblingIndex()
	s.TakeChanges()
	for _, m := range s.Messages {
		s.Path(m.ID)
		m.Streamed()
	}
	s.Path(s.Head)
	for _, r := range s.Runs {
		s.WorkOf(r)
		s.Calls(r)
		s.DeliverSteers(r)
		s.End(r, session.RunFailed{})
		_, _ = session.Cancel{Run: r.ID}.Decide(s)
		_, _ = session.Reconcile{Run: r.ID, Fence: r.Fence, Cause: session.CauseRestart}.Decide(s)
		_, _ = session.Retry{Run: r.ID, ID: "new", Output: "out"}.Decide(s)
		_, _ = (&session.Claim{Run: r.ID}).Decide(s)
	}
	for _, a := range s.Approvals {
		_, _ = session.DecideApproval{ID: a.ID, Decision: session.Deny}.Decide(s)
	}
	for _, mode := range []session.OnBusy{session.Enqueue, session.Interrupt, session.Rollback, session.Steer} {
		_, _ = submission("new", onBusy(mode), func(c *session.Submit) { c.Tenant, c.Owner = s.Tenant, s.Owner }).Decide(s)
	}
}

// reloads checks that a state kept as JSON goes on as the one in memory does.
func reloads(rt *rapid.T, s *session.State, rest []session.Event) {
	kept, live := s.Clone(), s.Clone()
	for _, e := range rest {
		kept.Apply(e)
		kept = kept.Clone()
		live.Apply(e)
	}
	if a, b := asJSON(rt, live), asJSON(rt, kept); a != b {
		rt.Fatalf("a state that is kept as JSON after each event differs:\n%s\n%s", a, b)
	}
}
