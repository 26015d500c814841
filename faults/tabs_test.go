package faults

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/session"
)

func TestMT01TwoSendsAtOnceAreAnsweredOneAfterTheOther(t *testing.T) {
	w := newWorld(t, settings{slots: 64})
	w.llm.SetDefault(func(r fakellm.Request) fakellm.Turn {
		var heard []string
		for _, m := range r.Messages {
			heard = append(heard, m.Text)
		}
		return fakellm.Reply(fakellm.Text("[" + strings.Join(heard, "|") + "]"))
	})
	const sessions = 60
	var sends sync.WaitGroup
	runs := make([][2]session.Run, sessions)
	for i := range sessions {
		id := fmt.Sprintf("ses_%d", i)
		w.seen[id] = true
		for k, text := range []string{"A", "B"} {
			sends.Go(func() {
				a, err := w.try(w.ctx, "POST", "/v1/sessions/"+id+"/messages", say(fmt.Sprintf("msg_%d_%s", i, text), text))
				if err != nil {
					t.Error(err)
					return
				}
				var out submitted
				a.into(t, &out)
				runs[i][k] = out.Run
			})
		}
	}
	sends.Wait()
	for i := range sessions {
		id := fmt.Sprintf("ses_%d", i)
		w.ends(runs[i][0])
		w.ends(runs[i][1])
		messages := w.snapshot(id).Messages
		if len(messages) != 4 {
			t.Errorf("%s has %d messages", id, len(messages))
			continue
		}
		first, second := messages[0].Text(), messages[2].Text()
		want := fmt.Sprintf("[%s|[%s]|%s]", first, first, second)
		if got := messages[3].Text(); got != want {
			t.Errorf("%s: the second call heard %s, not %s", id, got, want)
		}
		running := map[string]bool{}
		for _, e := range w.events(id) {
			switch e.Data.(type) {
			case session.RunStarted:
				running[e.Run] = true
			case session.RunCompleted:
				delete(running, e.Run)
			}
			if len(running) > 1 {
				t.Errorf("%s: two runs at once (seq %d)", id, e.Seq)
			}
		}
	}
}

