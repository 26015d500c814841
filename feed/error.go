package feed

import (
	"errors"
	"fmt"
)

// Errors of readers. A reader of a session that does not exist, or that was
// deleted while it was read, gets [store.ErrNotFound].
var (
	// ErrAhead means that the cursor is past the end of the log: it belongs to a
	// log that is not there any more. The reader must start again from a
	// snapshot: send it a reset. The error is an [AheadError].
	ErrAhead = errors.New("feed: cursor is ahead of the log")
	// ErrClosing means that this hub ends. Nothing is lost: the same cursor goes
	// on at another node, or here after the restart.
	ErrClosing = errors.New("feed: closing")
	// ErrBroken means that frames of the log do not join. It is never healed by skipping.
	ErrBroken = errors.New("feed: log has a hole")
	// ErrBehind means that a reader of a list missed changes: it must list the
	// sessions again and follow anew.
	ErrBehind = errors.New("feed: too far behind the list")
	// ErrCut is for a [Tell] that must break its stream off, and nothing is wrong.
	ErrCut = errors.New("feed: cut")
)

// AheadError is ErrAhead with its numbers.
type AheadError struct {
	Session     string
	After, Head int64
}

// Error says by how much the cursor is ahead.
func (e *AheadError) Error() string {
	return fmt.Sprintf("feed: cursor %d is ahead of session %s, which ends at %d", e.After, e.Session, e.Head)
}

// Unwrap is [ErrAhead].
func (e *AheadError) Unwrap() error { return ErrAhead }
