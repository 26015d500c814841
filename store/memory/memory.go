// Package memory keeps sessions in the memory of one process. It is written to
// be obviously right, not fast: one mutex, maps and slices, every list found by
// looking at everything. Tests use it in place of a database, property tests as
// the truth that another backend must agree with, and simulations for the
// faults that it can be told to have.
//
// It starts no goroutine and waits for nothing, so it works inside a
// testing/synctest bubble.
package memory

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// Options add faults to the common options. The zero value has none. The hooks run while the store's
// lock is held: they must not call the store. A nil hook does nothing.
type Options struct {
	store.Options

	// Exclusive says that no other process shares this store: see [store.Exclusive].
	Exclusive bool
	// BeforeCall is told the name of each method of [store.Store] as it is
	// called, such as "Renew". Its error is the method's answer and nothing is
	// done: the backend could not be reached.
	BeforeCall func(method string) error
	// BeforeCommit sees the events that are about to become the next of a log,
	// those of Claim included. Its error is the caller's answer and nothing is
	// done: the process died before the write.
	BeforeCommit func(id string, events []session.Event) error
	// AfterCommit sees the same events when they are written and OnCommit has
	// been told. Its error is the caller's answer although everything is done:
	// the acknowledgement was lost.
	AfterCommit func(id string, events []session.Event) error
	// DropCommit says that OnCommit is not to be told of this commit: the wake-up was lost.
	DropCommit func(store.Commit) bool
}

// Store is a [store.Store] in memory. Safe for concurrent use.
type Store struct {
	opts Options

	mu     sync.Mutex // guards everything below
	logs   map[string]*log
	blobs  map[string]map[string]blob // by session and hash
	turn   int64                      // counts the times that a run became due
	closed bool
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Exclusive = (*Store)(nil)
)

// New is an empty store without faults.
func New(opts store.Options) *Store { return NewFaulty(Options{Options: opts}) }

// NewFaulty is an empty store with the faults of opts.
func NewFaulty(opts Options) *Store {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Store{opts: opts, logs: map[string]*log{}, blobs: map[string]map[string]blob{}}
}

// Exclusive says what the options said.
func (s *Store) Exclusive() bool { return s.opts.Exclusive }

// Append runs decide and makes its events the next of the log.
func (s *Store) Append(ctx context.Context, id string, decide session.Decide) (store.Appended, error) {
	unlock, err := s.enter(ctx, "Append")
	if err != nil {
		return store.Appended{}, err
	}
	defer unlock()
	l := s.logs[id]
	if l == nil {
		l = newLog(id)
	}
	events, err := decide(l.lean)
	if err != nil {
		return store.Appended{}, err
	}
	if len(events) == 0 {
		return store.Appended{First: l.head() + 1, Last: l.head()}, nil
	}
	return s.commitLocked(l, events)
}

// View shows the committed state of a session.
func (s *Store) View(ctx context.Context, id string, look func(*session.State)) error {
	l, unlock, err := s.enterLog(ctx, "View", id)
	if err != nil {
		return err
	}
	defer unlock()
	look(l.lean)
	return nil
}

// Delete removes a session and everything that was kept for it.
func (s *Store) Delete(ctx context.Context, id string) error {
	l, unlock, err := s.enterLog(ctx, "Delete", id)
	if err != nil {
		return err
	}
	defer unlock()
	delete(s.logs, id)
	delete(s.blobs, id)
	row := store.RowOf(l.lean)
	s.tellLocked(store.Commit{Session: id, Row: &row, Deleted: true})
	return nil
}

// Ready is nil until the store is closed.
func (s *Store) Ready(ctx context.Context) error {
	unlock, err := s.enter(ctx, "Ready")
	if err != nil {
		return err
	}
	unlock()
	return nil
}

// Close ends the store. Closing it again is fine.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// enter begins a method: it takes the lock, unless the method cannot be done now.
func (s *Store) enter(ctx context.Context, method string) (unlock func(), err error) {
	s.mu.Lock()
	switch {
	case s.closed:
		err = store.ErrClosed
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case s.opts.BeforeCall != nil:
		err = s.opts.BeforeCall(method)
	}
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	return s.mu.Unlock, nil
}

// enterLog is enter for a method that needs the session to exist.
func (s *Store) enterLog(ctx context.Context, method, id string) (*log, func(), error) {
	unlock, err := s.enter(ctx, method)
	if err != nil {
		return nil, nil, err
	}
	l := s.logs[id]
	if l == nil {
		unlock()
		return nil, nil, fmt.Errorf("session %s: %w", id, store.ErrNotFound)
	}
	return l, unlock, nil
}

// commitLocked is the one place where a log grows.
func (s *Store) commitLocked(l *log, events []session.Event) (store.Appended, error) {
	now := s.now()
	stamped := make([]session.Event, len(events))
	for i, e := range events {
		e.Session, e.Seq, e.At = l.id, l.head()+int64(i)+1, now
		stamped[i] = e
	}
	frames, err := encode(stamped)
	if err != nil {
		return store.Appended{}, fmt.Errorf("append to session %s: %w", l.id, err)
	}
	if s.opts.BeforeCommit != nil {
		if err := s.opts.BeforeCommit(l.id, stamped); err != nil {
			return store.Appended{}, err
		}
	}
	if err := l.extend(frames); err != nil {
		return store.Appended{}, fmt.Errorf("append to session %s: %w", l.id, err)
	}
	s.logs[l.id] = l
	commit := store.Commit{Session: l.id, Frames: frames, Events: stamped, Work: s.scheduleLocked(l, now)}
	if hasFact(stamped) {
		row := store.RowOf(l.lean)
		commit.Row = &row
	}
	s.tellLocked(commit)
	if s.opts.AfterCommit != nil {
		if err := s.opts.AfterCommit(l.id, stamped); err != nil {
			return store.Appended{}, err
		}
	}
	return store.Appended{First: stamped[0].Seq, Last: l.head(), Events: stamped}, nil
}

func (s *Store) tellLocked(c store.Commit) {
	if s.opts.OnCommit == nil || s.opts.DropCommit != nil && s.opts.DropCommit(c) {
		return
	}
	s.opts.OnCommit(c)
}

// now is the store's clock as it is written into events.
func (s *Store) now() time.Time { return s.opts.Now().UTC().Truncate(time.Millisecond) }

func hasFact(events []session.Event) bool {
	for _, e := range events {
		if !session.IsDelta(e.Data) {
			return true
		}
	}
	return false
}
