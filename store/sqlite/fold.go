package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/internal/lines"
)

const (
	selectToFold = `
SELECT session, id, first, last FROM runs
WHERE finished_at IS NOT NULL AND folded = 0 AND finished_at < ? ORDER BY finished_at LIMIT ?`
	markFolded = `UPDATE runs SET folded = 1 WHERE id = ? AND session = ?`
	deleteLog  = `DELETE FROM log WHERE session = ? AND first = ? AND last = ?`
)

const (
	// What one Fold looks at, at most.
	foldRuns  = 256
	foldBytes = 64 << 20
	// foldWindow is how much of a log is rewritten in one transaction: other writes wait for that long.
	foldWindow = 1 << 20
)

// toFold are the runs of one session whose deltas go.
type toFold struct {
	lines.Fold
	first, last int64 // where their events lie
}

// Fold drops the deltas of runs that ended before the given time, at most 256
// runs with deltas a call.
func (s *Store) Fold(ctx context.Context, before time.Time) (int64, error) {
	if err := s.enterToWrite(ctx); err != nil {
		return 0, err
	}
	s.folding.Lock()
	defer s.folding.Unlock()
	for {
		sessions, err := s.toFold(ctx, before)
		if err != nil {
			return 0, s.unavailable(ctx, "look for runs to fold", err)
		}
		dropped, err := s.foldSessions(ctx, sessions)
		if err != nil || dropped > 0 || len(sessions) == 0 {
			return dropped, err
		}
	}
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

func (s *Store) toFold(ctx context.Context, before time.Time) ([]*toFold, error) {
	bySession := map[string]*toFold{}
	var sessions []*toFold
	rows, err := s.readers.QueryContext(ctx, selectToFold, millis(before), foldRuns)
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

// foldSession rewrites the rows of a session's log, a window at a time. Rows
// never change otherwise, so they are read and folded beside the writer, which
// only puts the new ones in their place.
func (s *Store) foldSession(ctx context.Context, f *toFold) (dropped, read int64, err error) {
	deletions := s.deletions.Load()
	if chunks := s.tail.of(f.Session); len(chunks) > 0 && chunks[0].First <= f.last {
		if err := s.settle(ctx, f.Session); err != nil {
			return 0, 0, err
		}
	}
	for next := f.first; next <= f.last; {
		old, err := s.window(ctx, f.Session, next, f.last)
		if err != nil {
			return dropped, read, err
		}
		if len(old) == 0 {
			break
		}
		next = old[len(old)-1].Last + 1
		for _, row := range old {
			read += int64(len(row.Body))
		}
		folded, n, err := f.Rows(old)
		if err != nil {
			return dropped, read, err
		}
		if n == 0 {
			continue
		}
		if err := s.replace(ctx, f.Session, old, folded, deletions); err != nil {
			return dropped, read, err
		}
		dropped += n
	}
	err = s.writer.submit(ctx, nil, func(b *batch) error {
		for run := range f.Runs {
			if _, err := b.exec(markFolded, run, f.Session); err != nil {
				return err
			}
		}
		return nil
	})
	return dropped, read, err
}

// settle moves a session's events from the tail to the log.
func (s *Store) settle(ctx context.Context, id string) error {
	return s.writer.submit(ctx, nil, func(b *batch) error {
		if err := b.begin(); err != nil {
			return err
		}
		b.settleAll = b.settleAll || len(s.tail.of(id)) > 0
		return nil
	})
}

// window reads rows from the one that contains seq next on.
func (s *Store) window(ctx context.Context, id string, next, last int64) ([]lines.Chunk, error) {
	rows, err := s.readers.QueryContext(ctx, selectLog, id, next)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var window []lines.Chunk
	for size := 0; size < foldWindow && rows.Next(); {
		var c lines.Chunk
		if err := rows.Scan(&c.First, &c.Last, &c.Body); err != nil {
			return nil, err
		}
		if c.First > last {
			break
		}
		window = append(window, c)
		size += len(c.Body)
	}
	return window, rows.Err()
}

// replace puts rows in the place of old ones. A session that was deleted meanwhile is left alone.
func (s *Store) replace(ctx context.Context, id string, old, rows []lines.Chunk, deletions int64) error {
	return s.writer.submit(ctx, nil, func(b *batch) error {
		if s.deletions.Load() != deletions { // perhaps of another session: the next look will tell
			return notFound("session", id)
		}
		for _, c := range old {
			if _, err := b.exec(deleteLog, id, c.First, c.Last); err != nil {
				return err
			}
		}
		for _, c := range rows {
			if _, err := b.exec(insertLog, id, c.First, c.Last, c.Body); err != nil {
				return err
			}
		}
		return nil
	})
}
