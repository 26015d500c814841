package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/session"
)

// asksHelper is a call that gives the subagent a task.
func asksHelper(id, task string) fakellm.Call {
	return fakellm.Call{ID: id, Name: "helper", Args: fmt.Sprintf(`{"task":%q}`, task)}
}

// children waits until the run has n calls that subagents work on, and gives them by their task.
func (w *world) children(run session.Run, n int) map[string]session.ToolCall {
	w.t.Helper()
	calls := map[string]session.ToolCall{}
	w.until(run, fmt.Sprintf("to have %d children", n), func(session.Run) bool {
		for _, m := range w.snapshot(run.Session).Messages {
			for _, p := range m.Parts {
				if p.Tool == nil || p.Tool.Child == nil {
					continue
				}
				var asked struct{ Task string }
				if err := json.Unmarshal(p.Tool.Arguments, &asked); err != nil {
					w.t.Fatal(err)
				}
				calls[asked.Task] = *p.Tool
			}
		}
		return len(calls) == n
	})
	for _, c := range calls {
		w.seen[c.Child.Session] = true
	}
	return calls
}

// told scripts what is answered to a user's text: a turn for each number of tool
// results that the history has, from 0, however often it is asked for.
func told(w *world, user string, turns ...fakellm.Turn) {
	for n, turn := range turns {
		w.llm.Script(turn.Times(fakellm.Forever).On(fakellm.Match{Func: func(r fakellm.Request) bool {
			return r.LastUser() == user && min(len(r.Results()), len(turns)-1) == n
		}}))
	}
}

func childRun(c session.ToolCall) session.Run {
	return session.Run{ID: c.Child.Run, Session: c.Child.Session}
}

// comes waits until a session's log has an event of a type.
func (w *world) comes(ctx context.Context, sessionID, kind string) bool {
	for ctx.Err() == nil {
		if a, err := w.try(ctx, "GET", "/v1/sessions/"+sessionID+"/events?after=0&limit=1000", nil); err == nil && a.status == 200 &&
			strings.Contains(string(a.raw), `"type":"`+kind+`"`) {
			return true
		}
		_ = w.news(ctx, sessionID)
	}
	return false
}

// The server is killed as soon as each fact of a subagent's life is seen, in the
// parent's log and in the child's: the call is made once, ends once, and its parent hears of it.
func TestASubagentSurvivesACrashAtEveryFactOfItsLife(t *testing.T) {
	for _, at := range []struct{ log, fact string }{
		{"parent", "tool.called"},
		{"parent", "tool.started"},
		{"parent", "tool.deferred"},
		{"parent", "run.waiting"},
		{"child", "run.queued"},
		{"child", "run.started"},
		{"child", "tool.started"},
		{"child", "tool.completed"},
		{"child", "model.completed"},
		{"parent", "tool.completed"},
		{"child", "run.completed"},
		{"parent", "run.resumed"},
	} {
		t.Run(at.log+" "+at.fact, func(t *testing.T) {
			w := newWorld(t, settings{family: true})
			told(w, "go", fakellm.Reply(fakellm.Text("I ask."), asksHelper("c", "put it")), fakellm.Reply(fakellm.Text("All done.")))
			told(w, "put it", fakellm.Reply(fakellm.Call{ID: "p", Name: "put", Args: `{"note":"it","ms":30}`}), fakellm.Reply(fakellm.Text("It is put.")))
			run := w.submit("ses", "go")
			ctx, cancel := context.WithTimeout(w.ctx, patience)
			defer cancel()
			log := "ses"
			if at.log == "child" {
				log = w.children(run, 1)["put it"].Child.Session
			}
			if !w.comes(ctx, log, at.fact) {
				t.Fatalf("no %s came", at.fact)
			}
			w.crash()
			if got := w.ends(run); got.Status != session.Completed {
				t.Fatalf("the run is %s: %+v", got.Status, got.Error)
			}
			call := w.children(run, 1)["put it"]
			if got := w.ends(childRun(call)); got.Status != session.Completed || got.ParentRunID != run.ID {
				t.Errorf("the child is %s, of %s", got.Status, got.ParentRunID)
			}
			if call.Status != session.CallCompleted || string(call.Result) != `"It is put."` {
				t.Errorf("the call is %s with %s", call.Status, call.Result)
			}
			keys := map[string]bool{}
			for _, line := range w.ledger() {
				keys[strings.Fields(line)[1]] = true
			}
			if len(keys) != 1 {
				t.Errorf("the child acted under the keys %v", keys)
			}
			if n := len(w.events("ses", "tool.completed", "tool.failed")); n != 1 {
				t.Errorf("the parent was told %d times", n)
			}
			w.continues("ses")
		})
	}
}

