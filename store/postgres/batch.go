package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/internal/lines"
	"github.com/holdfast-run/holdfast/store/internal/models"
)

// batch is one transaction. What it asks of the database goes there in two
// trips: one that locks the sessions' rows, and one that writes and commits.
// When it fails, everything it changed in memory is forgotten.
type batch struct {
	w     *writer
	store *Store
	now   time.Time // UTC, whole milliseconds
	err   error     // of the database: the whole batch fails

	changes []*change
	leases  []leaseChange
	probe   bool // commit even if there is nothing to write
	writes  pgx.Batch
}

// change is what a batch does to one session. Its gate is held.
type change struct {
	entry   *entry
	created bool              // its row was made by this transaction
	deleted *store.SessionRow // the last row of what goes with this batch, if something does
	events  []session.Event
	frames  []session.Frame
	body    []byte
	fact    bool
	touched []string // runs whose work is written again in any case
	broken  error    // why nothing can be written to the session

	work []store.RunWork
	row  *store.SessionRow
}

func newBatch(w *writer) *batch { return &batch{w: w, store: w.store} }

// fail makes the batch fail.
func (b *batch) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// guard runs what a request or the batch itself does. When that panics the
// state may be half changed, so the batch fails.
func (b *batch) guard(do func()) {
	defer func() {
		if p := recover(); p != nil {
			b.fail(fmt.Errorf("%w: %v\n%s", errPanic, p, debug.Stack()))
		}
	}()
	do()
}

// trip bounds one exchange with the database.
func (b *batch) trip() (context.Context, context.CancelFunc) {
	return context.WithTimeout(background, b.store.opts.StatementTimeout+b.store.opts.LockTimeout)
}

// hold holds the gates of the requests' sessions, and says which are free. One
// request alone waits a little for whoever looks.
func (b *batch) hold(reqs []*request) (entries []*entry, free map[*entry]bool) {
	free = map[*entry]bool{}
	for _, r := range reqs {
		if r.entry == nil {
			continue
		}
		if _, seen := free[r.entry]; !seen {
			free[r.entry] = b.holdGate(r.entry, r.late >= mostLate)
			if free[r.entry] {
				entries = append(entries, r.entry)
			}
		}
	}
	return entries, free
}

func (b *batch) holdGate(e *entry, patient bool) bool {
	if e.gate.TryHold() {
		return true
	}
	if !patient {
		return false
	}
	ctx, cancel := context.WithTimeout(background, loneWait)
	defer cancel()
	return e.gate.Hold(ctx) == nil
}

const (
	insertHeads = `
INSERT INTO heads (session, born, seq) SELECT id, born, 0 FROM unnest($1::text[], $2::bigint[]) AS new (id, born) ORDER BY id
ON CONFLICT DO NOTHING RETURNING session`
	lockHeads = `SELECT session, born, seq FROM heads WHERE session = ANY($1) ORDER BY session FOR UPDATE`
	skipHeads = lockHeads + ` SKIP LOCKED`
)

// head is the row of a session.
type head struct{ born, seq int64 }

// begin opens the transaction and locks the rows of sessions whose gates are
// held. Those that it got become part of the batch, the others are let go. It
// waits for rows for the given time; none means to skip those that are locked.
func (b *batch) begin(entries []*entry, wait time.Duration) {
	ctx, cancel := b.trip()
	defer cancel()
	err := b.w.connect(ctx)
	var locked map[string]head
	created := map[string]bool{}
	if err == nil {
		b.w.batch++
		var q pgx.Batch
		q.Queue(`BEGIN`)
		b.queueClock(&q)
		query := skipHeads
		if wait > 0 {
			query = lockHeads
			q.Queue(fmt.Sprintf(`SET LOCAL lock_timeout = %d`, wait.Milliseconds()))
		}
		q.Queue(upsertWriter, b.w.id, b.w.batch)
		queueNewHeads(&q, entries, created)
		b.queueLocks(&q, query, entries, &locked)
		err = b.w.conn.SendBatch(ctx, &q).Close()
	}
	if err != nil {
		b.fail(fmt.Errorf("begin: %w", err))
	}
	b.now = b.store.now()
	b.take(entries, locked, created)
}

// queueClock looks at the database's clock, first of all: waiting for rows takes time.
func (b *batch) queueClock(q *pgx.Batch) {
	if b.store.clock.own != nil {
		return
	}
	before := time.Now()
	q.Queue(selectClock).QueryRow(func(row pgx.Row) error {
		var then time.Time
		if err := row.Scan(&then); err != nil {
			return err
		}
		b.store.clock.heard(before, then)
		return nil
	})
}

