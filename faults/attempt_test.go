package faults

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/session"
)

func TestRT01AFailedAttemptsTextIsReplaced(t *testing.T) {
	for _, wire := range []string{"", "anthropic"} {
		t.Run("wire "+wire, func(t *testing.T) {
			w := newWorld(t, settings{wire: wire})
			w.llm.Script(
				fakellm.Reply(fakellm.Text("The answer ", "is 4"), fakellm.Cut()),
				fakellm.Reply(fakellm.Text("The answer is 42.")),
			)
			run := w.ends(w.submit("ses", "go"))
			if got := w.text("ses"); run.Status != session.Completed || got != "The answer is 42." {
				t.Errorf("the run is %s, the answer %q", run.Status, got)
			}
			failed := w.events("ses", "attempt.failed")
			if len(failed) != 1 || failed[0].Attempt != 1 {
				t.Fatalf("the failed attempt is told %d times", len(failed))
			}
			if parts := failed[0].Data.(session.AttemptFailed).Parts; len(parts) == 0 || parts[0].Text != "The answer is 4" {
				t.Errorf("what it had said is kept as %+v", parts)
			}
			w.continues("ses")
			requests := w.llm.Requests()
			for _, m := range requests[len(requests)-1].Messages {
				if m.Role == "assistant" && m.Text != "The answer is 42." {
					t.Errorf("the history tells %q", m.Text)
				}
			}
		})
	}
}

func TestRT04ARetryDoesNotRepeatToolsThatSucceeded(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(
		fakellm.Reply(fakellm.Call{ID: "c", Name: "charge", Args: `{"note":"A1"}`}),
		fakellm.Reply(fakellm.Status{Code: 500}),
		fakellm.Reply(fakellm.Status{Code: 503}),
		fakellm.Reply(fakellm.Text("charged once")),
	)
	run := w.ends(w.submit("ses", "go"))
	if run.Status != session.Completed || len(w.ledger()) != 1 {
		t.Errorf("the run is %s, and the tool acted %d times", run.Status, len(w.ledger()))
	}
	if n := len(w.llm.Requests()); n != 4 {
		t.Errorf("the provider was asked %d times", n)
	}
	for _, r := range w.llm.Requests()[1:] {
		if last := r.Messages[len(r.Messages)-1]; len(last.Results) != 1 || last.Results[0].Text != "charge done" {
			t.Errorf("request %d ends with %+v", r.Number, last)
		}
	}
}

func TestRT04APersonsRetryIsANewRunThatSaysSo(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(
		fakellm.Reply(fakellm.Call{ID: "c", Name: "charge", Args: `{}`}),
		fakellm.Reply(fakellm.Status{Code: 400}),
		fakellm.Reply(fakellm.Text("again")),
	)
	run := w.ends(w.submit("ses", "go"))
	if run.Status != session.Failed || run.Error == nil || run.Error.Code != "invalid_request" {
		t.Fatalf("the run is %s: %+v", run.Status, run.Error)
	}
	var out struct{ Run session.Run }
	for range 2 { // the same again is the same run
		w.ask("POST", "/v1/runs/"+run.ID+"/retry", map[string]string{"id": "run_again"}).into(t, &out)
	}
	if out.Run.ID != "run_again" || out.Run.RetryOf != run.ID {
		t.Errorf("the retry is %+v", out.Run)
	}
	if got := w.ends(out.Run); got.Status != session.Completed || w.text("ses") != "again" {
		t.Errorf("the retry is %s with %q", got.Status, w.text("ses"))
	}
	last := w.snapshot("ses").Messages
	if len(last) != 2 || len(last[1].Siblings) != 2 {
		t.Errorf("the answers are %d messages, with %v", len(last), last[len(last)-1].Siblings)
	}
}

func TestRT06ARunThatKillsItsWorkerStopsAtTheLimit(t *testing.T) {
	for _, limit := range []int{3, 1} {
		t.Run(fmt.Sprint("limit ", limit), func(t *testing.T) {
			w := newWorld(t, settings{crashes: limit})
			w.llm.Script(fakellm.Reply(fakellm.Call{ID: "c", Name: "boom", Args: `{"die":"always"}`}).On(fakellm.Match{LastUser: "poison"}))
			run := w.submit("ses_poison", "poison")
			w.seen["ses_other"] = true
			for range limit {
				w.srv.ended(t)
				w.again()
				// The server may die again under this request: it is sent until it is answered.
				_, _ = w.try(w.ctx, "POST", "/v1/sessions/ses_other/messages", say("msg_other", "a normal question"))
			}
			other := w.send("ses_other", say("msg_other", "a normal question")).Run
			got := w.ends(run)
			if got.Status != session.Failed || got.Error == nil || got.Error.Code != "crash" {
				t.Errorf("the run is %s: %+v", got.Status, got.Error)
			}
			if n := len(w.ledger()); n != limit {
				t.Errorf("the tool was started %d times", n)
			}
			if got := w.ends(other); got.Status != session.Completed {
				t.Errorf("the other run is %s", got.Status)
			}
			w.continues("ses_poison")
		})
	}
}

