package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/session"
)

const (
	lease    = 2 * time.Second
	patience = 60 * time.Second // far more than anything takes on a busy machine
)

// world is a server over a folder of its own, and a provider.
type world struct {
	t    *testing.T
	ctx  context.Context // lives until the oracles have been asked
	dir  string
	llm  *fakellm.Server
	srv  *process
	http *http.Client
	next atomic.Int64
	// seen are the sessions that oracles look at when the test ends.
	seen map[string]bool
	// quietOracles switches them off, for scenarios that end with a damaged disk.
	quietOracles bool
	config       string
	keep         []string // variables of each of its processes
	store        string   // the URL of its database; empty: SQLite in the folder
}

// doctor examines everything that is kept, as it is now.
func (w *world) doctor() {
	w.t.Helper()
	args := []string{"doctor", "--data", filepath.Join(w.dir, "data")}
	if w.store != "" {
		args = append(args, "--store", w.store)
	}
	if out, err := exec.CommandContext(w.ctx, binary, args...).CombinedOutput(); err != nil {
		w.t.Errorf("doctor: %v\n%s", err, out)
	}
}

// settings change the world's configuration.
type settings struct {
	slots      int
	wire       string // openai-compatible (default), anthropic
	idle       time.Duration
	attempts   int
	crashes    int
	tokens     int
	steps      int
	toolOutput int
	window     int // of the model, in tokens
	heartbeat  time.Duration
	retention  time.Duration
	drain      time.Duration
	approval   time.Duration
	streams    int
	lenient    bool
	mcp        string // the servers of the agent, as YAML
	http       string // tools that post to an endpoint, as YAML: book, ask and buy
	family     bool   // whether the agent has a subagent, with the same tools
	store      string // the URL of a database; default, as with those below: what FAULTS_ON says
	redis      string // its URL
	temporal   string // its address
	// services starts what the world has for itself, and says where that is, once it is the world's turn.
	services func(*settings)
	env      []string
	keep     []string // variables of each process of the world
}

// newWorld starts a provider and a server. Worlds run side by side.
func newWorld(t *testing.T, s settings) *world {
	t.Helper()
	return newWorldIn(t, t.TempDir(), s)
}

// newWorldIn does so over a folder that the test made.
func newWorldIn(t *testing.T, dir string, s settings) *world {
	t.Helper()
	t.Parallel()
	if s.services != nil {
		s.services(&s)
	}
	s.usualParts(t)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	w := &world{t: t, ctx: ctx, dir: dir, http: &http.Client{}, seen: map[string]bool{}, store: s.store}
	w.llm = fakellm.Start(t, fakellm.Options{Lenient: s.lenient})
	w.config = filepath.Join(w.dir, "holdfast.yaml")
	if err := os.WriteFile(w.config, []byte(s.yaml(w.llm.URL())), 0o600); err != nil {
		t.Fatal(err)
	}
	w.keep = s.keep
	if s.http != "" && s.store != "" {
		w.keep = append(w.keep, "HOLDFAST_CALLBACK_KEY="+callbackKey)
	}
	w.srv = start(t, w.dir, w.config, 0, append(s.env, w.keep...)...)
	t.Cleanup(func() { w.http.CloseIdleConnections() })
	t.Cleanup(w.oracles)
	return w
}

