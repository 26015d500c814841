package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

const (
	selectDue     = `SELECT session, run FROM work WHERE due_at <= ? ORDER BY due_at, turn LIMIT ?`
	selectExpired = `SELECT session, run, worker, fence, lease_until FROM work WHERE lease_until <= ? ORDER BY lease_until, turn LIMIT ?`
	selectHeld    = `SELECT session, run, worker, fence, lease_until FROM work WHERE lease_until IS NOT NULL AND worker <> ? ORDER BY lease_until, turn LIMIT ?`
	selectOverdue = `SELECT session, run FROM work WHERE cancel_by <= ? ORDER BY cancel_by, turn LIMIT ?`
	selectNextDue = `
SELECT min(at) FROM (
    SELECT min(due_at) AS at FROM work WHERE due_at > ?1
    UNION ALL SELECT min(lease_until) FROM work WHERE lease_until > ?1
    UNION ALL SELECT min(cancel_by) FROM work WHERE cancel_by > ?1)`
)

// Claim gives worker at most limit due runs. Their sessions are loaded before
// the writer is asked, so that it does not wait for the disk.
func (s *Store) Claim(ctx context.Context, worker string, ttl time.Duration, limit int) ([]store.Lease, error) {
	if err := s.enterToWrite(ctx); err != nil {
		return nil, err
	}
	unloadable := map[string]error{} // by run
	for limit > 0 {
		most := limit + len(unloadable)
		due, err := s.due(ctx, selectDue, s.now(), most)
		if err != nil || len(due) == 0 {
			return nil, err
		}
		leases, tried, err := s.claim(ctx, worker, ttl, limit, due, unloadable)
		if err != nil || len(leases) > 0 {
			return leases, err
		}
		if tried == 0 && len(due) < most { // nothing is due but what cannot be loaded
			for _, err := range unloadable {
				return nil, err
			}
		}
		// Another worker was faster: look again.
	}
	return nil, nil
}

func (s *Store) claim(ctx context.Context, worker string, ttl time.Duration, limit int, due []store.Due, unloadable map[string]error) (leases []store.Lease, tried int, err error) {
	entries := make([]*entry, len(due))
	for i, d := range due {
		if unloadable[d.Run] != nil {
			continue
		}
		e := s.cache.Pin(d.Session)
		defer s.unpin(e)
		switch err := s.ensure(ctx, e); {
		case err == nil:
			entries[i] = e
			tried++
		case ctx.Err() != nil:
			return nil, 0, err
		default:
			unloadable[d.Run] = err
		}
	}
	err = s.writer.submit(ctx, nil, func(b *batch) error {
		leases = nil
		for i, e := range entries {
			if e == nil || len(leases) == limit {
				continue
			}
			lease, err := b.claim(e, due[i].Run, worker, ttl)
			if b.err != nil {
				return err
			} else if err != nil {
				b.touch(e, due[i].Run) // the row and the state disagree: the state is right
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
	if err := s.enterToWrite(ctx); err != nil {
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

// Due gives runs that are due for age, the longest due first.
func (s *Store) Due(ctx context.Context, age time.Duration, limit int) ([]store.Due, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	return s.due(ctx, selectDue, s.now().Add(-age), max(limit, 0))
}

// touch has the work of a run written again.
func (b *batch) touch(e *entry, run string) {
	if c, err := b.hold(e); err == nil {
		c.touched = append(c.touched, run)
	}
}

func until(now time.Time, ttl time.Duration) time.Time {
	return now.Add(ttl).UTC().Truncate(time.Millisecond)
}

// Renew extends a lease by ttl from now.
func (s *Store) Renew(ctx context.Context, lease store.Lease, ttl time.Duration) (store.Lease, error) {
	if err := s.enterToWrite(ctx); err != nil {
		return store.Lease{}, err
	}
	renewed := lease
	var lost bool
	err := s.writer.submit(ctx, nil, func(b *batch) error {
		if err := b.begin(); err != nil {
			return err
		}
		renewed.Until = until(b.now, ttl)
		b.leases = append(b.leases, leaseChange{lease: renewed, lost: &lost})
		return nil
	})
	if err == nil && lost {
		err = fmt.Errorf("run %s: %w", lease.Run, store.ErrLeaseLost)
	}
	if err != nil {
		return store.Lease{}, err
	}
	return renewed, nil
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
	leases, err := collect(ctx, s.readers, func(rows *sql.Rows) (l store.Lease, err error) {
		var end int64
		err = rows.Scan(&l.Session, &l.Run, &l.Worker, &l.Fence, &end)
		l.Until = fromMillis(end)
		return l, err
	}, query, arg, max(limit, 0))
	return leases, s.unavailable(ctx, "read leases", err)
}

// Overdue gives runs whose cancel passed its deadline, the first to pass it first.
func (s *Store) Overdue(ctx context.Context, limit int) ([]store.Due, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	return s.due(ctx, selectOverdue, s.now(), max(limit, 0))
}

func (s *Store) due(ctx context.Context, query string, at time.Time, limit int) ([]store.Due, error) {
	due, err := collect(ctx, s.readers, func(rows *sql.Rows) (d store.Due, err error) {
		err = rows.Scan(&d.Session, &d.Run)
		return d, err
	}, query, millis(at), limit)
	return due, s.unavailable(ctx, "read due runs", err)
}

// NextDue is the next time at which a run becomes due, a lease ends or a cancel is overdue.
func (s *Store) NextDue(ctx context.Context) (time.Time, error) {
	if err := s.enter(ctx); err != nil {
		return time.Time{}, err
	}
	var next sql.NullInt64
	err := s.readers.QueryRowContext(ctx, selectNextDue, millis(s.now())).Scan(&next)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return time.Time{}, s.unavailable(ctx, "read the next due time", err)
	}
	if !next.Valid {
		return time.Time{}, nil
	}
	return fromMillis(next.Int64), nil
}
