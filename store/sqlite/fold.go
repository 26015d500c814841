package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
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
	session     string
	runs        map[string]bool
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
			first = s.unavailable(ctx, "fold session "+f.session, err)
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
			f = &toFold{session: id, runs: map[string]bool{}, first: first}
			bySession[id] = f
			sessions = append(sessions, f)
		}
		f.runs[run] = true
		f.first, f.last = min(f.first, first), max(f.last, last)
	}
	return sessions, rows.Err()
}

// foldSession rewrites the rows of a session's log, a window at a time. Rows
// never change otherwise, so they are read and folded beside the writer, which
// only puts the new ones in their place.
func (s *Store) foldSession(ctx context.Context, f *toFold) (dropped, read int64, err error) {
	deletions := s.deletions.Load()
	if chunks := s.tail.of(f.session); len(chunks) > 0 && chunks[0].first <= f.last {
		if err := s.settle(ctx, f.session); err != nil {
			return 0, 0, err
		}
	}
	for next := f.first; next <= f.last; {
		old, err := s.window(ctx, f.session, next, f.last)
		if err != nil {
			return dropped, read, err
		}
		if len(old) == 0 {
			break
		}
		next = old[len(old)-1].last + 1
		for _, row := range old {
			read += int64(len(row.body))
		}
		folded, n, err := f.fold(old)
		if err != nil {
			return dropped, read, err
		}
		if n == 0 {
			continue
		}
		if err := s.replace(ctx, f.session, old, folded, deletions); err != nil {
			return dropped, read, err
		}
		dropped += n
	}
	err = s.writer.submit(ctx, nil, func(b *batch) error {
		for run := range f.runs {
			if _, err := b.exec(markFolded, run, f.session); err != nil {
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
func (s *Store) window(ctx context.Context, id string, next, last int64) ([]chunk, error) {
	rows, err := s.readers.QueryContext(ctx, selectLog, id, next)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var window []chunk
	for size := 0; size < foldWindow && rows.Next(); {
		var c chunk
		if err := rows.Scan(&c.first, &c.last, &c.body); err != nil {
			return nil, err
		}
		if c.first > last {
			break
		}
		window = append(window, c)
		size += len(c.body)
	}
	return window, rows.Err()
}

// fold gives the rows that take the place of old ones, and how many deltas that drops.
func (f *toFold) fold(old []chunk) (rows []chunk, dropped int64, err error) {
	var frames []session.Frame
	into := "" // of the last frame, if it is a folded range
	for _, c := range old {
		err := eachLine(c, func(frame session.Frame) error {
			message, folds, err := f.folds(frame)
			if err != nil {
				return err
			}
			switch last := len(frames) - 1; {
			case !folds:
				frames, into = append(frames, frame), ""
				if frame.From != frame.To {
					into, err = foldedInto(frame)
				}
				return err
			case last >= 0 && into == message && message != "":
				frames[last] = session.FoldedFrame(f.session, frames[last].From, frame.To, message)
			default:
				frames, into = append(frames, session.FoldedFrame(f.session, frame.From, frame.To, message)), message
			}
			dropped++
			return nil
		})
		if err != nil {
			return nil, 0, err
		}
	}
	return packFrames(frames), dropped, nil
}

// folds says whether a frame is a delta to drop, and which message keeps its content.
func (f *toFold) folds(frame session.Frame) (message string, folds bool, err error) {
	e, ok, err := frame.Event()
	if err != nil {
		return "", false, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if !ok || !f.runs[e.Run] {
		return "", false, nil
	}
	switch d := e.Data.(type) {
	case session.TextDelta:
		return d.Message, true, nil
	case session.ReasoningDelta:
		return d.Message, true, nil
	case session.ToolInputDelta:
		return d.Message, true, nil
	case session.ToolProgress:
		return d.Message, true, nil
	}
	return "", session.IsDelta(e.Data), nil
}

func packFrames(frames []session.Frame) []chunk {
	chunks := make([]chunk, len(frames))
	for i, f := range frames {
		chunks[i] = chunk{first: f.From, last: f.To, body: f.JSON}
	}
	return packRows(chunks)
}

// replace puts rows in the place of old ones. A session that was deleted meanwhile is left alone.
func (s *Store) replace(ctx context.Context, id string, old, rows []chunk, deletions int64) error {
	return s.writer.submit(ctx, nil, func(b *batch) error {
		if s.deletions.Load() != deletions { // perhaps of another session: the next look will tell
			return notFound("session", id)
		}
		for _, c := range old {
			if _, err := b.exec(deleteLog, id, c.first, c.last); err != nil {
				return err
			}
		}
		for _, c := range rows {
			if _, err := b.exec(insertLog, id, c.first, c.last, c.body); err != nil {
				return err
			}
		}
		return nil
	})
}