func (s settings) yaml(provider string) string {
	wire, base := s.wire, provider
	if wire == "" {
		wire = "openai-compatible"
	}
	if wire != "anthropic" {
		base += "/v1"
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("providers:\n  fake:\n    type: %s\n    baseURL: %s\n    apiKeyEnv: FAKE_KEY", wire, base)
	if s.idle > 0 {
		line("    idleTimeout: %s", s.idle)
	}
	line("agents:\n  - name: tester\n    model: fake/fake-model\n    instructions: You are tested.")
	more := ""
	if s.http != "" {
		more = ", book, ask, buy"
	}
	line("    tools: [look, put, charge, pay, boom, deaf, echo, output%s]", more)
	if s.mcp != "" {
		line("    mcp: [kit, lost]")
	}
	if s.family {
		line("    subagents: [helper]")
	}
	if s.approval > 0 {
		line("    approvalTimeout: %s", s.approval)
	}
	if s.window > 0 {
		line("    context:\n      window: %d", s.window)
	}
	line("    limits:\n      time: 10m")
	for name, n := range map[string]int{"attempts": s.attempts, "crashes": s.crashes, "tokens": s.tokens, "steps": s.steps, "toolOutput": s.toolOutput} {
		if n > 0 {
			line("      %s: %d", name, n)
		}
	}
	if s.family {
		line("  - name: helper\n    description: Helps.\n    model: fake/fake-model\n    tools: [look, put, charge, pay]")
		if s.mcp != "" {
			line("    mcp: [kit]")
		}
	}
	s.stackYAML(line)
	if s.heartbeat > 0 || s.streams > 0 {
		line("server:")
	}
	if s.heartbeat > 0 {
		line("  heartbeat: %s", s.heartbeat)
	}
	if s.streams > 0 {
		line("  maxStreams: %d", s.streams)
	}
	if s.retention != 0 {
		line("retention: %s", s.retention)
	}
	b.WriteString(s.mcp)
	b.WriteString(s.http)
	return b.String()
}

// again starts the server anew over the same folder and port.
func (w *world) again(env ...string) {
	w.t.Helper()
	port, err := strconv.Atoi(w.srv.url[strings.LastIndexByte(w.srv.url, ':')+1:])
	if err != nil {
		w.t.Fatal(err)
	}
	w.srv = start(w.t, w.dir, w.config, port, append(env, w.keep...)...)
}

// crash kills the server and starts it anew.
func (w *world) crash() {
	w.t.Helper()
	w.srv.kill()
	w.http.CloseIdleConnections()
	w.again()
}

// ledger is the lines that tools wrote as they acted.
func (w *world) ledger() []string {
	raw, err := os.ReadFile(filepath.Join(w.dir, "ledger"))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n")
}

// answer is what the API answered.
type answer struct {
	status int
	header http.Header
	raw    []byte
}

// problem is the API's form of an error.
type problem struct {
	Code     string `json:"code"`
	Title    string `json:"title"`
	Detail   string `json:"detail"`
	Status   int    `json:"status"`
	Errors   []struct{ Field, Message string }
	Run      *session.Run      `json:"run"`
	Approval *session.Approval `json:"approval"`
}

func (a answer) problem(t *testing.T) problem {
	t.Helper()
	var p problem
	if err := json.Unmarshal(a.raw, &p); err != nil || p.Code == "" {
		t.Fatalf("HTTP %d is no problem+json: %s", a.status, a.raw)
	}
	return p
}

func (a answer) into(t *testing.T, v any) {
	t.Helper()
	if a.status/100 != 2 {
		t.Fatalf("HTTP %d: %s", a.status, a.raw)
	}
	if err := json.Unmarshal(a.raw, v); err != nil {
		t.Fatalf("%v in %s", err, a.raw)
	}
}

// try makes a request; the error is the connection's.
func (w *world) try(ctx context.Context, method, path string, body any) (answer, error) {
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			return answer{}, err
		}
		r = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, w.srv.url+path, r)
	if err != nil {
		return answer{}, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := w.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	return answer{status: res.StatusCode, header: res.Header, raw: raw}, err
}

// ask makes a request that must reach the server.
func (w *world) ask(method, path string, body any) answer {
	w.t.Helper()
	a, err := w.try(w.ctx, method, path, body)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	if a.status >= 500 && !strings.Contains(string(a.raw), `"code"`) {
		w.t.Errorf("%s %s: HTTP %d without a typed body: %s", method, path, a.status, a.raw)
	}
	return a
}

// submission is the body of a message.
type submission struct {
	ID         string  `json:"id"`
	Parts      []part  `json:"parts"`
	OnBusy     string  `json:"onBusy,omitempty"`
	Background bool    `json:"background,omitempty"`
	Parent     *string `json:"parent,omitempty"`
}

type part struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// submitted is the answer to it.
type submitted struct {
	Message session.Message `json:"message"`
	Run     session.Run     `json:"run"`
	Seq     int64           `json:"seq"`
}

func say(id, text string) submission { return submission{ID: id, Parts: []part{{"text", text}}} }

// submit sends a text with a fresh message id and gives the run.
func (w *world) submit(sessionID, text string) session.Run {
	w.t.Helper()
	return w.send(sessionID, say(fmt.Sprintf("msg_%s_%d", sessionID, w.next.Add(1)), text)).Run
}

func (w *world) send(sessionID string, s submission) submitted {
	w.t.Helper()
	var out submitted
	w.post(sessionID, s).into(w.t, &out)
	return out
}

func (w *world) post(sessionID string, s submission) answer {
	w.t.Helper()
	w.seen[sessionID] = true
	return w.ask("POST", "/v1/sessions/"+sessionID+"/messages", s)
}

// snapshot is a session as a page gets it.
type snapshot struct {
	Session struct {
		ID, Status, Title string
		ForkedFrom        *session.Origin
	}
	Seq       int64
	Head      string
	Messages  []session.Message
	HasMore   bool
	Runs      []session.Run
	Approvals []session.Approval
	Inbox     []session.InboxItem
}

