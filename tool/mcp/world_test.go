package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

// The test binary is a server or a client as well, when it is told to be one.
func TestMain(m *testing.M) {
	if kind := os.Getenv("MCP_TEST_SERVER"); kind != "" {
		beServer(kind)
		return
	}
	if os.Getenv("MCP_TEST_CLIENT") != "" {
		beClient(os.Args[len(os.Args)-1])
		return
	}
	goleak.VerifyTestMain(m)
}

// patience is far more than anything takes on a busy machine.
const patience = 30 * time.Second

type note struct {
	Note string `json:"note,omitempty"`
}

type letters struct {
	N int `json:"n"`
}

func hints(readOnly, idempotent bool) *sdk.ToolAnnotations {
	return &sdk.ToolAnnotations{ReadOnlyHint: readOnly, IdempotentHint: idempotent}
}

// testServer has a tool of each kind. Effects are lines of the file ledger. It
// speaks all versions of the protocol unless told.
func testServer(ledger string, versions ...string) *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ServerOptions{SupportedProtocolVersions: versions})
	act := func(_ context.Context, req *sdk.CallToolRequest, in note) (*sdk.CallToolResult, any, error) {
		first := writeLine(ledger, fmt.Sprintf("%s %v", req.Params.Name, req.Params.Meta[KeyMeta]))
		if in.Note == "die" || in.Note == "die once" && first {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return text(req.Params.Name + " done"), nil, nil
	}
	sdk.AddTool(s, &sdk.Tool{Name: "look", Description: "Looks.", Annotations: hints(true, false)}, act)
	sdk.AddTool(s, &sdk.Tool{Name: "put", Annotations: hints(false, true)}, act)
	sdk.AddTool(s, &sdk.Tool{Name: "charge"}, act)
	sdk.AddTool(s, &sdk.Tool{Name: "wait", Annotations: hints(false, true)}, func(ctx context.Context, req *sdk.CallToolRequest, _ note) (*sdk.CallToolResult, any, error) {
		_ = req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Message: "half\x00 way", Progress: 1, Total: 2})
		<-ctx.Done()
		writeLine(ledger, "wait cancelled")
		return nil, nil, ctx.Err()
	})
	sdk.AddTool(s, &sdk.Tool{Name: "grow"}, func(_ context.Context, _ *sdk.CallToolRequest, in note) (*sdk.CallToolResult, any, error) {
		sdk.AddTool(s, &sdk.Tool{Name: in.Note}, act)
		s.RemoveTools("charge")
		return text("grown"), nil, nil
	})
	sdk.AddTool(s, &sdk.Tool{Name: "letters", Annotations: hints(true, false)}, func(_ context.Context, _ *sdk.CallToolRequest, in letters) (*sdk.CallToolResult, any, error) {
		return text(strings.Repeat("a", in.N)), nil, nil
	})
	sdk.AddTool(s, &sdk.Tool{Name: "show", Annotations: hints(true, false)}, func(context.Context, *sdk.CallToolRequest, note) (*sdk.CallToolResult, any, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{
			&sdk.TextContent{Text: "before"},
			&sdk.ImageContent{MIMEType: "image/png", Data: []byte("a picture")},
			&sdk.TextContent{Text: "after"},
			&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "file:///a/b.bin", MIMEType: "nonsense", Blob: []byte{1, 2}}},
			&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "file:///c.txt", Text: "inside"}},
			&sdk.ResourceLink{URI: "file:///d", Name: "d"},
		}}, nil, nil
	})
	sdk.AddTool(s, &sdk.Tool{Name: "ask"}, func(ctx context.Context, req *sdk.CallToolRequest, _ note) (*sdk.CallToolResult, any, error) {
		_, err := req.Session.Elicit(ctx, &sdk.ElicitParams{Message: "Which one?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`)})
		return nil, nil, err
	})
	sdk.AddTool(s, &sdk.Tool{Name: "fail"}, func(_ context.Context, _ *sdk.CallToolRequest, in note) (*sdk.CallToolResult, any, error) {
		return nil, nil, errors.New("no such " + in.Note)
	})
	return s
}

func text(s string) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: s}}}
}

var ledgerLock sync.Mutex

// writeLine says whether there was no such line.
func writeLine(path, line string) (first bool) {
	ledgerLock.Lock()
	defer ledgerLock.Unlock()
	before, _ := os.ReadFile(path)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintln(f, line); err != nil {
		panic(err)
	}
	return !strings.Contains(string(before), line+"\n")
}

// beServer is what the test binary is when it is started as a server.
func beServer(kind string) {
	switch kind {
	case "env":
		for _, v := range os.Environ() {
			fmt.Fprintln(os.Stderr, v)
		}
		os.Exit(3)
	case "deaf": // hears neither the end of its input nor a signal; its child holds its pipes
		ignoreTerm()
	}
	writeLine(os.Getenv("LEDGER"), fmt.Sprintf("pid %d", os.Getpid()))
	if kind == "unread" { // it reads nothing more once it is called
		const tools = `[{"name":"a","inputSchema":{"type":"object"}}]`
		byHand(stdio{os.Stdin, os.Stdout}, tools, func(func(string), json.RawMessage) { select {} })
	}
	if kind == "noisy" {
		fmt.Println("Welcome to the server!")
		fmt.Fprintln(os.Stderr, "a log line")
	}
	_ = testServer(os.Getenv("LEDGER")).Run(context.Background(), &sdk.StdioTransport{})
	if kind == "deaf" {
		select {}
	}
}

// stdio is both ends of a server's protocol.
type stdio struct {
	io.Reader
	io.WriteCloser
}

