package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

// npm is the script of a package that tests/mcp names.
func npm(t *testing.T, name string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("it needs Node and what npm ci installs")
	}
	for _, dir := range []string{"tests/mcp/node_modules", "node_modules"} {
		path := filepath.Join("../..", dir, "@modelcontextprotocol", name, "dist/index.js")
		if _, err := os.Stat(path); err == nil {
			path, err = filepath.Abs(path)
			if err != nil {
				t.Fatal(err)
			}
			return path
		}
	}
	t.Fatalf("@modelcontextprotocol/%s is not installed: run npm ci", name)
	return ""
}

func value(t *testing.T, res tool.Result, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return string(res.Value)
}

func TestServerEverythingOverStdio(t *testing.T) {
	s, _ := run(t, Config{Command: []string{"node", npm(t, "server-everything")}}, quick())
	everything(t, s)
}

func TestServerEverythingOverHTTP(t *testing.T) {
	script := npm(t, "server-everything")
	port := freePort(t)
	cmd := exec.Command("node", script, "streamableHttp")
	cmd.Env = append(os.Environ(), "PORT="+port)
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewScanner(stderr)
	for lines.Scan() && !strings.Contains(lines.Text(), "listening on port") {
		continue
	}
	s, _ := run(t, Config{URL: "http://localhost:" + port + "/mcp"}, quick())
	everything(t, s)
}

// everything asks the server for each kind of thing that it has.
func everything(t *testing.T, s *Server) {
	t.Helper()
	res, err := do(t, s, "echo", `{"message":"grüße"}`)
	if got := value(t, res, err); got != `"Echo: grüße"` {
		t.Errorf("echo gives %s", got)
	}
	res, err = do(t, s, "get-structured-content", `{"location":"Chicago"}`)
	var weather struct{ Temperature float64 }
	if err := json.Unmarshal([]byte(value(t, res, err)), &weather); err != nil || weather.Temperature == 0 {
		t.Errorf("structured content is %s", res.Value)
	}
	res, err = do(t, s, "get-tiny-image", `{}`)
	if got := value(t, res, err); !strings.Contains(got, "[image: image/png, ") || len(res.Files) != 1 || !strings.HasPrefix(string(res.Files[0].Content), "\x89PNG") {
		t.Errorf("the image is %s with %d files", got, len(res.Files))
	}
	res, err = do(t, s, "get-resource-links", `{"count":2}`)
	if got := value(t, res, err); strings.Count(got, "[resource demo://") != 2 {
		t.Errorf("the links are %s", got)
	}
	res, err = do(t, s, "get-resource-reference", `{"resourceType":"Blob","resourceId":1}`)
	if got := value(t, res, err); len(res.Files) != 1 {
		t.Errorf("the resource is %s with %d files", got, len(res.Files))
	}
	var reports []session.Progress
	res, err = doIn(t.Context(), t, s, "trigger-long-running-operation", `{"duration":0.2,"steps":4}`, func(p session.Progress) { reports = append(reports, p) })
	if got := value(t, res, err); !strings.Contains(got, "completed") || len(reports) < 3 || reports[0].Fraction != 0.25 {
		t.Errorf("the operation gives %s after %+v", got, reports)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err = doIn(ctx, t, s, "trigger-long-running-operation", `{"duration":60,"steps":600}`, func(session.Progress) { cancel(context.Canceled) })
	if err == nil {
		t.Error("the operation went on after its cancel")
	}
	res, err = do(t, s, "get-sum", `{"a":1,"b":2}`)
	if got := value(t, res, err); !strings.Contains(got, "3") {
		t.Errorf("the sum is %s", got)
	}
}

func TestServerFilesystem(t *testing.T) {
	dir := t.TempDir()
	s, _ := run(t, Config{Command: []string{"node", npm(t, "server-filesystem"), dir}}, quick())
	file := filepath.Join(dir, "a.txt")
	args, err := json.Marshal(map[string]string{"path": file, "content": "one\ntwo"})
	if err != nil {
		t.Fatal(err)
	}
	if spec := find(t, s, "write_file").Spec(); spec.Effects != session.Idempotent || !spec.Approval.Needs(spec, args) {
		t.Errorf("writing is %+v", spec)
	}
	res, err := do(t, s, "write_file", string(args))
	value(t, res, err)
	if raw, err := os.ReadFile(file); err != nil || string(raw) != "one\ntwo" {
		t.Errorf("the file has %q, %v", raw, err)
	}
	res, err = do(t, s, "read_text_file", fmt.Sprintf(`{"path":%q}`, file))
	if got := value(t, res, err); !strings.Contains(got, `one\ntwo`) {
		t.Errorf("reading gives %s", got)
	}
	if _, err := do(t, s, "read_text_file", `{"path":"/etc/passwd"}`); code(err) != tool.CodeFailed {
		t.Errorf("reading elsewhere gives %v", err)
	}
}

func TestServerMemoryThatIsKilledRemembers(t *testing.T) {
	kept := filepath.Join(t.TempDir(), "memory.jsonl")
	s, l := run(t, Config{
		Command: []string{"node", npm(t, "server-memory")}, Env: map[string]string{"MEMORY_FILE_PATH": kept},
	}, quick())
	res, err := do(t, s, "create_entities", `{"entities":[{"name":"Ada","entityType":"person","observations":["writes programs"]}]}`)
	value(t, res, err)
	s.mu.Lock()
	pid := s.conn.link.(*stdioLink).cmd.Load().Process.Pid
	s.mu.Unlock()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	l.has(t, 1, "is away", "signal: killed")
	res, err = do(t, s, "search_nodes", `{"query":"Ada"}`)
	if got := value(t, res, err); !strings.Contains(got, "writes programs") {
		t.Errorf("it remembers %s", got)
	}
}

func TestTheProtocolsOwnChecksOfClientsPass(t *testing.T) {
	script := npm(t, "conformance")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Those of authorization and elicitation are about what is not announced.
	for _, scenario := range []string{"initialize", "tools_call", "sse-retry"} {
		t.Run(scenario, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "node", script, "client", "--scenario", scenario, "--command", self, "--verbose")
			cmd.Dir = t.TempDir()
			cmd.Env = append(os.Environ(), "MCP_TEST_CLIENT=1")
			out, err := cmd.CombinedOutput()
			if err != nil || strings.Contains(string(out), `"FAILURE"`) || !strings.Contains(string(out), `"SUCCESS"`) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// beClient reaches the server of a check and calls each of its tools once.
func beClient(url string) {
	servers := New(map[string]Config{"s": {URL: url}}, Options{Version: "test"})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		servers.Run(ctx)
	}()
	<-servers.Settled()
	for _, made := range servers.all["s"].Tools() {
		args := json.RawMessage(`{}`)
		if made.(*remote).name == "add_numbers" {
			args = json.RawMessage(`{"a":5,"b":3}`)
		}
		res, err := tool.Run(ctx, made, tool.Call{ID: "call_1", Arguments: args, IdempotencyKey: "key"})
		fmt.Println(made.Spec().Name, string(res.Value), err)
		if err != nil {
			defer os.Exit(1)
		}
	}
	stop()
	<-done
}
