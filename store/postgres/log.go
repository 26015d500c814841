package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store/internal/lines"
)

// selectLog gives the rows of a log from the one that contains a seq on, until
// they have so many bytes.
const selectLog = `
SELECT first, last, body FROM (
    SELECT first, last, body, sum(octet_length(body)) OVER (ORDER BY first) - octet_length(body) AS before FROM log
    WHERE session = $1 AND first >= coalesce((SELECT max(first) FROM log WHERE session = $1 AND first <= $2), 0)
    ORDER BY first LIMIT $3) AS page
WHERE before < $4 ORDER BY first`

// Read gives the frames of a log after seq after. It is one statement, so it
// sees the log of one moment.
func (s *Store) Read(ctx context.Context, id string, after int64, limit int) ([]session.Frame, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	if !storable(id) {
		return nil, notFound("session", id)
	}
	if limit <= 0 {
		limit = lines.PageFrames
	}
	frames, err := read(ctx, s, func(q querier) ([]session.Frame, error) {
		return readLog(ctx, q, id, max(after, 0), limit)
	})
	if err == nil && len(frames) == 0 {
		_, err = s.head(ctx, id) // at the end, or no such session
	}
	if err != nil {
		return nil, s.unavailable(ctx, "read session "+id, err)
	}
	return frames, nil
}

func readLog(ctx context.Context, q querier, id string, after int64, limit int) ([]session.Frame, error) {
	p := lines.Page{Session: id, After: after, Limit: limit}
	rows, err := q.Query(ctx, selectLog, id, after+1, limit, lines.PageBytes)
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
	return p.Frames, rows.Err()
}

// Head is the seq of the session's last committed event.
func (s *Store) Head(ctx context.Context, id string) (int64, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	h, err := s.head(ctx, id)
	return h.seq, s.unavailable(ctx, "read the head of session "+id, err)
}

// collect gives all rows of a query.
func collect[T any](ctx context.Context, q querier, scan func(pgx.CollectableRow) (T, error), query string, args ...any) ([]T, error) {
	rows, err := q.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}
