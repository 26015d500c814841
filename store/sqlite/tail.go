package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-run/holdfast/store/internal/lines"
)

// tail is the newest part of all logs: what the table of that name holds, kept
// in memory by session. A commit adds one row to the table, whatever number of
// sessions it writes, and now and then the sessions that have been in it
// longest settle: their events move to the log in a few large rows.
//
// Only the writer changes the tail, after the commit that did the same to the
// tables. Chunks never change, so readers use them without the lock.
type tail struct {
	mu       sync.RWMutex // guards everything but next
	sessions map[string]*tailLog
	order    []*tailLog // by their first chunk, oldest first; settled ones are marked
	bytes    int64

	next int64 // the number of the next row; only the writer uses it
}

// tailLog is the tail of one log.
type tailLog struct {
	session string
	row     int64 // of the table, that has the first chunk
	chunks  []lines.Chunk
	bytes   int64
	settled bool
}

func newTail() *tail { return &tail{sessions: map[string]*tailLog{}, next: 1} }

// of gives the chunks of a session.
func (t *tail) of(session string) []lines.Chunk {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if l := t.sessions[session]; l != nil {
		return l.chunks
	}
	return nil
}

// add makes chunks of committed events the next of their logs.
func (t *tail) addLocked(session string, row int64, c lines.Chunk) {
	l := t.sessions[session]
	if l == nil {
		l = &tailLog{session: session, row: row}
		t.sessions[session] = l
		t.order = append(t.order, l)
	}
	l.chunks = append(l.chunks, c)
	l.bytes += int64(len(c.Body))
	t.bytes += int64(len(c.Body))
}

// oldest gives the sessions that have been in the tail longest, at least as many as hold bytes.
func (t *tail) oldest(bytes int64) []*tailLog {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var found []*tailLog
	for _, l := range t.order {
		if bytes <= 0 {
			break
		}
		if !l.settled {
			found = append(found, l)
			bytes -= l.bytes
		}
	}
	return found
}

// settleLocked forgets logs that have settled, and their chunks.
func (t *tail) settleLocked(logs []*tailLog) {
	for _, l := range logs {
		l.settled = true
		t.bytes -= l.bytes
		delete(t.sessions, l.session)
	}
	n := 0
	for n < len(t.order) && t.order[n].settled {
		t.order[n] = nil
		n++
	}
	t.order = t.order[n:]
}

// keepFrom is the first row that is still needed when logs have settled.
func (t *tail) keepFrom(logs []*tailLog) int64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	settling := make(map[*tailLog]bool, len(logs))
	for _, l := range logs {
		settling[l] = true
	}
	for _, l := range t.order {
		if !l.settled && !settling[l] {
			return l.row
		}
	}
	return t.next
}

// appendChunk adds a chunk to the body of a row of the tail.
func appendChunk(row []byte, session string, c lines.Chunk) []byte {
	row = binary.AppendUvarint(row, uint64(len(session)))
	row = append(row, session...)
	row = binary.AppendUvarint(row, uint64(c.First))
	row = binary.AppendUvarint(row, uint64(c.Last))
	row = binary.AppendUvarint(row, uint64(len(c.Body)))
	return append(row, c.Body...)
}

var errTailRow = errors.New("a row of the tail is damaged")

// parseChunk takes the first chunk off the body of a row.
func parseChunk(row []byte) (session string, c lines.Chunk, rest []byte, err error) {
	number := func() int64 {
		v, n := binary.Uvarint(row)
		if n <= 0 {
			err = errTailRow
			return 0
		}
		row = row[n:]
		return int64(v)
	}
	take := func(n int64) []byte {
		if err != nil || n < 0 || n > int64(len(row)) {
			err = errTailRow
			return nil
		}
		b := row[:n:n]
		row = row[n:]
		return b
	}
	session = string(take(number()))
	c.First, c.Last = number(), number()
	c.Body = take(number())
	if err == nil && (c.First < 1 || int64(bytes.Count(c.Body, newline)) != c.Last-c.First) {
		err = errTailRow
	}
	return session, c, row, err
}

var newline = []byte{'\n'}

const (
	selectTail    = `SELECT n, body FROM tail ORDER BY n`
	selectSettled = `SELECT max(last) FROM log WHERE session = ?`
)

