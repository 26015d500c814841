package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/internal/lines"
)

// Why a store is unavailable. An error that wraps one of these wraps
// [store.ErrUnavailable] and the cause too, except where [Open] gives it.
var (
	// ErrFull says that the disk is full. Reads go on, and so do writes once there is room again.
	ErrFull = errors.New("the disk is full")
	// ErrLocked says that another process holds the database.
	ErrLocked = errors.New("another process holds the database")
	// ErrDamaged says that the database file is damaged. What can still be read is read.
	ErrDamaged = lines.ErrDamaged
	// ErrReadOnly says that the directory or the database cannot be written.
	ErrReadOnly = errors.New("the database cannot be written")
)

// HeldError says who owns a directory that could not be opened. It is an [ErrLocked].
type HeldError struct {
	Dir string
	// PID and Host name the process, Since is when it opened the directory.
	// They are zero when the holder did not say.
	PID   int
	Host  string
	Since time.Time
}

// Error names the holder and says what to do.
func (e *HeldError) Error() string {
	who := "another process"
	if e.PID != 0 {
		who = fmt.Sprintf("process %d on %s since %s", e.PID, e.Host, e.Since.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("%s is in use by %s: stop it, or choose another directory", e.Dir, who)
}

// Unwrap makes it an [ErrLocked].
func (e *HeldError) Unwrap() error { return ErrLocked }

// unavailable is the function of that name, for a store that may have been closed meanwhile.
func (s *Store) unavailable(ctx context.Context, doing string, err error) error {
	if err != nil && s.closed.Load() {
		return store.ErrClosed
	}
	return unavailable(ctx, doing, err)
}

// unavailable turns an error of the database or the file system into one of
// the contract. It keeps what is one already, and the cause of a context that
// ended.
func unavailable(ctx context.Context, doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrNotFound):
		return err
	}
	if kind := kindOf(err); kind != nil {
		return fmt.Errorf("%s: %w: %w: %w", doing, store.ErrUnavailable, kind, err)
	}
	return fmt.Errorf("%s: %w: %w", doing, store.ErrUnavailable, err)
}

// kindOf is the reason behind an error, or nil if it is none that a person can do something about.
func kindOf(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) {
		return ErrFull
	}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return ErrReadOnly
	}
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return nil
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return ErrFull
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return ErrLocked
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return ErrDamaged
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return ErrReadOnly
	}
	return nil
}

// environmental says whether err is the doing of the machine and not of what
// was written: everybody who shares the commit gets it.
func environmental(err error) bool {
	var refused *session.Error
	if errors.As(err, &refused) || errors.Is(err, errPanic) {
		return false
	}
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return true
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_ERROR,
		sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE, sqlite3.SQLITE_MISUSE:
		return false
	}
	return true
}
