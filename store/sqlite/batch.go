package sqlite

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/internal/lines"
	"github.com/holdfast-run/holdfast/store/internal/models"
)

// batch is one transaction. When it fails, everything it changed in memory is forgotten.
type batch struct {
	w     *writer
	store *Store
	now   time.Time // UTC, whole milliseconds
	begun bool
	err   error // of the database: the whole batch fails

	changes   []*change
	leases    []leaseChange
	chunks    []sessionChunk // what goes to the tail
	settled   []*tailLog     // what leaves it
	settleAll bool           // everything leaves it
}

// change is what a batch does to one session. Its gate is held.
type change struct {
	entry   *entry
	deleted *store.SessionRow // the last row of what goes with this batch, if something does
	events  []session.Event
	frames  []session.Frame
	body    []byte
	fact    bool
	touched []string // runs whose work is written again in any case

	work []store.RunWork
	row  *store.SessionRow
}

// background is for what must be done whoever waits for it.
var background = context.Background()

type sessionChunk struct {
	session string
	row     int64 // of the tail
	lines.Chunk
}

func newBatch(w *writer) *batch {
	b := &batch{w: w, store: w.store, now: w.store.now(), changes: w.changes, chunks: w.chunks}
	w.changes, w.chunks = nil, nil // until the batch gives them back
	return b
}

// fail makes the batch fail.
func (b *batch) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// begin opens the transaction, unless it is open.
func (b *batch) begin() error {
	if b.err != nil || b.begun {
		return b.err
	}
	if err := b.w.begin(); err != nil {
		b.fail(fmt.Errorf("begin: %w", err))
		return b.err
	}
	b.begun, b.now = true, b.store.now() // it may have waited
	return nil
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

var errPanic = errors.New("a write panicked")

// exec writes. An error fails the batch.
func (b *batch) exec(query string, args ...any) (changed int64, err error) {
	if err := b.begin(); err != nil {
		return 0, err
	}
	res, err := b.w.execResult(query, args...)
	if err != nil {
		b.fail(err)
		return 0, err
	}
	return res.RowsAffected()
}

// take makes a session part of the batch. Its gate is held already.
func (b *batch) take(e *entry) {
	e.own = change{entry: e}
	e.change = &e.own
	b.changes = append(b.changes, e.change)
	b.store.cache.Repin(e)
}

// hold makes a session part of the batch and loads it if need be.
func (b *batch) hold(e *entry) (*change, error) {
	if e.change == nil {
		_ = e.gate.Hold(background)
		b.take(e)
	}
	if e.state == nil {
		if err := b.store.loadHeld(background, e); err != nil {
			return nil, err
		}
	}
	return e.change, nil
}

// append runs decide and makes its events the next of the session's log.
func (b *batch) append(e *entry, decide session.Decide) (store.Appended, error) {
	c, err := b.hold(e)
	if err != nil {
		return store.Appended{}, err
	}
	events, err := models.Decide(decide, e.state)
	if err != nil {
		return store.Appended{}, err
	}
	head := e.state.Seq
	if len(events) == 0 {
		return store.Appended{First: head + 1, Last: head}, nil
	}
	events = slices.Clone(events)
	body, frames, scratch, err := lines.Encode(b.w.line, e.ID, head, b.now, events)
	b.w.line = scratch
	if err != nil {
		return store.Appended{}, fmt.Errorf("append to session %s: %w", e.ID, err)
	}
	if err := b.begin(); err != nil {
		return store.Appended{}, err
	}
	for i := range events {
		e.state.Apply(events[i])
		fact := !session.IsDelta(events[i].Data)
		c.fact = c.fact || fact
		e.streams.Store(!fact)
	}
	if c.events == nil {
		// Clipped, so that what is added later leaves alone what the caller got.
		c.events, c.frames, c.body = slices.Clip(events), frames, body
	} else {
		c.events = append(c.events, events...)
		c.frames = append(c.frames, frames...)
		c.body = append(append(c.body, '\n'), body...)
	}
	return store.Appended{First: head + 1, Last: e.state.Seq, Events: events}, nil
}

// flush writes what the requests have gathered.
func (b *batch) flush() {
	for _, c := range b.changes {
		if b.err != nil {
			return
		}
		if c.deleted != nil {
			b.deleteRows(c.entry.ID)
		}
		if len(c.events) > 0 || len(c.touched) > 0 {
			b.writeModels(c)
		}
		if len(c.events) > 0 {
			b.addChunks(c)
		}
	}
	b.writeTail()
	b.settle()
	b.writeLeases()
	for _, c := range b.changes {
		if b.err == nil && len(c.events) > 0 && c.entry.since.WantsSnapshot() {
			b.snapshot(c.entry)
		}
	}
}

// finish commits, or undoes everything, and lets the sessions go.
func (b *batch) finish() {
	if b.err == nil && b.begun {
		if err := b.w.exec(`COMMIT`); err != nil {
			b.fail(fmt.Errorf("commit: %w", err))
		}
	}
	switch {
	case b.err != nil:
		b.w.rollback()
		if environmental(b.err) {
			b.w.failed(b.err)
		}
		for _, c := range b.changes {
			c.entry.forget()
		}
	case b.begun:
		b.w.succeeded()
		b.publishTail()
	}
	for _, c := range b.changes {
		if c.deleted != nil && b.err == nil {
			b.store.deletions.Add(1)
		}
		c.entry.change = nil
		c.entry.gate.Release()
	}
	if b.err == nil {
		for _, c := range b.changes {
			b.tell(c)
		}
	}
	full := false
	for _, c := range b.changes {
		full = b.store.cache.Unpin(c.entry) || full
		*c = change{} // it would keep the events
	}
	if full {
		b.w.poke()
	}
	clear(b.changes)
	clear(b.chunks)
	b.w.changes, b.w.chunks = b.changes[:0], b.chunks[:0]
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

// errorFor is the error of a failed batch for one of its requests.
func (b *batch) errorFor(r *request) error {
	doing := "write"
	if r.entry != nil {
		doing = "write session " + r.entry.ID
	}
	if !environmental(b.err) {
		return fmt.Errorf("%s: %w", doing, b.err)
	}
	return unavailable(background, doing, b.err)
}

func noTransaction(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_ERROR && strings.Contains(e.Error(), "no transaction")
}