// loadTail reads the table. Chunks that have settled already are left out.
func loadTail(ctx context.Context, db querier) (*tail, error) {
	t := newTail()
	rows, err := db.QueryContext(ctx, selectTail)
	if err != nil {
		return nil, fmt.Errorf("read the tail: %w", err)
	}
	defer rows.Close()
	type tailRow struct {
		n    int64
		body []byte
	}
	var all []tailRow
	for rows.Next() {
		var r tailRow
		if err := rows.Scan(&r.n, &r.body); err != nil {
			return nil, fmt.Errorf("read the tail: %w", err)
		}
		if r.body, err = unpack(r.body); err != nil {
			return nil, fmt.Errorf("row %d of the tail: %w", r.n, err)
		}
		all = append(all, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the tail: %w", err)
	}
	settled := map[string]int64{}
	for _, r := range all {
		t.next = r.n + 1
		for body := r.body; len(body) > 0; {
			id, c, rest, err := parseChunk(body)
			if err != nil {
				return nil, fmt.Errorf("row %d: %w: %w", r.n, ErrDamaged, err)
			}
			body = rest
			last, known := settled[id]
			if !known {
				var n sql.NullInt64
				if err := db.QueryRowContext(ctx, selectSettled, id).Scan(&n); err != nil {
					return nil, fmt.Errorf("read the log of session %s: %w", id, err)
				}
				last, settled[id] = n.Int64, n.Int64
			}
			if c.Last > last {
				t.addLocked(id, r.n, c)
			}
		}
	}
	return t, nil
}

// querier is a connection, a pool or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

const (
	insertTail = `INSERT INTO tail (n, body) VALUES (?, ?)`
	deleteTail = `DELETE FROM tail WHERE n < ?`
)

// addChunks takes a session's events into the batch.
func (b *batch) addChunks(c *change) {
	for _, part := range lines.Split(c.frames, c.body) {
		b.chunks = append(b.chunks, sessionChunk{session: c.entry.ID, Chunk: part})
	}
}

// writeTail writes the batch's events.
func (b *batch) writeTail() {
	row := b.w.row[:0]
	for i := range b.chunks {
		c := &b.chunks[i]
		if len(row) > 0 && len(row)+len(c.Body) > lines.MostBytes {
			b.writeTailRow(row)
			row = row[:0]
		}
		c.row = b.store.tail.next
		row = appendChunk(row, c.session, c.Chunk)
	}
	if len(row) > 0 {
		b.writeTailRow(row)
	}
	if cap(row) <= 2*lines.MostBytes {
		b.w.row = row
	}
}

func (b *batch) writeTailRow(row []byte) {
	_, _ = b.exec(insertTail, b.store.tail.next, b.w.packer.pack(row))
	b.store.tail.next++
}

// settle moves events from the tail to the log: a little more than a full tail gets in
// with this batch, so that no commit is much longer than others.
func (b *batch) settle() {
	if b.err != nil || !b.begun {
		return
	}
	t := b.store.tail
	switch {
	case b.settleAll:
		b.settled = t.oldest(t.bytes)
	case t.bytes > b.store.opts.TailBytes:
		var added int64
		for _, c := range b.chunks {
			added += int64(len(c.Body))
		}
		b.settled = t.oldest(2 * added)
	}
	if len(b.settled) == 0 {
		return
	}
	deleted := map[string]bool{}
	for _, c := range b.changes {
		if c.deleted != nil {
			deleted[c.entry.ID] = true
		}
	}
	for _, l := range b.settled {
		if deleted[l.session] {
			continue
		}
		for _, row := range lines.Pack(l.chunks) {
			if _, err := b.exec(insertLog, l.session, row.First, row.Last, row.Body); err != nil {
				return
			}
		}
	}
	from := t.keepFrom(b.settled)
	if len(b.chunks) > 0 {
		from = min(from, b.chunks[0].row)
	}
	_, _ = b.exec(deleteTail, from)
}

// publishTail makes committed events readable.
func (b *batch) publishTail() {
	if len(b.chunks) == 0 && len(b.settled) == 0 {
		return
	}
	t := b.store.tail
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settleLocked(b.settled)
	for _, c := range b.chunks {
		t.addLocked(c.session, c.row, c.Chunk)
	}
}
