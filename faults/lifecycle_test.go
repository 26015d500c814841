package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/session"
)

// reconfigure changes the configuration and starts the server anew.
func (w *world) reconfigure(change func(string) string) {
	w.t.Helper()
	raw, err := os.ReadFile(w.config)
	if err != nil {
		w.t.Fatal(err)
	}
	changed := change(string(raw))
	if changed == string(raw) {
		w.t.Fatal("the configuration is as it was")
	}
	w.srv.kill()
	if err := os.WriteFile(w.config, []byte(changed), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.http.CloseIdleConnections()
	w.again()
}

func TestWhatAConfigurationTookAwayEndsARunWithTheReason(t *testing.T) {
	w := newWorld(t, settings{})
	ask := func(id string) (session.Run, string) {
		run, a := w.asked(id)
		return run, a.ID
	}
	gate := make(chan struct{})
	t.Cleanup(func() { close(gate) })
	w.llm.Script(fakellm.Reply(fakellm.Text("half"), fakellm.Wait(gate)).On(fakellm.Match{LastUser: "stream"}))
	streams := w.submit("ses_streams", "stream")
	w.arrives(1)
	waits, approval := ask("ses_waits")
	toolless, toolApproval := ask("ses_toolless")

	// The tool goes.
	w.reconfigure(func(s string) string { return strings.Replace(s, ", pay,", ",", 1) })
	w.llm.DropScript()
	if got := w.decide(toolApproval, "approve"); got.status != http.StatusOK {
		t.Errorf("an approval of a tool that is gone answers %d: %s", got.status, got.raw)
	}
	if got := w.ends(toolless); got.Status != session.Completed {
		t.Errorf("the run whose tool is gone is %s: %+v", got.Status, got.Error)
	}
	if failed := w.events("ses_toolless", "tool.failed"); len(failed) != 1 || failed[0].Data.(session.ToolFailed).Error.Code != "unknown_tool" {
		t.Errorf("the call of a tool that is gone ended with %+v", failed)
	}
	if got := w.ends(streams); got.Status != session.Completed || got.CurrentStep != 1 || got.Attempt != 2 {
		t.Errorf("the run that was streaming is %+v", got)
	}

	// The agent goes.
	w.reconfigure(func(s string) string { return strings.Replace(s, "name: tester", "name: other", 1) })
	if got := w.run(waits.ID); got.Status != session.Waiting {
		t.Errorf("the run of an agent that is gone, which waits, is %s", got.Status)
	}
	if got := w.decide(approval, "approve"); got.status != http.StatusOK {
		t.Errorf("its approval answers %d: %s", got.status, got.raw)
	}
	if got := w.ends(waits); got.Status != session.Failed || got.Error == nil || got.Error.Code != "agent_unknown" {
		t.Errorf("the run of an agent that is gone is %s: %+v", got.Status, got.Error)
	}
	if n := len(w.ledger()); n != 0 {
		t.Errorf("the tool acted %d times", n)
	}
	// Its session can go on with another.
	var next submitted
	w.ask("POST", "/v1/sessions/ses_waits/messages", map[string]any{"id": "msg_other", "agent": "other", "parts": []part{{"text", "continue"}}}).into(t, &next)
	if got := w.ends(next.Run); got.Status != session.Completed {
		t.Errorf("with another agent the next run is %s: %+v", got.Status, got.Error)
	}
	for _, r := range w.llm.Refused() {
		t.Errorf("the provider refuses a history: %s", r.Refusal)
	}
}

func TestADeletedSessionTakesEverythingWithIt(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(fakellm.Reply(fakellm.Text("on and on"), fakellm.Stall()).On(fakellm.Match{LastUser: "stream"}))
	w.llm.Script(fakellm.Reply(pay("c", "never")).On(fakellm.Match{LastUser: "ask"}))
	beside := say("msg_beside", "ask")
	beside.Background = true
	asks := w.send("ses", beside).Run
	w.waits(asks, session.WaitApproval)
	approval := w.pending("ses")[0]
	streams := w.submit("ses", "stream")
	w.arrives(2)
	waits := w.submit("ses", "later")
	s := w.follow("ses", 0)
	if _, err := s.read(func(f frame) bool { return f.Type == "text.delta" }); err != nil {
		t.Fatal(err)
	}
	if a := w.ask("DELETE", "/v1/sessions/ses", nil); a.status != http.StatusNoContent {
		t.Fatalf("the deletion answers %d: %s", a.status, a.raw)
	}
	delete(w.seen, "ses")
	w.closes(2, time.Second)
	frames, err := s.read(func(f frame) bool { return f.Type == "deleted" })
	if err != nil {
		t.Errorf("the stream ends with %v after %+v", err, frames)
	}
	for _, path := range []string{"/v1/sessions/ses", "/v1/approvals/" + approval.ID, "/v1/runs/" + asks.ID, "/v1/runs/" + streams.ID, "/v1/runs/" + waits.ID} {
		if a := w.ask("GET", path, nil); a.status != http.StatusNotFound {
			t.Errorf("%s answers %d: %s", path, a.status, a.raw)
		}
	}
	if a := w.decide(approval.ID, "approve"); a.status != http.StatusNotFound {
		t.Errorf("the approval answers %d: %s", a.status, a.raw)
	}
	// The id begins anew, with a log of its own.
	w.llm.DropScript()
	run := w.ends(w.submit("ses", "anew"))
	if run.Status != session.Completed || len(w.snapshot("ses").Messages) != 2 {
		t.Errorf("the new session's run is %s, with %d messages", run.Status, len(w.snapshot("ses").Messages))
	}
	if n := len(w.ledger()); n != 0 {
		t.Errorf("the tool acted %d times", n)
	}
}

func TestADrainCanBeCutShortAndTheRunGoesOn(t *testing.T) {
	for how, cut := range map[string]func(*process){
		"a second SIGTERM": func(p *process) { p.signal(syscall.SIGTERM) },
		"SIGKILL":          func(p *process) { p.signal(syscall.SIGKILL) },
	} {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t, settings{drain: 30 * time.Second})
			w.llm.Script(
				fakellm.Reply(fakellm.Text("half"), fakellm.Stall()),
				fakellm.Reply(fakellm.Text("half"), fakellm.Stall()).On(fakellm.Match{LastUser: "cancel me"}),
			)
			run := w.submit("ses", "go")
			w.arrives(1)
			doomed := w.submit("ses_doomed", "cancel me")
			w.arrives(2)
			w.srv.signal(syscall.SIGTERM)
			w.drains()
			// While it drains people are served: a cancel is obeyed, a message is taken.
			if a := w.cancel(doomed.ID); a.status/100 != 2 {
				t.Errorf("a cancel in the drain answers %d: %s", a.status, a.raw)
			}
			if got := w.ends(doomed); got.Status != session.Cancelled {
				t.Errorf("the run that was cancelled in the drain is %s", got.Status)
			}
			late := w.submit("ses_late", "hello")
			cut(w.srv)
			w.srv.ended(t)
			w.llm.DropScript()
			w.http.CloseIdleConnections()
			w.again()
			if got := w.ends(run); got.Status != session.Completed {
				t.Errorf("the run is %s: %+v", got.Status, got.Error)
			}
			if got := w.ends(late); got.Status != session.Completed {
				t.Errorf("the message that was taken in the drain is %s: %+v", got.Status, got.Error)
			}
		})
	}
}

