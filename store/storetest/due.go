package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

var duePromises = []promise{
	{"a cancel that is not obeyed is overdue at its deadline", aCancelIsOverdue},
	{"overdue cancels come at most as many as asked for", overdueIsLimited},
	{"a cancel of a run that nobody carries is never overdue", func(t *testing.T, w *world) {
		w.submit("ses_1", "m1")
		w.do("ses_1", session.Cancel{Run: "run_m1", By: owner, At: w.clock.Now(), Grace: time.Second}.Decide)
		w.clock.advance(time.Hour)
		if due := w.overdue(10); len(due) != 0 {
			t.Errorf("overdue are %v", due)
		}
	}},
	{"the next time is the earliest of all that is foreseen", theNextTimeIsTheEarliest},
	{"what is already so is not foreseen", whatIsAlreadySoIsNotForeseen},
	{"times survive reopening", timesSurviveReopening},
}

func (w *world) overdue(limit int) []store.Due {
	w.t.Helper()
	due, err := w.Overdue(w.ctx, limit)
	if err != nil {
		w.t.Fatalf("overdue: %v", err)
	}
	return due
}

// nextDueIs checks what is foreseen. The zero time means nothing.
func (w *world) nextDueIs(why string, want time.Time) {
	w.t.Helper()
	if next, err := w.NextDue(w.ctx); err != nil || !next.Equal(want) {
		w.t.Errorf("%s: NextDue gave %s, %v, not %s", why, next, err, want)
	}
}

func aCancelIsOverdue(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	lease := w.claim("wrk_1")
	w.stream(lease, "half")
	w.do("ses_1", session.Cancel{Run: "run_m1", By: owner, At: w.clock.Now(), Grace: 5 * time.Second}.Decide)
	w.nextDueIs("a cancel is recorded", w.clock.Now().Add(5*time.Second))
	w.clock.advance(5*time.Second - time.Millisecond)
	if due := w.overdue(10); len(due) != 0 {
		t.Errorf("overdue before the deadline: %v", due)
	}
	w.clock.advance(time.Millisecond)
	want := []store.Due{{Session: "ses_1", Run: "run_m1"}}
	for range 2 {
		if due := w.overdue(10); !slices.Equal(due, want) {
			t.Errorf("overdue at the deadline: %v", due)
		}
	}
	w.do("ses_1", session.CancelOverdue{Run: "run_m1", At: w.clock.Now()}.Decide)
	if due := w.overdue(10); len(due) != 0 {
		t.Errorf("overdue after the end: %v", due)
	}
	w.nextDueIs("the run has ended", time.Time{})
	w.sound("ses_1")
}

func overdueIsLimited(t *testing.T, w *world) {
	var want []store.Due
	for i := range 4 {
		id := fmt.Sprintf("ses_%d", i)
		w.submit(id, fmt.Sprintf("m%d", i))
		lease := w.claim("wrk_1")
		w.do(id, session.Cancel{Run: lease.Run, By: owner, At: w.clock.Now(), Grace: time.Second}.Decide)
		want = append(want, store.Due{Session: id, Run: lease.Run})
		w.clock.advance(time.Second)
	}
	if due := w.overdue(3); len(due) != 3 {
		t.Errorf("overdue are %v", due)
	}
	due := w.overdue(10)
	slices.SortFunc(due, func(a, b store.Due) int { return slices.Compare([]string{a.Session}, []string{b.Session}) })
	if !slices.Equal(due, want) {
		t.Errorf("overdue are %v, not %v", due, want)
	}
}

func theNextTimeIsTheEarliest(t *testing.T, w *world) {
	w.nextDueIs("an empty store", time.Time{})
	w.submit("ses_1", "m1")
	w.nextDueIs("a run is due at once", time.Time{})
	one := w.claim("wrk_1")
	w.nextDueIs("a lease", one.Until)
	w.submit("ses_2", "m2")
	two := w.claim("wrk_1")
	retry := w.clock.Now().Add(10 * time.Second)
	w.wait(two, session.WaitRetry, &retry)
	w.nextDueIs("a retry before the lease ends", retry)
	w.submit("ses_3", "m3")
	three := w.claim("wrk_1")
	w.do("ses_3", session.Cancel{Run: three.Run, By: owner, At: w.clock.Now(), Grace: 5 * time.Second}.Decide)
	w.nextDueIs("a cancel before both", w.clock.Now().Add(5*time.Second))
	w.end(three, session.RunCancelled{By: owner})
	w.nextDueIs("the cancelled run has ended", retry)
	if err := w.Delete(w.ctx, "ses_2"); err != nil {
		t.Fatal(err)
	}
	w.nextDueIs("the waiting run is deleted", one.Until)
	w.clock.advance(time.Second)
	renewed, err := w.Renew(w.ctx, one, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	w.nextDueIs("the lease is renewed", renewed.Until)
	w.end(one, session.RunCompleted{})
	w.nextDueIs("everything has ended", time.Time{})
}

func whatIsAlreadySoIsNotForeseen(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	lease := w.claim("wrk_1")
	w.do("ses_1", session.Cancel{Run: lease.Run, By: owner, At: w.clock.Now(), Grace: time.Second}.Decide)
	w.submit("ses_2", "m2")
	two := w.claim("wrk_1")
	retry := w.clock.Now().Add(30 * time.Second)
	w.wait(two, session.WaitRetry, &retry)
	w.clock.advance(time.Second)
	w.nextDueIs("the cancel is overdue", lease.Until)
	w.clock.advance(ttl)
	w.nextDueIs("the lease has expired", retry)
	w.clock.advance(time.Minute)
	w.nextDueIs("the retry is due", time.Time{})
}

func timesSurviveReopening(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	lease := w.claim("wrk_1")
	w.submit("ses_2", "m2")
	two := w.claim("wrk_2")
	retry := w.clock.Now().Add(time.Minute)
	w.wait(two, session.WaitRetry, &retry)
	w.submit("ses_3", "m3")
	if !w.reopen() {
		t.Skip("this backend keeps nothing")
	}
	if due := w.claim("wrk_3"); due.Run != "run_m3" {
		t.Errorf("claimed %s", due.Run)
	}
	w.nextDueIs("after reopening", lease.Until)
	if _, err := w.Renew(w.ctx, lease, ttl); err != nil {
		t.Errorf("renew after reopening: %v", err)
	}
	w.clock.advance(time.Minute)
	if due := w.claim("wrk_3"); due.Run != "run_m2" {
		t.Errorf("claimed %s when its time had come", due.Run)
	}
	for _, id := range []string{"ses_1", "ses_2", "ses_3"} {
		w.sound(id)
	}
}
