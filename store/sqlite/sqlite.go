// Package sqlite keeps sessions in one SQLite database and a folder of blobs,
// owned by one process. It needs no cgo and nothing installed.
//
//	DIR/holdfast.db     logs, read models, work and leases
//	DIR/holdfast.lock   locked by the owner; says who that is
//	DIR/blobs/ab/cdef…  large values, named by the SHA-256 of their content
//
// One goroutine writes (writer.go). While a commit is being flushed, what is
// asked meanwhile gathers and shares the next:
//
//	Append ─┐                       ┌ sessions, messages, runs, approvals, work
//	Append ─┼─▶ decide, stamp,  ──▶ ┤ tail: one row with the events of all      ──▶ COMMIT ──▶ tell, answer
//	Claim  ─┘   encode, apply       └ log: what leaves the tail, a row a session
//
// States of sessions are cached (cache.go) and loaded from a snapshot and the
// log after it (load.go). A gate for each session (gate.go) keeps what is not
// committed yet out of sight. Readers use a pool of read-only connections and
// never wait for the writer.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	driver "modernc.org/sqlite"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/internal/cache"
)

// Options of [Open]. The zero value works.
type Options struct {
	store.Options

	// ReadOnly opens for reading what another process may own: a picture of the
	// database as it is now, without what is committed later. Everything that
	// writes gives [ErrReadOnly].
	ReadOnly bool
	// BusyTimeout is how long a commit waits for another process that holds the database. Default: 5 seconds.
	BusyTimeout time.Duration
	// CachedSessions and CachedBytes bound the states kept in memory, roughly. Defaults: 4096 and 128 MiB.
	CachedSessions int
	CachedBytes    int64
	// TailBytes is how many bytes of the newest events stay apart in the order of
	// their commits, in memory too. More makes settling cheaper and opening slower. Default: 16 MiB.
	TailBytes int64
	// Log is told of failed commits and repairs. Default: slog.Default().
	Log *slog.Logger
}

// Store is a [store.Store] in SQLite.
type Store struct {
	opts    Options
	dir     string
	log     *slog.Logger
	lock    *flock.Flock // nil when read-only
	pool    *sql.DB      // of connections that read
	readers querier      // the pool, or one transaction of it when read-only
	cache   *cache.Cache[*entry]
	tail    *tail
	writer  *writer // nil when read-only
	blobs   blobs
	closed  atomic.Bool

	folding   sync.Mutex   // held by the one Fold under way
	deletions atomic.Int64 // counts deleted sessions, each after its commit
}

var _ store.Store = (*Store)(nil)

