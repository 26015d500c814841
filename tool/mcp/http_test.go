package mcp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-run/holdfast/tool"
)

// endpoint serves over HTTP until the test ends. before may answer a request itself.
func endpoint(t *testing.T, s *sdk.Server, stateless bool, before func(w http.ResponseWriter, r *http.Request) bool) *httptest.Server {
	t.Helper()
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &sdk.StreamableHTTPOptions{Stateless: stateless})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before == nil || !before(w, r) {
			handler.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		for session := range s.Sessions() { // those that a client lost
			_ = session.Close()
		}
		srv.Close()
	})
	return srv
}

func TestAServerIsSpokenToOverHTTP(t *testing.T) {
	for _, stateless := range []bool{false, true} {
		ledger := t.TempDir() + "/ledger"
		var secret atomic.Value
		var pings atomic.Int64
		srv := endpoint(t, testServer(ledger), stateless, func(w http.ResponseWriter, r *http.Request) bool {
			secret.Store(r.Header.Get("X-Key"))
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			if strings.Contains(string(body), `"ping"`) {
				pings.Add(1)
			}
			if r.Method == http.MethodGet { // it offers no stream, and says so badly
				w.WriteHeader(http.StatusForbidden)
				return true
			}
			return false
		})
		t.Setenv("MCP_KEY", "secret")
		s, l := run(t, Config{URL: srv.URL, HeadersEnv: map[string]string{"X-Key": "MCP_KEY"}}, quick())
		res, err := do(t, s, "put", `{}`)
		if err != nil || string(res.Value) != `"put done"` || lineCount(ledger, "put key-1") != 1 {
			t.Errorf("stateless %v: it gave %s, %v", stateless, res.Value, err)
		}
		if secret.Load() != "secret" {
			t.Errorf("the header is %v", secret.Load())
		}
		l.has(t, 1, "is ready", "at=http://127.0.0.1:")
		eventually(t, "it is probed and stands", func() bool { return pings.Load() >= 3 })
		if strings.Contains(l.all(), "is away") {
			t.Errorf("stateless %v: it was lost\n%s", stateless, l.all())
		}
		if stateless { // the SDK's server does not hear of a cancel then
			continue
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, context.DeadlineExceeded)
		if _, err := doIn(ctx, t, s, "wait", `{}`, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stateless %v: the call ended with %v", stateless, err)
		}
		cancel()
		eventually(t, "the server hears of the cancel", func() bool { return lineCount(ledger, "wait cancelled") == 1 })
	}
}

func TestARedirectToAnotherHostIsRefused(t *testing.T) {
	var reached atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	t.Cleanup(other.Close)
	srv := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	t.Cleanup(srv.Close)
	_, l := run(t, Config{URL: srv.URL + "/?key=secret"}, quick())
	l.has(t, 1, "is away", "redirects to another host")
	if strings.Contains(l.all(), "secret") {
		t.Error("the log has the key that is in the URL")
	}
	if reached.Load() {
		t.Error("the other host was asked")
	}
}

func TestACallThatAnHTTPServerRefusesWasNotMadeAndOneThatItLosesIsNotKnown(t *testing.T) {
	var status atomic.Int64 // of calls
	ledger := t.TempDir() + "/ledger"
	srv := endpoint(t, testServer(ledger), false, func(w http.ResponseWriter, r *http.Request) bool {
		n := int(status.Load())
		if n == 0 || r.Method != http.MethodPost {
			return false
		}
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		if !strings.Contains(string(body), `"tools/call"`) {
			return false
		}
		status.Store(0)
		if n < 0 { // the connection breaks
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(n)
		return true
	})
	s, _ := run(t, Config{URL: srv.URL}, quick())
	for _, c := range []struct {
		tool   string
		status int64
		want   func(err error) bool
	}{
		{"charge", http.StatusTooManyRequests, func(err error) bool { return code(err) == CodeUnavailable }},
		{"charge", http.StatusUnauthorized, func(err error) bool { return code(err) == CodeUnavailable }},
		{"charge", http.StatusBadGateway, func(err error) bool { return errors.Is(err, tool.ErrOutcomeUnknown) }},
		{"charge", -1, func(err error) bool { return errors.Is(err, tool.ErrOutcomeUnknown) }},
		{"look", http.StatusNotFound, func(err error) bool { return err == nil }},
		{"charge", http.StatusNotFound, func(err error) bool { return err == nil }}, // its session is gone: it was not made
		{"charge", 0, func(err error) bool { return err == nil }},
	} {
		status.Store(c.status)
		if res, err := do(t, s, c.tool, `{}`); !c.want(err) {
			t.Errorf("%s with %d gives %s, %v", c.tool, c.status, res.Value, err)
		}
	}
}

func TestAnHTTPServerThatComesBackIsReachedAgain(t *testing.T) {
	var down atomic.Bool
	srv := endpoint(t, testServer(t.TempDir()+"/ledger"), false, func(http.ResponseWriter, *http.Request) bool {
		if down.Load() {
			panic(http.ErrAbortHandler)
		}
		return false
	})
	s, l := run(t, Config{URL: srv.URL}, quick())
	down.Store(true)
	l.has(t, 1, "is away")
	down.Store(false)
	l.has(t, 2, "is ready")
	if _, err := do(t, s, "look", `{}`); err != nil {
		t.Error(err)
	}
}

func TestABodyWithoutEndIsCut(t *testing.T) {
	srv := endpoint(t, testServer(t.TempDir()+"/ledger"), false, func(w http.ResponseWriter, r *http.Request) bool {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		if !strings.Contains(string(body), `"tools/call"`) {
			return false
		}
		kind := "application/json"
		if strings.Contains(string(body), "put") {
			kind = "text/event-stream"
		}
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, "data: ")
		chunk := []byte(strings.Repeat(" ", 1<<20))
		for {
			if _, err := w.Write(chunk); err != nil {
				return true
			}
		}
	})
	s, _ := run(t, Config{URL: srv.URL}, quick())
	for _, name := range []string{"look", "put"} {
		if _, err := do(t, s, name, `{}`); code(err) != tool.CodeInvalidResult || !strings.Contains(err.Error(), "longer than 32 MiB") {
			t.Errorf("%s is told as %v", name, err)
		}
	}
}
