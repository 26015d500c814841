package faults

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/session"
)

// fork copies a session up to a message.
func (w *world) fork(from, message, id string) answer {
	w.t.Helper()
	w.seen[id] = true
	return w.ask("POST", "/v1/sessions/"+from+"/fork", map[string]string{"id": id, "message": message})
}

func TestAForkIsACopyThatOutlivesItsSource(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(
		fakellm.Reply(fakellm.Call{ID: "c", Name: "output", Args: `{"letters":200000}`}),
		fakellm.Reply(fakellm.Text("I looked.")),
	)
	w.ends(w.submit("ses", "look"))
	w.ends(w.submit("ses", "and then"))
	source := w.snapshot("ses")
	at := source.Messages[1]
	if a := w.fork("ses", at.ID, "ses_fork"); a.status != http.StatusCreated {
		t.Fatalf("HTTP %d: %s", a.status, a.raw)
	}
	w.crash()
	if a := w.fork("ses", at.ID, "ses_fork"); a.status != http.StatusOK {
		t.Errorf("the same again: HTTP %d: %s", a.status, a.raw)
	}
	if p := w.fork("ses", source.Messages[0].ID, "ses_fork").problem(t); p.Code != "message_conflict" {
		t.Errorf("another fork under the same id: %s", p.Code)
	}
	if p := w.fork("ses", "msg_nowhere", "ses_none").problem(t); p.Code != "not_found" {
		t.Errorf("of no message: %s", p.Code)
	}
	delete(w.seen, "ses_none")
	delete(w.seen, "ses")
	w.ask("DELETE", "/v1/sessions/ses", nil)
	if a := w.fork("ses", at.ID, "ses_fork"); a.status != http.StatusOK {
		t.Errorf("the same again without its source: HTTP %d: %s", a.status, a.raw)
	}
	s := w.snapshot("ses_fork")
	if len(s.Messages) != 2 || s.Head != at.ID || s.Session.Title != "look (fork)" || s.Session.ForkedFrom == nil || s.Session.ForkedFrom.Message != at.ID {
		t.Fatalf("the fork is %+v with %d messages", s.Session, len(s.Messages))
	}
	var call *session.ToolCall
	for _, p := range s.Messages[1].Parts {
		if p.Tool != nil {
			call = p.Tool
		}
	}
	if call == nil || call.Blob == nil {
		t.Fatal("the fork has no large result")
	}
	if a := w.ask("GET", "/v1/sessions/ses_fork/blobs/"+call.Blob.Hash, nil); a.status != http.StatusOK || !strings.Contains(string(a.raw), "aaaaaaaa") {
		t.Errorf("the large result: HTTP %d with %d bytes", a.status, len(a.raw))
	}
	w.continues("ses_fork")
}

func TestAMessageThatIsBeingWrittenCannotBeForked(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(fakellm.Reply(fakellm.Text("half"), fakellm.WaitGate("rest")))
	run := w.submit("ses", "go")
	run = w.until(run, "to write", func(r session.Run) bool { return r.CurrentStep == 1 })
	p := w.fork("ses", run.Message, "ses_fork").problem(t)
	if p.Code != "run_active" || p.Run == nil || p.Run.ID != run.ID {
		t.Errorf("the refusal is %+v", p)
	}
	delete(w.seen, "ses_fork")
	if a := w.fork("ses", run.Input, "ses_question"); a.status != http.StatusCreated { // the question is whole
		t.Errorf("HTTP %d: %s", a.status, a.raw)
	}
	w.llm.OpenGate("rest")
	w.ends(run)
	if got := w.path("ses_question"); !slices.Equal(got, []string{"go"}) {
		t.Errorf("the fork says %q", got)
	}
}

func TestABranchIsReadWithoutBeingShown(t *testing.T) {
	w := newWorld(t, settings{})
	w.ends(w.submit("ses", "one"))
	first := w.snapshot("ses").Messages
	w.ends(w.submit("ses", "two"))
	edit := say("msg_edit", "two, but better")
	edit.Parent = &first[1].ID
	w.ends(w.send("ses", edit).Run)
	siblings := w.snapshot("ses").Messages[2].Siblings
	if len(siblings) != 2 {
		t.Fatalf("the siblings are %v", siblings)
	}
	var page struct {
		Messages []session.Message
		HasMore  bool
	}
	w.ask("GET", "/v1/sessions/ses/messages?through="+siblings[0], nil).into(t, &page)
	if len(page.Messages) != 2 || page.Messages[0].Text() != "two" || page.HasMore {
		t.Errorf("the other branch has %d messages, and more: %v", len(page.Messages), page.HasMore)
	}
	w.ask("GET", "/v1/sessions/ses/messages?limit=1&through="+first[0].ID, nil).into(t, &page)
	if len(page.Messages) != 1 || page.Messages[0].ID != first[0].ID || !page.HasMore {
		t.Errorf("the first page has %d messages, and more: %v", len(page.Messages), page.HasMore)
	}
	if p := w.ask("GET", "/v1/sessions/ses/messages?before="+siblings[1]+"&through="+siblings[0], nil).problem(t); p.Code != "invalid" {
		t.Errorf("both ways: %s", p.Code)
	}
	if head := w.snapshot("ses").Messages[2].ID; head != "msg_edit" {
		t.Errorf("the branch that is shown has changed to %s", head)
	}
}
