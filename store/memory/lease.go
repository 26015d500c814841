package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// work is what a run that has not ended asks of the engine.
type work struct {
	session, run string
	asks         session.Work
	cancel       bool
	// due is since when or from when the run may be claimed, turn its place among those with the same time.
	due   time.Time
	turn  int64
	lease *store.Lease // nil when nobody holds it
}

// scheduleLocked brings the work of a log's runs up to date and gives what changed.
func (s *Store) scheduleLocked(l *log, now time.Time) []store.RunWork {
	var changed []store.RunWork
	for _, run := range l.lean.Runs {
		was := l.work[run.ID]
		if was == nil {
			if run.Status.Terminal() {
				continue
			}
			was = &work{session: l.id, run: run.ID}
			l.work[run.ID] = was
		}
		asks := l.lean.WorkOf(run)
		cancel := asks.Held && run.CancelRequestedAt != nil
		if asks.Due && (!was.asks.Due || !was.asks.At.Equal(asks.At)) {
			s.turn++
			was.due, was.turn = asks.At, s.turn
			if asks.At.IsZero() {
				was.due = now
			}
		}
		if was.lease != nil && (!asks.Held || was.lease.Fence != run.Fence) {
			was.lease = nil
		}
		if asks != was.asks || cancel != was.cancel {
			changed = append(changed, store.RunWork{Run: run.ID, Work: asks, Cancel: cancel})
		}
		was.asks, was.cancel = asks, cancel
		if run.Status.Terminal() {
			delete(l.work, run.ID)
		}
	}
	return changed
}

// workLocked gives the work that want chooses, ordered by the time that it gives.
func (s *Store) workLocked(want func(*work) bool, at func(*work) time.Time) []*work {
	var found []*work
	for _, l := range s.logs {
		for _, w := range l.work {
			if want(w) {
				found = append(found, w)
			}
		}
	}
	slices.SortFunc(found, func(a, b *work) int {
		return cmp.Or(at(a).Compare(at(b)), cmp.Compare(a.turn, b.turn), cmp.Compare(a.session, b.session), cmp.Compare(a.run, b.run))
	})
	return found
}

// Claim gives worker due runs. When a fault stops it half way, the worker gets
// the leases before the fault.
func (s *Store) Claim(ctx context.Context, worker string, ttl time.Duration, limit int) ([]store.Lease, error) {
	unlock, err := s.enter(ctx, "Claim")
	if err != nil {
		return nil, err
	}
	defer unlock()
	now := s.opts.Now()
	due := s.workLocked(
		func(w *work) bool { return w.asks.Due && !now.Before(w.due) },
		func(w *work) time.Time { return w.due })
	var leases []store.Lease
	for _, w := range due[:min(len(due), max(limit, 0))] {
		lease, err := s.claimLocked(s.logs[w.session], w.run, worker, ttl, now)
		switch {
		case err == nil:
			leases = append(leases, lease)
		case len(leases) > 0:
			return leases, nil
		default:
			return nil, err
		}
	}
	return leases, nil
}

// Due gives runs that are due for age.
func (s *Store) Due(ctx context.Context, age time.Duration, limit int) ([]store.Due, error) {
	unlock, err := s.enter(ctx, "Due")
	if err != nil {
		return nil, err
	}
	defer unlock()
	then := s.opts.Now().Add(-age)
	var due []store.Due
	found := s.workLocked(
		func(w *work) bool { return w.asks.Due && !then.Before(w.due) },
		func(w *work) time.Time { return w.due })
	for _, w := range found[:min(len(found), max(limit, 0))] {
		due = append(due, store.Due{Session: w.session, Run: w.run})
	}
	return due, nil
}

// ClaimRun gives worker one run, if it is due.
func (s *Store) ClaimRun(ctx context.Context, due store.Due, worker string, ttl time.Duration) (store.Lease, error) {
	l, unlock, err := s.enterLog(ctx, "ClaimRun", due.Session)
	if errors.Is(err, store.ErrNotFound) {
		_, err = (&session.Claim{Run: due.Run}).Decide(session.New(due.Session))
	}
	if err != nil {
		return store.Lease{}, err
	}
	defer unlock()
	return s.claimLocked(l, due.Run, worker, ttl, s.opts.Now())
}