// queueNewHeads makes rows for sessions of which none is known. created will have those that are new.
func queueNewHeads(q *pgx.Batch, entries []*entry, created map[string]bool) {
	var ids []string
	var born []int64
	for _, e := range entries {
		if e.born == 0 || e.unsure {
			ids, born = append(ids, e.ID), append(born, newBorn())
		}
	}
	if len(ids) == 0 {
		return
	}
	q.Queue(insertHeads, ids, born).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				return err
			}
			created[id] = true
		}
		return rows.Err()
	})
}

func newBorn() int64 { return 1 + rand.Int64N(1<<62) }

func (b *batch) queueLocks(q *pgx.Batch, query string, entries []*entry, locked *map[string]head) {
	*locked = map[string]head{}
	ids := make([]string, len(entries))
	for i, e := range entries {
		ids[i] = e.ID
	}
	if len(ids) == 0 {
		return
	}
	q.Queue(query, ids).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var id string
			var h head
			if err := rows.Scan(&id, &h.born, &h.seq); err != nil {
				return err
			}
			(*locked)[id] = h
		}
		return rows.Err()
	})
}

// take makes the sessions whose rows are locked part of the batch, with the
// state that is committed now, and lets the others go.
func (b *batch) take(entries []*entry, locked map[string]head, created map[string]bool) {
	for _, e := range entries {
		h, ok := locked[e.ID]
		if b.err != nil || !ok {
			e.unsure = true
			e.gate.Release()
			continue
		}
		e.unsure = false
		c := &change{entry: e, created: created[e.ID]}
		e.change = c
		b.changes = append(b.changes, c)
		b.store.cache.Repin(e)
		if err := b.store.catchUp(background, b.w.conn, e, h); err != nil {
			if err = fmt.Errorf("load session %s: %w", e.ID, err); errors.Is(err, ErrDamaged) {
				c.broken = b.store.unavailable(background, "write", err) // a matter of this session only
			} else {
				b.fail(err)
			}
		}
	}
}

// more makes sessions part of a batch that has begun, those that are free.
func (b *batch) more(entries []*entry) error {
	var held []*entry
	for _, e := range entries {
		if e.change == nil && e.gate.TryHold() {
			held = append(held, e)
		}
	}
	var locked map[string]head
	var q pgx.Batch
	b.queueLocks(&q, skipHeads, held, &locked)
	if q.Len() > 0 {
		ctx, cancel := b.trip()
		defer cancel()
		if err := b.w.conn.SendBatch(ctx, &q).Close(); err != nil {
			b.fail(fmt.Errorf("lock sessions: %w", err))
		}
	}
	b.take(held, locked, nil)
	return b.err
}

// append runs decide and makes its events the next of the session's log.
func (b *batch) append(e *entry, decide session.Decide) (store.Appended, error) {
	c := e.change
	if c.broken != nil {
		return store.Appended{}, c.broken
	}
	events, err := models.Decide(decide, e.state)
	if err != nil {
		return store.Appended{}, err
	}
	at := e.state.Seq
	if len(events) == 0 {
		return store.Appended{First: at + 1, Last: at}, nil
	}
	events = slices.Clone(events)
	body, frames, scratch, err := lines.Encode(b.w.line, e.ID, at, b.now, events)
	b.w.line = scratch
	if err != nil {
		return store.Appended{}, fmt.Errorf("append to session %s: %w", e.ID, err)
	}
	for i := range events {
		e.state.Apply(events[i])
		c.fact = c.fact || !session.IsDelta(events[i].Data)
	}
	if c.events == nil {
		// Clipped, so that what is added later leaves alone what the caller got.
		c.events, c.frames, c.body = slices.Clip(events), frames, body
	} else {
		c.events = append(c.events, events...)
		c.frames = append(c.frames, frames...)
		c.body = append(append(c.body, '\n'), body...)
	}
	return store.Appended{First: at + 1, Last: e.state.Seq, Events: events}, nil
}

// delete ends a session.
func (b *batch) delete(e *entry) error {
	if e.change.broken != nil {
		return e.change.broken
	}
	if !e.state.Exists() {
		return notFound("session", e.ID)
	}
	last := store.RowOf(e.state)
	*e.change = change{entry: e, deleted: &last, created: e.change.created}
	e.state, e.work, e.since = session.New(e.ID), map[string]models.Work{}, models.Progress{}
	b.store.cache.Resize(e, 0)
	return nil
}

