package feed

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/holdfast-run/holdfast/store"
)

// Control is a frame that is no part of a log: it never has an id, so that it
// cannot move a cursor.
type Control struct {
	// Type is "reset", "deleted" or "goodbye".
	Type    string `json:"type"`
	Session string `json:"session,omitempty"`
	// Head is the last seq there is, with a reset.
	Head *int64 `json:"head,omitempty"`
	// Reason says why a stream ends, with a goodbye.
	Reason string `json:"reason,omitempty"`
	// RetryAfterMs says when to come back, with a goodbye. 0: at once.
	RetryAfterMs int64 `json:"retryAfterMs,omitempty"`
}

// Goodbye is a cause to end streams that tells the client why. Use it with
// [Hub.Close], or as the cause of the context that a stream was given.
type Goodbye struct {
	Reason string        // for programs, such as "shutdown"
	Retry  time.Duration // how long the client should wait before it comes back
}

// Error is the reason.
func (g *Goodbye) Error() string { return "goodbye: " + g.Reason }

// farewell is the control frame that explains why a stream ends. None: the
// client left by itself, or takes nothing any more.
func farewell(id string, err error) (Control, bool) {
	var bye *Goodbye
	var ahead *AheadError
	switch {
	case errors.As(err, &bye):
		return Control{Type: "goodbye", Session: id, Reason: bye.Reason, RetryAfterMs: bye.Retry.Milliseconds()}, true
	case errors.As(err, &ahead):
		return Control{Type: "reset", Session: id, Head: &ahead.Head}, true
	case errors.Is(err, store.ErrNotFound):
		return Control{Type: "deleted", Session: id}, true
	case errors.Is(err, ErrClosing):
		return Control{Type: "goodbye", Session: id, Reason: "shutdown"}, true
	case errors.Is(err, ErrSlow), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Control{}, false
	}
	return Control{Type: "goodbye", Session: id, Reason: "unavailable"}, true
}

func (c Control) line() []byte {
	raw, err := json.Marshal(c)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return raw
}
