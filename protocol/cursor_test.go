package protocol_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"testing"

	"github.com/holdfast-run/holdfast/feed"
)

// cursor is one entry of cases/cursor.json: a request, and the cursor it means.
type cursor struct {
	About string `json:"about"`
	// Headers are the values of Last-Event-ID, Query the raw query.
	Headers []string `json:"headers"`
	Query   string   `json:"query"`
	// Cursor is the seq it means; null: it is refused with 400 invalid_cursor.
	Cursor *int64 `json:"cursor"`
}

func TestACursorIsTakenOrRefusedByTheWrittenRule(t *testing.T) {
	raw, err := os.ReadFile("cases/cursor.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []cursor
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		t.Run(c.About, func(t *testing.T) {
			r := &http.Request{Header: http.Header{}, URL: &url.URL{RawQuery: c.Query}}
			for _, h := range c.Headers {
				r.Header.Add("Last-Event-ID", h)
			}
			got, err := feed.RequestCursor(r)
			switch {
			case c.Cursor == nil && !errors.Is(err, feed.ErrCursor):
				t.Errorf("taken as %d (%v)", got, err)
			case c.Cursor != nil && (err != nil || got != *c.Cursor):
				t.Errorf("taken as %d (%v), not %d", got, err, *c.Cursor)
			}
		})
	}
}
