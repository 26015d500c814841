package app

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

const asyncTool = "http:\n  book:\n    url: https://trips.example.com\n    description: Books a trip.\n    async: {}\n"

func TestAnAgentHasItsHTTPTools(t *testing.T) {
	_, made, err := load(t, `
http:
  book:
    url: https://trips.example.com/book
    description: Books a trip.
    parameters: {type: object, properties: {to: {type: string, minLength: 2}}, required: [to]}
    effects: idempotent
    timeout: 10s
agents:
  - name: a
    model: demo/demo
    tools: [clock, {name: book, approval: never, timeout: 20s}]
`)
	if err != nil {
		t.Fatal(err)
	}
	_, spec, err := made.agents[0].Tools.Lookup("book")
	if err != nil || spec.Effects != session.Idempotent || spec.Timeout != 20*time.Second || spec.Approval.String() != "never" {
		t.Errorf("the tool is %+v, %v", spec, err)
	}
	if _, err := tool.Validate(spec, []byte(`{"to":"x"}`)); err == nil {
		t.Error("its schema is not looked at")
	}
	if made.callbacks.wanted {
		t.Error("callbacks are wanted that no service makes")
	}
}

func TestTheCallbackKeyIsMadeOnceAndKept(t *testing.T) {
	dir := t.TempDir()
	config, made, err := load(t, asyncTool+"agents:\n  - {name: a, model: demo/demo, tools: [book]}\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := made.callbacks.open(config, dir, "127.0.0.1:8787"); err != nil {
		t.Fatal(err)
	}
	url := made.callbacks.url(tool.Call{Session: "s", Run: "r", ID: "c"})
	if !strings.HasPrefix(url, "http://127.0.0.1:8787/v1/callbacks/s.r.c.") {
		t.Errorf("the URL is %s", url)
	}
	info, err := os.Stat(filepath.Join(dir, "callback.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key is kept as %v, %v", info, err)
	}
	// A start without the tool still takes what it was promised.
	again := callbacks{}
	if err := again.open(Config{Server: ServerConfig{PublicURL: "https://agents.example.com/holdfast/"}}, dir, ""); err != nil {
		t.Fatal(err)
	}
	if got := again.url(tool.Call{Session: "s", Run: "r", ID: "c"}); strings.TrimPrefix(url, "http://127.0.0.1:8787") != strings.TrimPrefix(got, "https://agents.example.com/holdfast") {
		t.Errorf("the URL has become %s", got)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("the folder has %v", entries)
	}
	if err := os.WriteFile(filepath.Join(dir, "callback.key"), []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := again.open(Config{}, dir, ""); err == nil || !strings.Contains(err.Error(), "callback.key") {
		t.Errorf("a broken key is told as %v", err)
	}
}

func TestWithoutAnAsyncToolThereIsNoKey(t *testing.T) {
	dir := t.TempDir()
	none := callbacks{}
	if err := none.open(Config{}, dir, ""); err != nil || none.key != nil {
		t.Errorf("the key is %v, %v", none.key, err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("the folder has %v", entries)
	}
}

func TestProcessesThatShareAStoreAreGivenTheirKeyAndAddress(t *testing.T) {
	shared := Config{Store: StoreConfig{URL: "postgres://x@y/z"}}
	wanted := callbacks{wanted: true}
	if err := wanted.open(shared, t.TempDir(), "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "HOLDFAST_CALLBACK_KEY") {
		t.Errorf("without a key: %v", err)
	}
	t.Setenv("HOLDFAST_CALLBACK_KEY", strings.Repeat("ab", 32))
	for _, listens := range []string{"", "0.0.0.0:8787", "[::]:8787"} { // a worker, and what nobody can reach by this name
		if err := wanted.open(shared, t.TempDir(), listens); err == nil || !strings.Contains(err.Error(), "server.publicUrl") {
			t.Errorf("at %q: %v", listens, err)
		}
	}
	shared.Server.PublicURL = "https://agents.example.com"
	if err := wanted.open(shared, t.TempDir(), ""); err != nil {
		t.Error(err)
	}
	t.Setenv("HOLDFAST_CALLBACK_KEY", "hunter2")
	if err := wanted.open(shared, t.TempDir(), ""); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a key that is none is told as %v", err)
	}
}

func TestTheServerIsReachedUnderItsPublicName(t *testing.T) {
	for public, want := range map[string][]string{"": {"a"}, "https://agents.example.com/x": {"a", "agents.example.com"}, "http://10.0.0.1:80": {"a", "10.0.0.1:80"}} {
		if got := (ServerConfig{AllowedHosts: []string{"a"}, PublicURL: public}).hosts(); !slices.Equal(got, want) {
			t.Errorf("%q: %v", public, got)
		}
	}
}
