package feed

import (
	"errors"
	"fmt"
	"net/http"
)

// MaxCursor is the largest cursor: every number up to it is exact in JavaScript.
const MaxCursor = 1<<53 - 1

// ErrCursor means that a cursor breaks the rule of the protocol.
var ErrCursor = errors.New("feed: invalid cursor")

// ParseCursor reads a cursor: decimal digits without sign, space or leading
// zero, at most [MaxCursor]. Anything else is ErrCursor.
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

// RequestCursor is the cursor of a request: the header Last-Event-ID unless it
// is empty or absent, else the query value after, else 0. One that is given
// twice is ErrCursor, and so is an empty after. Ask before the first byte is
// sent: a stream cannot refuse any more.
func RequestCursor(r *http.Request) (int64, error) {
	header := r.Header.Values("Last-Event-ID")
	if len(header) > 1 {
		return 0, fmt.Errorf("%w: more than one Last-Event-ID", ErrCursor)
	}
	if len(header) == 1 && header[0] != "" {
		return ParseCursor(header[0])
	}
	query := r.URL.Query()["after"]
	switch len(query) {
	case 0:
		return 0, nil
	case 1:
		return ParseCursor(query[0])
	}
	return 0, fmt.Errorf("%w: more than one after", ErrCursor)
}

func cursorError(s string) error {
	if len(s) > 32 {
		s = s[:32] + "…"
	}
	return fmt.Errorf("%w %q: want digits from 0 to %d", ErrCursor, s, int64(MaxCursor))
}