// drains waits until the server says that it is shutting down.
func (w *world) drains() {
	w.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		if a := w.ask("GET", "/readyz", nil); a.status == http.StatusServiceUnavailable {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatal("the server does not begin to drain")
		}
		pause(w.t, 10*time.Millisecond)
	}
}

func TestADecisionAtTheMomentOfExpiryIsOneOfTheTwo(t *testing.T) {
	w := newWorld(t, settings{approval: time.Second})
	const asks = 40
	var all sync.WaitGroup
	for i := range asks {
		id := fmt.Sprintf("ses_%d", i)
		run, a := w.asked(id)
		all.Go(func() {
			pause(t, time.Until(*a.ExpiresAt)+time.Duration(i%9-4)*time.Millisecond)
			got, err := w.try(w.ctx, "POST", "/v1/approvals/"+a.ID, map[string]string{"decision": "approve"})
			if err != nil {
				t.Error(err)
				return
			}
			approved := got.status == http.StatusOK
			if !approved && (got.status != http.StatusConflict || got.problem(t).Code != "approval_gone") {
				t.Errorf("%s: HTTP %d: %s", id, got.status, got.raw)
			}
			w.until(run, "to end", func(r session.Run) bool { return r.Status.Terminal() })
			acted := 0
			for _, line := range w.ledger() {
				if strings.HasSuffix(line, " "+id) {
					acted++
				}
			}
			if (acted == 1) != approved {
				t.Errorf("%s: approved %v, and the tool acted %d times", id, approved, acted)
			}
			var after session.Approval
			w.ask("GET", "/v1/approvals/"+a.ID, nil).into(t, &after)
			if want := map[bool]session.ApprovalStatus{true: session.StatusApproved, false: session.StatusExpired}[approved]; after.Status != want {
				t.Errorf("%s: the approval is %s, not %s", id, after.Status, want)
			}
			if late := w.decide(a.ID, "approve"); (late.status == http.StatusOK) != approved {
				t.Errorf("%s: later it answers %d: %s", id, late.status, late.raw)
			}
		})
	}
	all.Wait()
}

