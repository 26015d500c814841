package faults

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/session"
)

func TestCA01ADisconnectIsNoCancelAndACancelIs(t *testing.T) {
	w := newWorld(t, settings{})
	var ticks []fakellm.Step
	for i := range 10 {
		ticks = append(ticks, fakellm.Text(fmt.Sprintf("tick%d ", i)), fakellm.Pause(100*time.Millisecond))
	}
	turn := func() fakellm.Turn {
		return fakellm.Reply(append(append([]fakellm.Step{}, ticks...), fakellm.Call{ID: "c", Name: "charge", Args: `{"note":"row"}`})...)
	}
	w.llm.Script(turn(), fakellm.Reply(fakellm.Text("written")))
	run := w.submit("ses_left", "go")
	s := w.follow("ses_left", 0)
	if _, err := s.read(func(f frame) bool { return f.Type == "text.delta" }); err != nil {
		t.Fatal(err)
	}
	s.close() // the tab is gone
	if got := w.ends(run); got.Status != session.Completed {
		t.Errorf("after a disconnect the run is %s", got.Status)
	}
	if n := len(w.ledger()); n != 1 {
		t.Errorf("the row was written %d times", n)
	}

	w.llm.Script(turn())
	run = w.submit("ses_stopped", "go")
	s = w.follow("ses_stopped", 0)
	if _, err := s.read(func(f frame) bool { return f.Type == "text.delta" }); err != nil {
		t.Fatal(err)
	}
	n := len(w.llm.Requests())
	if a := w.cancel(run.ID); a.status != http.StatusOK && a.status != http.StatusAccepted {
		t.Errorf("the cancel answers %d: %s", a.status, a.raw)
	}
	w.closes(n, time.Second)
	if got := w.ends(run); got.Status != session.Cancelled {
		t.Errorf("after a cancel the run is %s", got.Status)
	}
	if n := len(w.ledger()); n != 1 {
		t.Errorf("the cancelled run wrote: %q", w.ledger())
	}
	w.continues("ses_stopped")
}

func TestCA02ACancelBeforeTheStartIsNotLost(t *testing.T) {
	w := newWorld(t, settings{slots: 1})
	gate := make(chan struct{})
	w.llm.Script(fakellm.Reply(fakellm.Text("busy"), fakellm.Wait(gate)).On(fakellm.Match{LastUser: "occupy"}))
	busy := w.submit("ses_busy", "occupy")
	w.arrives(1)
	queued := w.submit("ses_queued", "never")
	for range 2 {
		if a := w.cancel(queued.ID); a.status/100 != 2 {
			t.Errorf("the cancel answers %d: %s", a.status, a.raw)
		}
	}
	if got := w.run(queued.ID); got.Status != session.Cancelled {
		t.Errorf("the queued run is %s", got.Status)
	}
	close(gate)
	w.ends(busy)
	for _, r := range w.llm.Requests() {
		if r.LastUser() == "never" {
			t.Error("the provider was called for a run that was cancelled in the queue")
		}
	}
	w.continues("ses_queued")

	// In the same moment as the claim.
	for i := range 100 {
		id := fmt.Sprintf("ses_claim_%d", i)
		run := w.submit(id, "quick")
		pause(t, time.Duration(i%6)*time.Millisecond)
		a := w.cancel(run.ID)
		if a.status/100 != 2 && (a.status != http.StatusConflict || a.problem(t).Code != "run_terminal") {
			t.Errorf("the cancel answers %d: %s", a.status, a.raw)
		}
		w.ends(run)
	}
}

// pause shifts what follows against what the server does: the moment is the test's subject.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

func TestCA03ACancelThatRacesCompletionLeavesOneEnd(t *testing.T) {
	w := newWorld(t, settings{slots: 64})
	const runs = 500
	type outcome struct {
		run session.Run
		a   answer
	}
	results := make(chan outcome, runs)
	limit := make(chan struct{}, 16)
	for i := range runs {
		limit <- struct{}{}
		id := fmt.Sprintf("ses_race_%d", i)
		run := w.submit(id, "quick")
		go func() {
			defer func() { <-limit }()
			s, err := w.tryFollow(w.ctx, id, "after=0", "")
			if err == nil {
				_, _ = s.read(func(f frame) bool { return f.Type == "model.completed" || f.Type == "run.completed" })
				s.close()
			}
			a, err := w.try(w.ctx, "POST", "/v1/runs/"+run.ID+"/cancel", map[string]string{})
			if err != nil {
				t.Error(err)
			}
			results <- outcome{run, a}
		}()
	}
	won := map[session.Status]int{}
	for range runs {
		o := <-results
		got := w.ends(o.run)
		won[got.Status]++
		switch {
		case o.a.status/100 == 2:
		case o.a.status == http.StatusConflict && o.a.problem(t).Code == "run_terminal":
			if got.Status != session.Completed {
				t.Errorf("the cancel was told %s, and the run is %s", o.a.raw, got.Status)
			}
		default:
			t.Errorf("the cancel answers %d: %s", o.a.status, o.a.raw)
		}
	}
	t.Logf("how they ended: %v", won)
}

