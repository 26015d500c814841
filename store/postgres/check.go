package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/internal/lines"
	"github.com/holdfast-run/holdfast/store/internal/models"
)

// Check reads everything of one session, at one moment, and folds its log anew.
func (s *Store) Check(ctx context.Context, id string) (findings []string, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	if !storable(id) {
		return nil, notFound("session", id)
	}
	e := s.cache.Pin(id)
	defer s.unpin(e)
	if err := e.gate.Look(ctx); err != nil {
		return nil, err
	}
	defer e.gate.LookDone()
	err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		stored, err := s.stored(ctx, tx, e)
		if err != nil {
			return err
		}
		if findings, err = models.Check(stored); err != nil {
			return err
		}
		blobs, err := checkBlobs(ctx, tx, id)
		findings = append(findings, blobs...)
		return err
	})
	return findings, s.unavailable(ctx, "check session "+id, err)
}

// stored reads everything of a session but the log itself.
func (s *Store) stored(ctx context.Context, tx pgx.Tx, e *entry) (all models.Stored, err error) {
	id := e.ID
	all = models.Stored{ID: id, Read: func(after int64) ([]session.Frame, error) {
		return readLog(ctx, tx, id, after, lines.PageFrames)
	}}
	all.Rows, err = collect(ctx, tx, func(row pgx.CollectableRow) (c lines.Chunk, err error) {
		err = row.Scan(&c.First, &c.Last)
		return c, err
	}, `SELECT first, last FROM log WHERE session = $1 ORDER BY first`, id)
	if err != nil {
		return all, err
	}
	h, err := readHead(ctx, tx, id)
	if err != nil && (len(all.Rows) == 0 || !errors.Is(err, store.ErrNotFound)) {
		return all, err
	}
	if n := len(all.Rows); n == 0 || all.Rows[n-1].Last != h.seq {
		all.Rows = append(all.Rows, lines.Chunk{First: h.seq + 1, Last: h.seq}) // which is found wrong
	}
	if e.state != nil && e.born == h.born && e.state.Seq == h.seq {
		if all.Cached, err = models.ShedJSON(e.state.Clone()); err != nil {
			return all, err
		}
	}
	if all.SnapshotSeq, all.Snapshot, err = readSnapshot(ctx, tx, id); err != nil {
		return all, err
	}
	row, err := scanSession(tx.QueryRow(ctx, selectSession, id))
	switch {
	case err == nil:
		all.Row = &row
	case !errors.Is(err, pgx.ErrNoRows):
		return all, err
	}
	for kind, bodies := range map[string]*map[string][]byte{"messages": &all.Messages, "runs": &all.Runs, "approvals": &all.Approvals} {
		if *bodies, err = readBodies(ctx, tx, `SELECT id, body FROM `+kind+` WHERE session = $1`, id); err != nil {
			return all, err
		}
	}
	all.Work, err = readWork(ctx, tx, id)
	return all, err
}

// readBodies reads the stored bodies of a kind, by id.
func readBodies(ctx context.Context, q querier, query, session string) (map[string][]byte, error) {
	bodies := map[string][]byte{}
	_, err := collect(ctx, q, func(row pgx.CollectableRow) (id string, err error) {
		var body []byte
		err = row.Scan(&id, &body)
		bodies[id] = body
		return id, err
	}, query, session)
	return bodies, err
}

func readWork(ctx context.Context, q querier, session string) (map[string]models.WorkRow, error) {
	work := map[string]models.WorkRow{}
	_, err := collect(ctx, q, func(row pgx.CollectableRow) (run string, err error) {
		var r models.WorkRow
		err = row.Scan(&run, &r.Due, &r.Worker, &r.Fence, &r.Lease, &r.CancelBy)
		work[run] = r
		return run, err
	}, `SELECT run, due_at, coalesce(worker, ''), fence, lease_until, cancel_by FROM work WHERE session = $1`, session)
	return work, err
}

// checkBlobs reads the session's blobs and compares them with their names.
func checkBlobs(ctx context.Context, q querier, id string) (findings []string, err error) {
	blobs, err := collect(ctx, q, func(row pgx.CollectableRow) (b keptBlob, err error) {
		err = row.Scan(&b.name, &b.Hash, &b.Size)
		return b, err
	}, `SELECT id, hash, size FROM blobs WHERE session = $1`, id)
	if err != nil {
		return nil, err
	}
	for _, b := range blobs {
		hash, size := sha256.New(), int64(0)
		_, err := collect(ctx, q, func(row pgx.CollectableRow) (n int, err error) {
			var part []byte
			err = row.Scan(&part)
			size += int64(len(part))
			_, _ = hash.Write(part)
			return len(part), err
		}, `SELECT body FROM blob_parts WHERE blob = $1 ORDER BY n`, b.name)
		if err != nil {
			return nil, err
		}
		if sum := hex.EncodeToString(hash.Sum(nil)); sum != b.Hash || size != b.Size {
			findings = append(findings, fmt.Sprintf("the blob %s: its content has %d bytes and the hash %s", b.Hash, size, sum))
		}
	}
	return findings, nil
}

// EverySession gives the ids of all sessions of which anything is stored,
// whoever owns them, in the order of their bytes.
func (s *Store) EverySession(ctx context.Context) ([]string, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	ids, err := read(ctx, s, func(q querier) ([]string, error) {
		return collect(ctx, q, pgx.RowTo[string], `
SELECT session FROM heads UNION SELECT id FROM sessions UNION SELECT session FROM log UNION SELECT session FROM snapshots
UNION SELECT session FROM messages UNION SELECT session FROM runs UNION SELECT session FROM approvals
UNION SELECT session FROM work UNION SELECT session FROM blobs ORDER BY 1`)
	})
	return ids, s.unavailable(ctx, "list every session", err)
}