// Four subagents work side by side with tools of an MCP server. One acts, two
// ask, one is stopped by a person, and the process is killed in the middle.
func TestAParentWithFourChildrenEndsRightAfterApprovalsACrashAndACancel(t *testing.T) {
	w, pids := kit(t, settings{family: true})
	url, knocked, open := door(t)
	told(w, "go",
		fakellm.Reply(fakellm.Text("I share it out."), asksHelper("a", "act"), asksHelper("b", "draw one"), asksHelper("c", "draw two"), asksHelper("d", "hang")),
		fakellm.Reply(fakellm.Text("All told.")))
	told(w, "act", fakellm.Reply(fakellm.Call{ID: "p", Name: "kit_put", Args: fmt.Sprintf(`{"note":"act","gate":%q}`, url)}), fakellm.Reply(fakellm.Text("Acted.")))
	told(w, "draw one", fakellm.Reply(fakellm.Call{ID: "q", Name: "kit_picture", Args: `{}`}), fakellm.Reply(fakellm.Text("Drawn.")))
	told(w, "draw two", fakellm.Reply(fakellm.Call{ID: "r", Name: "kit_picture", Args: `{}`}), fakellm.Reply(fakellm.Text("Not allowed to draw.")))
	told(w, "hang", fakellm.Reply(fakellm.Call{ID: "s", Name: "kit_look", Args: fmt.Sprintf(`{"note":"hang","gate":%q}`, url)}))

	run := w.submit("ses", "go")
	w.waits(run, session.WaitChildRun)
	calls := w.children(run, 4)
	<-knocked
	<-knocked
	one := w.waits(childRun(calls["draw one"]), session.WaitApproval)
	two := w.waits(childRun(calls["draw two"]), session.WaitApproval)
	w.crash()
	<-knocked // both may be repeated, and are
	<-knocked

	// The inbox of approvals shows the children's.
	var inbox struct{ Items []session.Approval }
	w.ask("GET", "/v1/approvals?status=pending", nil).into(t, &inbox)
	if len(inbox.Items) != 2 {
		t.Fatalf("%d approvals are in the inbox", len(inbox.Items))
	}
	for _, a := range inbox.Items {
		decision := map[string]string{one.ID: "approve", two.ID: "deny"}[a.Run]
		if got := w.decide(a.ID, decision); got.status != 200 {
			t.Fatalf("the decision is answered %d: %s", got.status, got.raw)
		}
	}
	w.ends(one)
	w.ends(two)
	if got := w.run(run.ID); got.Status != session.Waiting || got.WaitingReason != session.WaitChildRun || got.Worker != "" {
		t.Errorf("the parent is %s for %s, carried by %q", got.Status, got.WaitingReason, got.Worker)
	}
	w.cancel(calls["hang"].Child.Run)
	hung := w.ends(childRun(calls["hang"]))
	open()
	if got := w.ends(run); got.Status != session.Completed || w.text("ses") == "" {
		t.Fatalf("the parent is %s: %+v", got.Status, got.Error)
	}
	if hung.Status != session.Cancelled {
		t.Errorf("the stopped child is %s", hung.Status)
	}
	calls = w.children(run, 4)
	for task, want := range map[string]struct {
		status session.CallStatus
		says   string
	}{
		"act": {session.CallCompleted, "Acted."}, "draw one": {session.CallCompleted, "Drawn."},
		"draw two": {session.CallCompleted, "Not allowed to draw."}, "hang": {session.CallFailed, "stopped"},
	} {
		c := calls[task]
		says := string(c.Result)
		if c.Error != nil {
			says = c.Error.Message
		}
		if c.Status != want.status || !strings.Contains(says, want.says) {
			t.Errorf("%s: the call is %s with %s", task, c.Status, says)
		}
	}
	if n := len(w.events("ses", "tool.completed", "tool.failed")); n != 4 {
		t.Errorf("the parent was told %d times", n)
	}
	w.continues("ses")

	// Nothing is left behind but the one MCP server of the process that lives.
	alive := 0
	for _, pid := range started(t, pids) {
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !strings.Contains(string(stat), ") Z ") {
			alive++
		}
	}
	if alive != 1 {
		t.Errorf("%d MCP servers are left", alive)
	}
	w.http.CloseIdleConnections()
	w.quiet(w.ctx)
	w.srv.stop(t)
}

