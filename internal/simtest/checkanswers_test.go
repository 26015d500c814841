package simtest

import (
	"github.com/holdfast-run/holdfast/session"
)

// checkAnswers checks that each message that a log accepted is answered by
// exactly one run, or was taken back, and that a steer is heard before the next
// model call of its run.
func (w *world) checkAnswers(h *history) {
	type message struct {
		accepted, delivered, removed int
		runs                         []string // that were queued for it, retries left out
	}
	messages := map[string]*message{}
	of := func(id string) *message {
		if messages[id] == nil {
			messages[id] = &message{}
		}
		return messages[id]
	}
	inputs := map[string]string{} // what each run answers
	// What waits in the inbox, and for a steer the run that must hear it.
	waiting := map[string]string{}
	in := func(id string) bool { _, ok := waiting[id]; return ok }
	for _, e := range h.list {
		switch d := e.Data.(type) {
		case session.RunQueued:
			if d.RetryOf == "" {
				of(d.Input).runs = append(of(d.Input).runs, e.Run)
			}
			inputs[e.Run] = d.Input
			if in(d.Input) {
				waiting[d.Input] = "" // a steer whose run ended has a run of its own
			}
		case session.InboxQueued:
			of(d.Item.Message.ID).accepted++
			waiting[d.Item.Message.ID] = ""
			if d.Item.Mode == session.Steer {
				waiting[d.Item.Message.ID] = d.Item.Run
			}
		case session.InboxRemoved:
			if !in(d.ID) {
				w.find("%s is removed from the inbox of %s, where it is not (%d)", d.ID, h.session, e.Seq)
			}
			delete(waiting, d.ID)
			of(d.ID).removed++
		case session.InboxDelivered:
			if !in(d.ID) {
				w.find("%s is delivered from the inbox of %s, where it is not (%d)", d.ID, h.session, e.Seq)
			}
			delete(waiting, d.ID)
		case session.StepStarted:
			for id, run := range waiting {
				if run == e.Run {
					w.find("%s asks its model in %s and was not told %s (%d)", run, h.session, id, e.Seq)
				}
			}
		case session.MessageCreated:
			if d.Message.Role == session.RoleUser {
				m := of(d.Message.ID)
				m.delivered++
				if m.accepted == 0 {
					m.accepted++ // at once
				}
			}
		}
	}
	for id := range waiting {
		w.find("%s waits in the inbox of %s for ever", id, h.session)
	}
	state := session.Fold(h.session, h.list)
	for id, m := range messages {
		if m.accepted != 1 || m.delivered+m.removed != 1 {
			w.find("%s in %s was accepted %d times, delivered %d times and taken back %d times", id, h.session, m.accepted, m.delivered, m.removed)
			continue
		}
		if len(m.runs) > 1 {
			w.find("%s in %s has the runs %v", id, h.session, m.runs)
		}
		if m.delivered == 0 {
			continue
		}
		// A steer has no run of its own: it is answered by the one that heard it.
		run := state.Run(state.Message(id).Run)
		if run == nil || !run.Status.Terminal() || len(m.runs) == 1 && m.runs[0] != run.ID {
			w.find("%s in %s is to be answered by %s, and its runs are %v", id, h.session, state.Message(id).Run, m.runs)
			continue
		}
		w.checkAnswered(h, state, id, run)
	}
	for run, input := range inputs {
		if state.Message(input) == nil && state.Run(run).Status != session.Cancelled {
			w.find("%s in %s answers %s, which is not there", run, h.session, input)
		}
	}
}

// checkAnswered checks that a run that came to begin left an answer below the message.
func (w *world) checkAnswered(h *history, state *session.State, id string, run *session.Run) {
	if run.StartedAt == nil {
		if run.Status != session.Cancelled {
			w.find("%s in %s is %s and was never started", run.ID, h.session, run.Status)
		}
		return
	}
	for _, m := range state.Messages {
		if m.Role == session.RoleAssistant && m.Run == run.ID && m.Parent == id {
			return
		}
		if m.Role == session.RoleUser && m.Run == run.ID && m.Parent == id {
			return // another steer was heard with it
		}
	}
	w.find("nothing answers %s in %s, although %s was started", id, h.session, run.ID)
}
