package faults

import (
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/session"
)

// retry asks for a run to be gone on with, twice under one id.
func (w *world) retry(run, id string) session.Run {
	w.t.Helper()
	var out struct{ Run session.Run }
	for range 2 {
		w.ask("POST", "/v1/runs/"+run+"/retry", map[string]string{"id": id}).into(w.t, &out)
	}
	return out.Run
}

// keeps checks that the answer of a run begins with one whole call of charge,
// and that charge acted once in this world.
func (w *world) keeps(run session.Run, status session.CallStatus) {
	w.t.Helper()
	charges := 0
	for _, line := range w.ledger() {
		if strings.Contains(line, "charge") {
			charges++
		}
	}
	if charges != 1 {
		w.t.Errorf("the tool acted %d times: %q", charges, w.ledger())
	}
	messages := w.snapshot(run.Session).Messages
	m := messages[len(messages)-1]
	if m.ID != run.Message || len(m.Parts) < 3 {
		w.t.Fatalf("the branch ends in %s with %d parts, not in the retry's %s", m.ID, len(m.Parts), run.Message)
	}
	if c := m.Parts[1].Tool; m.Parts[0].Type != session.PartStep || c == nil || c.Name != "charge" || c.Status != status {
		w.t.Errorf("the answer begins with %+v", m.Parts[:2])
	}
}

func TestRT04ARetryGoesOnFromTheFailedStep(t *testing.T) {
	for name, kill := range map[string]func(w *world, run session.Run){
		"undisturbed":            func(*world, session.Run) {},
		"killed when accepted":   func(w *world, _ session.Run) { w.crash() },
		"killed in the step":     func(w *world, _ session.Run) { w.arrives(3); w.crash() },
		"killed in its own tool": func(w *world, _ session.Run) { w.llm.OpenGate("accepted"); w.srv.ended(w.t); w.again() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, settings{})
			w.llm.Script(
				fakellm.Reply(fakellm.Call{ID: "c", Name: "charge", Args: `{"note":"A1"}`}),
				fakellm.Reply(fakellm.Status{Code: 400}),
			)
			failed := w.ends(w.submit("ses", "go"))
			if failed.Status != session.Failed || failed.CurrentStep != 2 {
				t.Fatalf("the run is %s in step %d: %+v", failed.Status, failed.CurrentStep, failed.Error)
			}
			switch name {
			case "killed in the step":
				w.llm.Script(fakellm.Reply(fakellm.Text("It was ch"), fakellm.BlackHole()), fakellm.Reply(fakellm.Text("It was charged.")))
			case "killed in its own tool":
				w.llm.Script(fakellm.Reply(fakellm.WaitGate("accepted"), fakellm.Call{ID: "d", Name: "boom", Args: `{"die":"once"}`}), fakellm.Reply(fakellm.Text("It was charged.")))
			case "killed when accepted": // whether it was asked before it was killed or not
				w.llm.Script(fakellm.Reply(fakellm.Text("It was charged.")).On(fakellm.Match{LastUser: "go"}).Times(fakellm.Forever))
			default:
				w.llm.Script(fakellm.Reply(fakellm.Text("It was charged.")))
			}
			accepted := w.retry(failed.ID, "run_again")
			kill(w, accepted)
			got := w.ends(accepted)
			if got.Status != session.Completed || got.FromStep != 2 || got.RetryOf != failed.ID || !strings.HasSuffix(w.text("ses"), "It was charged.") {
				t.Errorf("the retry is %s from step %d with %q: %+v", got.Status, got.FromStep, w.text("ses"), got.Error)
			}
			w.keeps(got, session.CallCompleted)
			for _, r := range w.llm.Requests()[2:] {
				told := 0
				for _, m := range r.Messages {
					for _, result := range m.Results {
						if result.Text == "charge done" {
							told++
						}
					}
				}
				if told != 1 {
					t.Errorf("request %d was told of the charge %d times", r.Number, told)
				}
			}
			w.continues("ses")
		})
	}
}

func TestRT04ARetryDoesNotRepeatACallThatACancelCutShort(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(
		fakellm.Reply(fakellm.Call{ID: "c", Name: "charge", Args: `{"note":"A1","ms":60000}`}),
		fakellm.Reply(fakellm.Status{Code: 400}),
		fakellm.Reply(fakellm.Text("I do not know.")),
	)
	run := w.submit("ses", "go")
	w.until(run, "to charge", func(session.Run) bool { return len(w.ledger()) == 1 })
	w.cancel(run.ID)
	run = w.ends(run)
	if run.Status != session.Cancelled {
		t.Fatalf("the run is %s", run.Status)
	}
	// The first retry fails in its first step, and is retried itself.
	first := w.ends(w.retry(run.ID, "run_one"))
	if first.Status != session.Failed || first.FromStep != 2 {
		t.Fatalf("the first retry is %s from step %d", first.Status, first.FromStep)
	}
	w.crash()
	second := w.ends(w.retry(first.ID, "run_two"))
	if second.Status != session.Completed || second.FromStep != 2 {
		t.Errorf("the second retry is %s from step %d: %+v", second.Status, second.FromStep, second.Error)
	}
	w.keeps(second, session.CallCancelled)
	requests := w.llm.Requests()
	last := requests[len(requests)-1].Messages
	if m := last[len(last)-1]; len(m.Results) != 1 || !strings.Contains(m.Results[0].Text, "outcome is unknown") {
		t.Errorf("the model was told %+v", m)
	}
	if p := w.ask("POST", "/v1/runs/"+first.ID+"/retry", map[string]any{"id": "run_two", "fresh": true}); p.status != http.StatusConflict {
		t.Errorf("another retry under the same id: HTTP %d", p.status)
	}
}

func TestRT04ARetryOfASteeredRunFollowsTheSteer(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(
		fakellm.Reply(fakellm.Call{ID: "c", Name: "pay", Args: `{"note":"A1"}`}),
		fakellm.Reply(fakellm.Status{Code: 400}),
		fakellm.Reply(fakellm.Text("Steered.")),
	)
	run := w.submit("ses", "go")
	w.waits(run, session.WaitApproval)
	steer := say("msg_steer", "and be brief")
	steer.OnBusy = "steer"
	w.send("ses", steer)
	w.decide(w.pending("ses")[0].ID, "approve")
	run = w.ends(run)
	got := w.ends(w.retry(run.ID, "run_again"))
	if got.Status != session.Completed || got.Input != "msg_steer" || len(w.ledger()) != 1 {
		t.Errorf("the retry is %s of %s, and the tool acted %d times", got.Status, got.Input, len(w.ledger()))
	}
	s := w.snapshot("ses")
	if len(s.Messages) != 4 || s.Messages[3].ID != got.Message || s.Messages[2].ID != "msg_steer" {
		t.Errorf("the branch has %d messages", len(s.Messages))
	}
	w.continues("ses")
}
