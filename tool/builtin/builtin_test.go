package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// use makes a call as an engine does, and gives the result's JSON.
func use(ctx context.Context, t tool.Tool, args string) (string, error) {
	clean, err := tool.Validate(t.Spec(), []byte(args))
	if err != nil {
		return "", err
	}
	result, err := tool.Run(ctx, t, tool.Call{ID: "call_1", Name: t.Spec().Name, Arguments: clean, IdempotencyKey: "key_1", Run: "run_1", Attempt: 1})
	return string(result.Value), err
}

// useText is use for a result that is a string.
func useText(t *testing.T, tl tool.Tool, args string) string {
	t.Helper()
	value, err := use(t.Context(), tl, args)
	if err != nil {
		t.Fatalf("%s(%s): %v", tl.Spec().Name, args, err)
	}
	var text string
	if err := json.Unmarshal([]byte(value), &text); err != nil {
		t.Fatalf("%s(%s) gave %s", tl.Spec().Name, args, value)
	}
	return text
}

func codeOf(err error) string {
	if err == nil {
		return ""
	}
	return tool.FailureOf(err).Code
}

func TestEveryNamedToolIsMadeAndFitsASet(t *testing.T) {
	var tools []tool.Tool
	for _, name := range Names() {
		tl, err := ByName(name, Config{NotesDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		tools = append(tools, tl)
	}
	set, err := tool.NewSet(tools...)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range set.Specs() {
		if s.Name != Names()[i] || s.Description == "" {
			t.Errorf("%s is made as %+v", Names()[i], s)
		}
		deletes := s.Name == "notes_delete"
		if asks := s.Approval.Needs(s, json.RawMessage(`{}`)); asks != deletes || (s.Effects == session.Unsafe) != deletes {
			t.Errorf("%s has effects %s and approval %s", s.Name, s.Effects, s.Approval)
		}
	}
}

func TestANameThatIsNotBuiltInIsAnsweredWithThoseThatAre(t *testing.T) {
	_, err := ByName("shell", Config{})
	if !errors.Is(err, tool.ErrUnknownTool) || !strings.Contains(err.Error(), "calculator, clock") {
		t.Errorf("ByName = %v", err)
	}
	if _, err := ByName("notes_read", Config{}); err == nil || errors.Is(err, tool.ErrUnknownTool) {
		t.Errorf("notes without a folder: %v", err)
	}
	if _, err := ByName("http_get", Config{HTTP: HTTPConfig{Allow: []string{"http://x/"}}}); err == nil {
		t.Error("a URL was taken for a host to allow")
	}
}

func TestTheClockTellsTheTimeOfAZone(t *testing.T) {
	clock := Clock(func() time.Time { return time.Date(2026, 3, 29, 0, 59, 59, 0, time.UTC) })
	for args, want := range map[string]string{
		``:                            "Sunday, 29 March 2026, 00:59:59 UTC (2026-03-29T00:59:59Z)",
		`{"zone":"Europe/Oslo"}`:      "Sunday, 29 March 2026, 01:59:59 CET (2026-03-29T01:59:59+01:00)",
		`{"zone":"America/New_York"}`: "Saturday, 28 March 2026, 20:59:59 EDT (2026-03-28T20:59:59-04:00)",
	} {
		if got := useText(t, clock, args); got != want {
			t.Errorf("clock(%s) = %s, want %s", args, got, want)
		}
	}
	for _, zone := range []string{"Local", "../../etc/passwd", "/etc/localtime", "Mars/Olympus", "Europe/Oslo\u0000"} {
		args, _ := json.Marshal(map[string]string{"zone": zone})
		if _, err := use(t.Context(), clock, string(args)); codeOf(err) != "unknown_zone" {
			t.Errorf("clock in %q: %v", zone, err)
		}
	}
	before := time.Now().UTC().Format("2006")
	if got := useText(t, Clock(nil), ``); !strings.Contains(got, before) && !strings.Contains(got, time.Now().UTC().Format("2006")) {
		t.Errorf("the real time is %s", got)
	}
}
