package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-run/holdfast/session"
)

const (
	selectSnapshot = `SELECT seq, body FROM snapshots WHERE session = ? AND version = ?`
	upsertSnapshot = `
INSERT INTO snapshots (session, version, seq, body) VALUES (?, ?, ?, ?)
ON CONFLICT (session) DO UPDATE SET version = excluded.version, seq = excluded.seq, body = excluded.body`
)

// snapshotVersion names what a session.State holds and what folding means. Raise
// it when either changes: older snapshots are then made anew from the logs.
const snapshotVersion = 1

const (
	// A snapshot is written when the log has grown by snapshotEvents or
	// snapshotBytes since the last, and by twice the size of that one, so that
	// snapshots never cost more than half of what the log does.
	snapshotEvents = 4096
	snapshotBytes  = 2 << 20
	// keepEvents is how many events an entry may lead its snapshot when it is
	// thrown out: folding them again is cheaper than a snapshot.
	keepEvents = 256
)

func (p progress) wantsSnapshot() bool {
	return (p.events >= snapshotEvents || p.bytes >= snapshotBytes) && p.bytes >= 2*p.snapshot
}

// View shows the committed state of a session.
func (s *Store) View(ctx context.Context, id string, look func(*session.State)) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	e := s.cache.pin(id)
	defer s.unpin(e)
	for {
		if err := e.gate.look(ctx); err != nil {
			return err
		}
		if e.state != nil {
			defer e.gate.lookDone()
			if !e.state.Exists() {
				return notFound("session", id)
			}
			look(e.state)
			return nil
		}
		e.gate.lookDone()
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
	if err := e.gate.hold(ctx); err != nil {
		return err
	}
	defer e.gate.release()
	return s.loadHeld(ctx, e)
}

// loadHeld loads an entry whose gate is held, so that its session cannot change meanwhile.
func (s *Store) loadHeld(ctx context.Context, e *entry) error {
	if e.state != nil {
		return nil
	}
	state, since, err := rebuild(ctx, s.readers, s.tail.of(e.id), e.id)
	if err != nil {
		return s.unavailable(ctx, "load session "+e.id, err)
	}
	e.state, e.since = state, since
	e.work = map[string]work{}
	for _, run := range state.Open() {
		e.work[run.ID] = workOf(state, run)
	}
	e.loaded.Store(true)
	s.cache.resize(e, sizeOf(state))
	return nil
}

// rebuild makes a state of the stored snapshot and the log after it.
func rebuild(ctx context.Context, db querier, chunks []chunk, id string) (*session.State, progress, error) {
	state := session.New(id)
	var since progress
	var raw []byte
	var seq int64
	err := db.QueryRowContext(ctx, selectSnapshot, id, snapshotVersion).Scan(&seq, &raw)
	switch {
	case err == nil:
		if state, err = session.Load(raw); err != nil {
			return nil, since, fmt.Errorf("%w: the snapshot: %w", ErrDamaged, err)
		}
		since.snapshot = int64(len(raw))
	case !errors.Is(err, sql.ErrNoRows):
		return nil, since, err
	}
	for {
		frames, err := readFrom(ctx, db, chunks, id, state.Seq, readFrames)
		if err != nil {
			return nil, since, err
		}
		if len(frames) == 0 {
			break
		}
		for _, f := range frames {
			e, ok, err := f.Event()
			if err != nil {
				return nil, since, fmt.Errorf("%w: %w", ErrDamaged, err)
			}
			if ok {
				state.Apply(e)
			}
			state.Seq = f.To
			since.events++
			since.bytes += int64(len(f.JSON))
		}
	}
	state.TakeChanges()
	state.Shed()
	return state, since, nil
}

// marshal is json.Marshal without HTML escapes, so that raw JSON inside stays as it was.
func marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), newline), nil
}
