package faults

import (
	"encoding/json"
	"strings"

	"github.com/holdfast-run/holdfast/session"
)

// oracles asks, after every scenario, what must be true whatever happened.
func (w *world) oracles() {
	if w.t.Failed() || w.quietOracles {
		return
	}
	select {
	case <-w.srv.done:
		w.again() // a scenario may leave the server dead
	default:
	}
	for id := range w.seen {
		w.logIsDense(id)
		w.runsEndOnce(id)
		w.pageEqualsLog(id)
		w.nothingIsLeftOpen(id)
	}
	w.ledgerEqualsLog()
	w.noSecretIsLogged()
}

// Oracle 1: the seqs are 1..n, and reading in pieces gives the same bytes.
func (w *world) logIsDense(id string) {
	whole := w.log(id, 0, 1000)
	joins(w.t.Errorf, whole, 0)
	pieces := w.log(id, 0, 7)
	if len(whole) != len(pieces) {
		w.t.Errorf("%s: %d frames at once, %d in pieces", id, len(whole), len(pieces))
		return
	}
	for i := range whole {
		if whole[i].raw != pieces[i].raw {
			w.t.Errorf("%s: frame %d differs in pieces: %s and %s", id, i, whole[i].raw, pieces[i].raw)
		}
	}
}

// Oracle 2: each run has exactly one terminal event, nothing of it comes after,
// no event of an older attempt comes after a newer one began, and list, detail,
// event and snapshot agree.
func (w *world) runsEndOnce(id string) {
	ended := map[string]session.Status{}
	attempts := map[string][2]int{}
	for _, e := range w.events(id) {
		if e.Run == "" {
			continue
		}
		if how, over := ended[e.Run]; over {
			w.t.Errorf("%s: run %s was %s, and then came %s (seq %d)", id, e.Run, how, e.Type(), e.Seq)
		}
		if a := attempts[e.Run]; e.Step > 0 && (e.Step < a[0] || e.Step == a[0] && e.Attempt < a[1]) {
			w.t.Errorf("%s: %s of step %d attempt %d comes after step %d attempt %d began (seq %d)", id, e.Type(), e.Step, e.Attempt, a[0], a[1], e.Seq)
		}
		switch e.Data.(type) {
		case session.StepStarted:
			attempts[e.Run] = [2]int{e.Step, e.Attempt}
		case session.RunCompleted:
			ended[e.Run] = session.Completed
		case session.RunFailed:
			ended[e.Run] = session.Failed
		case session.RunCancelled:
			ended[e.Run] = session.Cancelled
		}
	}
	var list struct{ Items []session.Run }
	w.ask("GET", "/v1/runs?limit=200&session="+id, nil).into(w.t, &list)
	for _, r := range list.Items {
		detail := w.run(r.ID)
		how, over := ended[r.ID]
		if detail.Status != r.Status || r.Status.Terminal() != over || over && how != r.Status {
			w.t.Errorf("%s: run %s is %s in the list, %s in detail, %q in the log", id, r.ID, r.Status, detail.Status, how)
		}
	}
}

// Oracle 3: the snapshot is the fold of the log.
func (w *world) pageEqualsLog(id string) {
	folded := false
	state := session.New(id)
	for _, f := range w.log(id, 0, 1000) {
		if f.Type == "folded" {
			folded = true
			continue
		}
		state.Apply(f.event)
	}
	snap := w.snapshot(id)
	if snap.Seq != state.Seq || snap.Head != state.Head {
		w.t.Errorf("%s: the snapshot is at %d, head %s; the log at %d, head %s", id, snap.Seq, snap.Head, state.Seq, state.Head)
		return
	}
	for _, m := range snap.Messages {
		want := state.Message(m.ID)
		if want == nil {
			w.t.Errorf("%s: the snapshot has the message %s; the log has not", id, m.ID)
			continue
		}
		m.Siblings = nil
		if folded && m.Status == session.MessageStreaming {
			continue
		}
		got, _ := json.Marshal(m)
		expected, _ := json.Marshal(want)
		if string(got) != string(expected) {
			w.t.Errorf("%s: the message %s is in the snapshot\n%s\nand in the log\n%s", id, m.ID, got, expected)
		}
	}
}

// Oracles 5: every effect that the ledger counts is a start that some log counts.
func (w *world) ledgerEqualsLog() {
	starts := map[string]int{}
	for id := range w.seen {
		for _, e := range w.events(id, "tool.started") {
			starts[e.Data.(session.ToolStarted).Key]++
		}
	}
	effects := map[string]int{}
	for _, line := range w.ledger() {
		fields := strings.Fields(line)
		if len(fields) >= 2 {
			effects[fields[1]]++
		}
	}
	for key, n := range effects {
		if n > starts[key] {
			w.t.Errorf("the call with key %s acted %d times and was started %d times", key, n, starts[key])
		}
	}
}

// Oracle 6: when all runs are over, nothing is open: no part, no approval, no provider stream.
func (w *world) nothingIsLeftOpen(id string) {
	snap := w.snapshot(id)
	for _, r := range snap.Runs {
		if !r.Status.Terminal() {
			return
		}
	}
	if n := len(w.pending(id)); n > 0 {
		w.t.Errorf("%s: all runs are over, and %d approvals are pending", id, n)
	}
	for _, m := range snap.Messages {
		if m.Status == session.MessageStreaming {
			w.t.Errorf("%s: all runs are over, and the message %s streams", id, m.ID)
		}
		for _, p := range m.Parts {
			if p.State == session.PartStreaming || p.Tool != nil && !p.Tool.Status.Settled() {
				w.t.Errorf("%s: all runs are over, and a part of %s is open", id, m.ID)
			}
		}
	}
}

// continues is oracle 4: the session takes another message, and the provider accepts its history.
func (w *world) continues(id string) session.Run {
	w.t.Helper()
	before := len(w.llm.Refused())
	run := w.ends(w.submit(id, "continue"))
	if run.Status != session.Completed {
		w.t.Errorf("%s: the next message's run is %s: %+v", id, run.Status, run.Error)
	}
	for _, r := range w.llm.Refused()[before:] {
		w.t.Errorf("%s: the provider refuses the history: %s", id, r.Refusal)
	}
	return run
}

// No key is ever in a log, of the session or of the server.
func (w *world) noSecretIsLogged() {
	for name, secret := range map[string]string{"the provider's key": "sk-fake-secret", "the secret of HTTP tools": httpSecret, "the callback key": callbackKey} {
		if strings.Contains(w.srv.logged(), secret) {
			w.t.Errorf("the server's log has %s", name)
		}
		for id := range w.seen {
			for _, f := range w.log(id, 0, 1000) {
				if strings.Contains(f.raw, secret) {
					w.t.Errorf("the log of %s has %s", id, name)
				}
			}
		}
	}
}