// Open opens the store in dir and makes it if need be. One process owns a
// directory at a time: others get a *HeldError. Errors that a person can do
// something about are ErrFull, ErrLocked, ErrDamaged or ErrReadOnly.
func Open(ctx context.Context, dir string, opts Options) (*Store, error) {
	opts = opts.withDefaults()
	s := &Store{opts: opts, dir: dir, log: opts.Log, cache: newCache(opts.CachedSessions, opts.CachedBytes)}
	s.blobs.dir = filepath.Join(dir, "blobs")
	open := s.openToWrite
	if opts.ReadOnly {
		open = s.openToRead
	}
	if err := open(ctx); err != nil {
		s.closeFiles()
		if kind := kindOf(err); kind != nil && !errors.Is(err, kind) {
			err = fmt.Errorf("%w: %w", kind, err)
		}
		return nil, fmt.Errorf("open the store in %s: %w", dir, err)
	}
	return s, nil
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.BusyTimeout <= 0 {
		o.BusyTimeout = 5 * time.Second
	}
	if o.CachedSessions <= 0 {
		o.CachedSessions = 4096
	}
	if o.CachedBytes <= 0 {
		o.CachedBytes = 128 << 20
	}
	if o.TailBytes <= 0 {
		o.TailBytes = 16 << 20
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o
}

func (s *Store) openToWrite(ctx context.Context) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	var err error
	if s.lock, err = own(s.dir); err != nil {
		return err
	}
	if err := s.blobs.prepare(); err != nil {
		return err
	}
	// A commit is as durable with fdatasync, and does not wait for the file's
	// times to be written too. Where there is no fdatasync nothing changes.
	_, _ = driver.Fdatasync(true)
	db, err := connect(s.dsn("rwc"), 1)
	if err != nil {
		return err
	}
	s.writer = &writer{
		store: s, db: db, stmts: map[string]*sql.Stmt{},
		gatherer: newGatherer(), wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if err := migrate(ctx, db); err != nil {
		return err
	}
	if s.pool, err = connect(s.dsn("ro"), max(4, 2*runtime.GOMAXPROCS(0))); err != nil {
		return err
	}
	s.readers = newPrepared(s.pool)
	if s.tail, err = loadTail(ctx, s.readers); err != nil {
		return err
	}
	if err := s.readers.QueryRowContext(ctx, `SELECT coalesce(max(turn), 0) FROM work`).Scan(&s.writer.turn); err != nil {
		return err
	}
	go s.writer.run()
	if err := s.blobs.dropOrphans(ctx, s); err != nil {
		return err
	}
	return s.blobs.emptyTrash(ctx, s)
}

// openToRead takes one transaction for everything, so that the tail and the
// tables stay of one moment whatever the owner writes.
func (s *Store) openToRead(ctx context.Context) error {
	path := filepath.Join(s.dir, databaseFile)
	if _, err := os.Stat(path); err != nil {
		return err
	}
	err := s.readAsOf(ctx, s.dsn("ro"))
	if !errors.Is(kindOf(err), ErrReadOnly) {
		return err
	}
	// Where no file can be made beside it, SQLite reads a database only as one
	// that nobody changes, and leaves out what its owner left in the WAL.
	if wal, statErr := os.Stat(path + "-wal"); statErr == nil && wal.Size() > 0 {
		return fmt.Errorf("%w: its owner was killed or runs: open it where it can be written", err)
	}
	_ = s.pool.Close()
	return s.readAsOf(ctx, s.dsn("ro")+"&immutable=1")
}

// readAsOf begins to read the database as it is now.
func (s *Store) readAsOf(ctx context.Context, dsn string) error {
	var err error
	if s.pool, err = connect(dsn, 1); err != nil {
		return err
	}
	tx, err := s.pool.BeginTx(background, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	s.readers = tx
	if err := checkTables(ctx, tx); err != nil {
		_ = tx.Rollback()
		s.readers = nil
		return err
	}
	s.tail, err = loadTail(ctx, tx)
	return err
}

// closeFiles closes what is open, in the order of dependence.
func (s *Store) closeFiles() {
	switch readers := s.readers.(type) {
	case *sql.Tx:
		_ = readers.Rollback()
	case *prepared:
		readers.close()
	}
	if s.pool != nil {
		_ = s.pool.Close()
	}
	if s.writer != nil {
		s.writer.drop()
		_ = s.writer.db.Close()
	}
	if s.lock != nil {
		_ = s.lock.Unlock()
	}
}

// Append runs decide and makes its events the next of the log.
func (s *Store) Append(ctx context.Context, id string, decide session.Decide) (store.Appended, error) {
	if err := s.enterToWrite(ctx); err != nil {
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
	if err := s.enterToWrite(ctx); err != nil {
		return err
	}
	e := s.cache.Pin(id)
	defer s.unpin(e)
	if err := s.ensure(ctx, e); err != nil {
		return err
	}
	if err := s.writer.submit(ctx, e, func(b *batch) error { return b.delete(e) }); err != nil {
		return err
	}
	if err := s.blobs.emptyTrash(ctx, s); err != nil {
		// The session is gone; its files follow when the store is opened next.
		s.log.Error("remove the blobs of a deleted session", slog.String("session", id), slog.Any("error", err))
	}
	return nil
}

// Ready is nil when the store can be written. It writes, unless a commit
// succeeded within the last second.
func (s *Store) Ready(ctx context.Context) error {
	if err := s.enterToWrite(ctx); err != nil {
		return err
	}
	if time.Since(time.Unix(0, s.writer.lastCommit.Load())) < time.Second {
		return nil
	}
	return s.writer.submit(ctx, nil, func(b *batch) error {
		_, err := b.exec(`UPDATE probe SET written_at = ?`, millis(b.now))
		return err
	})
}

// Close finishes what is under way and closes everything. Closing again is fine.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	if s.writer != nil {
		s.writer.close()
	}
	s.closeFiles()
	return nil
}

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

// enterToWrite begins a method that writes.
func (s *Store) enterToWrite(ctx context.Context) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	if s.writer == nil {
		return fmt.Errorf("%w: %w: it was opened to be read only", store.ErrUnavailable, ErrReadOnly)
	}
	return nil
}

// unpin lets a cache entry go.
func (s *Store) unpin(e *entry) {
	if s.cache.Unpin(e) && s.writer != nil {
		s.writer.poke()
	}
}

// now is the store's clock as it is written into events.
func (s *Store) now() time.Time { return s.opts.Now().UTC().Truncate(time.Millisecond) }