// quiet waits until the server holds no connection to the provider and none of
// a reader. Those to what it stands on stay.
func (w *world) quiet(ctx context.Context) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		open := sockets(w.t, w.srv.cmd.Process.Pid, portOf(w.srv.url), portOf(w.llm.URL()))
		if len(open) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			w.t.Fatalf("the server holds the sockets %v", open)
		}
	}
}

// portOf is the port of a URL as the kernel's tables write it.
func portOf(url string) string {
	port, err := strconv.Atoi(url[strings.LastIndexByte(url, ':')+1:])
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(":%04X", port)
}

// sockets are the connected TCP sockets of a process that have one of the ports at either end.
func sockets(t *testing.T, pid int, ports ...string) []string {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	var own []string
	for _, e := range entries {
		to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name()))
		if err == nil && strings.HasPrefix(to, "socket:[") {
			own = append(own, strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]"))
		}
	}
	var connected []string
	for _, table := range []string{"tcp", "tcp6"} {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			continue
		}
		for _, line := range strings.Split(string(raw), "\n") {
			fields := strings.Fields(line)
			const established = "01"
			if len(fields) <= 9 || fields[3] != established || !slices.Contains(own, fields[9]) {
				continue
			}
			if slices.ContainsFunc(ports, func(p string) bool { return strings.HasSuffix(fields[1], p) || strings.HasSuffix(fields[2], p) }) {
				connected = append(connected, fields[1]+" "+fields[2])
			}
		}
	}
	return connected
}

// Cancel goes down to the grandchildren, whatever they do, and a crash does not stop it.
func TestCancelOfAParentReachesItsChildrenAcrossACrash(t *testing.T) {
	w := newWorld(t, settings{family: true})
	told(w, "go", fakellm.Reply(asksHelper("a", "pay for it"), asksHelper("b", "talk long")))
	told(w, "pay for it", fakellm.Reply(pay("p", "it")))
	told(w, "talk long", fakellm.Reply(fakellm.Text("Well, "), fakellm.Stall()))
	run := w.submit("ses", "go")
	w.waits(run, session.WaitChildRun)
	calls := w.children(run, 2)
	w.waits(childRun(calls["pay for it"]), session.WaitApproval)
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	if !w.comes(ctx, calls["talk long"].Child.Session, "text.delta") {
		t.Fatal("the child says nothing")
	}
	if got := w.cancel(run.ID); got.status/100 != 2 {
		t.Fatalf("the cancel is answered %d: %s", got.status, got.raw)
	}
	w.crash()
	for _, r := range []session.Run{run, childRun(calls["pay for it"]), childRun(calls["talk long"])} {
		if got := w.ends(r); got.Status != session.Cancelled {
			t.Errorf("the run %s is %s", r.ID, got.Status)
		}
	}
	if len(w.ledger()) > 0 {
		t.Errorf("somebody paid: %v", w.ledger())
	}
	w.continues("ses")
}