func TestCA05ACancelOfADeadWorkersRunFreesTheSession(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(fakellm.Reply(fakellm.Text("half"), fakellm.Stall()))
	run := w.submit("ses_dead", "go")
	w.arrives(1)
	w.srv.kill()
	w.llm.Script(fakellm.Reply(fakellm.Stall()))
	w.again()
	a := w.cancel(run.ID)
	if a.status/100 != 2 {
		t.Errorf("the cancel answers %d: %s", a.status, a.raw)
	}
	if got := w.ends(run); got.Status != session.Cancelled {
		t.Errorf("the run is %s", got.Status)
	}
	w.llm.DropScript()
	w.continues("ses_dead")
}

func TestCA06NothingStartsAfterTheCancelIsAnswered(t *testing.T) {
	for _, phase := range []string{"model", "tool", "between"} {
		t.Run(phase, func(t *testing.T) {
			w := newWorld(t, settings{})
			switch phase {
			case "model":
				w.llm.Script(fakellm.Reply(fakellm.Text("a"), fakellm.Pause(time.Second), fakellm.Call{ID: "c", Name: "charge", Args: `{}`}))
			case "tool":
				w.llm.Script(fakellm.Reply(fakellm.Call{ID: "c", Name: "look", Args: `{"ms":2000}`}))
			case "between":
				w.llm.Script(fakellm.Reply(fakellm.Call{ID: "c", Name: "look", Args: `{}`}), fakellm.Reply(fakellm.Pause(500*time.Millisecond), fakellm.Call{ID: "d", Name: "charge", Args: `{}`}))
			}
			run := w.submit("ses", "go")
			s := w.follow("ses", 0)
			until := map[string]string{"model": "text.delta", "tool": "tool.started", "between": "tool.completed"}[phase]
			if _, err := s.read(func(f frame) bool { return f.Type == until }); err != nil {
				t.Fatal(err)
			}
			if a := w.cancel(run.ID); a.status/100 != 2 {
				t.Fatalf("the cancel answers %d: %s", a.status, a.raw)
			}
			answered := time.Now()
			if got := w.ends(run); got.Status != session.Cancelled {
				t.Errorf("the run is %s", got.Status)
			}
			for _, r := range w.llm.Requests() {
				if r.At.After(answered) {
					t.Errorf("request %d came after the cancel was answered", r.Number)
				}
			}
			recorded := false
			for _, e := range w.events("ses") {
				switch e.Data.(type) {
				case session.RunCancelRequested:
					recorded = true
				case session.StepStarted, session.ToolStarted:
					if recorded {
						t.Errorf("%s comes after the cancel (seq %d)", e.Type(), e.Seq)
					}
				}
			}
			w.continues("ses")
		})
	}
}

func TestCA08WhatWasSaidBeforeAStopIsKept(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(fakellm.Reply(fakellm.Text("first answer")))
	w.ends(w.submit("ses", "one"))
	steps := []fakellm.Step{}
	for range 1001 {
		steps = append(steps, fakellm.Text("x"))
	}
	steps = append(steps, fakellm.Text("END-\u00e9"), fakellm.Stall())
	w.llm.Script(fakellm.Reply(steps...))
	run := w.submit("ses", "two")
	want := ""
	for range 1001 {
		want += "x"
	}
	want += "END-\u00e9"
	got := ""
	s := w.follow("ses", 0)
	if _, err := s.read(func(f frame) bool {
		if d, ok := f.event.Data.(session.TextDelta); ok && f.event.Run == run.ID {
			got += d.Text
		}
		return got == want
	}); err != nil {
		t.Fatal(err)
	}
	w.cancel(run.ID)
	w.ends(run)
	snap := w.snapshot("ses")
	last := snap.Messages[len(snap.Messages)-1]
	if last.Text() != want || last.Status != session.MessageCut || last.Reason != "cancelled" {
		t.Errorf("after the reload it is %d bytes, %s (%s)", len(last.Text()), last.Status, last.Reason)
	}
	w.continues("ses")
	requests := w.llm.Requests()
	history := requests[len(requests)-1].Messages
	heard, asked := false, false
	for _, m := range history {
		heard = heard || m.Text == want
		asked = asked || m.Text == "two"
	}
	if !heard || !asked {
		t.Errorf("the provider's next history lacks the turn that was stopped: text %v, question %v", heard, asked)
	}
}

func TestCA10ALateCancelHitsNobodyElse(t *testing.T) {
	w := newWorld(t, settings{})
	one := w.ends(w.submit("ses", "one"))
	gate := make(chan struct{})
	w.llm.Script(fakellm.Reply(fakellm.Text("two"), fakellm.Wait(gate)))
	two := w.submit("ses", "two")
	w.arrives(2)
	other := w.ends(w.submit("ses_other", "other"))
	a := w.cancel(one.ID)
	if a.status != http.StatusConflict {
		t.Fatalf("the late cancel answers %d: %s", a.status, a.raw)
	}
	if p := a.problem(t); p.Code != "run_terminal" || p.Run == nil || p.Run.Status != session.Completed {
		t.Errorf("the late cancel is told %s", a.raw)
	}
	close(gate)
	if got := w.ends(two); got.Status != session.Completed {
		t.Errorf("the second run is %s", got.Status)
	}
	if other.Status != session.Completed {
		t.Errorf("the other session's run is %s", other.Status)
	}
}
