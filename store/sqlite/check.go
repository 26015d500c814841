package sqlite

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// Check reads everything of one session, at one moment, and folds its log anew.
func (s *Store) Check(ctx context.Context, id string) ([]string, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	c := &checker{store: s, id: id}
	findings, err := c.check(ctx)
	if err != nil {
		return nil, s.unavailable(ctx, "check session "+id, err)
	}
	return findings, nil
}

// checker compares what is stored of one session with the fold of its log.
type checker struct {
	store  *Store
	id     string
	db     querier
	chunks []chunk // of the tail
	cached []byte  // the JSON of the state that decisions see, if it is cached

	whole     *session.State // the fold, with all parts
	folded    bool           // some deltas are gone
	approvals map[string]session.Approval
	findings  []string
}

func (c *checker) find(format string, args ...any) {
	c.findings = append(c.findings, fmt.Sprintf(format, args...))
}

func (c *checker) check(ctx context.Context) ([]string, error) {
	done, err := c.freeze(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := c.checkRows(ctx); err != nil {
		return nil, err
	}
	if err := c.fold(ctx); err != nil {
		if errors.Is(err, ErrDamaged) { // there is nothing to compare with
			return append(c.findings, err.Error()), nil
		}
		return nil, err
	}
	for _, compare := range []func(context.Context) error{
		c.checkSession, c.checkMessages, c.checkRuns, c.checkApprovals, c.checkWork, c.checkState, c.checkBlobs,
	} {
		if err := compare(ctx); err != nil {
			return nil, err
		}
	}
	return c.findings, nil
}

// freeze takes one picture of the session: while its state may be looked at, nothing about it is being written.
func (c *checker) freeze(ctx context.Context) (done func(), err error) {
	e := c.store.cache.pin(c.id)
	defer c.store.unpin(e)
	if err := e.gate.look(ctx); err != nil {
		return nil, err
	}
	defer e.gate.lookDone()
	done = func() {}
	if c.db = c.store.readers; c.store.pool != nil && c.store.writer != nil {
		tx, err := c.store.pool.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
		if err != nil {
			return nil, err
		}
		c.db, done = tx, func() { _ = tx.Rollback() }
	}
	c.chunks = c.store.tail.of(c.id)
	var n int
	if err := c.db.QueryRowContext(ctx, `
SELECT EXISTS (SELECT 1 FROM sessions WHERE id = ?1) OR EXISTS (SELECT 1 FROM log WHERE session = ?1)`, c.id).Scan(&n); err != nil {
		done()
		return nil, err
	}
	if n == 0 && len(c.chunks) == 0 {
		done()
		return nil, notFound("session", c.id)
	}
	if e.state != nil {
		if c.cached, err = shedJSON(e.state.Clone()); err != nil {
			done()
			return nil, err
		}
	}
	return done, nil
}

// checkRows looks for rows of the log that overlap or leave holes.
func (c *checker) checkRows(ctx context.Context) error {
	type span struct{ first, last int64 }
	rows, err := collect(ctx, c.db, func(rows *sql.Rows) (r span, err error) {
		err = rows.Scan(&r.first, &r.last)
		return r, err
	}, `SELECT first, last FROM log WHERE session = ? ORDER BY first`, c.id)
	if err != nil {
		return err
	}
	for _, k := range c.chunks {
		rows = append(rows, span{k.first, k.last})
	}
	next := int64(1)
	for _, r := range rows {
		if r.first != next || r.last < r.first {
			c.find("the log has a row %d..%d where %d should follow", r.first, r.last, next)
		}
		next = r.last + 1
	}
	return nil
}

// fold folds the whole log, and compares the stored snapshot on the way.
func (c *checker) fold(ctx context.Context) error {
	var snapshotSeq int64
	var snapshot []byte
	err := c.db.QueryRowContext(ctx, selectSnapshot, c.id, snapshotVersion).Scan(&snapshotSeq, &snapshot)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	c.whole, c.folded, c.approvals = session.New(c.id), false, map[string]session.Approval{}
	for {
		frames, err := readFrom(ctx, c.db, c.chunks, c.id, c.whole.Seq, readFrames)
		if err != nil {
			return err
		}
		if len(frames) == 0 {
			break
		}
		for _, f := range frames {
			if err := c.apply(f); err != nil {
				return err
			}
			if c.whole.Seq == snapshotSeq {
				if err := c.checkSnapshot(snapshot); err != nil {
					return err
				}
			}
		}
	}
	if snapshotSeq > c.whole.Seq {
		c.find("the snapshot is of seq %d and the log ends at %d", snapshotSeq, c.whole.Seq)
	}
	return nil
}

func (c *checker) apply(f session.Frame) error {
	e, ok, err := f.Event()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if !ok {
		c.folded = true
		c.whole.Seq = f.To
		return nil
	}
	if e.Session != c.id || e.Seq != f.From {
		c.find("the event at seq %d says that it is %d of session %s", f.From, e.Seq, e.Session)
	}
	c.whole.Apply(e)
	for _, a := range c.whole.TakeChanges().Decided {
		c.approvals[a.ID] = a
	}
	return nil
}

func (c *checker) checkSnapshot(raw []byte) error {
	stored, err := session.Load(raw)
	if err != nil {
		c.find("the snapshot cannot be read: %v", err)
		return nil
	}
	fold := c.whole.Clone()
	for _, s := range []*session.State{stored, fold} {
		if c.folded { // what was streaming then has been folded since
			for _, m := range s.Messages {
				m.Parts = nil
			}
		}
	}
	return c.compareStates("the snapshot", stored, fold)
}

func (c *checker) compareStates(what string, a, b *session.State) error {
	rawA, err := shedJSON(a)
	if err != nil {
		return err
	}
	rawB, err := shedJSON(b)
	if err != nil {
		return err
	}
	if !bytes.Equal(rawA, rawB) {
		c.find("%s differs from the fold of the log", what)
	}
	return nil
}

func shedJSON(s *session.State) ([]byte, error) {
	s.Shed()
	return marshal(s)
}

// checkState compares what decisions see: the cached state, and the one that would be loaded.
func (c *checker) checkState(ctx context.Context) error {
	loaded, _, err := rebuild(ctx, c.db, c.chunks, c.id)
	if err != nil {
		return err
	}
	if err := c.compareStates("the state that would be loaded", loaded, c.whole.Clone()); err != nil {
		return err
	}
	fold, err := shedJSON(c.whole.Clone())
	if err == nil && c.cached != nil && !bytes.Equal(fold, c.cached) {
		c.find("the cached state differs from the fold of the log")
	}
	return err
}

func (c *checker) checkSession(ctx context.Context) error {
	row, err := scanSession(c.db.QueryRowContext(ctx, selectSession, c.id))
	if errors.Is(err, sql.ErrNoRows) {
		c.find("the session is in no list")
		return nil
	}
	if err != nil {
		return err
	}
	if row != store.RowOf(c.whole) {
		c.find("the session's row differs from the fold of the log")
	}
	return nil
}

// bodies reads the stored bodies of a kind, by id.
func (c *checker) bodies(ctx context.Context, query string) (map[string][]byte, error) {
	rows, err := c.db.QueryContext(ctx, query, c.id)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	bodies := map[string][]byte{}
	for rows.Next() {
		var id string
		var body []byte
		if err := rows.Scan(&id, &body); err != nil {
			return nil, err
		}
		bodies[id] = body
	}
	return bodies, rows.Err()
}

// compareBodies compares what is stored of a kind with what the fold gives.
func (c *checker) compareBodies(kind string, stored, want map[string][]byte) {
	for _, id := range slices.Sorted(maps.Keys(want)) {
		body, ok := stored[id]
		switch {
		case !ok:
			c.find("the %s %s is not stored", kind, id)
		case !bytes.Equal(body, want[id]):
			c.find("the stored %s %s differs from the fold of the log", kind, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(stored)) {
		if _, ok := want[id]; !ok {
			c.find("the stored %s %s is not in the log", kind, id)
		}
	}
}

func (c *checker) checkMessages(ctx context.Context) error {
	stored, err := c.bodies(ctx, `SELECT id, body FROM messages WHERE session = ?`)
	if err != nil {
		return err
	}
	want := map[string][]byte{}
	for _, m := range c.whole.Messages {
		if m.Status == session.MessageStreaming {
			continue
		}
		if want[m.ID], err = marshal(m); err != nil {
			return err
		}
	}
	c.compareBodies("message", stored, want)
	return nil
}

func (c *checker) checkRuns(ctx context.Context) error {
	stored, err := c.bodies(ctx, `SELECT id, body FROM runs WHERE session = ?`)
	if err != nil {
		return err
	}
	want := map[string][]byte{}
	for _, run := range c.whole.Runs {
		if want[run.ID], err = marshal(run); err != nil {
			return err
		}
	}
	c.compareBodies("run", stored, want)
	return nil
}

func (c *checker) checkApprovals(ctx context.Context) error {
	stored, err := c.bodies(ctx, `SELECT id, body FROM approvals WHERE session = ?`)
	if err != nil {
		return err
	}
	want := map[string][]byte{}
	for id, a := range c.approvals {
		if want[id], err = marshal(a); err != nil {
			return err
		}
	}
	c.compareBodies("approval", stored, want)
	return nil
}

func (c *checker) checkWork(ctx context.Context) error {
	type row struct {
		run, worker string
		due, cancel sql.NullInt64
		lease       sql.NullInt64
		fence       int64
	}
	rows, err := collect(ctx, c.db, func(rows *sql.Rows) (r row, err error) {
		err = rows.Scan(&r.run, &r.due, &r.worker, &r.fence, &r.lease, &r.cancel)
		return r, err
	}, `SELECT run, due_at, coalesce(worker, ''), fence, lease_until, cancel_by FROM work WHERE session = ?`, c.id)
	if err != nil {
		return err
	}
	stored := map[string]row{}
	for _, r := range rows {
		stored[r.run] = r
	}
	for _, run := range c.whole.Runs {
		is, has := workOf(c.whole, run), stored[run.ID]
		delete(stored, run.ID)
		asks := is.Work
		switch {
		case asks.Due != has.due.Valid, !asks.At.IsZero() && asks.Due && has.due.Int64 != millis(asks.At):
			c.find("the run %s is due otherwise than the fold of the log says", run.ID)
		case is.worker != has.worker, has.run != "" && has.fence != run.Fence:
			c.find("the run %s is held otherwise than the fold of the log says", run.ID)
		case asks.CancelBy.IsZero() == has.cancel.Valid, has.cancel.Valid && has.cancel.Int64 != millis(asks.CancelBy):
			c.find("the cancel of the run %s is due otherwise than the fold of the log says", run.ID)
		case has.lease.Valid && !asks.Held:
			c.find("the run %s has a lease and nobody carries it", run.ID)
		}
	}
	for id := range stored {
		c.find("there is work for the run %s, which is not in the log", id)
	}
	return nil
}

func (c *checker) checkBlobs(ctx context.Context) error {
	blobs, err := collect(ctx, c.db, func(rows *sql.Rows) (b session.Blob, err error) {
		err = rows.Scan(&b.Hash, &b.Size)
		return b, err
	}, `SELECT hash, size FROM blobs WHERE session = ?`, c.id)
	if err != nil {
		return err
	}
	for _, b := range blobs {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := c.store.blobs.verify(b); err != nil {
			c.find("the blob %s: %v", b.Hash, err)
		}
	}
	return nil
}

// verify reads a blob and compares it with its name.
func (f *blobs) verify(b session.Blob) error {
	file, err := os.Open(f.path(b.Hash))
	if err != nil {
		return err
	}
	defer file.Close()
	hash := sha256.New()
	size, err := io.Copy(hash, file)
	if err != nil {
		return err
	}
	if sum := hex.EncodeToString(hash.Sum(nil)); sum != b.Hash || size != b.Size {
		return fmt.Errorf("its content has %d bytes and the hash %s", size, sum)
	}
	return nil
}
