package app_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/cmd/holdfast/app"
	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// asHoldfast makes a process of this test binary the holdfast command.
const asHoldfast = "HOLDFAST_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asHoldfast) != "" {
		os.Exit(app.Main(app.App{Version: "test", Tools: testTools()}, os.Args[1:]))
	}
	for _, name := range []string{"HOLDFAST_SERVER", "HOLDFAST_DATA", "HOLDFAST_LISTEN", "HOLDFAST_CONFIG", "NO_COLOR", "COLUMNS"} {
		os.Unsetenv(name)
	}
	os.Exit(m.Run())
}

// testTools are the tools of test servers. pay is not safe to repeat: it notes
// what it did in a ledger, and hangs if there is a file named "hang" beside that.
func testTools() map[string]tool.Tool {
	return map[string]tool.Tool{
		"pay": tool.New("pay", "Pays.", func(ctx context.Context, in struct {
			Ledger string `json:"ledger"`
		}, call tool.Call,
		) (string, error) {
			f, err := os.OpenFile(in.Ledger, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				return "", err
			}
			defer f.Close()
			if _, err := f.WriteString("paid\n"); err != nil {
				return "", err
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(in.Ledger), "hang")); err == nil {
				call.Progress(session.Progress{Message: "the money is gone"})
				<-ctx.Done()
				return "", context.Cause(ctx)
			}
			return "paid", nil
		}, tool.WithEffects(session.Unsafe)),
	}
}

// stream is an output that can be waited for.
type stream struct {
	mu   sync.Mutex
	text bytes.Buffer  // guarded by mu
	more chan struct{} // guarded by mu; closed when there is more
}

func newStream() *stream { return &stream{more: make(chan struct{})} }

func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.more)
	s.more = make(chan struct{})
	return s.text.Write(p)
}

func (s *stream) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// await waits until part has been written.
func (s *stream) await(t *testing.T, part string) {
	t.Helper()
	late := time.After(patience)
	for {
		s.mu.Lock()
		text, more := s.text.String(), s.more
		s.mu.Unlock()
		if strings.Contains(text, part) {
			return
		}
		select {
		case <-more:
		case <-late:
			t.Fatalf("%q did not come; there is\n%s", part, text)
		}
	}
}

// world is a provider, a data folder and a configuration.
type world struct {
	t      *testing.T
	llm    *fakellm.Server
	dir    string
	config string
	addr   string // of the server, once one has been started
}

func newWorld(t *testing.T, more ...string) *world {
	t.Helper()
	w := &world{t: t, llm: fakellm.Start(t, fakellm.Options{}), dir: t.TempDir(), addr: "127.0.0.1:0"}
	w.config = filepath.Join(w.dir, "holdfast.yaml")
	text := fmt.Sprintf(`
providers:
  fake: {type: openai-compatible, baseURL: %q}
agents:
  - name: test
    model: fake/m
    tools: [notes_write, notes_delete, {name: notes_list, approval: never}, pay]
engine: {drain: 200ms, poll: 50ms, retryFirst: 10ms}
`, w.llm.URL()+"/v1") + strings.Join(more, "\n")
	if err := os.WriteFile(w.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

// serving is a server that runs.
type serving struct {
	t        *testing.T
	out, err *stream
	stop     func() int // in order, and its exit code
	kill     func()     // nil in this process
}

func (w *world) serveArgs() []string {
	return []string{"serve", "--listen", w.addr, "--data", filepath.Join(w.dir, "data"), "--config", w.config}
}

// serve runs a server in this process until the test ends or stop is called.
func (w *world) serve() *serving {
	w.t.Helper()
	s := &serving{t: w.t, out: newStream(), err: newStream()}
	ctx, cancel := context.WithCancel(context.Background())
	code := make(chan int, 1)
	go func() {
		code <- app.Run(ctx, app.App{Version: "test", Tools: testTools(), Stdout: s.out, Stderr: s.err}, w.serveArgs())
	}()
	s.stop = sync.OnceValue(func() int {
		cancel()
		return <-code
	})
	w.t.Cleanup(func() { s.stop() })
	w.found(s)
	return s
}

// process runs a server as a process of its own, which can be killed.
func (w *world) process() *serving {
	w.t.Helper()
	s := &serving{t: w.t, out: newStream(), err: newStream()}
	cmd := command(w.serveArgs()...)
	cmd.Stdout, cmd.Stderr = s.out, s.err
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	end := func(signal os.Signal) func() int {
		return func() int {
			_ = cmd.Process.Signal(signal)
			_ = cmd.Wait()
			return cmd.ProcessState.ExitCode()
		}
	}
	var once sync.Once
	code := 0
	s.stop = func() int {
		once.Do(func() { code = end(os.Interrupt)() })
		return code
	}
	s.kill = func() { once.Do(func() { code = end(syscall.SIGKILL)() }) }
	w.t.Cleanup(s.kill)
	w.found(s)
	return s
}

func command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asHoldfast+"=1")
	return cmd
}

