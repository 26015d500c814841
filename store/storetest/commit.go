package storetest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

var commitPromises = []promise{
	{"OnCommit is told of an append before it returns", onCommitBeforeAppendReturns},
	{"it is told the row with facts and not with deltas", onCommitRow},
	{"it is told what a run asks for when that changes", onCommitWork},
	{"it is told of a claim", onCommitClaim},
	{"it is told that a cancel waits for a worker", onCommitCancel},
	{"it is told that the next message is due when a run ends", onCommitNext},
	{"it is told that a session is deleted", onCommitDelete},
	{"a store with the zero options works", theZeroOptionsWork},
}

func onCommitBeforeAppendReturns(t *testing.T, w *world) {
	for range 20 {
		told := w.told.count()
		a := w.do("ses_1", fact(note("a"), note("b")))
		commits := w.told.since(told)
		var events []session.Event
		for _, c := range commits {
			if c.Session == "ses_1" {
				events = append(events, c.Events...)
			}
		}
		same(t, "the events that OnCommit was told", events, a.Events)
	}
}

func onCommitRow(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	sameRow(t, "the row told", w.told.row("ses_1"), store.RowOf(w.fold("ses_1")))
	lease := w.claim("wrk_1")
	w.clock.advance(time.Second)
	w.carry(lease, func(_ *session.State, run *session.Run) []session.Event { return beginAttempt(run) })
	before := w.told.count()
	w.clock.advance(time.Second)
	w.carry(lease, func(_ *session.State, run *session.Run) []session.Event {
		return []session.Event{delta(run, 0, "a"), delta(run, 0, "b")}
	})
	for _, c := range w.told.since(before) {
		if c.Row != nil {
			t.Errorf("a row came with deltas alone: %+v", *c.Row)
		}
		if len(c.Work) != 0 {
			t.Errorf("work came with deltas alone: %+v", c.Work)
		}
	}
	w.sound("ses_1")
	// A fact with deltas behind it: the row stands at the fact.
	w.carry(lease, func(s *session.State, run *session.Run) []session.Event {
		return append(failAttempt(s, run), delta(run, 0, "stray"))
	})
	if row := w.told.row("ses_1"); row.Seq != w.told.head("ses_1")-1 {
		t.Errorf("the row stands at %d; the last fact is %d", row.Seq, w.told.head("ses_1")-1)
	}
}

func onCommitWork(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	expect := func(when string, want session.Work) {
		t.Helper()
		if got, _ := w.told.workOf("ses_1", "run_m1"); !cmp.Equal(got, want) {
			t.Errorf("%s, OnCommit was told %+v, not %+v", when, got, want)
		}
	}
	expect("queued", session.Work{Due: true})
	lease := w.claim("wrk_1")
	expect("claimed", session.Work{Held: true})
	until := w.clock.Now().Add(time.Minute)
	w.wait(lease, session.WaitRetry, &until)
	expect("waiting for a retry", session.Work{Due: true, At: until})
	w.clock.advance(time.Minute)
	lease = w.claim("wrk_1")
	w.stream(lease)
	w.ask(lease, wanted{id: "c1", name: "delete", arguments: "{}", approval: "apr_1"})
	w.wait(lease, session.WaitApproval, nil)
	expect("waiting for a person", session.Work{})
	w.do("ses_1", session.DecideApproval{ID: "apr_1", Decision: session.Approve, By: owner}.Decide)
	expect("decided", session.Work{Due: true})
	w.do("ses_1", session.Cancel{Run: "run_m1", By: owner, At: w.clock.Now()}.Decide)
	expect("ended", session.Work{})
}

func onCommitClaim(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	before := w.told.count()
	w.claim("wrk_1")
	commits := w.told.since(before)
	if len(commits) != 1 || len(commits[0].Events) == 0 {
		t.Fatalf("a claim was told as %+v", commits)
	}
	if started, ok := commits[0].Events[0].Data.(session.RunStarted); !ok || started.Worker != "wrk_1" {
		t.Errorf("a claim was told as %s", commits[0].Events[0].Type())
	}
}

func onCommitCancel(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	lease := w.claim("wrk_1")
	deadline := w.clock.Now().Add(5 * time.Second)
	w.do("ses_1", session.Cancel{Run: lease.Run, By: owner, At: w.clock.Now(), Grace: 5 * time.Second}.Decide)
	work, cancel := w.told.workOf("ses_1", lease.Run)
	if !cancel || !cmp.Equal(work, session.Work{Held: true, CancelBy: deadline}) {
		t.Errorf("a recorded cancel was told as %+v, cancel %v", work, cancel)
	}
	w.end(lease, session.RunCancelled{By: owner})
	if work, cancel := w.told.workOf("ses_1", lease.Run); cancel || !cmp.Equal(work, session.Work{}) {
		t.Errorf("the end was told as %+v, cancel %v", work, cancel)
	}
}

func onCommitNext(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	lease := w.claim("wrk_1")
	w.submit("ses_1", "m2")
	if work, _ := w.told.workOf("ses_1", "run_m2"); work.Due {
		t.Error("a message that waits in the inbox was told as due")
	}
	w.stream(lease)
	w.finish(lease, "done")
	if work, _ := w.told.workOf("ses_1", "run_m2"); !work.Due {
		t.Error("nobody was told that the next message is due")
	}
}

func onCommitDelete(t *testing.T, w *world) {
	w.create("ses_1")
	row, err := w.Session(w.ctx, "ses_1")
	if err != nil {
		t.Fatal(err)
	}
	before := w.told.count()
	if err := w.Delete(w.ctx, "ses_1"); err != nil {
		t.Fatal(err)
	}
	commits := w.told.since(before)
	if len(commits) != 1 || !commits[0].Deleted || commits[0].Session != "ses_1" || commits[0].Row == nil {
		t.Fatalf("a deletion was told as %+v", commits)
	}
	sameRow(t, "the last row", *commits[0].Row, row)
}

func theZeroOptionsWork(t *testing.T, w *world) {
	s := w.open(t, store.Options{})
	before := time.Now().Truncate(time.Millisecond)
	a, err := s.Append(w.ctx, "ses_1", w.newSubmit("m1").Decide)
	if err != nil {
		t.Fatal(err)
	}
	if at := a.Events[0].At; at.Before(before) || at.After(time.Now()) {
		t.Errorf("the event is of %s; it is %s", at, time.Now())
	}
	leases, err := s.Claim(w.ctx, "wrk_1", time.Hour, 1)
	if err != nil || len(leases) != 1 || time.Until(leases[0].Until) < 59*time.Minute {
		t.Errorf("claimed %v, %v", leases, err)
	}
}
