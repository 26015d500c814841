package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/internal/lines"
	"github.com/holdfast-run/holdfast/store/internal/models"
)

const (
	selectHead     = `SELECT born, seq FROM heads WHERE session = $1`
	selectSnapshot = `SELECT seq, body FROM snapshots WHERE session = $1 AND version = $2`
	upsertSnapshot = `
INSERT INTO snapshots (session, version, seq, body) VALUES ($1, $2, $3, $4)
ON CONFLICT (session, version) DO UPDATE SET seq = excluded.seq, body = excluded.body`
)

// View shows the committed state of a session, as it was at some time since the call.
func (s *Store) View(ctx context.Context, id string, look func(*session.State)) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	e := s.cache.Pin(id)
	defer s.unpin(e)
	for {
		h, err := s.head(ctx, id)
		if err != nil {
			return s.unavailable(ctx, "load session "+id, err)
		}
		for range 2 {
			if err := e.gate.Look(ctx); err != nil {
				return err
			}
			if e.state != nil && e.born == h.born && e.state.Seq >= h.seq {
				defer e.gate.LookDone()
				look(e.state)
				return nil
			}
			e.gate.LookDone()
			if err := s.refresh(ctx, e); err != nil {
				return err
			}
		}
		// It was deleted meanwhile, and perhaps begun again.
	}
}

// head reads the row of a session, or gives ErrNotFound.
func (s *Store) head(ctx context.Context, id string) (head, error) {
	if !storable(id) {
		return head{}, notFound("session", id)
	}
	return read(ctx, s, func(q querier) (head, error) { return readHead(ctx, q, id) })
}

func readHead(ctx context.Context, q querier, id string) (h head, err error) {
	err = q.QueryRow(ctx, selectHead, id).Scan(&h.born, &h.seq)
	if errors.Is(err, pgx.ErrNoRows) {
		err = notFound("session", id)
	}
	return h, err
}

// ensure loads an entry that is pinned but not loaded. It may be behind what others write.
func (s *Store) ensure(ctx context.Context, e *entry) error {
	if e.loaded.Load() {
		return nil
	}
	return s.refresh(ctx, e)
}

// refresh makes an entry that is pinned know what is committed now.
func (s *Store) refresh(ctx context.Context, e *entry) error {
	if err := e.gate.Hold(ctx); err != nil {
		return err
	}
	defer e.gate.Release()
	_, err := read(ctx, s, func(querier) (struct{}, error) {
		// One picture of the row and of the log.
		return struct{}{}, pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			h, err := readHead(ctx, tx, e.ID)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
			return s.catchUp(ctx, tx, e, h)
		})
	})
	return s.unavailable(ctx, "load session "+e.ID, err)
}

// catchUp makes a cached state what the row of its session says, and tells of
// what others have written. The gate is held, and q sees the log as the row
// does. The zero head means that there is no session.
func (s *Store) catchUp(ctx context.Context, q querier, e *entry, h head) error {
	if e.state != nil && e.born == h.born && e.state.Seq == h.seq {
		return nil
	}
	readLog := func(after int64) ([]session.Frame, error) {
		if after >= h.seq {
			return nil, nil
		}
		return readLog(ctx, q, e.ID, after, lines.PageFrames)
	}
	var err error
	if e.state != nil && e.born == h.born && e.state.Seq > 0 {
		err = s.follow(e, readLog)
	} else {
		if e.state != nil && e.state.Exists() {
			s.tellGone(e)
		}
		e.forget()
		var snapshot []byte
		if h.seq > 0 {
			if _, snapshot, err = readSnapshot(ctx, q, e.ID); err != nil {
				return err
			}
		}
		if e.state, e.since, err = models.Load(e.ID, snapshot, readLog); err == nil {
			e.work = models.OpenWork(e.state)
		}
	}
	if err == nil && e.state.Seq != h.seq {
		err = fmt.Errorf("%w: the log ends at seq %d, and its row says %d", ErrDamaged, e.state.Seq, h.seq)
	}
	if err != nil {
		e.forget()
		return err
	}
	e.born = h.born
	e.loaded.Store(true)
	s.cache.Resize(e, models.SizeOf(e.state))
	return nil
}

// follow folds in what other processes have written.
func (s *Store) follow(e *entry, readLog func(after int64) ([]session.Frame, error)) error {
	c := store.Commit{Session: e.ID, Elsewhere: true}
	from, fact := e.state.Seq, false
	err := e.since.Replay(e.state, readLog, func(f session.Frame, event session.Event) {
		c.Frames, c.Events = append(c.Frames, f), append(c.Events, event)
		fact = fact || !session.IsDelta(event.Data)
	})
	if err != nil {
		return err
	}
	e.state.TakeChanges()
	e.state.Shed()
	before := e.work
	e.work = models.OpenWork(e.state)
	if s.opts.OnCommit == nil {
		return nil
	}
	if int64(len(c.Frames)) != e.state.Seq-from { // retention was faster
		c.Frames, c.Events = nil, nil
	}
	for id, is := range e.work {
		if was := before[id]; is.Work != was.Work || is.Cancel != was.Cancel {
			c.Work = append(c.Work, is.RunWork)
		}
		delete(before, id)
	}
	for id := range before {
		c.Work = append(c.Work, store.RunWork{Run: id})
	}
	if fact {
		row := store.RowOf(e.state)
		c.Row = &row
	}
	s.opts.OnCommit(c)
	return nil
}

// tellGone tells that another process has deleted a session.
func (s *Store) tellGone(e *entry) {
	if s.opts.OnCommit != nil {
		row := store.RowOf(e.state)
		s.opts.OnCommit(store.Commit{Session: e.ID, Row: &row, Deleted: true, Elsewhere: true})
	}
}

// readSnapshot gives the stored snapshot of a session, or nil.
func readSnapshot(ctx context.Context, q querier, id string) (seq int64, raw []byte, err error) {
	err = q.QueryRow(ctx, selectSnapshot, id, models.SnapshotVersion).Scan(&seq, &raw)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil, nil
	}
	return seq, raw, err
}
