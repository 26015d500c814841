package feed_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/feed"
)

// RG-05
func TestACursorIsPlainDigitsOrRefused(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "5": 5, "120": 120, "9007199254740991": feed.MaxCursor} {
		if got, err := feed.ParseCursor(s); err != nil || got != want {
			t.Errorf("%q is %d, %v", s, got, err)
		}
	}
	for _, s := range []string{
		"", "-1", "+1", "-0", "00", "05", "abc", "1e3", "1.0", " 5", "5 ", "5\x00", "9007199254740992", "9007199254740993",
		"18446744073709551616", "NaN", "null", "otherSession:5", "0x5", "1_000", "٥", strings.Repeat("1", 10_000),
	} {
		got, err := feed.ParseCursor(s)
		if !errors.Is(err, feed.ErrCursor) {
			t.Errorf("%.40q is %d, %v", s, got, err)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("the error repeats %d bytes", len(err.Error()))
		}
	}
}

func TestEveryStringIsACursorOnlyAsTheNumberItSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`[0-9]{1,18}|.{0,5}`).Draw(t, "cursor")
		n, err := feed.ParseCursor(s)
		if err == nil && s != strconv.FormatInt(n, 10) {
			t.Errorf("%q is %d", s, n)
		}
	})
}

func TestTheHeaderWinsOverTheQuery(t *testing.T) {
	for _, c := range []struct {
		header []string
		query  string
		want   int64
		bad    bool
	}{
		{want: 0},
		{query: "after=2", want: 2},
		{header: []string{"5"}, want: 5},
		{header: []string{"5"}, query: "after=2", want: 5},
		{header: []string{"5"}, query: "after=abc", want: 5},
		{header: []string{"0"}, query: "after=2", want: 0},
		{header: []string{""}, query: "after=2", want: 2},
		{header: []string{""}, want: 0},
		{header: []string{"abc"}, query: "after=2", bad: true},
		{header: []string{"5", "5"}, bad: true},
		{query: "after=", bad: true},
		{query: "after=2&after=2", bad: true},
		{query: "after=5%00", bad: true},
		{query: "after=%205", bad: true},
		{query: "after=+5", bad: true},
	} {
		r := httptest.NewRequest(http.MethodGet, "/?"+c.query, nil)
		r.Header["Last-Event-Id"] = c.header
		got, err := feed.RequestCursor(r)
		if got != c.want || (err != nil) != c.bad || err != nil && !errors.Is(err, feed.ErrCursor) {
			t.Errorf("header %q, query %q: %d, %v", c.header, c.query, got, err)
		}
	}
}
