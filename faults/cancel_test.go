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