const (
	updateHeads = `
UPDATE heads SET born = new.born, seq = new.seq FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS new (id, born, seq)
WHERE heads.session = new.id`
	deleteHeads = `DELETE FROM heads WHERE session = ANY($1)`
	insertLog   = `INSERT INTO log (session, first, last, body) SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bytea[])`
)

// flush queues what the requests have gathered.
func (b *batch) flush() {
	if b.err != nil {
		return
	}
	var written, gone, logOf []string
	var born, seqs, firsts, lasts []int64
	var bodies [][]byte
	for _, c := range b.changes {
		e := c.entry
		if c.deleted != nil {
			for _, query := range deleteSession {
				b.writes.Queue(query, e.ID)
			}
			e.born = 0
		}
		if len(c.events) == 0 && len(c.touched) == 0 {
			if c.created || c.deleted != nil {
				gone = append(gone, e.ID)
				e.born = 0
			}
			continue
		}
		if e.born == 0 {
			e.born = newBorn()
		}
		b.writeModels(c)
		if len(c.events) == 0 {
			continue
		}
		written, born, seqs = append(written, e.ID), append(born, e.born), append(seqs, e.state.Seq)
		for _, row := range lines.Split(c.frames, c.body) {
			logOf, firsts, lasts, bodies = append(logOf, e.ID), append(firsts, row.First), append(lasts, row.Last), append(bodies, row.Body)
		}
		if e.since.WantsSnapshot() {
			b.snapshot(e)
		}
	}
	if len(written) > 0 {
		b.writes.Queue(updateHeads, written, born, seqs)
		b.writes.Queue(insertLog, logOf, firsts, lasts, bodies)
	}
	if len(gone) > 0 && b.writes.Len()+len(b.leases) > 0 { // else rolling back makes them go
		b.writes.Queue(deleteHeads, gone)
	}
	b.writeLeases()
}

// commit commits, or undoes everything.
func (b *batch) commit() {
	if b.err != nil || b.writes.Len() == 0 && !b.probe {
		b.rollback()
		return
	}
	ctx, cancel := b.trip()
	defer cancel()
	b.writes.Queue(`COMMIT`).Exec(func(tag pgconn.CommandTag) error {
		if tag.String() != "COMMIT" {
			return errors.New("the transaction was rolled back")
		}
		return nil
	})
	err := b.w.conn.SendBatch(ctx, &b.writes).Close()
	if err != nil && !b.w.conn.IsClosed() && ctx.Err() == nil {
		b.fail(fmt.Errorf("commit: %w", err)) // the server refused something, and so everything
		b.rollback()
		return
	}
	if err == nil {
		return
	}
	committed, unknown := b.w.resolve(err)
	switch {
	case unknown != nil:
		b.fail(fmt.Errorf("commit: %w", unknown))
	case !committed:
		b.fail(fmt.Errorf("commit: %w", err))
	}
}

func (b *batch) rollback() {
	if b.w.conn == nil || b.w.conn.IsClosed() || b.w.conn.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := b.trip()
	defer cancel()
	if _, err := b.w.conn.Exec(ctx, `ROLLBACK`); err != nil {
		b.w.drop()
	}
}

// finish tells of what is committed, or forgets it, and lets the sessions go.
func (b *batch) finish() {
	for _, c := range b.changes {
		if b.err != nil {
			c.entry.forget()
		} else {
			b.tell(c)
		}
		c.entry.change = nil
		c.entry.gate.Release()
		b.store.unpin(c.entry)
	}
}

// tell tells of a committed change.
func (b *batch) tell(c *change) {
	tell := b.store.opts.OnCommit
	if tell == nil {
		return
	}
	if c.deleted != nil {
		tell(store.Commit{Session: c.entry.ID, Row: c.deleted, Deleted: true})
	}
	if len(c.events) > 0 {
		tell(store.Commit{Session: c.entry.ID, Frames: c.frames, Events: c.events, Work: c.work, Row: c.row})
	}
}

// refusal is what a batch of one request was refused for.
func (b *batch) refusal() error {
	var e *pgconn.PgError
	if !errors.As(b.err, &e) {
		return b.err
	}
	switch {
	case e.Code == "23502" && e.ColumnName == "session":
		_, row, _ := strings.Cut(e.Detail, "(") // Failing row contains (id, …
		id, _, _ := strings.Cut(row, ",")
		return &session.Error{Code: session.Conflict, Message: fmt.Sprintf("the %s id %q is taken: choose a new id", strings.TrimSuffix(e.TableName, "s"), id)}
	case e.Code == "22021", e.Code == "22P05":
		return &session.Error{Code: session.Invalid, Message: "a name or an id holds a character that cannot be kept, such as NUL"}
	}
	return b.err
}