func TestRT06APoisonRunCanBeCancelledBetweenItsStarts(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(fakellm.Reply(fakellm.Call{ID: "c", Name: "boom", Args: `{"before":1500,"die":"always"}`}))
	run := w.submit("ses", "poison")
	w.srv.ended(t)
	w.again()
	if a := w.cancel(run.ID); a.status/100 != 2 {
		t.Errorf("the cancel answers %d: %s", a.status, a.raw)
	}
	if got := w.ends(run); got.Status != session.Cancelled {
		t.Errorf("the run is %s", got.Status)
	}
	if n := len(w.ledger()); n != 1 {
		t.Errorf("the tool acted %d times", n)
	}
	w.continues("ses")
}

func TestCS01NoRunIsRunningForEverAfterACrash(t *testing.T) {
	w := newWorld(t, settings{slots: 2})
	gate := make(chan struct{})
	t.Cleanup(func() { close(gate) })
	w.llm.Script(
		fakellm.Reply(fakellm.Text("in the model"), fakellm.Wait(gate)).On(fakellm.Match{LastUser: "stream"}),
		fakellm.Reply(fakellm.Call{ID: "c", Name: "look", Args: `{"ms":60000}`}).On(fakellm.Match{LastUser: "tool"}),
		fakellm.Reply(fakellm.Text("again")).On(fakellm.Match{LastUser: "stream"}),
		fakellm.Reply(fakellm.Text("tool again")).On(fakellm.Match{LastUser: "tool"}),
	)
	streaming := w.submit("ses_stream", "stream")
	tooling := w.submit("ses_tool", "tool")
	w.until(tooling, "to be in its tool", func(session.Run) bool { return len(w.ledger()) == 1 })
	queued := w.submit("ses_queued", "queued")
	w.srv.kill()
	w.again()
	w.until(tooling, "to run its tool again", func(session.Run) bool { return len(w.ledger()) == 2 })
	if got := w.ends(streaming); got.Status != session.Completed || w.text("ses_stream") != "again" {
		t.Errorf("the streaming run is %s with %q", got.Status, w.text("ses_stream"))
	}
	if n := len(w.events("ses_stream", "run.reconciled")); n != 1 {
		t.Errorf("the take-over is told %d times", n)
	}
	if got := w.ends(queued); got.Status != session.Completed {
		t.Errorf("the queued run is %s", got.Status)
	}
	w.cancel(tooling.ID)
	w.ends(tooling)
}

func TestCS01AnOpenStreamSeesTheTakeOverAndMissesNothing(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(
		fakellm.Reply(fakellm.Text("one ", "two "), fakellm.Stall()),
		fakellm.Reply(fakellm.Text("one ", "two ", "three")),
	)
	run := w.submit("ses", "go")
	s := w.follow("ses", 0)
	seen, err := s.read(func(f frame) bool { return f.Type == "text.delta" })
	if err != nil {
		t.Fatal(err)
	}
	w.srv.kill()
	for { // what was on its way
		f, err := s.nextFrame()
		if err != nil {
			break
		}
		seen = append(seen, f)
	}
	w.http.CloseIdleConnections()
	w.again()
	s = w.follow("ses", seen[len(seen)-1].to())
	more, err := s.read(func(f frame) bool { return f.Type == "run.completed" })
	if err != nil {
		t.Fatal(err)
	}
	seen = append(seen, more...)
	joins(t.Errorf, seen, 0)
	w.ends(run)
	for i, f := range w.log("ses", 0, 1000) {
		if seen[i].raw != f.raw {
			t.Errorf("seq %d was seen as %s, and is %s", f.Seq, seen[i].raw, f.raw)
		}
	}
}

func TestCS02AFrozenWorkerLeavesOneEnd(t *testing.T) {
	w := newWorld(t, settings{})
	gate := make(chan struct{})
	w.llm.Script(fakellm.Reply(fakellm.Text("half "), fakellm.Wait(gate), fakellm.Text("whole")), fakellm.Reply(fakellm.Text("half whole")))
	run := w.submit("ses", "go")
	w.arrives(1)
	w.srv.signal(syscall.SIGSTOP)
	pause(t, lease+lease/2) // the subject: it is frozen for longer than its lease
	close(gate)
	w.srv.signal(syscall.SIGCONT)
	if got := w.ends(run); got.Status != session.Completed || w.text("ses") != "half whole" {
		t.Errorf("the run is %s with %q", got.Status, w.text("ses"))
	}
}