func (w *world) snapshot(sessionID string) snapshot {
	w.t.Helper()
	var s snapshot
	w.get("/v1/sessions/"+sessionID).into(w.t, &s)
	return s
}

func (w *world) run(id string) session.Run {
	w.t.Helper()
	var r session.Run
	w.get("/v1/runs/"+id).into(w.t, &r)
	return r
}

// get reads as a client does: what cannot be read now is read a little later. A database
// needs a moment to notice that a process was killed that held a lock.
func (w *world) get(path string) answer {
	w.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		a := w.ask("GET", path, nil)
		if a.status != http.StatusServiceUnavailable || time.Now().After(deadline) {
			return a
		}
		pause(w.t, 100*time.Millisecond)
	}
}

func (w *world) cancel(run string) answer {
	w.t.Helper()
	return w.ask("POST", "/v1/runs/"+run+"/cancel", map[string]string{"reason": "test"})
}

// pending are the approvals that wait for a decision.
func (w *world) pending(sessionID string) []session.Approval {
	w.t.Helper()
	var list struct{ Items []session.Approval }
	w.get("/v1/approvals?status=pending&session="+sessionID).into(w.t, &list)
	return list.Items
}

func (w *world) decide(approval, decision string) answer {
	w.t.Helper()
	return w.ask("POST", "/v1/approvals/"+approval, map[string]string{"decision": decision})
}

// text is the whole text of the last assistant message of the active branch.
func (w *world) text(sessionID string) string {
	w.t.Helper()
	s := w.snapshot(sessionID)
	for i := len(s.Messages) - 1; i >= 0; i-- {
		if s.Messages[i].Role == session.RoleAssistant {
			return s.Messages[i].Text()
		}
	}
	return ""
}

// ends waits until the run is terminal and gives it.
func (w *world) ends(run session.Run) session.Run {
	w.t.Helper()
	return w.until(run, "to end", func(r session.Run) bool { return r.Status.Terminal() })
}

// waits waits until the run waits for a reason.
func (w *world) waits(run session.Run, reason session.WaitingReason) session.Run {
	w.t.Helper()
	return w.until(run, "to wait for "+string(reason), func(r session.Run) bool {
		return r.Status == session.Waiting && r.WaitingReason == reason
	})
}

// until waits for a run to be as wanted: it follows the log by long polls, over restarts of the server.
func (w *world) until(run session.Run, what string, wanted func(session.Run) bool) session.Run {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	last := run
	for {
		a, err := w.try(ctx, "GET", "/v1/runs/"+run.ID, nil)
		if err == nil && a.status == http.StatusOK {
			last = session.Run{}
			a.into(w.t, &last)
			if wanted(last) {
				return last
			}
		}
		if err := w.news(ctx, run.Session); err != nil {
			w.t.Fatalf("waited in vain for run %s %s: it is %s/%s (%v)", run.ID, what, last.Status, last.WaitingReason, err)
		}
	}
}

// news returns when the session's log has grown, or soon after in any case: a
// log can grow between the look and the wait.
func (w *world) news(ctx context.Context, sessionID string) error {
	head := int64(0)
	if a, err := w.try(ctx, "GET", "/v1/sessions/"+sessionID, nil); err == nil && a.status == http.StatusOK {
		var s snapshot
		if json.Unmarshal(a.raw, &s) == nil {
			head = s.Seq
		}
	}
	polled, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	_, err := w.try(polled, "GET", fmt.Sprintf("/v1/sessions/%s/events?after=%d&wait=300ms", sessionID, head), nil)
	if err != nil {
		<-polled.Done() // the server is away
	}
	return ctx.Err()
}

// within fails unless do returns within d.
func (w *world) within(d time.Duration, what string, do func(ctx context.Context) error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, d)
	defer cancel()
	if err := do(ctx); err != nil {
		w.t.Errorf("%s took longer than %s: %v", what, d, err)
	}
}

// arrives waits for the provider's n-th request (from 1).
func (w *world) arrives(n int) fakellm.Request {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	r, err := w.llm.WaitRequest(ctx, n)
	if err != nil {
		w.t.Fatalf("the provider's request %d: %v", n, err)
	}
	return r
}

// closes waits until the provider's n-th request is over, at most d.
func (w *world) closes(n int, d time.Duration) {
	w.t.Helper()
	w.within(d, fmt.Sprintf("closing the provider's request %d", n), func(ctx context.Context) error {
		_, err := w.llm.WaitClosed(ctx, n)
		return err
	})
}
