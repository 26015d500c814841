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

// sessionServer answers every message, and every stream with the given blocks.
func sessionServer(t *testing.T, blocks ...string) api {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/sessions/{id}/messages", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, "{}")
	})
	mux.HandleFunc("GET /v1/sessions/{id}/events", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "retry: 1000\n\n"+strings.Join(blocks, ""))
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	to, err := apiOf("native", srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func block(seq int, kind, data string) string {
	return fmt.Sprintf("id: %d\ndata: {\"session\":\"s\",\"seq\":%d,\"type\":%q,\"at\":\"2026-01-02T03:04:05Z\",\"data\":{%s}}\n\n", seq, seq, kind, data)
}

func said(seq int, tokens ...int) string {
	var text []byte
	for _, i := range tokens {
		text = workload.AppendToken(text, i, time.Now().UnixNano(), 0)
	}
	return block(seq, "text.delta", fmt.Sprintf(`"message":"m","part":0,"text":"%s"`, text))
}

func TestANativeReaderFollowsTheLogToTheEndOfItsRun(t *testing.T) {
	long := make([]int, 500) // an event larger than the reader's buffer
	for i := range long {
		long[i] = 3 + i
	}
	for name, c := range map[string]struct {
		blocks []string
		whole  int64
		err    string
	}{
		"whole":               {[]string{block(1, "run.started", ""), said(2, 0), said(3, 1, 2), said(4, long...), ": hb\n\n", block(5, "run.completed", "")}, 1, ""},
		"a gap in the log":    {[]string{said(1, 0), said(3, 1, 2), said(4, long...), block(5, "run.completed", "")}, 0, "gap or a repetition"},
		"a lost token":        {[]string{said(1, 0), said(2, 2), said(3, long...), block(4, "run.completed", "")}, 0, "not whole"},
		"a failed run":        {[]string{said(1, 0), block(2, "run.failed", `"error":{}`)}, 0, "unexpected frame"},
		"cut before the end":  {[]string{said(1, 0, 1, 2), said(2, long...)}, 0, "unexpected EOF"},
		"a repeated position": {[]string{said(1, 0), said(1, 1, 2)}, 0, "gap or a repetition"},
	} {
		t.Run(name, func(t *testing.T) {
			var got tally
			got.read(sessionServer(t, c.blocks...), "s", workload.Response{Tokens: 503}, time.Now().Add(5*time.Second))
			if got.completed.Load() != c.whole || !strings.Contains(got.errorList(), c.err) {
				t.Errorf("whole %d, lost %d, errors %q; want %d and %q", got.completed.Load(), got.lost.Load(), got.errorList(), c.whole, c.err)
			}
		})
	}
}
