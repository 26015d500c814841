// Package postgres keeps sessions in PostgreSQL, for as many processes as want
// to share them.
//
// One goroutine of each process writes (writer.go). While a transaction is
// under way, what is asked meanwhile gathers and shares the next:
//
//	Append ─┐  lock the sessions' rows      ┌ heads, log: a row a session    ─┐
//	Append ─┼▶ that nobody else has locked, ┤ sessions, messages, runs,       ├▶ COMMIT ─▶ tell, answer
//	Claim  ─┘  see what others wrote, decide└ approvals, work                ─┘
//
// A transaction that holds a session's row never waits for another's: rows that
// another process holds are skipped, and asked for again alone. So nothing
// deadlocks, and a busy session keeps nobody else waiting.
//
// States of sessions are cached (cache.go). Under the lock, and before a look,
// a cached state is compared with the row and what other processes have written
// is folded in (load.go). Seqs of a session are given and committed while its
// row is locked: whoever sees one has been able to see all before it.
//
// When the connection is lost while a commit is under way, its outcome is looked
// up before anything else is written (resolve.go), and what did not happen is done again.
package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/internal/cache"
)

// Options of [Open]. The zero value works.
type Options struct {
	store.Options // without Now it is the database's clock

	// ReadOnly opens for reading only, as it is: tables of another version are
	// left alone, and everything that writes gives [ErrReadOnly].
	ReadOnly bool
	// Patience is how long a database that cannot be reached is tried again
	// before calls fail. After that calls fail at once, until it is back. Default: 8 seconds.
	Patience time.Duration
	// LockTimeout is how long a write waits for a session that another process holds. Default: 5 seconds.
	LockTimeout time.Duration
	// StatementTimeout bounds each statement, and how long a process that stands
	// still may hold a session. Default: 10 seconds.
	StatementTimeout time.Duration
	// Connections bounds those for reading; one more writes. Default: 8.
	Connections int
	// CachedSessions and CachedBytes bound the states kept in memory, roughly. Defaults: 4096 and 128 MiB.
	CachedSessions int
	CachedBytes    int64
	// Log is told of failed commits and of lost connections. Default: slog.Default().
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Patience = cmp.Or(o.Patience, 8*time.Second)
	o.LockTimeout = cmp.Or(o.LockTimeout, 5*time.Second)
	o.StatementTimeout = cmp.Or(o.StatementTimeout, 10*time.Second)
	o.Connections = cmp.Or(max(o.Connections, 0), 8)
	o.CachedSessions = cmp.Or(max(o.CachedSessions, 0), 4096)
	o.CachedBytes = cmp.Or(max(o.CachedBytes, 0), 128<<20)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o
}

// Store is a [store.Store] in PostgreSQL.
type Store struct {
	opts    Options
	log     *slog.Logger
	config  *pgx.ConnConfig
	pool    *pgxpool.Pool // of connections that read
	cache   *cache.Cache[*entry]
	writer  *writer
	clock   clock
	outage  outage
	folding chan struct{} // of capacity 1: full while a Fold is under way
	swept   atomic.Int64  // when blobs without a session were last dropped, in milliseconds
	closed  atomic.Bool
}

var (
	_ store.Store = (*Store)(nil)
	_ store.Clock = (*Store)(nil)
)

// Open opens the store in the database that a URL or a connection string
// names, and makes its tables if need be. Errors that a person can do something
// about are [ErrUnreachable], [ErrRefused] and [ErrVersion].
func Open(ctx context.Context, url string, opts Options) (*Store, error) {
	opts = opts.withDefaults()
	s := &Store{
		opts: opts, log: opts.Log, cache: newCache(opts.CachedSessions, opts.CachedBytes), folding: make(chan struct{}, 1),
	}
	s.outage.patience = opts.Patience
	s.clock.own = opts.Now
	if err := s.open(ctx, url); err != nil {
		if s.pool != nil {
			s.pool.Close()
		}
		return nil, fmt.Errorf("open the store in PostgreSQL: %w", explain(err))
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, url string) error {
	config, err := configure(url, s.opts)
	if err != nil {
		return err
	}
	s.config = config.ConnConfig
	if err := migrate(ctx, s.config, migrations, s.opts.ReadOnly); err != nil {
		return err
	}
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	if err := s.clock.ask(ctx, s.pool); err != nil {
		return err
	}
	s.writer = newWriter(s)
	go s.writer.run()
	return nil
}

// Append runs decide and makes its events the next of the log.
func (s *Store) Append(ctx context.Context, id string, decide session.Decide) (store.Appended, error) {
	if err := s.enterWith(ctx, id); err != nil {
		return store.Appended{}, err
	}
	e := s.cache.Pin(id)
	defer s.unpin(e)
	if err := s.ensure(ctx, e); err != nil {
		return store.Appended{}, err
	}
	var appended store.Appended
	err := s.writer.submit(ctx, e, func(b *batch) (err error) {
		appended, err = b.append(e, decide)
		return err
	})
	if err != nil {
		return store.Appended{}, err
	}
	return appended, nil
}

// Delete removes a session and everything that was kept for it.
func (s *Store) Delete(ctx context.Context, id string) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	if !storable(id) {
		return notFound("session", id)
	}
	e := s.cache.Pin(id)
	defer s.unpin(e)
	if err := s.ensure(ctx, e); err != nil {
		return err
	}
	return s.writer.submit(ctx, e, func(b *batch) error { return b.delete(e) })
}

// Ready is nil when the store can be written. It writes, unless a commit
// succeeded within the last second.
func (s *Store) Ready(ctx context.Context) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	if time.Since(time.Unix(0, s.writer.lastCommit.Load())) < time.Second {
		return nil
	}
	return s.writer.submit(ctx, nil, func(b *batch) error {
		b.probe = true
		return nil
	})
}

// Close finishes what is under way and closes all connections. Closing again is fine.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.writer.close()
	s.pool.Close()
	return nil
}

// Now is the database's clock, or the one that the options name: what every
// process on the database agrees on.
func (s *Store) Now() time.Time { return s.clock.now() }

// now is the store's clock as it is written into events.
func (s *Store) now() time.Time { return s.clock.now().UTC().Truncate(time.Millisecond) }

// enter begins a method.
func (s *Store) enter(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// enterWith begins a method that writes under an id.
func (s *Store) enterWith(ctx context.Context, id string) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	if !storable(id) {
		return &session.Error{Code: session.Invalid, Field: "id", Message: fmt.Sprintf("an id of letters is wanted, not %q", id)}
	}
	return nil
}

// unpin lets a cache entry go.
func (s *Store) unpin(e *entry) {
	if !s.cache.Unpin(e) {
		return
	}
	for _, victim := range s.cache.Victims() {
		if !victim.gate.TryHold() {
			s.cache.Unpin(victim)
			continue
		}
		victim.forget()
		victim.gate.Release()
		s.cache.Drop(victim)
	}
}

// newID is a random id of something that only the database knows.
func newID() (id [16]byte) {
	_, _ = rand.Read(id[:]) // it never fails
	return id
}

func notFound(kind, id string) error { return fmt.Errorf("%s %s: %w", kind, id, store.ErrNotFound) }

func millis(t time.Time) int64 { return t.UnixMilli() }

func fromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

var errPanic = errors.New("a write panicked")
