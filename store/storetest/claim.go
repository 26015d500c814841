package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

var claimPromises = []promise{
	{"nothing due is an empty answer", func(t *testing.T, w *world) {
		if leases := w.claimAll("wrk_1", 10); len(leases) != 0 {
			t.Errorf("claimed %v of nothing", leases)
		}
		w.create("ses_1")
		if leases := w.claimAll("wrk_1", 10); len(leases) != 0 {
			t.Errorf("claimed %v of a session without runs", leases)
		}
	}},
	{"a due run is given under a lease and starts in the log", aDueRunIsGiven},
	{"a claimed run is not given again", func(t *testing.T, w *world) {
		w.submit("ses_1", "m1")
		w.claim("wrk_1")
		w.clock.advance(time.Hour) // the lease has ended, but nobody has reconciled it
		if leases := w.claimAll("wrk_2", 10); len(leases) != 0 {
			t.Errorf("claimed %v, which another worker carries", leases)
		}
	}},
	{"the longest due comes first, at most as many as asked for", theLongestDueComesFirst},
	{"runs that waited for their times come in the order of those times", theEarliestTimeComesFirst},
	{"a run whose message waits in the inbox is not due", anInboxRunIsNotDue},
	{"a background run is due beside the active one", aBackgroundRunIsDue},
	{"a run that waits for a retry is due at its time", aRetryIsDueAtItsTime},
	{"a run that waits for approvals is due when one is decided", anApprovalMakesDue},
	{"a run that waits for approval is due when its time is over", anExpiryMakesDue},
	{"a run that waits for a word on a call is due when it is given", anOutcomeMakesDue},
	{"every claim has a higher fence", everyClaimHasAHigherFence},
	{"many workers get each due run once", manyWorkersGetEachRunOnce},
	{"a run can be claimed by its id, once, and only when it is due", oneRunIsClaimed},
	{"what is due for a while is listed, and listing it changes nothing", whatIsDueIsListed},
	{"a run that ended is not due", func(t *testing.T, w *world) {
		w.wholeRun("ses_1", "m1", "a")
		w.submit("ses_1", "m2")
		w.do("ses_1", session.Cancel{Run: "run_m2", By: owner, At: w.clock.Now()}.Decide)
		if leases := w.claimAll("wrk_1", 10); len(leases) != 0 {
			t.Errorf("claimed %v", leases)
		}
	}},
}

func aDueRunIsGiven(t *testing.T, w *world) {
	head := w.do("ses_1", w.newSubmit("m1").Decide).Last
	w.clock.advance(time.Second)
	lease := w.claim("wrk_1")
	want := store.Lease{Session: "ses_1", Run: "run_m1", Worker: "wrk_1", Fence: lease.Fence, Until: w.clock.Now().Add(ttl)}
	if !lease.Until.Equal(want.Until) || lease.Fence < 1 {
		t.Errorf("the lease is %+v, not %+v", lease, want)
	}
	want.Until = lease.Until
	if lease != want {
		t.Errorf("the lease is %+v, not %+v", lease, want)
	}
	frames := w.readFrom("ses_1", head, 0)
	if len(frames) == 0 {
		t.Fatal("the claim is not in the log")
	}
	e, _, err := frames[0].Event()
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the event of the claim", e, session.Event{
		Session: "ses_1", Seq: head + 1, At: w.clock.Now(), Run: "run_m1",
		Data: session.RunStarted{Worker: "wrk_1", Fence: lease.Fence},
	})
	run, err := w.Run(w.ctx, "run_m1")
	if err != nil || run.Status != session.Running || run.Worker != "wrk_1" || run.Fence != lease.Fence {
		t.Errorf("the run is %+v, %v", run, err)
	}
	w.sound("ses_1")
}

func oneRunIsClaimed(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	w.submit("ses_2", "m2")
	due := store.Due{Session: "ses_2", Run: "run_m2"}
	lease, err := w.ClaimRun(w.ctx, due, "wrk_1", ttl)
	if err != nil {
		t.Fatal(err)
	}
	want := store.Lease{Session: "ses_2", Run: "run_m2", Worker: "wrk_1", Fence: lease.Fence, Until: lease.Until}
	if lease != want || !lease.Until.Equal(w.clock.Now().Add(ttl)) {
		t.Errorf("the lease is %+v, not %+v", lease, want)
	}
	if run, err := w.Run(w.ctx, "run_m2"); err != nil || run.Status != session.Running || run.Fence != lease.Fence {
		t.Errorf("the run is %+v, %v", run, err)
	}
	refused := func(due store.Due, code session.ErrorCode) {
		t.Helper()
		if _, err := w.ClaimRun(w.ctx, due, "wrk_2", ttl); !errors.Is(err, &session.Error{Code: code}) {
			t.Errorf("claiming %v gave %v, not %s", due, err, code)
		}
	}
	refused(due, session.NotDue)
	refused(store.Due{Session: "ses_2", Run: "run_m1"}, session.NotFound)
	refused(store.Due{Session: "ses_3", Run: "run_m1"}, session.NotFound)
	if left := w.claimAll("wrk_2", 10); len(left) != 1 || left[0].Run != "run_m1" {
		t.Errorf("left to claim are %v", left)
	}
	until := w.clock.Now().Add(time.Minute)
	w.wait(lease, session.WaitRetry, &until)
	w.clock.advance(time.Minute - time.Millisecond)
	refused(due, session.NotDue)
	w.clock.advance(time.Millisecond)
	again, err := w.ClaimRun(w.ctx, due, "wrk_2", ttl)
	if err != nil || again.Fence <= lease.Fence {
		t.Errorf("claimed again: %+v, %v", again, err)
	}
	w.sound("ses_2")
}