// A fork shows the calls of the subagents, and owns none of their conversations.
func TestDeletingAForkLeavesTheSubagentsOfItsOrigin(t *testing.T) {
	w := newWorld(t, settings{family: true})
	told(w, "go", fakellm.Reply(asksHelper("a", "answer")), fakellm.Reply(fakellm.Text("Done.")))
	told(w, "answer", fakellm.Reply(fakellm.Text("Yes.")))
	run := w.ends(w.submit("ses", "go"))
	child := w.children(run, 1)["answer"].Child.Session
	fork := w.ask("POST", "/v1/sessions/ses/fork", map[string]string{"id": "ses_fork", "message": run.Message})
	if fork.status/100 != 2 {
		t.Fatalf("the fork is answered %d: %s", fork.status, fork.raw)
	}
	for _, id := range []string{"ses_fork", "ses"} {
		if got := w.ask("GET", "/v1/sessions/"+child, nil); got.status != 200 {
			t.Errorf("before %s is deleted the subagent's session answers %d", id, got.status)
		}
		delete(w.seen, id)
		if got := w.ask("DELETE", "/v1/sessions/"+id, nil); got.status/100 != 2 {
			t.Fatalf("%s is not deleted: %d %s", id, got.status, got.raw)
		}
	}
	delete(w.seen, child)
	if got := w.ask("GET", "/v1/sessions/"+child, nil); got.status != 404 {
		t.Errorf("at the end the subagent's session answers %d", got.status)
	}
}

// Who deletes a conversation deletes what its subagents said; who deletes a
// subagent's conversation ends the call that it worked on.
func TestDeletingReachesTheFamily(t *testing.T) {
	w := newWorld(t, settings{family: true})
	told(w, "go", fakellm.Reply(asksHelper("a", "pay one"), asksHelper("b", "pay two")))
	told(w, "pay one", fakellm.Reply(pay("p", "one")))
	told(w, "pay two", fakellm.Reply(pay("p", "two")))
	run := w.submit("ses", "go")
	calls := w.children(run, 2)
	one, two := calls["pay one"], calls["pay two"]
	w.waits(childRun(one), session.WaitApproval)
	w.waits(childRun(two), session.WaitApproval)
	delete(w.seen, one.Child.Session)
	if got := w.ask("DELETE", "/v1/sessions/"+one.Child.Session, nil); got.status/100 != 2 {
		t.Fatalf("the child's session is not deleted: %d %s", got.status, got.raw)
	}
	w.until(run, "to hear of it", func(session.Run) bool { return len(w.events("ses", "tool.failed")) == 1 })
	if got := w.children(run, 2)["pay one"]; got.Error == nil || got.Error.Code != "child_cancelled" {
		t.Errorf("the call is %s: %+v", got.Status, got.Error)
	}
	for _, id := range []string{one.Child.Session, two.Child.Session, "ses"} {
		delete(w.seen, id)
	}
	if got := w.ask("DELETE", "/v1/sessions/ses", nil); got.status/100 != 2 {
		t.Fatalf("the session is not deleted: %d %s", got.status, got.raw)
	}
	if got := w.ask("GET", "/v1/sessions/"+two.Child.Session, nil); got.status != 404 {
		t.Errorf("the other child's session answers %d", got.status)
	}
	var inbox struct{ Items []session.Approval }
	w.ask("GET", "/v1/approvals?status=pending", nil).into(t, &inbox)
	if len(inbox.Items) != 0 {
		t.Errorf("%d approvals are left", len(inbox.Items))
	}
}
