package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store/internal/lines"
	"github.com/holdfast-run/holdfast/store/internal/models"
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

// checker reads what is stored of one session.
type checker struct {
	store  *Store
	id     string
	db     querier
	chunks []lines.Chunk // of the tail
	cached []byte        // the JSON of the state that decisions see, if it is cached
}

func (c *checker) check(ctx context.Context) ([]string, error) {
	done, err := c.freeze(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	stored, err := c.read(ctx)
	if err != nil {
		return nil, err
	}
	findings, err := models.Check(stored)
	if err != nil {
		return nil, err
	}
	blobs, err := c.checkBlobs(ctx)
	return append(findings, blobs...), err
}

// freeze takes one picture of the session: while its state may be looked at, nothing about it is being written.
func (c *checker) freeze(ctx context.Context) (done func(), err error) {
	e := c.store.cache.Pin(c.id)
	defer c.store.unpin(e)
	if err := e.gate.Look(ctx); err != nil {
		return nil, err
	}
	defer e.gate.LookDone()
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
		if c.cached, err = models.ShedJSON(e.state.Clone()); err != nil {
			done()
			return nil, err
		}
	}
	return done, nil
}

// read reads everything but the log itself.
func (c *checker) read(ctx context.Context) (s models.Stored, err error) {
	s = models.Stored{ID: c.id, Cached: c.cached, Read: func(after int64) ([]session.Frame, error) {
		return readFrom(ctx, c.db, c.chunks, c.id, after, lines.PageFrames)
	}}
	s.Rows, err = collect(ctx, c.db, func(rows *sql.Rows) (r lines.Chunk, err error) {
		err = rows.Scan(&r.First, &r.Last)
		return r, err
	}, `SELECT first, last FROM log WHERE session = ? ORDER BY first`, c.id)
	if err != nil {
		return s, err
	}
	s.Rows = append(s.Rows, c.chunks...)
	if s.SnapshotSeq, s.Snapshot, err = readSnapshot(ctx, c.db, c.id); err != nil {
		return s, err
	}
	row, err := scanSession(c.db.QueryRowContext(ctx, selectSession, c.id))
	switch {
	case err == nil:
		s.Row = &row
	case !errors.Is(err, sql.ErrNoRows):
		return s, err
	}
	for kind, bodies := range map[string]*map[string][]byte{"messages": &s.Messages, "runs": &s.Runs, "approvals": &s.Approvals} {
		if *bodies, err = c.bodies(ctx, `SELECT id, body FROM `+kind+` WHERE session = ?`); err != nil {
			return s, err
		}
	}
	s.Work, err = c.work(ctx)
	return s, err
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

func (c *checker) work(ctx context.Context) (map[string]models.WorkRow, error) {
	work := map[string]models.WorkRow{}
	_, err := collect(ctx, c.db, func(rows *sql.Rows) (r models.WorkRow, err error) {
		var run string
		err = rows.Scan(&run, &r.Due, &r.Worker, &r.Fence, &r.Lease, &r.CancelBy)
		work[run] = r
		return r, err
	}, `SELECT run, due_at, coalesce(worker, ''), fence, lease_until, cancel_by FROM work WHERE session = ?`, c.id)
	return work, err
}

func (c *checker) checkBlobs(ctx context.Context) (findings []string, err error) {
	blobs, err := collect(ctx, c.db, func(rows *sql.Rows) (b session.Blob, err error) {
		err = rows.Scan(&b.Hash, &b.Size)
		return b, err
	}, `SELECT hash, size FROM blobs WHERE session = ?`, c.id)
	if err != nil {
		return nil, err
	}
	for _, b := range blobs {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err := c.store.blobs.verify(b); err != nil {
			findings = append(findings, fmt.Sprintf("the blob %s: %v", b.Hash, err))
		}
	}
	return findings, nil
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
