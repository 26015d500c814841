package faults

import (
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/session"
)

// aside sends a text in the background and gives the run.
func (w *world) aside(sessionID, id, text string) session.Run {
	w.t.Helper()
	m := say(id, text)
	m.Background = true
	return w.send(sessionID, m).Run
}

// path is the active branch, a word a message.
func (w *world) path(sessionID string) []string {
	var words []string
	for _, m := range w.snapshot(sessionID).Messages {
		switch {
		case m.Background != nil && m.Background.Error != nil:
			words = append(words, "failed: "+m.Background.Title)
		case m.Background != nil:
			words = append(words, "result: "+m.Text())
		default:
			words = append(words, m.Text())
		}
	}
	return words
}

// told counts how often the log tells of a background run.
func (w *world) told(sessionID, run string) int {
	n := 0
	for _, e := range w.events(sessionID, "message.created") {
		if b := e.Data.(session.MessageCreated).Message.Background; b != nil && b.Run == run {
			n++
		}
	}
	return n
}

func TestABackgroundRunTellsItsResultOnceWhateverDies(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(
		fakellm.Reply(fakellm.Text("Thinking"), fakellm.WaitGate("front")).On(fakellm.Match{LastUser: "a long question"}),
		fakellm.Reply(fakellm.Text("Looking"), fakellm.BlackHole()).On(fakellm.Match{LastUser: "look it up"}),
	)
	w.submit("ses", "hello")
	w.until(w.run(w.snapshot("ses").Runs[0].ID), "to end", func(r session.Run) bool { return r.Status.Terminal() })
	front := w.submit("ses", "a long question")
	aside := w.aside("ses", "msg_aside", "look it up")
	w.arrives(3)
	if s := w.snapshot("ses"); slices.ContainsFunc(s.Messages, func(m session.Message) bool { return m.ID == "msg_aside" || len(m.Siblings) > 0 }) {
		t.Error("the background run's message is in the conversation")
	}
	// Killed in the middle of both; the one in the background ends first this time.
	w.llm.Script(
		fakellm.Reply(fakellm.Text("Thought"), fakellm.WaitGate("front"), fakellm.Text(" about it.")).On(fakellm.Match{LastUser: "a long question"}),
		fakellm.Reply(fakellm.Text("Looked up.")).On(fakellm.Match{LastUser: "look it up"}),
		fakellm.Reply(fakellm.Status{Code: 401}).On(fakellm.Match{LastUser: "in vain"}),
	)
	w.crash()
	if got := w.ends(aside); got.Status != session.Completed {
		t.Fatalf("the background run is %s: %+v", got.Status, got.Error)
	}
	failed := w.ends(w.aside("ses", "msg_vain", "in vain"))
	next := w.send("ses", say("msg_next", "and then")).Run
	// Killed when both have ended and nothing is told yet.
	w.llm.Script(fakellm.Reply(fakellm.Text("Thought"), fakellm.WaitGate("front2"), fakellm.Text(" about it.")).On(fakellm.Match{LastUser: "a long question"}))
	w.crash()
	if n := w.told("ses", aside.ID) + w.told("ses", failed.ID); n > 0 {
		t.Errorf("%d results are told while the active run goes on", n)
	}
	w.llm.OpenGate("front")
	w.llm.OpenGate("front2")
	w.ends(front)
	w.ends(next)
	want := []string{"result: Looked up.", "failed: in vain"}
	got := w.path("ses")
	if len(got) < 7 || !slices.Equal(got[4:6], want) || got[6] != "and then" {
		t.Errorf("the conversation is %q", got)
	}
	w.crash()
	for _, run := range []string{aside.ID, failed.ID} {
		if n := w.told("ses", run); n != 1 {
			t.Errorf("the result of %s is told %d times", run, n)
		}
	}
	w.continues("ses")
}

func TestACancelledBackgroundRunTellsNothing(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(fakellm.Reply(fakellm.Text("on and"), fakellm.BlackHole()))
	run := w.aside("ses", "msg_aside", "go")
	w.arrives(1)
	w.cancel(run.ID)
	if got := w.ends(run); got.Status != session.Cancelled {
		t.Fatalf("it is %s", got.Status)
	}
	if s := w.snapshot("ses"); len(s.Messages) > 0 || s.Head != "" {
		t.Errorf("the conversation has %d messages", len(s.Messages))
	}
}

func TestABackgroundRunAsksAPersonAsAny(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(
		fakellm.Reply(fakellm.Call{ID: "c", Name: "pay", Args: `{"note":"A1"}`}).On(fakellm.Match{LastUser: "pay"}),
		fakellm.Reply(fakellm.Text("Paid.")).On(fakellm.Match{LastUser: "pay"}),
	)
	run := w.aside("ses", "msg_aside", "pay")
	w.waits(run, session.WaitApproval)
	w.crash()
	w.decide(w.pending("ses")[0].ID, "approve")
	w.ends(run)
	if got := w.path("ses"); !slices.Equal(got, []string{"result: Paid."}) || len(w.ledger()) != 1 {
		t.Errorf("the conversation is %q, and the tool acted %d times", got, len(w.ledger()))
	}
	w.continues("ses")
}
