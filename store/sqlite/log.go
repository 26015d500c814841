package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

const (
	readFrames = 1000
	// readBytes bounds what one Read gives, whatever its limit, by at most one row more.
	readBytes = 1 << 20
	// rowBytes is the size to which settled events are packed: large enough
	// to save rows, small enough that the row of a cursor is read quickly.
	rowBytes = 64 << 10
	// mostRowBytes bounds a row of more than one event.
	mostRowBytes = 1 << 20
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
		limit = readFrames
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
	e := s.cache.pin(id)
	defer s.unpin(e)
	if err := e.gate.look(ctx); err != nil {
		return err
	}
	e.gate.lookDone()
	return nil
}

// read looks at the tail before it looks at the log: what leaves the tail in between is then found in both.
func (s *Store) read(ctx context.Context, db querier, id string, after int64, limit int) ([]session.Frame, error) {
	return readFrom(ctx, db, s.tail.of(id), id, after, limit)
}

func readFrom(ctx context.Context, db querier, chunks []chunk, id string, after int64, limit int) ([]session.Frame, error) {
	p := page{session: id, after: after, limit: limit}
	if len(chunks) == 0 || after+1 < chunks[0].first {
		rows, err := db.QueryContext(ctx, selectLog, id, after+1)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for !p.full() && rows.Next() {
			var c chunk
			if err := rows.Scan(&c.first, &c.last, &c.body); err != nil {
				return nil, err
			}
			if err := p.add(c); err != nil {
				return nil, err
			}
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
	}
	for _, c := range chunks {
		if p.full() {
			break
		}
		if err := p.add(c); err != nil {
			return nil, err
		}
	}
	return p.frames, nil
}

// page gathers frames until it is full.
type page struct {
	session string
	after   int64 // the last seq it has
	limit   int
	frames  []session.Frame
	bytes   int
}

func (p *page) full() bool { return len(p.frames) >= p.limit || p.bytes >= readBytes }

// add takes what is new of a chunk.
func (p *page) add(c chunk) error {
	if c.last <= p.after {
		return nil
	}
	if p.frames == nil {
		p.frames = make([]session.Frame, 0, min(p.limit, max(16, int(c.last-p.after))))
	}
	return eachLine(c, func(f session.Frame) error {
		switch {
		case f.To <= p.after || p.full():
			return nil
		case f.From <= p.after: // the cursor lies inside a folded range
			into, err := foldedInto(f)
			if err != nil {
				return err
			}
			f = session.FoldedFrame(p.session, p.after+1, f.To, into)
		case f.From != p.after+1:
			return fmt.Errorf("%w: the seqs %d..%d are missing", ErrDamaged, p.after+1, f.From-1)
		}
		p.frames = append(p.frames, f)
		p.bytes += len(f.JSON)
		p.after = f.To
		return nil
	})
}

var foldedPrefix = []byte(`{"type":"folded"`)

// eachLine gives the lines of a chunk as frames.
func eachLine(c chunk, each func(session.Frame) error) error {
	seq, body := c.first, c.body
	for len(body) > 0 {
		line := body
		if i := bytes.IndexByte(body, '\n'); i >= 0 {
			line, body = body[:i:i], body[i+1:]
		} else {
			body = nil
		}
		f := session.Frame{From: seq, To: seq, JSON: line}
		if bytes.HasPrefix(line, foldedPrefix) {
			var folded session.Folded
			if err := json.Unmarshal(line, &folded); err != nil {
				return fmt.Errorf("%w: the folded range at seq %d: %w", ErrDamaged, seq, err)
			}
			f.From, f.To = folded.From, folded.To
		}
		if err := each(f); err != nil {
			return err
		}
		seq = f.To + 1
	}
	if seq != c.last+1 {
		return fmt.Errorf("%w: the row %d..%d ends at seq %d", ErrDamaged, c.first, c.last, seq-1)
	}
	return nil
}

func foldedInto(f session.Frame) (string, error) {
	var folded session.Folded
	if err := json.Unmarshal(f.JSON, &folded); err != nil {
		return "", fmt.Errorf("%w: the folded range at seq %d: %w", ErrDamaged, f.From, err)
	}
	return folded.Into, nil
}

// Head is the seq of the session's last committed event.
func (s *Store) Head(ctx context.Context, id string) (int64, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	if chunks := s.tail.of(id); len(chunks) > 0 {
		return chunks[len(chunks)-1].last, nil
	}
	var head int64
	err := s.readers.QueryRowContext(ctx, selectHead, id).Scan(&head)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, notFound("session", id)
	}
	return head, s.unavailable(ctx, "read the head of session "+id, err)
}

func notFound(kind, id string) error { return fmt.Errorf("%s %s: %w", kind, id, store.ErrNotFound) }

// packRows joins chunks into rows of about rowBytes.
func packRows(chunks []chunk) []chunk {
	var rows []chunk
	for i := 0; i < len(chunks); {
		n, size := i+1, len(chunks[i].body)
		for n < len(chunks) && size+len(chunks[n].body) < rowBytes {
			size += len(chunks[n].body) + 1
			n++
		}
		row := chunk{first: chunks[i].first, last: chunks[n-1].last, body: chunks[i].body}
		if n > i+1 {
			row.body = make([]byte, 0, size)
			for _, c := range chunks[i:n] {
				if len(row.body) > 0 {
					row.body = append(row.body, '\n')
				}
				row.body = append(row.body, c.body...)
			}
		}
		rows = append(rows, row)
		i = n
	}
	return rows
}

// split makes chunks of frames that follow each other, of at most mostRowBytes
// but for a frame that is larger by itself.
func split(frames []session.Frame) []chunk {
	var chunks []chunk
	start, size := 0, 0
	for i := range frames {
		if i > start && size+len(frames[i].JSON) > mostRowBytes {
			chunks = append(chunks, joinFrames(frames[start:i]))
			start, size = i, 0
		}
		size += len(frames[i].JSON) + 1
	}
	return append(chunks, joinFrames(frames[start:]))
}

func joinFrames(frames []session.Frame) chunk {
	lines := make([][]byte, len(frames))
	for i, f := range frames {
		lines[i] = f.JSON
	}
	return chunk{first: frames[0].From, last: frames[len(frames)-1].To, body: bytes.Join(lines, newline)}
}