func whatIsDueIsListed(t *testing.T, w *world) {
	list := func(age time.Duration, limit int, want ...string) {
		t.Helper()
		due, err := w.Due(w.ctx, age, limit)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range due {
			got = append(got, d.Session+" "+d.Run)
		}
		if !slices.Equal(got, want) {
			t.Errorf("due for %s are %q, not %q", age, got, want)
		}
	}
	list(0, 10)
	for i := range 3 {
		w.submit(fmt.Sprintf("ses_%d", i), fmt.Sprintf("m%d", i))
		w.clock.advance(time.Second)
	}
	for range 2 {
		list(0, 10, "ses_0 run_m0", "ses_1 run_m1", "ses_2 run_m2")
	}
	list(2*time.Second, 10, "ses_0 run_m0", "ses_1 run_m1")
	list(2*time.Second+time.Millisecond, 10, "ses_0 run_m0")
	list(0, 1, "ses_0 run_m0")
	w.claimAll("wrk_1", 1)
	list(0, 10, "ses_1 run_m1", "ses_2 run_m2")
}

func theLongestDueComesFirst(t *testing.T, w *world) {
	order := []int{3, 1, 4, 0, 2}
	var want []string
	for _, i := range order {
		w.submit(fmt.Sprintf("ses_%d", i), fmt.Sprintf("m%d", i))
		want = append(want, fmt.Sprintf("run_m%d", i))
		w.clock.advance(time.Second)
	}
	// One that waits for its time has been due only since then, whenever it began.
	first := w.claimAll("wrk_1", 1)
	until := w.clock.Now()
	w.wait(first[0], session.WaitRetry, &until)
	want = append(want[1:], want[0])
	w.clock.advance(time.Second)
	var got []string
	for _, limit := range []int{2, 1, 10} {
		leases := w.claimAll("wrk_1", limit)
		if len(leases) > limit {
			t.Errorf("claimed %d of at most %d", len(leases), limit)
		}
		for _, l := range leases {
			got = append(got, l.Run)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("claimed %q, not %q", got, want)
	}
}

func theEarliestTimeComesFirst(t *testing.T, w *world) {
	for i, seconds := range []int{30, 10, 40, 20} {
		w.submit(fmt.Sprintf("ses_%d", i), fmt.Sprintf("m%d", i))
		until := w.clock.Now().Add(time.Duration(seconds) * time.Second)
		w.wait(w.claim("wrk_1"), session.WaitRetry, &until)
	}
	w.clock.advance(time.Minute)
	var got []string
	for range 4 {
		for _, l := range w.claimAll("wrk_1", 1) {
			got = append(got, l.Run)
		}
	}
	if want := []string{"run_m1", "run_m3", "run_m0", "run_m2"}; !slices.Equal(got, want) {
		t.Errorf("claimed %q, not %q", got, want)
	}
}

func anInboxRunIsNotDue(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	lease := w.claim("wrk_1")
	w.submit("ses_1", "m2")
	w.submit("ses_1", "m3", busy(session.Steer))
	if leases := w.claimAll("wrk_1", 10); len(leases) != 0 {
		t.Errorf("claimed %v, which waits in the inbox", leases)
	}
	w.stream(lease)
	w.finish(lease, "done")
	if next := w.claim("wrk_1"); next.Run != "run_m2" {
		t.Errorf("claimed %s after the first run", next.Run)
	}
}

func aBackgroundRunIsDue(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	w.claim("wrk_1")
	w.submit("ses_1", "m2", func(c *session.Submit) { c.Background = true })
	if lease := w.claim("wrk_2"); lease.Run != "run_m2" {
		t.Errorf("claimed %s", lease.Run)
	}
	w.sound("ses_1")
}

// dueAt checks that a run can be claimed at when and not before.
func (w *world) dueAt(run string, when time.Time) store.Lease {
	w.t.Helper()
	w.clock.advance(when.Sub(w.clock.Now()) - time.Millisecond)
	if leases := w.claimAll("wrk_2", 10); len(leases) != 0 {
		w.t.Errorf("claimed %v before its time", leases)
	}
	if next, err := w.NextDue(w.ctx); err != nil || !next.Equal(when) {
		w.t.Errorf("NextDue gave %s, %v; the run is due at %s", next, err, when)
	}
	w.clock.advance(time.Millisecond)
	lease := w.claim("wrk_2")
	if lease.Run != run {
		w.t.Errorf("claimed %s, not %s", lease.Run, run)
	}
	return lease
}

func aRetryIsDueAtItsTime(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	lease := w.claim("wrk_1")
	until := w.clock.Now().Add(30 * time.Second)
	w.wait(lease, session.WaitRetry, &until)
	again := w.dueAt("run_m1", until)
	frames := w.readAll("ses_1")
	e, _, err := frames[len(frames)-1].Event()
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the event of the claim", e.Data, session.RunResumed{Worker: "wrk_2", Fence: again.Fence, After: session.WaitRetry})
	w.sound("ses_1")
}

func anApprovalMakesDue(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	lease := w.claim("wrk_1")
	w.stream(lease)
	w.ask(lease,
		wanted{id: "c1", name: "delete", arguments: "{}", approval: "apr_1"},
		wanted{id: "c2", name: "delete", arguments: "{}", approval: "apr_2"})
	w.wait(lease, session.WaitApproval, nil)
	w.clock.advance(365 * 24 * time.Hour)
	w.reopen()
	if leases := w.claimAll("wrk_1", 10); len(leases) != 0 {
		t.Errorf("claimed %v, which waits for a person", leases)
	}
	w.nextDueIs("a run waits for a person", time.Time{})
	w.do("ses_1", session.DecideApproval{ID: "apr_2", Decision: session.Deny, By: owner}.Decide)
	if again := w.claim("wrk_2"); again.Run != "run_m1" {
		t.Errorf("claimed %s", again.Run)
	}
	w.sound("ses_1")
}

func anExpiryMakesDue(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	lease := w.claim("wrk_1")
	w.stream(lease)
	until := w.clock.Now().Add(time.Hour)
	w.ask(lease, wanted{id: "c1", name: "delete", arguments: "{}", approval: "apr_1", expires: &until})
	w.wait(lease, session.WaitApproval, &until)
	w.dueAt("run_m1", until)
	w.sound("ses_1")
}

func anOutcomeMakesDue(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	lease := w.claim("wrk_1")
	w.stream(lease)
	w.ask(lease, wanted{id: "c1", name: "pay", arguments: "{}", effects: session.Unsafe})
	w.carry(lease, func(_ *session.State, run *session.Run) []session.Event {
		return []session.Event{at(run, session.ToolStarted{Message: run.Message, Call: "c1", Try: 1, Key: "k"})}
	})
	w.do("ses_1", session.Reconcile{Run: lease.Run, Fence: lease.Fence, Cause: session.CauseLeaseExpired, At: w.clock.Now()}.Decide)
	w.sound("ses_1")
	if leases := w.claimAll("wrk_1", 10); len(leases) != 0 {
		t.Errorf("claimed %v while an outcome is unknown", leases)
	}
	w.do("ses_1", session.ResolveTool{Run: "run_m1", Call: "c1", Outcome: session.Happened, By: owner}.Decide)
	w.claim("wrk_1")
	w.sound("ses_1")
}

func everyClaimHasAHigherFence(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	var last int64
	for i := range 6 {
		if i == 3 {
			w.reopen()
		}
		lease := w.claim(fmt.Sprintf("wrk_%d", i))
		if lease.Fence <= last {
			t.Errorf("claim %d has the fence %d after %d", i, lease.Fence, last)
		}
		last = lease.Fence
		if i%2 == 0 {
			now := w.clock.Now()
			w.wait(lease, session.WaitRetry, &now)
		} else {
			w.do("ses_1", session.Reconcile{Run: lease.Run, Fence: lease.Fence, Cause: session.CauseDrain, At: w.clock.Now()}.Decide)
		}
	}
	w.sound("ses_1")
}

func manyWorkersGetEachRunOnce(t *testing.T, w *world) {
	const runs, workers = 60, 8
	for i := range runs {
		w.submit(fmt.Sprintf("ses_%d", i), fmt.Sprintf("m%d", i))
	}
	var mu sync.Mutex // guards holder
	holder := map[string]string{}
	var group sync.WaitGroup
	for n := range workers {
		group.Go(func() {
			worker := fmt.Sprintf("wrk_%d", n)
			for {
				leases, err := w.Claim(w.ctx, worker, ttl, 1+n%3)
				if err != nil {
					t.Errorf("claim: %v", err)
					return
				}
				if len(leases) == 0 {
					return
				}
				mu.Lock()
				for _, l := range leases {
					if other := holder[l.Run]; other != "" {
						t.Errorf("%s and %s both have %s", other, worker, l.Run)
					}
					holder[l.Run] = worker
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	// A worker may find nothing while another is busy claiming: what is left is due still.
	for _, l := range w.claimAll("wrk_last", runs) {
		if other := holder[l.Run]; other != "" {
			t.Errorf("%s and the last worker both have %s", other, l.Run)
		}
		holder[l.Run] = "wrk_last"
	}
	if len(holder) != runs {
		t.Errorf("%d of %d runs were claimed", len(holder), runs)
	}
	for i := range runs {
		run, err := w.Run(w.ctx, fmt.Sprintf("run_m%d", i))
		if err != nil || run.Worker != holder[run.ID] {
			t.Errorf("run %d is carried by %s, the claim was by %s, %v", i, run.Worker, holder[run.ID], err)
		}
	}
}
