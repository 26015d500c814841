package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/bench/internal/workload"
)

// chatServer answers every chat with the given tokens, and the end mark if asked.
func chatServer(t *testing.T, tokens []int, end bool) api {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "data: {\"type\":\"start\"}\n\n: a comment\n\nid: 7\ndata: {\"type\":\"text-start\",\"id\":\"0\"}\n\n")
		for _, i := range tokens {
			fmt.Fprintf(w, "data: {\"type\":\"text-delta\",\"id\":\"0\",\"delta\":\"%s\"}\n\n",
				workload.AppendToken(nil, i, time.Now().UnixNano(), 0))
		}
		if end {
			fmt.Fprint(w, "data: {\"type\":\"finish\"}\n\ndata: [DONE]\n\n")
		}
	}))
	t.Cleanup(srv.Close)
	to, err := apiOf("ui", srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func TestAReaderFindsWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		tokens          []int
		end             bool
		whole           int64
		lost, duplicate int64
		err             string
	}{
		"whole":         {[]int{0, 1, 2, 3}, true, 1, 0, 0, ""},
		"a gap":         {[]int{0, 2, 3}, true, 0, 1, 0, "not whole"},
		"a double":      {[]int{0, 1, 1, 2, 3}, true, 0, 0, 1, "not whole"},
		"cut short":     {[]int{0, 1}, true, 0, 2, 0, "not whole"},
		"no end mark":   {[]int{0, 1, 2, 3}, false, 0, 0, 0, "unexpected EOF"},
		"nothing comes": {nil, true, 0, 4, 0, "not whole"},
	} {
		t.Run(name, func(t *testing.T) {
			var got tally
			got.read(chatServer(t, c.tokens, c.end), "c", workload.Response{Tokens: 4}, time.Now().Add(5*time.Second))
			if got.completed.Load() != c.whole || got.lost.Load() != c.lost || got.duplicate.Load() != c.duplicate {
				t.Errorf("whole %d lost %d duplicate %d, want %d %d %d",
					got.completed.Load(), got.lost.Load(), got.duplicate.Load(), c.whole, c.lost, c.duplicate)
			}
			if !strings.Contains(got.errorList(), c.err) {
				t.Errorf("errors %q, want %q", got.errorList(), c.err)
			}
		})
	}
}

// A watcher that was there before accepts both kinds of resume: the response
// replayed from its start, and the rest after a cursor.
func TestAWatcherAcceptsReplayAndContinuation(t *testing.T) {
	for name, tokens := range map[string][]int{
		"replay":       {0, 1, 2, 3},
		"continuation": {2, 3},
	} {
		t.Run(name, func(t *testing.T) {
			var got tally
			seenBefore := transcript{next: 2}
			got.watch(chatServer(t, tokens, true), "c", 0, workload.Response{Tokens: 4}, &seenBefore, time.Now().Add(5*time.Second))
			if got.completed.Load() != 1 {
				t.Errorf("not whole: lost %d duplicate %d %s", got.lost.Load(), got.duplicate.Load(), got.errorList())
			}
		})
	}
}
