package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// racePromises are about different things that happen to one session at once.
var racePromises = []promise{
	{"a run that is cancelled as it is claimed is one or the other", cancelAtTheClaim},
	{"a session that is deleted while others write is whole or gone", deleteWhileOthersWrite},
	{"a log that is folded while others read and write has no hole", foldWhileOthersReadAndWrite},
	{"a lease that is renewed as it is reconciled is one or the other", renewAtTheReconcile},
}

func cancelAtTheClaim(t *testing.T, w *world) {
	const runs = 40
	for i := range runs {
		w.submit(fmt.Sprintf("ses_%d", i), fmt.Sprintf("m%d", i))
	}
	leases := make(chan store.Lease, 2*runs)
	var group sync.WaitGroup
	for n := range 2 {
		group.Go(func() {
			for range runs {
				got, err := w.Claim(w.ctx, fmt.Sprintf("wrk_%d", n), ttl, 1)
				if err != nil {
					t.Errorf("claim: %v", err)
				}
				for _, l := range got {
					leases <- l
				}
			}
		})
	}
	group.Go(func() {
		for i := range runs {
			cancel := session.Cancel{Run: fmt.Sprintf("run_m%d", i), By: owner, At: w.clock.Now(), Grace: time.Minute}
			if _, err := w.Append(w.ctx, fmt.Sprintf("ses_%d", i), cancel.Decide); err != nil {
				t.Errorf("cancel: %v", err)
			}
		}
	})
	group.Wait()
	close(leases)
	carried := map[string]bool{}
	for l := range leases {
		carried[l.Run] = true
		if _, err := w.Renew(w.ctx, l, ttl); err != nil {
			t.Errorf("%s was claimed and then cancelled, but its lease is %v", l.Run, err)
		}
	}
	for i := range runs {
		run, err := w.Run(w.ctx, fmt.Sprintf("run_m%d", i))
		if err != nil {
			t.Fatal(err)
		}
		want := session.Cancelled
		if carried[run.ID] {
			want = session.Running
		}
		if run.Status != want || run.CancelRequestedAt == nil {
			t.Errorf("%s is %s, claimed: %v", run.ID, run.Status, carried[run.ID])
		}
		w.sound(run.Session)
	}
}

func deleteWhileOthersWrite(t *testing.T, w *world) {
	const writers, appends, deletions = 4, 40, 15
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for range appends {
				if _, err := w.Append(w.ctx, "ses_1", fact(note("a"), note("b"))); err != nil {
					t.Errorf("append: %v", err)
				}
				if err := w.View(w.ctx, "ses_1", func(*session.State) {}); err != nil && !isNotFound(err) {
					t.Errorf("view: %v", err)
				}
				frames, err := w.Read(w.ctx, "ses_1", 0, 0)
				if err != nil && !isNotFound(err) {
					t.Errorf("read: %v", err)
				}
				for i, f := range frames {
					if f.From != int64(i+1) {
						t.Errorf("frame %d begins at %d", i, f.From)
						break
					}
				}
			}
		})
	}
	group.Go(func() {
		for range deletions {
			if err := w.Delete(w.ctx, "ses_1"); err != nil && !isNotFound(err) {
				t.Errorf("delete: %v", err)
			}
		}
	})
	group.Wait()
	w.do("ses_1", fact(note("end"))) // the last deletion may have come last
	w.sound("ses_1")
}

func foldWhileOthersReadAndWrite(t *testing.T, w *world) {
	const runs = 12
	for i := range runs {
		w.wholeRun("ses_1", fmt.Sprintf("m%d", i), "a", "b", "c", "d")
	}
	w.submit("ses_1", "open")
	lease := w.claim("wrk_1")
	w.stream(lease)
	before := w.readAll("ses_1")
	var work, reading sync.WaitGroup
	var done atomic.Bool
	for range 2 {
		reading.Go(func() {
			for !done.Load() {
				for after := int64(0); ; {
					frames, err := w.Read(w.ctx, "ses_1", after, 7)
					if err != nil {
						t.Errorf("read: %v", err)
						return
					}
					if len(frames) == 0 {
						break
					}
					for _, f := range frames {
						if f.From != after+1 || f.To < f.From {
							t.Errorf("frame %d..%d follows %d", f.From, f.To, after)
							return
						}
						after = f.To
					}
				}
			}
		})
	}
	work.Go(func() {
		for range 60 {
			_, err := w.Append(w.ctx, "ses_1", session.Carry(lease.Run, lease.Fence, func(_ *session.State, run *session.Run) ([]session.Event, error) {
				return []session.Event{delta(run, 0, "x")}, nil
			}))
			if err != nil {
				t.Errorf("append: %v", err)
			}
		}
	})
	work.Go(func() {
		for range 5 {
			if _, err := w.Fold(w.ctx, w.clock.Now().Add(time.Hour)); err != nil {
				t.Errorf("fold: %v", err)
			}
		}
	})
	work.Wait()
	done.Store(true)
	reading.Wait()
	w.foldAll(w.clock.Now().Add(time.Hour))
	ended := map[string]bool{}
	for i := range runs {
		ended[fmt.Sprintf("run_m%d", i)] = true
	}
	want, _ := foldedEntries(t, before, ended)
	got := entries(t, "ses_1", w.readAll("ses_1"))
	if len(got) != len(want)+60 {
		t.Fatalf("%d entries, not %d", len(got), len(want)+60)
	}
	sameEntries(t, "the folded log", got[:len(want)], want)
	w.sound("ses_1")
}

func renewAtTheReconcile(t *testing.T, w *world) {
	for i := range 20 {
		id := fmt.Sprintf("ses_%d", i)
		w.submit(id, fmt.Sprintf("m%d", i))
		lease := w.claim("wrk_1")
		w.clock.advance(ttl)
		var group sync.WaitGroup
		group.Go(func() {
			if _, err := w.Renew(w.ctx, lease, ttl); err != nil && !errors.Is(err, store.ErrLeaseLost) {
				t.Errorf("renew: %v", err)
			}
		})
		group.Go(func() {
			c := session.Reconcile{Run: lease.Run, Fence: lease.Fence, Cause: session.CauseLeaseExpired, At: w.clock.Now()}
			if _, err := w.Append(w.ctx, id, c.Decide); err != nil {
				t.Errorf("reconcile: %v", err)
			}
		})
		group.Wait()
		// Whoever was first, the lease is gone and the run may be claimed.
		_, err := w.Renew(w.ctx, lease, ttl)
		is(t, err, store.ErrLeaseLost)
		w.clock.advance(2 * ttl)
		if expired := w.expired(10); len(expired) != 0 {
			t.Errorf("expired are %v", expired)
		}
		w.end(w.claim("wrk_2"), session.RunCompleted{})
		w.sound(id)
	}
}
