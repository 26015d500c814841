package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

const (
	selectDue     = `SELECT session, run FROM work WHERE due_at <= $1 ORDER BY due_at, turn LIMIT $2`
	selectExpired = `SELECT session, run, worker, fence, lease_until FROM work WHERE lease_until <= $1 ORDER BY lease_until, turn LIMIT $2`
	selectHeld    = `SELECT session, run, worker, fence, lease_until FROM work WHERE lease_until IS NOT NULL AND worker <> $1 ORDER BY lease_until, turn LIMIT $2`
	selectOverdue = `SELECT session, run FROM work WHERE cancel_by <= $1 ORDER BY cancel_by, turn LIMIT $2`
	selectNextDue = `
SELECT least(
    (SELECT min(due_at) FROM work WHERE due_at > $1),
    (SELECT min(lease_until) FROM work WHERE lease_until > $1),
    (SELECT min(cancel_by) FROM work WHERE cancel_by > $1))`
)

// mostRounds is how often Claim looks again when other processes were faster,
// before it waits for one run that they hold.
const mostRounds = 3

// Claim gives worker at most limit due runs. A session that another process is
// writing to is skipped: mostly that one claims it. Sessions are loaded before
// the writer is asked, so that it does not wait for that.
func (s *Store) Claim(ctx context.Context, worker string, ttl time.Duration, limit int) ([]store.Lease, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	unloadable := map[string]error{} // by run
	for round := 1; limit > 0; round++ {
		most := limit + len(unloadable)
		due, err := s.due(ctx, selectDue, s.now(), most)
		if err != nil || len(due) == 0 {
			return nil, err
		}
		leases, tried, err := s.claim(ctx, worker, ttl, limit, due, unloadable)
		if err != nil || len(leases) > 0 {
			return leases, err
		}
		if len(tried) == 0 && len(due) < most { // nothing is due but what cannot be loaded
			for _, err := range unloadable {
				return nil, err
			}
		}
		if round < mostRounds || len(tried) == 0 {
			continue
		}
		lease, err := s.ClaimRun(ctx, tried[0], worker, ttl)
		var refused *session.Error
		switch {
		case err == nil:
			return []store.Lease{lease}, nil
		case !errors.As(err, &refused): // else another worker has it now
			return nil, err
		case round > 2*mostRounds:
			return nil, nil // there are enough others who claim
		}
	}
	return nil, nil
}

func (s *Store) claim(ctx context.Context, worker string, ttl time.Duration, limit int, due []store.Due, unloadable map[string]error) (leases []store.Lease, tried []store.Due, err error) {
	var entries []*entry
	for _, d := range due {
		if unloadable[d.Run] != nil {
			continue
		}
		e := s.cache.Pin(d.Session)
		defer s.unpin(e)
		switch err := s.ensure(ctx, e); {
		case err == nil:
			entries, tried = append(entries, e), append(tried, d)
		case ctx.Err() != nil:
			return nil, nil, err
		default:
			unloadable[d.Run] = err
		}
	}
	err = s.writer.submit(ctx, nil, func(b *batch) error {
		leases = nil
		if err := b.more(entries); err != nil {
			return err
		}
		for i, e := range entries {
			if e.change == nil || len(leases) == limit {
				continue
			}
			lease, err := b.claim(e, tried[i].Run, worker, ttl)
			if err != nil {
				e.change.touched = append(e.change.touched, tried[i].Run) // the row and the state disagree: the state is right
				continue
			}
			leases = append(leases, lease)
		}
		return nil
	})
	if err != nil {
		return nil, tried, err
	}
	return leases, tried, nil
}

// ClaimRun gives worker one run, if it is due.
func (s *Store) ClaimRun(ctx context.Context, due store.Due, worker string, ttl time.Duration) (store.Lease, error) {
	if err := s.enterWith(ctx, due.Session); err != nil {
		return store.Lease{}, err
	}
	e := s.cache.Pin(due.Session)
	defer s.unpin(e)
	if err := s.ensure(ctx, e); err != nil {
		return store.Lease{}, err
	}
	var lease store.Lease
	err := s.writer.submit(ctx, e, func(b *batch) (err error) {
		lease, err = b.claim(e, due.Run, worker, ttl)
		return err
	})
	if err != nil {
		return store.Lease{}, err
	}
	return lease, nil
}