func (s *Store) claimLocked(l *log, run, worker string, ttl time.Duration, now time.Time) (store.Lease, error) {
	claim := session.Claim{Run: run, Worker: worker, At: now}
	events, err := claim.Decide(l.lean)
	if err != nil {
		return store.Lease{}, fmt.Errorf("claim run %s: %w", run, err)
	}
	before := l.head()
	_, err = s.commitLocked(l, events)
	lease := store.Lease{Session: l.id, Run: run, Worker: worker, Fence: claim.Fence, Until: until(now, ttl)}
	if l.head() > before { // also when the acknowledgement was lost
		l.work[run].lease = &lease
	}
	return lease, err
}

func until(now time.Time, ttl time.Duration) time.Time {
	return now.Add(ttl).UTC().Truncate(time.Millisecond)
}

// Renew extends a lease.
func (s *Store) Renew(ctx context.Context, lease store.Lease, ttl time.Duration) (store.Lease, error) {
	l, unlock, err := s.enterLog(ctx, "Renew", lease.Session)
	if errors.Is(err, store.ErrNotFound) {
		return store.Lease{}, fmt.Errorf("run %s: %w", lease.Run, store.ErrLeaseLost)
	}
	if err != nil {
		return store.Lease{}, err
	}
	defer unlock()
	w := l.work[lease.Run]
	if w == nil || w.lease == nil || w.lease.Fence != lease.Fence || w.lease.Worker != lease.Worker {
		return store.Lease{}, fmt.Errorf("run %s: %w", lease.Run, store.ErrLeaseLost)
	}
	w.lease.Until = until(s.opts.Now(), ttl)
	return *w.lease, nil
}

// Expired gives leases that ended, the first ended first.
func (s *Store) Expired(ctx context.Context, limit int) ([]store.Lease, error) {
	now := s.opts.Now()
	return s.leases(ctx, "Expired", limit, func(l *store.Lease) bool { return !now.Before(l.Until) })
}

// Held gives the leases of all workers but one, the first to end first.
func (s *Store) Held(ctx context.Context, except string, limit int) ([]store.Lease, error) {
	return s.leases(ctx, "Held", limit, func(l *store.Lease) bool { return l.Worker != except })
}

func (s *Store) leases(ctx context.Context, method string, limit int, want func(*store.Lease) bool) ([]store.Lease, error) {
	unlock, err := s.enter(ctx, method)
	if err != nil {
		return nil, err
	}
	defer unlock()
	held := s.workLocked(
		func(w *work) bool { return w.lease != nil && want(w.lease) },
		func(w *work) time.Time { return w.lease.Until })
	var leases []store.Lease
	for _, w := range held[:min(len(held), max(limit, 0))] {
		leases = append(leases, *w.lease)
	}
	return leases, nil
}

// Overdue gives runs whose cancel passed its deadline, the first to pass it first.
func (s *Store) Overdue(ctx context.Context, limit int) ([]store.Due, error) {
	unlock, err := s.enter(ctx, "Overdue")
	if err != nil {
		return nil, err
	}
	defer unlock()
	now := s.opts.Now()
	overdue := s.workLocked(
		func(w *work) bool { return !w.asks.CancelBy.IsZero() && !now.Before(w.asks.CancelBy) },
		func(w *work) time.Time { return w.asks.CancelBy })
	var due []store.Due
	for _, w := range overdue[:min(len(overdue), max(limit, 0))] {
		due = append(due, store.Due{Session: w.session, Run: w.run})
	}
	return due, nil
}

// NextDue is the next time at which a run becomes due, a lease ends or a cancel is overdue.
func (s *Store) NextDue(ctx context.Context) (time.Time, error) {
	unlock, err := s.enter(ctx, "NextDue")
	if err != nil {
		return time.Time{}, err
	}
	defer unlock()
	now := s.opts.Now()
	var next time.Time
	consider := func(t time.Time) {
		if t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, w := range s.workLocked(func(*work) bool { return true }, func(*work) time.Time { return time.Time{} }) {
		if w.asks.Due {
			consider(w.due)
		}
		if w.lease != nil {
			consider(w.lease.Until)
		}
		consider(w.asks.CancelBy)
	}
	return next, nil
}
