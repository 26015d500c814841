package feed

import (
	"encoding/json"
	"fmt"
)

// A control frame is no part of a log: it has no id on a stream, so that it
// cannot move a cursor past events.
type control struct {
	Type         string `json:"type"`
	ID           string `json:"id,omitempty"`
	Session      string `json:"session,omitempty"`
	Sessions     bool   `json:"sessions,omitempty"`
	After        *int64 `json:"after,omitempty"`
	Head         *int64 `json:"head,omitempty"`
	Code         string `json:"code,omitempty"`
	Detail       string `json:"detail,omitempty"`
	RetryAfterMs int64  `json:"retryAfterMs,omitempty"`
}

// resetFrame says that the cursor was ahead of the log, which ends at head.
func resetFrame(session string, head int64) []byte {
	return line(control{Type: "reset", Session: session, Head: &head})
}

// deletedFrame says that the session is gone.
func deletedFrame(session string) []byte {
	return line(control{Type: "deleted", Session: session})
}

func line(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Errorf("encode a frame of strings and numbers: %w", err))
	}
	return raw
}
