package chat

import (
	"github.com/holdfast-run/holdfast/session"
)

// tail shows the last n messages of the conversation as the snapshot has them,
// so that what follows has something to follow.
func (t *teller) tail(n int) {
	if !t.live() {
		return
	}
	path := t.mirror.Path(t.mirror.Head)
	if len(path) > n {
		t.note(dim, "… earlier messages")
		path = path[len(path)-n:]
	}
	for _, id := range path {
		m := t.mirror.Message(id)
		if m.Role == session.RoleUser {
			t.said(m)
			continue
		}
		t.told(m)
	}
}

// told shows a message of the assistant.
func (t *teller) told(m *session.Message) {
	run := t.mirror.Run(m.Run)
	for i := range m.Parts {
		p := &m.Parts[i]
		switch {
		case p.Tool != nil:
			t.toldCall(p.Tool)
		case p.Type != session.PartText && p.Type != session.PartReasoning:
		case p.State == "" || run == nil || m.Status != session.MessageStreaming:
			t.notes.FreshLine()
			t.notes.Text(lookOf(p.Type), p.Text)
			t.cut(*p)
		default: // an attempt is under way, or has failed and is followed by another
			t.stream(session.Event{Run: run.ID, Step: run.CurrentStep, Attempt: run.Attempt}, p.Type, p.Part, p.Text)
		}
	}
	if m.Status != session.MessageStreaming {
		t.notes.FreshLine()
	}
	switch {
	case run == nil:
	case run.Status == session.Failed && run.Error != nil:
		t.note(red, "failed: %s (%s)", oneLine(run.Error.Message, 1000), run.Error.Code)
	case run.Status == session.Cancelled:
		t.note(yellow, "cancelled%s%s", by(run.CancelBy), quoted(run.CancelReason))
	case run.Status == session.Waiting && run.Error != nil:
		t.note(yellow, "attempt %d failed: %s (%s)", run.Attempt, oneLine(run.Error.Message, 300), run.Error.Code)
	}
}

// toldCall shows a tool call and how it ended, if it has.
func (t *teller) toldCall(c *session.ToolCall) {
	if c.Status == session.CallWriting {
		return
	}
	t.note(dim, "→ %s", t.called(c.Name, c))
	switch c.Status {
	case session.CallCompleted:
		t.note(dim, "✓ %s", t.result(c))
	case session.CallFailed:
		why := ""
		if c.Error != nil {
			why = c.Error.Message
		}
		t.note(red, "✗ %s failed: %s", oneLine(c.Name, 64), oneLine(why, t.width()))
	case session.CallDenied:
		t.note(yellow, "✗ %s was not allowed%s%s", oneLine(c.Name, 64), by(c.By), quoted(c.Note))
	case session.CallCancelled:
		t.note(dim, "✗ %s was cancelled", oneLine(c.Name, 64))
	}
}

// missed writes what the wanted run had said before it was followed.
func (t *teller) missed() {
	if t.answer == nil {
		return
	}
	for _, m := range t.mirror.Messages {
		if m.Role != session.RoleAssistant || m.Run != t.target {
			continue
		}
		for _, p := range m.Parts {
			if p.State == "" {
				t.answer.add([]session.Part{p})
			}
		}
	}
}