// found reads where the server listens from its first line.
func (w *world) found(s *serving) {
	w.t.Helper()
	s.out.await(w.t, "stops the server")
	first, _, _ := bufio.ScanLines([]byte(s.out.String()), false)
	line := s.out.String()[:max(first-1, 0)]
	url, ok := strings.CutPrefix(line, "Holdfast listens on http://")
	if _, _, err := net.SplitHostPort(url); !ok || err != nil {
		w.t.Fatalf("the first line is %q", line)
	}
	w.addr = url
}

func (w *world) url() string { return "http://" + w.addr }

// ended is a command that has ended.
type ended struct {
	code     int
	out, err string
}

// run runs a command against the server.
func (w *world) run(args ...string) ended {
	w.t.Helper()
	return w.start(w.t.Context(), "", args...).wait()
}

// running is a command that runs in this process.
type running struct {
	t        *testing.T
	out, err *stream
	code     chan int
}

func (w *world) start(ctx context.Context, stdin string, args ...string) *running {
	w.t.Helper()
	return start(ctx, w.t, strings.NewReader(stdin), append(args, "--server", w.url())...)
}

func start(ctx context.Context, t *testing.T, stdin io.Reader, args ...string) *running {
	r := &running{t: t, out: newStream(), err: newStream(), code: make(chan int, 1)}
	go func() {
		r.code <- app.Run(ctx, app.App{Version: "test", Stdin: stdin, Stdout: r.out, Stderr: r.err}, args)
	}()
	return r
}

func (r *running) wait() ended {
	r.t.Helper()
	select {
	case code := <-r.code:
		return ended{code, r.out.String(), r.err.String()}
	case <-time.After(patience):
		r.t.Fatalf("the command did not end; it printed\n%s\n%s", r.out, r.err)
		return ended{}
	}
}

// get asks the server directly.
func (w *world) get(path string, into any) {
	w.t.Helper()
	res, err := http.Get(w.url() + path)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(into); err != nil || res.StatusCode != http.StatusOK {
		w.t.Fatalf("GET %s: %s, %v", path, res.Status, err)
	}
}

// theRun is the only run there is.
func (w *world) theRun() session.Run {
	w.t.Helper()
	var list struct{ Items []session.Run }
	w.get("/v1/runs", &list)
	if len(list.Items) != 1 {
		w.t.Fatalf("there are %d runs", len(list.Items))
	}
	return list.Items[0]
}

func (e ended) want(t *testing.T, code int, out string) {
	t.Helper()
	if e.code != code || e.out != out {
		t.Errorf("exit code %d and output %q, want %d and %q; errors:\n%s", e.code, e.out, code, out, e.err)
	}
}

func (e ended) wantErr(t *testing.T, code int, parts ...string) {
	t.Helper()
	if e.code != code {
		t.Errorf("exit code %d, want %d; %s", e.code, code, e.err)
	}
	for _, part := range parts {
		if !strings.Contains(e.err, part) {
			t.Errorf("the error output does not say %q:\n%s", part, e.err)
		}
	}
}

var errGiveUp = errors.New("the test gave up")

// within is a context for what the test waits for.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errGiveUp)
	t.Cleanup(cancel)
	return ctx
}
