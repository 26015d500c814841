package feed

import (
	"errors"
	"fmt"
	"net/http"
)

// MaxCursor is the largest seq: every JavaScript number up to it is exact.
const MaxCursor = 1<<53 - 1

// ErrCursor means that a cursor breaks the rule of the protocol.
var ErrCursor = errors.New("feed: invalid cursor")

// ParseCursor reads a cursor: decimal digits without sign, space or leading
// zero, at most 2^53-1. Anything else is ErrCursor.
func ParseCursor(s string) (int64, error) {
	const longest = len("9007199254740991")
	if s == "" || len(s) > longest || s[0] == '0' && len(s) > 1 {
		return 0, cursorError(s)
	}
	var n int64
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, cursorError(s)
		}
		n = n*10 + int64(c-'0')
	}
	if n > MaxCursor {
		return 0, cursorError(s)
	}
	return n, nil
}

// Cursor is the cursor of a request: the header Last-Event-ID, or else the
// query value after, or else 0. Empty is absent. A header that is there decides
// alone, even over a better query. Ask before the first byte is sent.
func Cursor(r *http.Request) (int64, error) {
	for _, s := range []string{r.Header.Get("Last-Event-ID"), r.URL.Query().Get("after")} {
		if s != "" {
			return ParseCursor(s)
		}
	}
	return 0, nil
}

func cursorError(s string) error {
	if len(s) > 32 {
		s = s[:32] + "…"
	}
	return fmt.Errorf("%w %q: want digits from 0 to %d", ErrCursor, s, int64(MaxCursor))
}
