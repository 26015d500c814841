package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
)

func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := New(s.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestACommandIsSentAsItIs(t *testing.T) {
	var got, path, kind string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		got, path, kind = strings.TrimSpace(string(raw)), r.Method+" "+r.URL.String(), r.Header.Get("Content-Type")
		_, _ = io.WriteString(w, `{"approval":{"id":"apr_1","status":"approved","arguments":{"n":12345678901234567890,"t":"<&>"}},"seq":7}`)
	})
	done, err := c.Decide(t.Context(), "apr_1", api.DecideApproval{
		Decision: session.Approve, Note: "a <b> & c", Arguments: json.RawMessage(`{"n":12345678901234567890}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"decision":"approve","note":"a <b> & c","arguments":{"n":12345678901234567890}}`; got != want {
		t.Errorf("sent %s\nwant %s", got, want)
	}
	if path != "POST /v1/approvals/apr_1" || kind != "application/json" {
		t.Errorf("sent %s as %s", path, kind)
	}
	if done.Seq != 7 || string(done.Approval.Arguments) != `{"n":12345678901234567890,"t":"<&>"}` {
		t.Errorf("read %+v", done)
	}
}

func TestFiltersBecomeTheQuery(t *testing.T) {
	var query string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		query = r.URL.RawQuery
		_, _ = io.WriteString(w, `{"items":[],"next":"x"}`)
	})
	list, err := c.Runs(t.Context(), RunFilter{Session: "ses_1", Status: []session.Status{session.Queued, session.Running}, Reason: session.WaitRetry}, Page{Cursor: "a b", Limit: 3})
	if err != nil || list.Next != "x" {
		t.Fatalf("%+v, %v", list, err)
	}
	if want := "cursor=a+b&limit=3&reason=retry&session=ses_1&status=queued%2Crunning"; query != want {
		t.Errorf("asked %s\nwant  %s", query, want)
	}
}

func TestARefusalIsAProblemAndMayPassOrNot(t *testing.T) {
	for code, passes := range map[api.Code]bool{api.NotFound: false, api.Invalid: false, api.Unavailable: true, api.Internal: true, api.RequestTimeout: true} {
		status := map[api.Code]int{api.NotFound: 404, api.Invalid: 422, api.Unavailable: 503, api.Internal: 500, api.RequestTimeout: 408}[code]
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(api.Problem{Status: status, Code: code, Detail: "no"})
		})
		_, err := c.Agents(t.Context())
		if !Is(err, code) || Passing(err) != passes {
			t.Errorf("%s: %v, passing %v", code, err, Passing(err))
		}
	}
}

func TestWhatIsNoHoldfastServerIsSaidSo(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>no</html>", http.StatusNotFound) })
	_, err := c.Agents(t.Context())
	if err == nil || !strings.Contains(err.Error(), "404 Not Found, and not from a Holdfast server") {
		t.Errorf("got %v", err)
	}
}

func TestNoAnswerSaysWhyInFewWords(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := "http://" + l.Addr().String()
	l.Close()
	c, err := New(free)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Agents(t.Context())
	if want := "no answer from " + free + ": nothing listens there"; err == nil || err.Error() != want || !Passing(err) {
		t.Errorf("got %v", err)
	}

	c = serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, `{"items":[`)
		panic(http.ErrAbortHandler)
	})
	_, err = c.Agents(t.Context())
	if err == nil || !strings.HasSuffix(err.Error(), "the connection broke") || !Passing(err) {
		t.Errorf("half an answer: %v", err)
	}
}

func TestAContextThatEndsIsNoFailureOfTheServer(t *testing.T) {
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Agents(ctx)
	if !errors.Is(err, context.Canceled) || Passing(err) {
		t.Errorf("got %v", err)
	}
}

func TestAServersURLIsCheckedAtOnce(t *testing.T) {
	for _, bad := range []string{"", "ftp://x", "http://", "http://a b"} {
		if _, err := New(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	if c, err := New("localhost:8787"); err != nil || c.URL() != "http://localhost:8787" {
		t.Errorf("a host and port alone: %v", err)
	}
}