// claim has the claim of a run written.
func (b *batch) claim(e *entry, run, worker string, ttl time.Duration) (store.Lease, error) {
	c := session.Claim{Run: run, Worker: worker, At: b.now}
	if _, err := b.append(e, c.Decide); err != nil {
		return store.Lease{}, err
	}
	lease := store.Lease{Session: e.ID, Run: run, Worker: worker, Fence: c.Fence, Until: until(b.now, ttl)}
	b.leases = append(b.leases, leaseChange{lease: lease, claim: true})
	return lease, nil
}

func until(now time.Time, ttl time.Duration) time.Time {
	return now.Add(ttl).UTC().Truncate(time.Millisecond)
}

// Renew extends a lease by ttl from now. It locks the session's row like
// everything that changes its work.
func (s *Store) Renew(ctx context.Context, lease store.Lease, ttl time.Duration) (store.Lease, error) {
	if err := s.enter(ctx); err != nil {
		return store.Lease{}, err
	}
	lost := true
	renewed := lease
	if storable(lease.Session, lease.Run, lease.Worker) {
		e := s.cache.Pin(lease.Session)
		defer s.unpin(e)
		if err := s.ensure(ctx, e); err != nil {
			return store.Lease{}, err
		}
		err := s.writer.submit(ctx, e, func(b *batch) error {
			renewed.Until = until(b.now, ttl)
			b.leases = append(b.leases, leaseChange{lease: renewed, lost: &lost})
			return nil
		})
		if err != nil {
			return store.Lease{}, err
		}
	}
	if lost {
		return store.Lease{}, fmt.Errorf("run %s: %w", lease.Run, store.ErrLeaseLost)
	}
	return renewed, nil
}

// Due gives runs that are due for age, the longest due first.
func (s *Store) Due(ctx context.Context, age time.Duration, limit int) ([]store.Due, error) {
	return s.due(ctx, selectDue, s.now().Add(-age), limit)
}

// Expired gives leases that ended, the first ended first.
func (s *Store) Expired(ctx context.Context, limit int) ([]store.Lease, error) {
	return s.leases(ctx, selectExpired, millis(s.now()), limit)
}

// Held gives the leases of all workers but one, the first to end first.
func (s *Store) Held(ctx context.Context, except string, limit int) ([]store.Lease, error) {
	return s.leases(ctx, selectHeld, except, limit)
}

func (s *Store) leases(ctx context.Context, query string, arg any, limit int) ([]store.Lease, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	leases, err := read(ctx, s, func(q querier) ([]store.Lease, error) {
		return collect(ctx, q, func(row pgx.CollectableRow) (l store.Lease, err error) {
			var end int64
			err = row.Scan(&l.Session, &l.Run, &l.Worker, &l.Fence, &end)
			l.Until = fromMillis(end)
			return l, err
		}, query, arg, max(limit, 0))
	})
	return leases, s.unavailable(ctx, "read leases", err)
}

// Overdue gives runs whose cancel passed its deadline, the first to pass it first.
func (s *Store) Overdue(ctx context.Context, limit int) ([]store.Due, error) {
	return s.due(ctx, selectOverdue, s.now(), limit)
}

func (s *Store) due(ctx context.Context, query string, at time.Time, limit int) ([]store.Due, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	due, err := read(ctx, s, func(q querier) ([]store.Due, error) {
		if s.clock.stale() {
			if err := s.clock.ask(ctx, q); err != nil {
				return nil, err
			}
		}
		return collect(ctx, q, func(row pgx.CollectableRow) (d store.Due, err error) {
			err = row.Scan(&d.Session, &d.Run)
			return d, err
		}, query, millis(at), max(limit, 0))
	})
	return due, s.unavailable(ctx, "read due runs", err)
}

// NextDue is the next time at which a run becomes due, a lease ends or a cancel is overdue.
func (s *Store) NextDue(ctx context.Context) (time.Time, error) {
	if err := s.enter(ctx); err != nil {
		return time.Time{}, err
	}
	next, err := read(ctx, s, func(q querier) (at *int64, err error) {
		err = q.QueryRow(ctx, selectNextDue, millis(s.now())).Scan(&at)
		return at, err
	})
	if err != nil || next == nil {
		return time.Time{}, s.unavailable(ctx, "read the next due time", err)
	}
	return fromMillis(*next), nil
}
