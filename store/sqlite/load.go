package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store/internal/lines"
	"github.com/holdfast-run/holdfast/store/internal/models"
)

const (
	selectSnapshot = `SELECT seq, body FROM snapshots WHERE session = ? AND version = ?`
	upsertSnapshot = `
INSERT INTO snapshots (session, version, seq, body) VALUES (?, ?, ?, ?)
ON CONFLICT (session) DO UPDATE SET version = excluded.version, seq = excluded.seq, body = excluded.body`
)

// View shows the committed state of a session.
func (s *Store) View(ctx context.Context, id string, look func(*session.State)) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	e := s.cache.Pin(id)
	defer s.unpin(e)
	for {
		if err := e.gate.Look(ctx); err != nil {
			return err
		}
		if e.state != nil {
			defer e.gate.LookDone()
			if !e.state.Exists() {
				return notFound("session", id)
			}
			look(e.state)
			return nil
		}
		e.gate.LookDone()
		if err := s.ensure(ctx, e); err != nil {
			return err
		}
	}
}

// ensure loads an entry that is pinned but not loaded.
func (s *Store) ensure(ctx context.Context, e *entry) error {
	if e.loaded.Load() {
		return nil
	}
	if err := e.gate.Hold(ctx); err != nil {
		return err
	}
	defer e.gate.Release()
	return s.loadHeld(ctx, e)
}

// loadHeld loads an entry whose gate is held, so that its session cannot change meanwhile.
func (s *Store) loadHeld(ctx context.Context, e *entry) error {
	if e.state != nil {
		return nil
	}
	state, since, err := rebuild(ctx, s.readers, s.tail.of(e.ID), e.ID)
	if err != nil {
		return s.unavailable(ctx, "load session "+e.ID, err)
	}
	e.state, e.since = state, since
	e.work = models.OpenWork(state)
	e.loaded.Store(true)
	s.cache.Resize(e, models.SizeOf(state))
	return nil
}

// rebuild makes a state of the stored snapshot and the log after it.
func rebuild(ctx context.Context, db querier, chunks []lines.Chunk, id string) (*session.State, models.Progress, error) {
	_, snapshot, err := readSnapshot(ctx, db, id)
	if err != nil {
		return nil, models.Progress{}, err
	}
	return models.Load(id, snapshot, func(after int64) ([]session.Frame, error) {
		return readFrom(ctx, db, chunks, id, after, lines.PageFrames)
	})
}

// readSnapshot gives the stored snapshot of a session, or nil.
func readSnapshot(ctx context.Context, db querier, id string) (seq int64, raw []byte, err error) {
	err = db.QueryRowContext(ctx, selectSnapshot, id, models.SnapshotVersion).Scan(&seq, &raw)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil, nil
	}
	return seq, raw, err
}
