package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/internal/lines"
)

// insertLog is where events settle.
const insertLog = `INSERT INTO log (session, first, last, body) VALUES (?, ?, ?, ?)`

// selectLog gives the rows of a log from the one that contains a seq on.
const selectLog = `
SELECT first, last, body FROM log
WHERE session = ?1 AND first >= coalesce((SELECT max(first) FROM log WHERE session = ?1 AND first <= ?2), 0)
ORDER BY first`

const selectHead = `SELECT last FROM log WHERE session = ? ORDER BY first DESC LIMIT 1`

// Read gives the frames of a log after seq after. The frames alias what was
// read: keeping one keeps the row it came in, at most 64 KiB or one commit.
func (s *Store) Read(ctx context.Context, id string, after int64, limit int) ([]session.Frame, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	if limit <= 0 {
		limit = lines.PageFrames
	}
	frames, err := s.read(ctx, s.readers, id, max(after, 0), limit)
	if errors.Is(err, ErrDamaged) && s.quiet(ctx, id) == nil { // perhaps it was deleted while we read
		frames, err = s.read(ctx, s.readers, id, max(after, 0), limit)
	}
	if err == nil && len(frames) == 0 {
		_, err = s.Head(ctx, id) // at the end, or no such session
	}
	if err != nil {
		return nil, s.unavailable(ctx, "read session "+id, err)
	}
	return frames, nil
}

// quiet waits until no commit of a session is under way.
func (s *Store) quiet(ctx context.Context, id string) error {
	e := s.cache.Pin(id)
	defer s.unpin(e)
	if err := e.gate.Look(ctx); err != nil {
		return err
	}
	e.gate.LookDone()
	return nil
}

// read looks at the tail before it looks at the log: what leaves the tail in between is then found in both.
func (s *Store) read(ctx context.Context, db querier, id string, after int64, limit int) ([]session.Frame, error) {
	return readFrom(ctx, db, s.tail.of(id), id, after, limit)
}

func readFrom(ctx context.Context, db querier, chunks []lines.Chunk, id string, after int64, limit int) ([]session.Frame, error) {
	p := lines.Page{Session: id, After: after, Limit: limit}
	if len(chunks) == 0 || after+1 < chunks[0].First {
		rows, err := db.QueryContext(ctx, selectLog, id, after+1)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for !p.Full() && rows.Next() {
			var c lines.Chunk
			if err := rows.Scan(&c.First, &c.Last, &c.Body); err != nil {
				return nil, err
			}
			if err := p.Add(c); err != nil {
				return nil, err
			}
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
	}
	for _, c := range chunks {
		if p.Full() {
			break
		}
		if err := p.Add(c); err != nil {
			return nil, err
		}
	}
	return p.Frames, nil
}

// Head is the seq of the session's last committed event.
func (s *Store) Head(ctx context.Context, id string) (int64, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	if chunks := s.tail.of(id); len(chunks) > 0 {
		return chunks[len(chunks)-1].Last, nil
	}
	var head int64
	err := s.readers.QueryRowContext(ctx, selectHead, id).Scan(&head)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, notFound("session", id)
	}
	return head, s.unavailable(ctx, "read the head of session "+id, err)
}

func notFound(kind, id string) error { return fmt.Errorf("%s %s: %w", kind, id, store.ErrNotFound) }
