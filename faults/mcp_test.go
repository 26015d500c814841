package faults

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/session"
)

// kit is a world whose agent has an MCP server that is deaf to its end, and one
// that cannot be started.
func kit(t *testing.T, s settings) (*world, string) {
	t.Helper()
	dir := t.TempDir()
	pids := filepath.Join(dir, "pids")
	s.mcp = fmt.Sprintf(`mcp:
  kit:
    command: [%q, mcp]
    envFrom: [LEDGER]
    env: {PIDS: %q}
    approval: never
    tools: {picture: {approval: always}}
  lost:
    command: [no-such-program]
`, binary, pids)
	w := newWorldIn(t, dir, s)
	t.Cleanup(func() {
		w.srv.kill()
		for _, pid := range started(t, pids) {
			gone(t, pid)
		}
	})
	return w, pids
}

// started are the processes that the server ever was.
func started(t *testing.T, pids string) []int {
	t.Helper()
	raw, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	var list []int
	for _, line := range strings.Fields(string(raw)) {
		pid, err := strconv.Atoi(line)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, pid)
	}
	return list
}

// gone waits until a process has ended. Whoever should take notice may be dead: a zombie has ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(patience)
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("the MCP server's process %d is still there: %s", pid, stat)
		}
	}
}

// door is a URL that calls wait at until it is opened.
func door(t *testing.T) (url string, knocked <-chan struct{}, open func()) {
	t.Helper()
	knocks, opened := make(chan struct{}, 16), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		knocks <- struct{}{}
		select {
		case <-opened:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL, knocks, func() { close(opened) }
}

// The process is killed while its MCP server is in a call: the call follows its
// effects, and the server's process does not outlive it, deaf as it is.
func TestAKilledProcessLeavesNoMCPServerAndItsCallFollowsItsEffects(t *testing.T) {
	w, pids := kit(t, settings{})
	url, knocked, open := door(t)
	for _, name := range []string{"look", "put", "charge"} {
		w.llm.Script(
			fakellm.Reply(fakellm.Call{ID: "c", Name: "kit_" + name, Args: fmt.Sprintf(`{"gate":%q}`, url)}).On(fakellm.Match{LastUser: name + "."}),
			fakellm.Reply(fakellm.Text("done")).On(fakellm.Match{LastUser: name + "."}))
	}
	runs := map[string]session.Run{}
	for _, name := range []string{"look", "put", "charge"} {
		runs[name] = w.submit(name, name+".")
	}
	for range runs {
		<-knocked
	}
	before := started(t, pids)
	w.crash()
	for _, pid := range before {
		gone(t, pid)
	}
	w.waits(runs["charge"], session.WaitToolOutcome)
	open()
	for _, name := range []string{"look", "put"} {
		if run := w.ends(runs[name]); run.Status != session.Completed {
			t.Errorf("%s: the run is %s", name, run.Status)
		}
		tries := w.events(name, "tool.started")
		if len(tries) != 2 || tries[0].Data.(session.ToolStarted).Key != tries[1].Data.(session.ToolStarted).Key {
			t.Errorf("%s: the call was started as %+v", name, tries)
		}
	}
	for _, line := range w.ledger() {
		if strings.HasPrefix(line, "charge ") {
			t.Errorf("the unsafe call was made again: %s", line)
		}
	}
	w.cancel(runs["charge"].ID)
	w.ends(runs["charge"])
	if n := len(started(t, pids)); n != len(before)+1 {
		t.Errorf("the server was started %d times, not %d", n, len(before)+1)
	}
}

// The MCP server dies in a call: it is started again, and the call follows its effects.
func TestACallWhoseMCPServerDiesFollowsItsEffects(t *testing.T) {
	w, _ := kit(t, settings{})
	one := func(id, name, args string) session.Run {
		t.Helper()
		w.llm.Script(
			fakellm.Reply(fakellm.Call{ID: "c", Name: name, Args: args}).On(fakellm.Match{LastUser: id + "."}),
			fakellm.Reply(fakellm.Text("done")).On(fakellm.Match{LastUser: id + "."}))
		return w.submit(id, id+".")
	}
	w.ends(one("again", "kit_put", `{"die":"once"}`))
	if done, tries := w.events("again", "tool.completed"), w.events("again", "tool.started"); len(done) != 1 || len(tries) != 2 {
		t.Errorf("the repeatable call was started %d times and completed %d times", len(tries), len(done))
	}
	w.ends(one("always", "kit_look", `{"die":"always"}`))
	if failed, tries := w.events("always", "tool.failed"), w.events("always", "tool.started"); len(failed) != 1 || len(tries) != 3 {
		t.Errorf("a call that always kills its server was started %d times and failed %d times", len(tries), len(failed))
	}
	run := w.waits(one("once", "kit_charge", `{"die":"after"}`), session.WaitToolOutcome)
	unknown := w.events("once", "tool.unknown")
	if len(unknown) != 1 || !strings.Contains(unknown[0].Data.(session.ToolUnknown).Evidence, "signal: killed") {
		t.Errorf("what is known of the unsafe call is %+v", unknown)
	}
	w.cancel(run.ID)
	w.ends(run)
	w.ends(one("gone", "lost_anything", `{}`))
	failed := w.events("gone", "tool.failed")
	if len(failed) != 1 || failed[0].Data.(session.ToolFailed).Error.Code != "unavailable" {
		t.Errorf("a call of a server that is not there is told as %+v", failed)
	}
	for _, said := range []string{`"an MCP server is ready" server=kit`, `"an MCP server is away" server=lost`} {
		if !strings.Contains(w.srv.logged(), said) {
			t.Errorf("the log does not say %s", said)
		}
	}
}

// An approval of a server's tool outlives the process. The picture that the call
// gives is kept beside the log, and the model sees it.
func TestAnApprovedCallOfAnMCPServerIsMadeAfterACrashAndItsPictureIsSeen(t *testing.T) {
	w, pids := kit(t, settings{wire: "anthropic"})
	w.llm.Script(fakellm.Reply(fakellm.Call{ID: "c", Name: "kit_picture", Args: `{}`}), fakellm.Reply(fakellm.Text("a cat")))
	run := w.waits(w.submit("ses", "show it"), session.WaitApproval)
	w.crash()
	w.decide(w.pending("ses")[0].ID, "approve")
	w.ends(run)
	done := w.events("ses", "tool.completed")
	if len(done) != 1 || len(done[0].Data.(session.ToolCompleted).Files) != 1 {
		t.Fatalf("the call gave %+v", done)
	}
	blob := done[0].Data.(session.ToolCompleted).Files[0].Blob
	if a := w.ask("GET", "/v1/sessions/ses/blobs/"+blob.Hash, nil); string(a.raw) != "a picture" || a.header.Get("Content-Type") != "image/png" {
		t.Errorf("the file is %q of %s", a.raw, a.header.Get("Content-Type"))
	}
	requests := w.llm.Requests()
	last := requests[len(requests)-1].Messages
	if media := last[len(last)-1].Media; len(media) != 1 || media[0] != "image" {
		t.Errorf("the model sees %v", media)
	}
	w.srv.stop(t)
	for _, pid := range started(t, pids) {
		gone(t, pid)
	}
	w.http.CloseIdleConnections()
	w.again()
}
