package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

func code(err error) string {
	var told *tool.Error
	if errors.As(err, &told) {
		return told.Code
	}
	return ""
}

func TestAServersToolsHaveItsNameItsEffectsAndApprovalByDefault(t *testing.T) {
	opts := quick()
	opts.link = sdkServer(testServer(t.TempDir() + "/ledger"))
	always := tool.Always
	s, l := run(t, Config{
		Command: []string{"x"}, Only: []string{"look", "put", "charge", "fail"}, Timeout: time.Minute,
		Tools: map[string]ToolConfig{"fail": {Effects: session.ReadOnly, Approval: &always, Timeout: time.Second}},
	}, opts)
	got := map[string]string{}
	for _, made := range s.Tools() {
		spec := made.Spec()
		got[spec.Name] = fmt.Sprint(spec.Effects, " ", spec.Approval, " ", spec.Timeout, " ", spec.Approval.Needs(spec, json.RawMessage(`{}`)))
	}
	want := map[string]string{
		"s_look":   "read_only unless_read_only 1m0s false",
		"s_put":    "idempotent unless_read_only 1m0s true",
		"s_charge": "unsafe unless_read_only 1m0s true",
		"s_fail":   "read_only always 1s true",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	l.has(t, 1, "is ready", "tools=4", "is=\"test 1\"")
}

func TestTheConfigurationIsBelievedMoreThanTheServer(t *testing.T) {
	opts := quick()
	opts.link = sdkServer(testServer(t.TempDir() + "/ledger"))
	s, _ := run(t, Config{Command: []string{"x"}, Effects: session.Unsafe}, opts)
	if spec := find(t, s, "look").Spec(); spec.Effects != session.Unsafe || !spec.Approval.Needs(spec, json.RawMessage(`{}`)) {
		t.Errorf("a tool that calls itself read-only is %+v", spec)
	}
}

func TestACallTellsProgressAndTheServerIsToldOfItsCancel(t *testing.T) {
	ledger := t.TempDir() + "/ledger"
	opts := quick()
	opts.link = sdkServer(testServer(ledger))
	s, _ := run(t, Config{Command: []string{"x"}}, opts)
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("enough")
	var told session.Progress
	_, err := doIn(ctx, t, s, "wait", `{}`, func(p session.Progress) {
		told = p
		cancel(stopped)
	})
	if !errors.Is(err, stopped) || told.Message != "half way" || told.Fraction != 0.5 {
		t.Errorf("the call ended with %v after %+v", err, told)
	}
	eventually(t, "the server hears of the cancel", func() bool { return lineCount(ledger, "wait cancelled") == 1 })
	if _, err := do(t, s, "look", `{}`); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

// eventually looks for what no event tells: the file of another process.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(patience)
	for !is() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("in vain: %s", what)
		}
	}
}

func TestAListThatChangesIsNewForNewRunsAndIsSaid(t *testing.T) {
	opts := quick()
	opts.link = sdkServer(testServer(t.TempDir() + "/ledger"))
	s, l := run(t, Config{Command: []string{"x"}}, opts)
	set := (*tool.Set)(nil).With(s)
	before := set.Now()
	if _, err := do(t, s, "grow", `{"note":"new one"}`); err != nil {
		t.Fatal(err)
	}
	l.has(t, 1, "changed its tools", "added=s_new_one_", "removed=s_charge")
	if _, _, err := before.Lookup("s_charge"); err != nil {
		t.Errorf("a run that had begun lost its tool: %v", err)
	}
	after := set.Now()
	if _, _, err := after.Lookup("s_charge"); !errors.Is(err, tool.ErrUnknownTool) || after.Len() != before.Len() {
		t.Errorf("a new run has %d tools, and %v", after.Len(), err)
	}
}

