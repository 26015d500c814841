package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

var leasePromises = []promise{
	{"renewing counts from now", renewingCountsFromNow},
	{"a late renewal is fine while nobody else has taken the run", aLateRenewalIsFine},
	{"a lease is lost when its run ends, waits, is taken over or deleted", leasesAreLost},
	{"a lease of another worker or fence is not renewed", func(t *testing.T, w *world) {
		w.submit("ses_1", "m1")
		lease := w.claim("wrk_1")
		other, fenced := lease, lease
		other.Worker = "wrk_2"
		fenced.Fence++
		for _, l := range []store.Lease{other, fenced, {Session: "ses_1", Run: "run_x", Worker: "wrk_1", Fence: 1}, {Session: "ses_x", Run: "run_m1", Worker: "wrk_1", Fence: 1}} {
			_, err := w.Renew(w.ctx, l, ttl)
			is(t, err, store.ErrLeaseLost)
		}
		if _, err := w.Renew(w.ctx, lease, ttl); err != nil {
			t.Errorf("the true lease: %v", err)
		}
	}},
	{"a lease that ended is expired until it is reconciled", expiredUntilReconciled},
	{"expired leases come the first ended first, at most as many as asked for", expiredInOrder},
	{"held leases are those of all workers but one, expired or not", heldByOthers},
	{"a reconciled run is due after its backoff", aReconciledRunIsDueLater},
	{"renewing writes no event", func(t *testing.T, w *world) {
		w.submit("ses_1", "m1")
		lease := w.claim("wrk_1")
		before, told := w.readAll("ses_1"), w.told.count()
		if _, err := w.Renew(w.ctx, lease, ttl); err != nil {
			t.Fatal(err)
		}
		same(t, "the log", w.readAll("ses_1"), before)
		if w.told.count() != told {
			t.Error("OnCommit was told of a renewal")
		}
	}},
}

func (w *world) expired(limit int) []store.Lease {
	w.t.Helper()
	leases, err := w.Expired(w.ctx, limit)
	if err != nil {
		w.t.Fatalf("expired: %v", err)
	}
	return leases
}

func (w *world) held(except string, limit int) []store.Lease {
	w.t.Helper()
	leases, err := w.Held(w.ctx, except, limit)
	if err != nil {
		w.t.Fatalf("held: %v", err)
	}
	return leases
}

func renewingCountsFromNow(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	lease := w.claim("wrk_1")
	for range 3 {
		w.clock.advance(5 * time.Second)
		renewed, err := w.Renew(w.ctx, lease, ttl)
		if err != nil {
			t.Fatal(err)
		}
		want := lease
		want.Until = renewed.Until
		if renewed != want || !renewed.Until.Equal(w.clock.Now().Add(ttl)) {
			t.Errorf("renewed to %+v at %s", renewed, w.clock.Now())
		}
		lease = renewed
	}
	w.clock.advance(ttl - time.Millisecond)
	if leases := w.expired(10); len(leases) != 0 {
		t.Errorf("expired before its time: %v", leases)
	}
	w.clock.advance(time.Millisecond)
	if leases := w.expired(10); len(leases) != 1 {
		t.Errorf("expired at its time: %v", leases)
	}
}

func aLateRenewalIsFine(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	lease := w.claim("wrk_1")
	w.clock.advance(10 * ttl)
	if _, err := w.Renew(w.ctx, lease, ttl); err != nil {
		t.Errorf("a late renewal: %v", err)
	}
	if leases := w.expired(10); len(leases) != 0 {
		t.Errorf("still expired: %v", leases)
	}
	w.stream(lease, "on it goes")
	w.finish(lease, "done")
}

