package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/engine"
	"github.com/holdfast-run/holdfast/feed"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/server"
	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/memory"
	"github.com/holdfast-run/holdfast/store/sqlite"
	"github.com/holdfast-run/holdfast/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a server on a real socket over a runtime whose runs the test carries
// by hand.
type world struct {
	t      testing.TB
	rt     *holdfast.Runtime
	srv    *server.Server
	url    string
	store  store.Store
	worker string
	log    *lockedBuffer
	client *http.Client
	doc    *document
}

// worldOptions bend a world. The zero value is a plain one.
type worldOptions struct {
	server server.Options
	feed   feed.Options
	faults memory.Options
	sqlite bool // in the place of the store in memory and its faults
	// elsewhere: another process carries the runs.
	elsewhere bool
}

func newWorld(t testing.TB, opts worldOptions) *world {
	t.Helper()
	w := &world{t: t, worker: "wrk_test", log: &lockedBuffer{}}
	log := slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	rt, err := holdfast.Open(t.Context(), holdfast.Options{
		Store: func(_ context.Context, o store.Options) (store.Store, error) {
			opts.faults.Options = o
			w.store = memory.NewFaulty(opts.faults)
			var err error
			if opts.sqlite {
				w.store, err = sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{Options: o, Log: log})
			}
			return w.store, err
		},
		Engine: func(*engine.Carrier) engine.Engine { return byHand{opts.elsewhere} },
		Agents: []agent.Agent{
			{Name: "helper", Description: "helps", Model: "demo/demo", Tools: testTools(t)},
			{Name: "other", Model: "demo/demo"},
		},
		Models: func(string) (model.Model, error) { return nil, errors.New("no models here") },
		Feed:   opts.feed,
		Log:    log,

		CallbackKey: callbackKey,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(); err != nil {
			t.Error(err)
		}
	})
	w.rt = rt
	opts.server.Log = log
	if w.srv, err = server.New(rt, opts.server); err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(w.srv)
	t.Cleanup(func() {
		w.srv.Drain()
		ts.Close()
	})
	w.url, w.client = ts.URL, ts.Client()
	if w.doc, err = parseDocument(w.do("GET", "/v1/openapi.json", nil).is(200).body); err != nil {
		t.Fatal(err)
	}
	return w
}

// byHand is an engine whose runs a test carries: here, or elsewhere.
type byHand struct{ elsewhere bool }

func (byHand) Run(ctx context.Context) error { <-ctx.Done(); return nil }
func (byHand) Notify(store.Commit)           {}
func (byHand) Carrying() int                 { return 0 }
func (h byHand) Carries(string) bool         { return !h.elsewhere }

func testTools(t testing.TB) *tool.Set {
	t.Helper()
	spec := func(name string, effects session.Effects, policy tool.Policy) tool.Tool {
		return fixedTool{tool.Spec{
			Name: name, Description: name + " something", Effects: effects, Approval: policy,
			Parameters: json.RawMessage(`{"type":"object","properties":{"cents":{"type":"integer"}},"additionalProperties":false}`),
		}}
	}
	rule, err := tool.When(json.RawMessage(`{"required":["cents"]}`))
	if err != nil {
		t.Fatal(err)
	}
	set, err := tool.NewSet(spec("look", session.ReadOnly, tool.Never), spec("charge", session.Unsafe, tool.Always), spec("refund", session.Idempotent, rule))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

type fixedTool struct{ spec tool.Spec }

func (f fixedTool) Spec() tool.Spec { return f.spec }
func (f fixedTool) Call(context.Context, tool.Call) (tool.Result, error) {
	return tool.Text("done"), nil
}

// answer is what came back.
type answer struct {
	t      testing.TB
	status int
	header http.Header
	body   []byte
}

// do sends a request and reads the answer, which must be one that the OpenAPI
// document describes. A body that is a string goes as it is, anything else as
// JSON. headers are names and values in turn.
func (w *world) do(method, path string, body any, headers ...string) answer {
	w.t.Helper()
	var content io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		content = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			w.t.Fatal(err)
		}
		content = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, content)
	if err != nil {
		w.t.Fatal(err)
	}
	if content != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
			continue
		}
		req.Header[http.CanonicalHeaderKey(headers[i])] = append(req.Header[http.CanonicalHeaderKey(headers[i])], headers[i+1])
	}
	res, err := w.client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	a := answer{w.t, res.StatusCode, res.Header, raw}
	if w.doc != nil {
		if err := w.doc.check(method, path, a); err != nil {
			w.t.Errorf("%s %s answered %d %s\nwhich the OpenAPI document does not describe: %v", method, path, a.status, raw, err)
		}
	}
	return a
}

