package postgres

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/internal/lines"
)

const (
	selectToFold = `
SELECT session, id, first, last FROM runs
WHERE finished_at IS NOT NULL AND NOT folded AND finished_at < $1 ORDER BY finished_at LIMIT $2`
	markFolded = `UPDATE runs SET folded = true WHERE id = ANY($1) AND session = $2`
	deleteLog  = `DELETE FROM log WHERE session = $1 AND first BETWEEN $2 AND $3`
	lockHead   = `SELECT born FROM heads WHERE session = $1 FOR UPDATE`
)

const (
	// What one Fold looks at, at most.
	foldRuns  = 256
	foldBytes = 64 << 20
)

// toFold are the runs of one session whose deltas go.
type toFold struct {
	lines.Fold
	first, last int64 // where their events lie
}

// Fold drops the deltas of runs that ended before the given time, at most 256
// runs with deltas a call. Rows that lie beside each other are packed on the way.
func (s *Store) Fold(ctx context.Context, before time.Time) (int64, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	select {
	case s.folding <- struct{}{}:
		defer func() { <-s.folding }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if err := s.dropOrphans(ctx); err != nil {
		return 0, s.unavailable(ctx, "drop blobs without a session", err)
	}
	for {
		sessions, err := read(ctx, s, func(q querier) ([]*toFold, error) { return readToFold(ctx, q, before) })
		if err != nil {
			return 0, s.unavailable(ctx, "look for runs to fold", err)
		}
		dropped, err := s.foldSessions(ctx, sessions)
		if err != nil || dropped > 0 || len(sessions) == 0 {
			return dropped, err
		}
	}
}

func readToFold(ctx context.Context, q querier, before time.Time) ([]*toFold, error) {
	bySession := map[string]*toFold{}
	var sessions []*toFold
	rows, err := q.Query(ctx, selectToFold, millis(before), foldRuns)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id, run string
		var first, last int64
		if err := rows.Scan(&id, &run, &first, &last); err != nil {
			return nil, err
		}
		f := bySession[id]
		if f == nil {
			f = &toFold{Fold: lines.Fold{Session: id, Runs: map[string]bool{}}, first: first}
			bySession[id] = f
			sessions = append(sessions, f)
		}
		f.Runs[run] = true
		f.first, f.last = min(f.first, first), max(f.last, last)
	}
	return sessions, rows.Err()
}

// foldSessions folds all it can, and gives the first error.
func (s *Store) foldSessions(ctx context.Context, sessions []*toFold) (dropped int64, first error) {
	var read int64
	for _, f := range sessions {
		if read > foldBytes || ctx.Err() != nil {
			break
		}
		n, bytes, err := s.foldSession(ctx, f)
		dropped, read = dropped+n, read+bytes
		if err != nil && !errors.Is(err, store.ErrNotFound) && first == nil {
			first = s.unavailable(ctx, "fold session "+f.Session, err)
		}
	}
	if first == nil {
		first = context.Cause(ctx)
	}
	return dropped, first
}

// foldSession rewrites rows of a session's log, a window at a time, each in a
// transaction that keeps everybody else from the session for that long.
func (s *Store) foldSession(ctx context.Context, f *toFold) (dropped, read int64, err error) {
	for next := f.first; ; {
		var last bool
		err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			n, bytes, end, err := f.foldWindow(ctx, tx, next)
			if err != nil {
				return err
			}
			dropped, read, next = dropped+n, read+bytes, end+1
			if last = end >= f.last; last {
				_, err = tx.Exec(ctx, markFolded, slices.Collect(maps.Keys(f.Runs)), f.Session)
			}
			return err
		})
		if err != nil || last {
			return dropped, read, err
		}
	}
}

// foldWindow rewrites the rows from the one that contains seq next on, about as
// many as a page has bytes. It says what it dropped and read, and up to which seq.
func (f *toFold) foldWindow(ctx context.Context, tx pgx.Tx, next int64) (dropped, read, end int64, err error) {
	var born int64
	if err := tx.QueryRow(ctx, lockHead, f.Session).Scan(&born); errors.Is(err, pgx.ErrNoRows) {
		return 0, 0, f.last, nil // it was deleted
	} else if err != nil {
		return 0, 0, 0, err
	}
	old, err := collect(ctx, tx, func(row pgx.CollectableRow) (c lines.Chunk, err error) {
		err = row.Scan(&c.First, &c.Last, &c.Body)
		return c, err
	}, selectLog, f.Session, next, lines.PageFrames, lines.PageBytes)
	if err != nil {
		return 0, 0, 0, err
	}
	for len(old) > 0 && old[len(old)-1].First > f.last {
		old = old[:len(old)-1]
	}
	if len(old) == 0 || old[len(old)-1].Last < next {
		return 0, 0, f.last, nil
	}
	for _, row := range old {
		read += int64(len(row.Body))
	}
	rows, dropped, err := f.Rows(old)
	first, end := old[0].First, old[len(old)-1].Last
	if err != nil || dropped == 0 && len(rows) == len(old) {
		return 0, read, end, err
	}
	var of []string
	var firsts, lasts []int64
	var bodies [][]byte
	for _, c := range rows {
		of, firsts, lasts, bodies = append(of, f.Session), append(firsts, c.First), append(lasts, c.Last), append(bodies, c.Body)
	}
	if _, err := tx.Exec(ctx, deleteLog, f.Session, first, end); err != nil {
		return 0, 0, 0, err
	}
	_, err = tx.Exec(ctx, insertLog, of, firsts, lasts, bodies)
	return dropped, read, end, err
}