func TestWhatAServerNamesBadlyIsLeftOutAndTheRestIsUsed(t *testing.T) {
	long := strings.Repeat("n", 80)
	deep := strings.Repeat(`{"properties":{"a":`, 400) + `{}` + strings.Repeat(`}}`, 400)
	tools := `[
		{"name":"ok","inputSchema":{"type":"object"},"description":"a` + "\xff" + `b\u0000c\u200b\udb40\udc41"},
		{"name":"ok","inputSchema":{"type":"object"}},
		{"name":"a.b","inputSchema":{"type":"object"}},
		{"name":"a/b","inputSchema":{"type":"object"}},
		{"name":"` + long + `1","inputSchema":{"type":"object"}},
		{"name":"` + long + `2","inputSchema":{"type":"object"}},
		{"name":"` + strings.Repeat("x", 300) + `","inputSchema":{"type":"object"}},
		{"name":"","inputSchema":{"type":"object"}},
		{"name":"text","inputSchema":{"type":"string"}},
		{"name":"elsewhere","inputSchema":{"type":"object","properties":{"a":{"$ref":"https://example.com/s.json"}}}},
		{"name":"huge","inputSchema":{"type":"object","description":"` + strings.Repeat("d", maxSchema) + `"}},
		{"name":"deep","inputSchema":` + deep + `},
		{"name":"wordy","inputSchema":{"type":"object"},"description":"` + strings.Repeat("é", maxDescription) + `"}
	]`
	opts := quick()
	opts.link = inMemory(raw(strings.ReplaceAll(tools, "\n", ""), nil))
	s, l := run(t, Config{Command: []string{"x"}}, opts)
	var got []string
	for _, made := range s.Tools() {
		spec := made.Spec()
		got = append(got, spec.Name)
		if len(spec.Description) > maxDescription {
			t.Errorf("%s has a description of %d bytes", spec.Name, len(spec.Description))
		}
	}
	if len(got) != 6 || got[0] != "s_ok" || got[5] != "s_wordy" || got[1] == got[2] || !strings.HasPrefix(got[1], "s_a_b_") || got[3] == got[4] || len(got[3]) != 64 {
		t.Errorf("the tools are %q", got)
	}
	if d := s.Tools()[0].Spec().Description; d != "a\uFFFDbc" {
		t.Errorf("the description is %q", d)
	}
	if _, err := tool.NewSet(s.Tools()...); err != nil {
		t.Errorf("no set takes them: %v", err)
	}
	l.has(t, 1, "is ready", "tools=6", "left_out=7")
}

func TestAnEndlessListIsBounded(t *testing.T) {
	var many strings.Builder
	for i := range 2 * maxTools {
		fmt.Fprintf(&many, `,{"name":"t%d","inputSchema":{"type":"object"}}`, i)
	}
	opts := quick()
	opts.link = inMemory(raw("["+many.String()[1:]+`],"nextCursor":"again"`, nil))
	s, l := run(t, Config{Command: []string{"x"}}, opts)
	if n := len(s.Tools()); n != maxTools {
		t.Errorf("%d tools are used", n)
	}
	l.has(t, 1, "left out", "more than 256 tools")
	l.has(t, 1, "is ready", "left_out=256")
}

