package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/session"
)

func TestRT03ARetriedStepIsSeenOnce(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(
		fakellm.Reply(fakellm.Text("p1 ", "p2 "), fakellm.Stall()),
		fakellm.Reply(fakellm.Text("p1 ", "p2 ", "p3")),
	)
	run := w.submit("ses", "go")
	s := w.follow("ses", 0)
	text := ""
	if _, err := s.read(func(f frame) bool {
		if d, ok := f.event.Data.(session.TextDelta); ok {
			text += d.Text
		}
		return text == "p1 p2 "
	}); err != nil {
		t.Fatal(err)
	}
	w.crash()
	w.ends(run)
	if got := w.text("ses"); got != "p1 p2 p3" {
		t.Errorf("the message is %q", got)
	}
	byAttempt := map[int]string{}
	for _, e := range w.events("ses", "text.delta") {
		byAttempt[e.Attempt] += e.Data.(session.TextDelta).Text
	}
	if byAttempt[1] != "p1 p2 " || byAttempt[2] != "p1 p2 p3" || len(byAttempt) != 2 {
		t.Errorf("the attempts said %v", byAttempt)
	}
}

// However a run ends, nothing is left spinning, and the label tells which end it was.
func TestUI01HoweverARunEndsItsCallsAreSettled(t *testing.T) {
	w := newWorld(t, settings{attempts: 1, approval: 1500 * time.Millisecond, drain: 200 * time.Millisecond})
	label := func(id string) session.CallStatus {
		t.Helper()
		for _, m := range w.snapshot(id).Messages {
			for _, p := range m.Parts {
				if p.Tool != nil {
					return p.Tool.Status
				}
			}
		}
		return ""
	}
	one := func(id, tool, args string) session.Run {
		t.Helper()
		w.llm.Script(
			fakellm.Reply(fakellm.Call{ID: "c", Name: tool, Args: args}).On(fakellm.Match{LastUser: id + "."}),
			fakellm.Reply(fakellm.Text("done")).On(fakellm.Match{LastUser: id + "."}))
		return w.submit(id, id+".")
	}
	check := func(id string, run session.Run, status session.Status, call session.CallStatus) {
		t.Helper()
		if got := w.ends(run); got.Status != status || label(id) != call {
			t.Errorf("%s: the run is %s and its call %s, not %s and %s", id, got.Status, label(id), status, call)
		}
	}
	check("ok", one("ok", "look", `{}`), session.Completed, session.CallCompleted)
	check("tool_error", one("tool_error", "look", `{"fail":"no"}`), session.Completed, session.CallFailed)
	run := one("cancelled", "look", `{"ms":60000}`)
	w.until(run, "to be in its tool", func(session.Run) bool { return label("cancelled") == session.CallStarted })
	w.cancel(run.ID)
	check("cancelled", run, session.Cancelled, session.CallCancelled)
	run = w.waits(one("denied", "pay", `{}`), session.WaitApproval)
	w.decide(w.pending("denied")[0].ID, "deny")
	check("denied", run, session.Completed, session.CallDenied)
	check("expired", one("expired", "pay", `{}`), session.Completed, session.CallDenied)
	run = one("crashed", "charge", `{"die":"after"}`)
	w.srv.ended(t)
	w.again()
	w.waits(run, session.WaitToolOutcome)
	if got := label("crashed"); got != session.CallUnknown {
		t.Errorf("crashed: the call is %s", got)
	}
	w.cancel(run.ID)
	check("crashed", run, session.Cancelled, session.CallCancelled)
	run = one("deployed", "look", `{"ms":2000}`)
	w.until(run, "to be in its tool", func(session.Run) bool { return label("deployed") == session.CallStarted })
	w.srv.stop(t)
	w.http.CloseIdleConnections()
	w.again()
	check("deployed", run, session.Completed, session.CallCompleted)
	w.llm.DropScript()
}

func TestUI04ARunIsNotDoneWhileACallIsUnanswered(t *testing.T) {
	onWires(t, settings{}, func(t *testing.T, w *world) {
		for name, decisions := range map[string][2]string{"mixed": {"approve", "deny"}, "both denied": {"deny", "deny"}} {
			id := "ses_" + fmt.Sprint(len(name))
			w.llm.Script(
				fakellm.Reply(pay("1", id+"a"), pay("2", id+"b")).On(fakellm.Match{LastUser: name}),
				fakellm.Reply(fakellm.Text("done")).On(fakellm.Match{LastUser: name}))
			before := len(w.llm.Requests())
			run := w.waits(w.submit(id, name), session.WaitApproval)
			pending := w.pending(id)
			if len(pending) != 2 {
				t.Fatalf("%s: %d approvals are pending", name, len(pending))
			}
			w.decide(pending[0].ID, decisions[0])
			if got := w.run(run.ID); got.Status.Terminal() {
				t.Errorf("%s: after one decision the run is %s", name, got.Status)
			}
			w.decide(pending[1].ID, decisions[1])
			if got := w.ends(run); got.Status != session.Completed {
				t.Errorf("%s: the run is %s", name, got.Status)
			}
			requests := w.llm.Requests()[before:]
			if len(requests) != 2 {
				t.Fatalf("%s: the provider was asked %d times", name, len(requests))
			}
			results := 0
			for _, m := range requests[1].Messages {
				results += len(m.Results)
			}
			if results != 2 {
				t.Errorf("%s: the provider is told %d results", name, results)
			}
		}
	})
}

func TestUI06AnEndWithoutAWordCanBeRetried(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(
		fakellm.Reply(fakellm.BlackHole()).On(fakellm.Match{LastUser: "stop"}),
		fakellm.Reply(fakellm.Status{Code: 401}).On(fakellm.Match{LastUser: "refused"}),
	)
	stopped := w.submit("ses_stop", "stop")
	w.arrives(1)
	w.cancel(stopped.ID)
	stopped = w.ends(stopped)
	failed := w.ends(w.submit("ses_refused", "refused"))
	if stopped.Status != session.Cancelled || failed.Status != session.Failed || failed.Error == nil || failed.Error.Code != "unauthorized" {
		t.Fatalf("they are %s and %s: %+v", stopped.Status, failed.Status, failed.Error)
	}
	asked := len(w.llm.Requests())
	for range 5 { // five reloads
		w.snapshot("ses_stop")
		w.snapshot("ses_refused")
	}
	if n := len(w.llm.Requests()); n != asked {
		t.Errorf("reloads asked the provider %d times", n-asked)
	}
	for _, run := range []session.Run{stopped, failed} {
		var out struct{ Run session.Run }
		w.ask("POST", "/v1/runs/"+run.ID+"/retry", map[string]string{}).into(t, &out)
		if got := w.ends(out.Run); got.Status != session.Completed || got.RetryOf != run.ID {
			t.Errorf("the retry of %s is %s: %+v", run.ID, got.Status, got.Error)
		}
	}
	if n := len(w.llm.Requests()); n != asked+2 {
		t.Errorf("two retries asked the provider %d times", n-asked)
	}
}