func leasesAreLost(t *testing.T, w *world) {
	for i, lose := range []func(lease store.Lease){
		func(lease store.Lease) { w.end(lease, session.RunCompleted{}) },
		func(lease store.Lease) { w.wait(lease, session.WaitApproval, nil) },
		func(lease store.Lease) {
			w.do(lease.Session, session.Reconcile{Run: lease.Run, Fence: lease.Fence, Cause: session.CauseLeaseExpired, At: w.clock.Now()}.Decide)
		},
		func(lease store.Lease) {
			w.do(lease.Session, session.Cancel{Run: lease.Run, By: owner, At: w.clock.Now()}.Decide)
			w.do(lease.Session, session.CancelOverdue{Run: lease.Run, At: w.clock.Now()}.Decide)
		},
		func(lease store.Lease) {
			now := w.clock.Now()
			w.wait(lease, session.WaitRetry, &now)
			w.claimAll("wrk_2", 10)
		},
		func(lease store.Lease) {
			if err := w.Delete(w.ctx, lease.Session); err != nil {
				t.Fatal(err)
			}
		},
	} {
		w.submit(fmt.Sprintf("ses_%d", i), fmt.Sprintf("m%d", i))
		leases := w.claimAll("wrk_1", 10)
		lease := leases[slices.IndexFunc(leases, func(l store.Lease) bool { return l.Run == fmt.Sprintf("run_m%d", i) })]
		lose(lease)
		_, err := w.Renew(w.ctx, lease, ttl)
		is(t, err, store.ErrLeaseLost)
		w.clock.advance(2 * ttl)
		for _, l := range slices.Concat(w.expired(100), w.held("wrk_none", 100)) {
			if l.Run == lease.Run && l.Fence == lease.Fence {
				t.Errorf("case %d: the lost lease is still given: %+v", i, l)
			}
		}
	}
}

func expiredUntilReconciled(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	lease := w.claim("wrk_1")
	w.stream(lease, "half")
	w.clock.advance(ttl)
	for range 2 {
		got := w.expired(10)
		if len(got) != 1 || !got[0].Until.Equal(lease.Until) || got[0].Run != lease.Run || got[0].Session != lease.Session ||
			got[0].Fence != lease.Fence || got[0].Worker != lease.Worker {
			t.Fatalf("expired are %+v, not %+v", got, lease)
		}
	}
	w.do("ses_1", session.Reconcile{
		Run: lease.Run, Fence: lease.Fence, Cause: session.CauseLeaseExpired, Evidence: "worker wrk_1 was silent", At: w.clock.Now(),
	}.Decide)
	if got := w.expired(10); len(got) != 0 {
		t.Errorf("expired after it was reconciled: %v", got)
	}
	again := w.claim("wrk_2")
	if again.Fence <= lease.Fence {
		t.Errorf("the fence went from %d to %d", lease.Fence, again.Fence)
	}
	w.sound("ses_1")
}

func expiredInOrder(t *testing.T, w *world) {
	var want []string
	for _, i := range []int{2, 0, 3, 1} {
		w.submit(fmt.Sprintf("ses_%d", i), fmt.Sprintf("m%d", i))
		want = append(want, w.claim("wrk_1").Run)
		w.clock.advance(time.Second)
	}
	w.clock.advance(ttl)
	var got []string
	for _, l := range w.expired(3) {
		got = append(got, l.Run)
	}
	if !slices.Equal(got, want[:3]) {
		t.Errorf("expired are %q, not %q", got, want[:3])
	}
	if all := w.expired(10); len(all) != 4 {
		t.Errorf("%d of 4 leases are expired", len(all))
	}
}

func heldByOthers(t *testing.T, w *world) {
	for i := range 3 {
		w.submit(fmt.Sprintf("ses_%d", i), fmt.Sprintf("m%d", i))
		w.claim(fmt.Sprintf("wrk_%d", i))
	}
	w.clock.advance(10 * ttl)
	w.submit("ses_3", "m3")
	w.claim("wrk_0")
	w.reopen()
	var got []string
	for _, l := range w.held("wrk_0", 10) {
		got = append(got, l.Run)
	}
	slices.Sort(got)
	if want := []string{"run_m1", "run_m2"}; !slices.Equal(got, want) {
		t.Errorf("held by others than wrk_0 are %q, not %q", got, want)
	}
	if n := len(w.held("wrk_new", 10)); n != 4 {
		t.Errorf("%d of 4 leases are held by others than a new worker", n)
	}
	if n := len(w.held("wrk_new", 3)); n != 3 {
		t.Errorf("%d leases, asked for 3", n)
	}
}

func aReconciledRunIsDueLater(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	lease := w.claim("wrk_1")
	w.clock.advance(ttl)
	w.do("ses_1", session.Reconcile{
		Run: lease.Run, Fence: lease.Fence, Cause: session.CauseLeaseExpired, At: w.clock.Now(),
		Backoff: func(n int) time.Duration { return time.Duration(n) * 10 * time.Second },
	}.Decide)
	w.dueAt("run_m1", w.clock.Now().Add(10*time.Second))
	w.sound("ses_1")
}