func TestCS05AHistoryWithBrokenCallsIsAcceptedByAStrictProvider(t *testing.T) {
	for _, wire := range []string{"", "anthropic"} {
		t.Run("wire "+wire, func(t *testing.T) {
			w := newWorld(t, settings{wire: wire})
			check := func(id string) {
				t.Helper()
				w.llm.DropScript()
				w.continues(id)
			}
			// A crash in one call.
			w.llm.Script(fakellm.Reply(fakellm.Call{ID: "call_1", Name: "look", Args: `{"note":"a","die":"once"}`}))
			run := w.submit("ses_a", "go")
			w.srv.ended(t)
			w.again()
			w.ends(run)
			check("ses_a")
			// A cancel with two of three calls done; the id was used before.
			w.llm.Script(fakellm.Reply(
				fakellm.Call{ID: "call_1", Name: "look", Args: `{"note":"b1"}`},
				fakellm.Call{ID: "call_2", Name: "look", Args: `{"note":"b2"}`},
				fakellm.Call{ID: "call_3", Name: "look", Args: `{"note":"b3","ms":60000}`}))
			run = w.submit("ses_a", "more")
			w.until(run, "to have two results", func(session.Run) bool { return len(w.events("ses_a", "tool.completed")) >= 3 })
			w.cancel(run.ID)
			w.ends(run)
			check("ses_a")
			requests := w.llm.Requests()
			kept := 0
			for _, m := range requests[len(requests)-1].Messages {
				for _, r := range m.Results {
					if r.Text == "look done" {
						kept++
					}
				}
			}
			if kept != 3 {
				t.Errorf("%d results are kept as they were", kept)
			}
			// A crash with half of the arguments said.
			w.llm.Script(fakellm.Reply(fakellm.Fragments(fakellm.Fragment{ID: "call_9", Name: "charge", Args: `{"no`}), fakellm.Stall()), fakellm.Reply(fakellm.Text("no call")))
			run = w.submit("ses_c", "go")
			s := w.follow("ses_c", 0)
			if _, err := s.read(func(f frame) bool { return f.Type == "tool.input.delta" }); err != nil {
				t.Fatal(err)
			}
			w.crash()
			w.ends(run)
			check("ses_c")
			// A cancel while an approval waits.
			run, _ = w.asked("ses_d")
			w.cancel(run.ID)
			w.ends(run)
			check("ses_d")
		})
	}
}

func TestCS07ALateFlushNeverComesAfterTheEnd(t *testing.T) {
	w := newWorld(t, settings{attempts: 1, idle: time.Second})
	for i := range 50 {
		w.llm.Script(fakellm.Reply(fakellm.Text("a", "b"), fakellm.Call{ID: "c", Name: "look", Args: `{}`}, fakellm.Text("last"), fakellm.Cut()).
			On(fakellm.Match{LastUser: fmt.Sprintf("cut %d.", i)}))
	}
	var runs []session.Run
	for i := range 50 {
		runs = append(runs, w.submit(fmt.Sprintf("ses_%d", i), fmt.Sprintf("cut %d.", i)))
	}
	for i, run := range runs {
		if got := w.ends(run); got.Status != session.Failed {
			t.Errorf("run %d is %s", i, got.Status)
		}
		text := ""
		for _, e := range w.events(fmt.Sprintf("ses_%d", i), "text.delta") {
			text += e.Data.(session.TextDelta).Text
		}
		if text != "ablast" {
			t.Errorf("the deltas of run %d are %q", i, text)
		}
	}
	w.llm.Script(fakellm.Reply(fakellm.Text("x"), fakellm.Stall()).On(fakellm.Match{LastUser: "stall"}))
	run := w.submit("ses_stall", "stall")
	w.within(5*time.Second, "a stall", func(context.Context) error {
		got := w.ends(run)
		if got.Status != session.Failed || got.Error.Code != "stalled" {
			return fmt.Errorf("the run is %s: %+v", got.Status, got.Error)
		}
		return nil
	})
}

func TestDrainHandsOverWithoutACrash(t *testing.T) {
	w := newWorld(t, settings{drain: 300 * time.Millisecond})
	w.llm.Script(fakellm.Reply(fakellm.Text("half "), fakellm.Stall()), fakellm.Reply(fakellm.Text("whole")))
	run := w.submit("ses", "go")
	w.arrives(1)
	w.srv.stop(t)
	w.http.CloseIdleConnections()
	w.again()
	got := w.ends(run)
	if got.Status != session.Completed || w.text("ses") != "whole" || got.Crashes != 0 {
		t.Errorf("the run is %s with %q after %d crashes", got.Status, w.text("ses"), got.Crashes)
	}
	for _, e := range w.events("ses", "run.reconciled") {
		if r := e.Data.(session.RunReconciled); r.Cause != session.CauseDrain || r.Decision != "hand_over" {
			t.Errorf("the hand-over is told as %+v", r)
		}
	}
}