func TestMT01EveryWayToBeBusyDoesWhatItSays(t *testing.T) {
	w := newWorld(t, settings{})
	gate := make(chan struct{})
	busy := func(id string) session.Run {
		w.llm.Script(fakellm.Reply(fakellm.Text("busy with "+id), fakellm.Wait(gate)).On(fakellm.Match{LastUser: "occupy " + id}))
		n := len(w.llm.Requests())
		run := w.submit(id, "occupy "+id)
		w.arrives(n + 1)
		w.until(run, "to have said it", func(session.Run) bool { return w.text(id) != "" })
		return run
	}
	send := func(id, mode string) answer {
		s := say("msg_"+id+"_"+mode, "then "+mode)
		s.OnBusy = mode
		return w.post(id, s)
	}
	// Reject names the active run and changes nothing.
	run := busy("ses_reject")
	head := w.snapshot("ses_reject").Seq
	a := send("ses_reject", "reject")
	if p := a.problem(t); a.status != http.StatusConflict || p.Code != "run_active" || p.Run == nil || p.Run.ID != run.ID {
		t.Errorf("reject answers %d: %s", a.status, a.raw)
	}
	if got := w.snapshot("ses_reject").Seq; got != head {
		t.Errorf("a refused message moved the log from %d to %d", head, got)
	}
	// Interrupt keeps what was said; rollback leaves it on another branch.
	for _, mode := range []string{"interrupt", "rollback"} {
		id := "ses_" + mode
		run := busy(id)
		var out submitted
		send(id, mode).into(t, &out)
		if got := w.ends(run); got.Status != session.Cancelled {
			t.Errorf("%s: the active run is %s", mode, got.Status)
		}
		w.ends(out.Run)
		var texts []string
		for _, m := range w.snapshot(id).Messages {
			texts = append(texts, m.Text())
		}
		told := strings.Join(texts, " / ")
		if kept := strings.Contains(told, "busy with"); kept != (mode == "interrupt") {
			t.Errorf("%s: the branch is %s", mode, told)
		}
	}
	// Steer waits in the inbox, can be edited, and is told or becomes a run.
	run = busy("ses_steer")
	var out submitted
	send("ses_steer", "steer").into(t, &out)
	if out.Run.ID != run.ID {
		t.Errorf("a steer is answered by %s", out.Run.ID)
	}
	edit := w.ask("PATCH", "/v1/sessions/ses_steer/inbox/msg_ses_steer_steer", `{"parts":[{"type":"text","text":"edited"}]}`)
	if edit.status/100 != 2 {
		t.Errorf("the edit answers %d: %s", edit.status, edit.raw)
	}
	// Enqueue twice; the first is taken back.
	send("ses_steer", "enqueue").into(t, &out)
	gone := w.ask("DELETE", "/v1/sessions/ses_steer/inbox/msg_ses_steer_enqueue", nil)
	if gone.status/100 != 2 {
		t.Errorf("the removal answers %d: %s", gone.status, gone.raw)
	}
	if got := w.ends(out.Run); got.Status != session.Cancelled {
		t.Errorf("the run of a message that was taken back is %s", got.Status)
	}
	close(gate)
	w.ends(run)
	again := w.send("ses_steer", submission{ID: "msg_ses_steer_steer", Parts: []part{{"text", "then steer"}}, OnBusy: "steer"})
	if got := w.ends(again.Run); got.Status != session.Completed || got.ID == run.ID {
		t.Errorf("a steer that outlived its run is answered by %s, %s", got.ID, got.Status)
	}
	heard := false
	for _, r := range w.llm.Requests() {
		heard = heard || r.LastUser() == "edited"
	}
	if !heard {
		t.Error("the provider never heard the edited steer")
	}
	late := w.ask("DELETE", "/v1/sessions/ses_steer/inbox/msg_ses_steer_steer", nil)
	if late.status != http.StatusConflict || late.problem(t).Code != "inbox_delivered" {
		t.Errorf("a late removal is answered %d: %s", late.status, late.raw)
	}
	w.cancel(w.snapshot("ses_reject").Runs[0].ID)
}

func TestMT03StreamsOfTwoSessionsDoNotBleed(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.SetDefault(func(r fakellm.Request) fakellm.Turn {
		var pieces []string
		for range 200 {
			pieces = append(pieces, r.LastUser()+"-")
		}
		return fakellm.Reply(fakellm.Text(pieces...))
	})
	one, two := w.submit("ses_1", "S1"), w.submit("ses_2", "S2")
	w.ends(one)
	w.ends(two)
	for id, foreign := range map[string]string{"ses_1": "S2-", "ses_2": "S1-"} {
		for _, f := range w.log(id, 0, 1000) {
			if strings.Contains(f.raw, foreign) {
				t.Errorf("%s has %s", id, f.raw)
			}
		}
	}
}

func TestMT04ARepeatedStartGetsItsOwnAnswer(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.SetDefault(func(r fakellm.Request) fakellm.Turn { return fakellm.Reply(fakellm.Text("re:" + r.LastUser())) })
	a := w.send("ses", say("ka", "a"))
	b := w.send("ses", say("kb", "b"))
	again := w.send("ses", say("ka", "a"))
	if again.Run.ID != a.Run.ID || again.Run.ID == b.Run.ID {
		t.Errorf("the repeat is answered by %s, not %s", again.Run.ID, a.Run.ID)
	}
	w.ends(a.Run)
	w.ends(b.Run)
	messages := w.snapshot("ses").Messages
	for i := 0; i+1 < len(messages); i += 2 {
		if messages[i+1].Text() != "re:"+messages[i].Text() {
			t.Errorf("%q is answered %q", messages[i].Text(), messages[i+1].Text())
		}
	}
}