func TestAServerThatHangsInTheHandshakeIsTriedAgainAndPreventsNothing(t *testing.T) {
	opts := quick()
	opts.link = inMemory(func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	opts.wait = time.Millisecond
	s, l := run(t, Config{Command: []string{"x"}, StartTimeout: 50 * time.Millisecond}, opts)
	l.has(t, 3, "is away", "not ready within 50ms", "next_start_in")
	set := (*tool.Set)(nil).With(s).Now()
	if _, _, err := set.Lookup("s_any"); code(err) != CodeUnavailable || !strings.Contains(err.Error(), "Nothing was done") {
		t.Errorf("a tool of it is told as %v", err)
	}
	if _, _, err := set.Lookup("other"); code(err) != tool.CodeUnknownTool {
		t.Errorf("another's tool is told as %v", err)
	}
}

func TestAServerThatKnowsOnlyTheHandshakeOfBeforeIsReached(t *testing.T) {
	opts := quick()
	answer := raw(`[{"name":"a","inputSchema":{"type":"object"}}]`, nil)
	opts.link = inMemory(func(c net.Conn) {
		// It never answers what it does not know.
		ours, theirs := net.Pipe()
		go answer(theirs)
		go func() { _, _ = io.Copy(c, ours) }()
		buf := make([]byte, 64<<10)
		for {
			n, err := c.Read(buf)
			if err != nil {
				_ = ours.Close()
				return
			}
			if !strings.Contains(string(buf[:n]), "server/discover") {
				_, _ = ours.Write(buf[:n])
			}
		}
	})
	s, l := run(t, Config{Command: []string{"x"}, StartTimeout: 200 * time.Millisecond}, opts)
	l.has(t, 1, "is ready", "raw 1")
	if len(s.Tools()) != 1 {
		t.Errorf("its tools are %v", s.Tools())
	}
}

func TestAServerThatStopsAnsweringIsStartedAgain(t *testing.T) {
	opts := quick()
	opts.probeTimeout = 50 * time.Millisecond
	starts := 0
	deaf := make(chan struct{}) // closed: the first one answers nothing any more
	opts.link = inMemory(func(c net.Conn) {
		starts++
		if starts > 1 {
			raw(`[]`, nil)(c)
			return
		}
		ours, theirs := net.Pipe()
		go raw(`[]`, nil)(theirs)
		go func() { _, _ = io.Copy(ours, c); _ = ours.Close() }()
		buf := make([]byte, 64<<10)
		for {
			n, err := ours.Read(buf)
			if err != nil {
				return
			}
			select {
			case <-deaf:
			default:
				_, _ = c.Write(buf[:n])
			}
		}
	})
	_, l := run(t, Config{Command: []string{"x"}}, opts)
	close(deaf)
	l.has(t, 1, "is away", "does not answer a ping")
	l.has(t, 2, "is ready")
}

func TestAServerThatHangsInACallIsStartedAgain(t *testing.T) {
	opts := quick()
	opts.probeEvery, opts.probeTimeout = time.Hour, 20*time.Millisecond
	const tools = `[{"name":"a","inputSchema":{"type":"object"}}]`
	starts := 0
	opts.link = inMemory(func(c net.Conn) {
		starts++
		if starts > 1 {
			raw(tools, func(reply func(string), _ json.RawMessage) { reply(`"result":{"content":[]}`) })(c)
			return
		}
		raw(tools, func(func(string), json.RawMessage) { _, _ = io.Copy(io.Discard, c) })(c)
	})
	s, l := run(t, Config{Command: []string{"x"}, Timeout: time.Second}, opts)
	if _, err := do(t, s, "a", `{}`); code(err) != tool.CodeTimeout {
		t.Errorf("the call ended with %v", err)
	}
	l.has(t, 1, "is away", "does not answer a ping")
	l.has(t, 2, "is ready")
	if _, err := do(t, s, "a", `{}`); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

func TestAServerThatReadsNothingMoreHoldsNoCall(t *testing.T) {
	opts := quick()
	opts.probeEvery, opts.probeTimeout = time.Hour, 100*time.Millisecond
	c, ledger := child(t, "unread")
	c.Timeout = 200 * time.Millisecond
	s, l := run(t, c, opts)
	letters := strings.Repeat("a", 1<<20) // more than a pipe takes
	ended := make(chan error, 2)
	for _, arguments := range []string{`{}`, `{"note":"` + letters + `"}`} {
		go func() {
			_, err := tool.Run(t.Context(), find(t, s, "a"), tool.Call{ID: "c", Arguments: json.RawMessage(arguments), IdempotencyKey: "k"})
			ended <- err
		}()
	}
	for range 2 {
		if err := <-ended; err == nil {
			t.Error("a call gave a result")
		}
	}
	l.has(t, 1, "is away", "does not answer a ping")
	eventually(t, "it is started again", func() bool { return lineCount(ledger, "pid") == 2 })
}

func TestWhatACallDidWhoseServerDiesIsNotKnown(t *testing.T) {
	config, ledger := child(t, "plain")
	s, l := run(t, config, quick())
	res, err := do(t, s, "put", `{"note":"die once"}`)
	if !errors.Is(err, tool.ErrOutcomeUnknown) || lineCount(ledger, "put key-1") != 1 {
		t.Errorf("it gave %s, %v", res.Value, err)
	}
	l.has(t, 1, "lost over a call", "its process ended")
	// Made again at once, it waits for the next start.
	if res, err := do(t, s, "put", `{"note":"die once"}`); err != nil || string(res.Value) != `"put done"` || lineCount(ledger, "put key-1") != 2 {
		t.Errorf("made again, it gave %s, %v", res.Value, err)
	}
	l.has(t, 2, "is ready")
}

func TestAServerSeesOnlyTheEnvironmentItIsGiven(t *testing.T) {
	t.Setenv("MCP_SECRET", "not for servers")
	t.Setenv("MCP_TOKEN", "for this one")
	c, _ := child(t, "env")
	c.EnvFrom = []string{"MCP_TOKEN"}
	opts := quick()
	opts.wait = time.Millisecond
	s, l := run(t, c, opts)
	l.has(t, 1, "is away", "exit status 3", "MCP_TOKEN=for this one", "PATH=")
	if told := s.Absent("s_look"); !strings.Contains(told.Message, "exit status 3") || strings.Contains(told.Message, "MCP_TOKEN") {
		t.Errorf("the model is told %v", told)
	}
	if strings.Contains(l.all(), "MCP_SECRET") || strings.Contains(l.all(), "HOME=") {
		t.Error("it sees more")
	}
}

func TestAServerThatCannotBeStartedIsSaidWithItsReason(t *testing.T) {
	for want, c := range map[string]Config{
		"no-such-program":                   {Command: []string{"no-such-program"}},
		"MCP_NOT_SET is not set":            {Command: []string{"cat"}, EnvFrom: []string{"MCP_NOT_SET"}},
		"MCP_NOT_SET is not set (headersEn": {URL: "http://127.0.0.1:1/", HeadersEnv: map[string]string{"A": "MCP_NOT_SET"}},
		"connection refused":                {URL: "http://127.0.0.1:1/"},
	} {
		_, l := run(t, c, quick())
		l.has(t, 1, "is away", want)
	}
}

func TestToolsThatTheConfigurationNamesInVainAreSaid(t *testing.T) {
	opts := quick()
	opts.link = sdkServer(testServer(t.TempDir() + "/ledger"))
	s, l := run(t, Config{
		Command: []string{"x"}, Only: []string{"look", "loook"}, Tools: map[string]ToolConfig{"chagre": {Effects: session.Unsafe}},
	}, opts)
	l.has(t, 1, "does not have", `tools="chagre loook"`)
	if len(s.Tools()) != 1 {
		t.Errorf("%d tools are used", len(s.Tools()))
	}
}

func TestNoiseOnItsOutputDoesNotBreakAServer(t *testing.T) {
	c, _ := child(t, "noisy")
	s, l := run(t, c, quick())
	if _, err := do(t, s, "look", `{}`); err != nil {
		t.Error(err)
	}
	l.has(t, 1, "no protocol", "Welcome to the server!")
	l.has(t, 1, "says", "a log line")
}

func TestAServerThatIsDeafToItsEndIsKilled(t *testing.T) {
	c, ledger := child(t, "deaf")
	t.Run("while it runs", func(t *testing.T) {
		s, _ := run(t, c, quick())
		if _, err := do(t, s, "look", `{}`); err != nil {
			t.Error(err)
		}
	})
	raw, err := os.ReadFile(ledger)
	var pid int
	if _, scan := fmt.Sscanf(string(raw), "pid %d", &pid); err != nil || scan != nil {
		t.Fatal(err, scan)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the process %d is still there: %v", pid, err)
	}
}

func TestConfigurationsThatMakeNoSenseAreRefused(t *testing.T) {
	for name, c := range map[string]Config{
		"under_score": {Command: []string{"x"}}, "a": {}, "b": {Command: []string{"x"}, URL: "http://h/"},
		"c": {URL: "ftp://h/"}, "d": {URL: "https://user:secret@h/"}, "e": {Command: []string{"x"}, Headers: map[string]string{"A": "b"}},
		"f": {URL: "http://h/", Env: map[string]string{"A": "b"}}, "g": {Command: []string{"x"}, Effects: "none"},
		"h": {Command: []string{"x"}, Tools: map[string]ToolConfig{"t": {Timeout: -1}}}, "i": {Command: []string{"x"}, Env: map[string]string{"A=B": ""}},
		"j": {Command: []string{""}}, "k": {URL: "http://%zz"},
	} {
		var wrong []string
		c.Check(name, func(path, format string, args ...any) { wrong = append(wrong, path+": "+fmt.Sprintf(format, args...)) })
		if len(wrong) != 1 || strings.Contains(wrong[0], "secret") {
			t.Errorf("%s: %q", name, wrong)
		}
	}
	if list := (Config{Command: []string{"x"}, Only: []string{"a"}}); !list.wants("a") || list.wants("b") || !slices.Equal(list.Command, []string{"x"}) {
		t.Error("only is not obeyed")
	}
}