// into reads an answer that must have the status.
func (a answer) into(status int, v any) {
	a.t.Helper()
	a.is(status)
	if err := json.Unmarshal(a.body, v); err != nil {
		a.t.Fatalf("%v in %s", err, a.body)
	}
}

func (a answer) is(status int) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("status is %d, want %d: %s", a.status, status, a.body)
	}
	return a
}

// problem reads a refusal, and checks the form that every one has.
func (a answer) problem(status int, code api.Code) api.Problem {
	a.t.Helper()
	var p api.Problem
	a.into(status, &p)
	if p.Code != code {
		a.t.Fatalf("code is %s, want %s: %s", p.Code, code, a.body)
	}
	if got := a.header.Get("Content-Type"); got != api.ProblemType {
		a.t.Errorf("Content-Type is %q", got)
	}
	if p.Status != status || p.Title == "" || p.Type != "about:blank" || a.header.Get("X-Request-Id") == "" {
		a.t.Errorf("not a whole problem: %s", a.body)
	}
	return p
}

// say submits a text message and gives what became of it.
func (w *world) say(id, message, text string) api.MessageAccepted {
	w.t.Helper()
	var out api.MessageAccepted
	w.do("POST", "/v1/sessions/"+id+"/messages", api.SendMessage{ID: message, Parts: []api.Part{{Type: session.PartText, Text: text}}}).into(202, &out)
	return out
}

// claim makes the test the worker of the one due run.
func (w *world) claim() store.Lease {
	w.t.Helper()
	leases, err := w.store.Claim(w.t.Context(), w.worker, time.Minute, 1)
	if err != nil || len(leases) != 1 {
		w.t.Fatalf("claimed %v, %v", leases, err)
	}
	return leases[0]
}

// append writes events as a worker would.
func (w *world) append(id string, events ...session.Event) {
	w.t.Helper()
	if _, err := w.store.Append(w.t.Context(), id, func(*session.State) ([]session.Event, error) { return events, nil }); err != nil {
		w.t.Fatal(err)
	}
}

// end ends a run, with all that belongs to its end.
func (w *world) end(lease store.Lease, terminal session.Data) {
	w.t.Helper()
	_, err := w.store.Append(w.t.Context(), lease.Session, func(s *session.State) ([]session.Event, error) {
		return s.End(s.Run(lease.Run), terminal), nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// ask lets the run of a lease call charge and wait for approval.
func (w *world) ask(lease store.Lease, approval, arguments string) {
	w.t.Helper()
	run, err := w.store.Run(w.t.Context(), lease.Run)
	if err != nil {
		w.t.Fatal(err)
	}
	event := func(d session.Data) session.Event {
		return session.Event{Run: run.ID, Step: 1, Attempt: 1, Data: d}
	}
	call := "call_" + approval
	w.append(lease.Session,
		event(session.StepStarted{Message: run.Message}),
		event(session.ToolCalled{Message: run.Message, Call: call, Name: "charge", Arguments: json.RawMessage(arguments), Effects: session.Unsafe, Approval: approval}),
		event(session.ApprovalRequested{Approval: session.Approval{
			ID: approval, Session: lease.Session, Run: run.ID, Message: run.Message, Call: call, Name: "charge", Effects: session.Unsafe,
			Arguments: json.RawMessage(arguments), ArgumentsHash: session.HashArguments(json.RawMessage(arguments)), Status: session.StatusPending,
		}}),
		event(session.RunWaiting{Reason: session.WaitApproval}))
}

// lockedBuffer takes the log of many goroutines.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// events reads the whole log of a session.
func (w *world) events(id string) []session.Event {
	w.t.Helper()
	var page api.EventPage
	w.do("GET", "/v1/sessions/"+id+"/events?limit=10000", nil).into(200, &page)
	events := make([]session.Event, len(page.Frames))
	for i, raw := range page.Frames {
		if err := json.Unmarshal(raw, &events[i]); err != nil {
			w.t.Fatal(err)
		}
		if events[i].Seq != int64(i+1) {
			w.t.Fatalf("event %d has the seq %d", i+1, events[i].Seq)
		}
	}
	return events
}

// sendRaw writes a request as it is and reads the answer.
func (w *world) sendRaw(request string) answer {
	w.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		w.t.Fatal(err)
	}
	return readAnswer(w.t, conn)
}

func readAnswer(t testing.TB, conn net.Conn) answer {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{t, res.StatusCode, res.Header, raw}
}
