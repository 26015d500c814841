package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/internal/lines"
)

// Why a store is unavailable. An error that wraps one of these wraps
// [store.ErrUnavailable] and the cause too, except where [Open] gives it.
var (
	// ErrUnreachable says that the database cannot be reached, or not be written as during a failover.
	ErrUnreachable = errors.New("the database cannot be reached")
	// ErrUnknown says that the connection was lost during a commit, and that the
	// database could not be asked since whether it took effect.
	ErrUnknown = errors.New("whether it was written is not known")
	// ErrHeld says that another process held the session for too long.
	ErrHeld = errors.New("another process holds the session")
	// ErrFull says that the database's disk is full.
	ErrFull = errors.New("the disk of the database is full")
	// ErrRefused says that the database does not let this user in, or do what it must.
	ErrRefused = errors.New("the database refuses this user")
	// ErrReadOnly says that the store was opened to be read only.
	ErrReadOnly = errors.New("it was opened to be read only")
	// ErrPooled says that something between here and the database shares its connections between transactions.
	ErrPooled = errors.New("a pooler shares connections between transactions: connect directly, or have it pool sessions")
	// ErrVersion says that the tables are of a program that this one is too old for.
	ErrVersion = errors.New("the tables are too new for this program")
	// ErrDamaged says that what is stored contradicts itself.
	ErrDamaged = lines.ErrDamaged
)

// unavailable tells what went wrong: it keeps the errors that are the store's
// own already, and the cause of a context that ended.
func (s *Store) unavailable(ctx context.Context, doing string, err error) error {
	var refused *session.Error
	switch {
	case err == nil:
		return nil
	case s.closed.Load():
		return store.ErrClosed
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrNotFound), errors.As(err, &refused):
		return err
	}
	return fmt.Errorf("%s: %w: %w", doing, store.ErrUnavailable, explain(err))
}

// explain adds the reason that a person can do something about.
func explain(err error) error {
	if kind := kindOf(err); kind != nil && !errors.Is(err, kind) {
		return fmt.Errorf("%w: %w", kind, err)
	}
	return err
}

func kindOf(err error) error {
	for _, known := range []error{ErrUnknown, ErrHeld, ErrDamaged, ErrVersion} {
		if errors.Is(err, known) {
			return known
		}
	}
	switch code := codeOf(err); {
	case code == "53100":
		return ErrFull
	case code == "55P03":
		return ErrHeld
	case code == "42P05", code == "26000": // a prepared statement of somebody else, or none of ours
		return ErrPooled
	case code == "42501", code != "" && code[:2] == "28":
		return ErrRefused
	case passing(err):
		return ErrUnreachable
	}
	return nil
}

// codeOf is the code that the server gave with an error, if it is the server's.
func codeOf(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// passing says whether the same may work in a moment: the connection was lost,
// the server is starting or has become a standby, or two transactions met badly.
func passing(err error) bool {
	var refused *session.Error
	switch code := codeOf(err); {
	case code == "":
		return err != nil && !errors.Is(err, pgx.ErrNoRows) && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, ErrDamaged) &&
			!errors.Is(err, errPanic) && !errors.As(err, &refused) && !errors.Is(err, context.Canceled)
	case code[:2] == "08", code[:2] == "40":
		return true
	default:
		switch code {
		case "57P01", "57P02", "57P03", // shutting down, crashed, starting
			"53300",          // too many connections
			"25006",          // read only: a standby
			"25P03", "57014", // a timeout
			"55P03": // a lock
			return true
		}
	}
	return false
}

// environmental says whether err is the doing of the machine and not of what
// was written: everybody who shares the commit gets it.
func environmental(err error) bool {
	var refused *session.Error
	if errors.As(err, &refused) || errors.Is(err, errPanic) {
		return false
	}
	code := codeOf(err)
	if code == "" {
		return true
	}
	switch code[:2] {
	case "21", "22", "23", "54":
		return false
	}
	return true
}

// outage bounds how long calls are tried again: patience since the first
// failure, whoever met it.
type outage struct {
	patience time.Duration

	mu    sync.Mutex
	since time.Time // zero: all is well
}

// failed notes a failure of a call that began then, and says whether to try again.
func (o *outage) failed(began time.Time) (again bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		o.since = time.Now()
	}
	return time.Since(o.since) < o.patience && time.Since(began) < o.patience
}

// over notes a success and says whether it ends an outage.
func (o *outage) over() (was time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		return 0
	}
	was = time.Since(o.since)
	o.since = time.Time{}
	return was
}

// read asks the database, again while it cannot be reached and patience lasts.
func read[T any](ctx context.Context, s *Store, ask func(q querier) (T, error)) (T, error) {
	began := time.Now()
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		answer, err := ask(s.pool)
		if err == nil || !passing(err) || ctx.Err() != nil || s.closed.Load() {
			if err == nil {
				s.outage.over()
			}
			return answer, err
		}
		if !s.outage.failed(began) || !rest(ctx, wait) {
			return answer, err
		}
	}
}

// The wait before a lost database is tried again, doubling.
const (
	firstWait = 10 * time.Millisecond
	lastWait  = 500 * time.Millisecond
)

// rest waits, and says whether it could.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