func TestAFullInboxIsAnsweredInOrderOverACrash(t *testing.T) {
	w := newWorld(t, settings{})
	gate := make(chan struct{})
	w.llm.Script(fakellm.Reply(fakellm.Text("busy"), fakellm.Wait(gate)).On(fakellm.Match{LastUser: "occupy"}))
	w.llm.SetDefault(func(r fakellm.Request) fakellm.Turn { return fakellm.Reply(fakellm.Text("re:" + r.LastUser())) })
	w.submit("ses", "occupy")
	w.arrives(1)
	var runs []session.Run
	for i := range 100 {
		runs = append(runs, w.send("ses", say(fmt.Sprintf("msg_%d", i), fmt.Sprint("text ", i))).Run)
	}
	for _, mode := range []string{"enqueue", "steer", "interrupt"} {
		s := say("msg_over_"+mode, "one too many")
		s.OnBusy = mode
		if a := w.post("ses", s); a.status != http.StatusTooManyRequests || a.problem(t).Code != "inbox_full" {
			t.Errorf("the 101st message as %s answers %d: %s", mode, a.status, a.raw)
		}
	}
	close(gate)
	w.ends(runs[20])
	w.crash()
	for i, r := range runs {
		if got := w.ends(r); got.Status != session.Completed {
			t.Errorf("message %d is %s: %+v", i, got.Status, got.Error)
		}
	}
	want := 0
	for _, m := range w.everyMessage("ses") {
		if m.Role == session.RoleUser && m.ID != "msg_ses_1" {
			if m.ID != fmt.Sprint("msg_", want) {
				t.Errorf("message %s comes in place %d", m.ID, want)
			}
			want++
		}
	}
	if want != 100 {
		t.Errorf("%d messages were answered", want)
	}
}

// everyMessage pages back through the whole active branch.
func (w *world) everyMessage(id string) []session.Message {
	w.t.Helper()
	var all []session.Message
	for before := ""; ; {
		var page struct {
			Messages []session.Message
			HasMore  bool
		}
		path := "/v1/sessions/" + id + "/messages?limit=7"
		if before != "" {
			path += "&before=" + before
		}
		w.ask("GET", path, nil).into(w.t, &page)
		all = append(append([]session.Message{}, page.Messages...), all...)
		if !page.HasMore {
			return all
		}
		before = page.Messages[0].ID
	}
}

func TestAnApprovalOfHugeArgumentsIsBoundToAllOfThem(t *testing.T) {
	w := newWorld(t, settings{})
	note := strings.Repeat("é1", 700_000) // about 2 MB
	args, err := json.Marshal(map[string]string{"note": note})
	if err != nil {
		t.Fatal(err)
	}
	w.llm.Script(fakellm.Reply(fakellm.Call{ID: "c", Name: "pay", Args: string(args), Every: 60_000}))
	run := w.waits(w.submit("ses", "go"), session.WaitApproval)
	w.crash()
	pending := w.pending("ses")
	if len(pending) != 1 || len(pending[0].Arguments) != len(args) || pending[0].ArgumentsHash != session.HashArguments(pending[0].Arguments) {
		t.Fatalf("%d are pending", len(pending))
	}
	if a := w.decide(pending[0].ID, "approve"); a.status != http.StatusOK {
		t.Fatalf("it answers %d: %.300s", a.status, a.raw)
	}
	if got := w.ends(run); got.Status != session.Completed {
		t.Errorf("the run is %s: %+v", got.Status, got.Error)
	}
	if lines := w.ledger(); len(lines) != 1 || !strings.HasSuffix(lines[0], " "+note) {
		t.Errorf("the tool was not called with what was approved")
	}
	frames, err := w.socket("ses", 0, func(f frame) bool { return f.Type == "run.completed" })
	if err != nil {
		t.Errorf("the socket after %d frames: %v", len(frames), err)
	}
}