// child is the configuration of a server that is this binary.
func child(t *testing.T, kind string) (c Config, ledger string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ledger = t.TempDir() + "/ledger"
	return Config{Command: []string{self}, Env: map[string]string{"MCP_TEST_SERVER": kind, "LEDGER": ledger}}, ledger
}

func lineCount(ledger, prefix string) int {
	raw, _ := os.ReadFile(ledger)
	n := 0
	for line := range strings.Lines(string(raw)) {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

// logs is a log that tests read.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	close(l.more)
	l.more = make(chan struct{})
	return len(p), nil
}

// all is what was logged so far.
func (l *logs) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// has waits until the log has n lines with all the words.
func (l *logs) has(t *testing.T, n int, words ...string) {
	t.Helper()
	timeout := time.After(patience)
	for {
		l.mu.Lock()
		all, more, found := l.text.String(), l.more, 0
		l.mu.Unlock()
	lines:
		for line := range strings.Lines(all) {
			for _, word := range words {
				if !strings.Contains(line, word) {
					continue lines
				}
			}
			found++
		}
		if found >= n {
			return
		}
		select {
		case <-more:
		case <-timeout:
			t.Fatalf("the log has %d lines with %q, not %d:\n%s", found, words, n, all)
		}
	}
}

// quick are options with which nothing is waited for long.
func quick() Options {
	return Options{
		retryFirst: time.Millisecond, retryMax: 20 * time.Millisecond, probeEvery: 50 * time.Millisecond,
		relistEvery: time.Millisecond, stopGrace: 200 * time.Millisecond, wait: patience,
	}
}

// run runs one server named "s" until the test ends.
func run(t *testing.T, c Config, opts Options) (*Server, *logs) {
	t.Helper()
	c.Check("s", func(path, format string, args ...any) { t.Errorf(path+": "+format, args...) })
	l := &logs{more: make(chan struct{})}
	opts.Log = slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
	servers := New(map[string]Config{"s": c}, opts)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		servers.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		select {
		case <-done:
		case <-time.After(patience):
			t.Error("the server does not end")
		}
		if t.Failed() {
			t.Log(l.text.String())
		}
	})
	<-servers.Settled()
	return servers.all["s"], l
}

// find gives a tool by the name that the server has for it.
func find(t *testing.T, s *Server, name string) tool.Tool {
	t.Helper()
	for _, made := range s.Tools() {
		if made.(*remote).name == name {
			return made
		}
	}
	t.Fatalf("there is no tool %s", name)
	return nil
}

// do makes a call as the engine does.
func do(t *testing.T, s *Server, name, arguments string) (tool.Result, error) {
	t.Helper()
	return doIn(t.Context(), t, s, name, arguments, nil)
}

func doIn(ctx context.Context, t *testing.T, s *Server, name, arguments string, report func(session.Progress)) (tool.Result, error) {
	t.Helper()
	made := find(t, s, name)
	args, err := tool.Validate(made.Spec(), []byte(arguments))
	if err != nil {
		t.Fatal(err)
	}
	return tool.Run(ctx, made, tool.Call{ID: "call_1", Arguments: args, IdempotencyKey: "key-1", Progress: report})
}

// memory is a link to a server in this process. Each Connect asks accept to serve
// the other end.
type memory struct {
	accept func(net.Conn)
	mu     sync.Mutex
	conn   net.Conn // ours; guarded by mu
}

func inMemory(accept func(net.Conn)) func(string, Config) link {
	return func(string, Config) link { return &memory{accept: accept} }
}

// sdkServer serves every connection with a server of the SDK.
func sdkServer(s *sdk.Server) func(string, Config) link {
	return inMemory(func(c net.Conn) { _ = s.Run(context.Background(), &sdk.IOTransport{Reader: c, Writer: c}) })
}

func (m *memory) Connect(ctx context.Context) (sdk.Connection, error) {
	ours, theirs := net.Pipe()
	m.mu.Lock()
	m.conn = ours
	m.mu.Unlock()
	go m.accept(theirs)
	return (&sdk.IOTransport{Reader: ours, Writer: ours, MaxLineLength: -1}).Connect(ctx)
}

func (m *memory) gone() <-chan struct{} { return nil }

func (m *memory) cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn != nil {
		_ = m.conn.Close()
	}
}

func (m *memory) close()               { m.cut() }
func (m *memory) lost(err error) error { return err }

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// raw is a server by hand: it knows the handshake of before, has the tools of a
// JSON list, and leaves calls to call, which may be nil.
func raw(tools string, call func(reply func(string), id json.RawMessage)) func(net.Conn) {
	return func(conn net.Conn) { byHand(conn, tools, call) }
}

func byHand(conn io.ReadWriteCloser, tools string, call func(reply func(string), id json.RawMessage)) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var req struct {
			ID     json.RawMessage
			Method string
		}
		_ = json.Unmarshal(line, &req)
		write := func(s string) { _, _ = io.WriteString(conn, s+"\n") }
		reply := func(s string) { write(`{"jsonrpc":"2.0","id":` + string(req.ID) + `,` + s + `}`) }
		switch req.Method {
		case "initialize":
			reply(`"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"raw","version":"1"}}`)
		case "tools/list":
			reply(`"result":{"tools":` + tools + `}`)
		case "ping":
			reply(`"result":{}`)
		case "tools/call":
			if call != nil {
				call(reply, req.ID)
			}
		default:
			if req.ID != nil {
				reply(`"error":{"code":-32601,"message":"no such method"}`)
			}
		}
	}
}
