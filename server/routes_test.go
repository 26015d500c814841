package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/memory"
)

func TestARefusalHasItsStatusItsCodeAndItsField(t *testing.T) {
	w := newWorld(t, worldOptions{})
	w.say("ses_1", "msg_1", "hello")
	long := strings.Repeat("x", 129)
	text := `"parts":[{"type":"text","text":"hi"}]`
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		code                     api.Code
		field                    string
	}{
		{"an unknown path", "GET", "/v1/nothing", "", 404, api.NotFound, ""},
		{"the root", "GET", "/", "", 404, api.NotFound, ""},
		{"a wrong method", "PUT", "/v1/sessions/ses_1", `{}`, 405, api.MethodNotAllowed, ""},
		{"no preflight by default", "OPTIONS", "/v1/sessions", "", 405, api.MethodNotAllowed, ""},

		{"a session id too long", "GET", "/v1/sessions/" + long, "", 400, api.InvalidID, "id"},
		{"a session id with a slash", "GET", "/v1/sessions/a%2Fb", "", 400, api.InvalidID, "id"},
		{"a session id with a NUL", "GET", "/v1/sessions/a%00b", "", 400, api.InvalidID, "id"},
		{"a session id with a dot", "DELETE", "/v1/sessions/a.b", "", 400, api.InvalidID, "id"},
		{"no such session", "GET", "/v1/sessions/ses_none", "", 404, api.NotFound, ""},
		{"no such session to change", "PATCH", "/v1/sessions/ses_none", `{"title":"x"}`, 404, api.NotFound, ""},
		{"no such session to delete", "DELETE", "/v1/sessions/ses_none", "", 404, api.NotFound, ""},
		{"a window of nothing", "GET", "/v1/sessions/ses_1?window=0", "", 422, api.Invalid, "window"},
		{"a window too large", "GET", "/v1/sessions/ses_1?window=201", "", 422, api.Invalid, "window"},
		{"a window that is a word", "GET", "/v1/sessions/ses_1?window=many", "", 422, api.Invalid, "window"},
		{"an unknown query value", "GET", "/v1/sessions?serach=x", "", 422, api.Invalid, "serach"},
		{"a limit too large", "GET", "/v1/sessions?limit=201", "", 422, api.Invalid, "limit"},
		{"a cursor of another make", "GET", "/v1/sessions?cursor=mine", "", 400, api.InvalidCursor, "cursor"},

		{"an id with a NUL", "POST", "/v1/sessions", `{"id":"a\u0000b"}`, 400, api.InvalidID, "id"},
		{"an id with a space", "POST", "/v1/sessions", `{"id":"a b"}`, 400, api.InvalidID, "id"},
		{"an empty id", "POST", "/v1/sessions", `{"id":""}`, 400, api.InvalidID, "id"},
		{"an id that is a number", "POST", "/v1/sessions", `{"id":7}`, 422, api.Invalid, "id"},
		{"an unknown agent", "POST", "/v1/sessions", `{"agent":"nobody"}`, 422, api.Invalid, "agent"},
		{"a title over 500 bytes", "POST", "/v1/sessions", `{"title":"` + strings.Repeat("é", 251) + `"}`, 422, api.Invalid, "title"},
		{"metadata that is a list", "POST", "/v1/sessions", `{"metadata":[]}`, 422, api.Invalid, "metadata"},
		{"metadata that is null", "POST", "/v1/sessions", `{"metadata":null}`, 422, api.Invalid, "metadata"},
		{"metadata over 16 KiB", "PATCH", "/v1/sessions/ses_1", `{"metadata":{"x":"` + strings.Repeat("x", 16<<10) + `"}}`, 422, api.Invalid, "metadata"},
		{"a head that is no message", "PATCH", "/v1/sessions/ses_1", `{"head":"msg_none"}`, 404, api.NotFound, "head"},

		{"no body", "POST", "/v1/sessions/ses_1/messages", "", 400, api.Malformed, ""},
		{"a body that is cut", "POST", "/v1/sessions/ses_1/messages", `{"id":"msg_2","par`, 400, api.Malformed, ""},
		{"a body and more", "POST", "/v1/sessions/ses_1/messages", `{"id":"msg_2",` + text + `}{}`, 400, api.Malformed, ""},
		{"a body that is a list", "POST", "/v1/sessions/ses_1/messages", `[]`, 422, api.Invalid, ""},
		{"a body that is null", "POST", "/v1/sessions/ses_1/messages", `null`, 422, api.Invalid, ""},
		{"a message id with a dot", "POST", "/v1/sessions/ses_1/messages", `{"id":"msg.2",` + text + `}`, 400, api.InvalidID, "id"},
		{"no parts", "POST", "/v1/sessions/ses_1/messages", `{"id":"msg_2"}`, 422, api.Invalid, ""},
		{"parts that are null", "POST", "/v1/sessions/ses_1/messages", `{"id":"msg_2","parts":null}`, 422, api.Invalid, "parts"},
		{"an empty list of parts", "POST", "/v1/sessions/ses_1/messages", `{"id":"msg_2","parts":[]}`, 422, api.Invalid, "parts"},
		{"too many parts", "POST", "/v1/sessions/ses_1/messages", `{"id":"msg_2","parts":[` + strings.Repeat(`{"type":"text","text":"x"},`, 100) + `{"type":"text","text":"x"}]}`, 422, api.Invalid, "parts"},
		{"an empty text", "POST", "/v1/sessions/ses_1/messages", `{"id":"msg_2","parts":[{"type":"text","text":""}]}`, 422, api.Invalid, "parts.0.text"},
		{"a part of the assistant's", "POST", "/v1/sessions/ses_1/messages", `{"id":"msg_2","parts":[{"type":"tool"}]}`, 422, api.Invalid, "parts.0.type"},
		{"a part with another's field", "POST", "/v1/sessions/ses_1/messages", `{"id":"msg_2","parts":[{"type":"text","text":"x"},{"type":"data","data":1,"text":"x"}]}`, 422, api.Invalid, "parts.1.text"},
		{"a file without a media type", "POST", "/v1/sessions/ses_1/messages", `{"id":"msg_2","parts":[{"type":"file","file":{"url":"https://x/y"}}]}`, 422, api.Invalid, "parts.0.file"},
		{"a file of this machine", "POST", "/v1/sessions/ses_1/messages", `{"id":"msg_2","parts":[{"type":"file","file":{"mediaType":"text/plain","url":"file:///etc/passwd"}}]}`, 422, api.Invalid, "parts.0.file.url"},
		{"a file without a scheme", "POST", "/v1/sessions/ses_1/messages", `{"id":"msg_2","parts":[{"type":"file","file":{"mediaType":"text/plain","url":"//x/y"}}]}`, 422, api.Invalid, "parts.0.file.url"},
		{"an unknown onBusy", "POST", "/v1/sessions/ses_1/messages", `{"id":"msg_2","onBusy":"wait",` + text + `}`, 422, api.Invalid, "onBusy"},
		{"an unknown parent", "POST", "/v1/sessions/ses_1/messages", `{"id":"msg_2","parent":"msg_none",` + text + `}`, 404, api.NotFound, "parent"},
		{"a parent that is no id", "POST", "/v1/sessions/ses_1/messages", `{"id":"msg_2","parent":"a/b",` + text + `}`, 400, api.InvalidID, "parent"},
		{"a message again, with other words", "POST", "/v1/sessions/ses_1/messages", `{"id":"msg_1",` + text + `}`, 409, "message_conflict", "id"},
		{"a busy session", "POST", "/v1/sessions/ses_1/messages", `{"id":"msg_2","onBusy":"reject",` + text + `}`, 409, "run_active", "onBusy"},
		{"a page before nothing", "GET", "/v1/sessions/ses_1/messages?before=msg_none", "", 404, api.NotFound, "before"},
		{"a page before what is no id", "GET", "/v1/sessions/ses_1/messages?before=a/b", "", 400, api.InvalidID, "before"},

		{"an inbox message that never was", "PATCH", "/v1/sessions/ses_1/inbox/msg_none", `{` + text + `}`, 404, api.NotFound, ""},
		{"an inbox message to remove that never was", "DELETE", "/v1/sessions/ses_1/inbox/msg_none", "", 404, api.NotFound, ""},
		{"an inbox message that was delivered", "DELETE", "/v1/sessions/ses_1/inbox/msg_1", "", 409, "inbox_delivered", ""},
		{"an inbox message edited to nothing", "PATCH", "/v1/sessions/ses_1/inbox/msg_1", `{"parts":[]}`, 422, api.Invalid, "parts"},

		{"no such run", "GET", "/v1/runs/run_none", "", 404, api.NotFound, ""},
		{"no such run to cancel", "POST", "/v1/runs/run_none/cancel", "", 404, api.NotFound, ""},
		{"no such run to retry", "POST", "/v1/runs/run_none/retry", "{}", 404, api.NotFound, ""},
		{"no such run with a call", "POST", "/v1/runs/run_none/tools/call_1", `{"outcome":"failed"}`, 404, api.NotFound, ""},
		{"runs of no status", "GET", "/v1/runs?status=running,sleeping", "", 422, api.Invalid, "status.1"},
		{"runs of no reason", "GET", "/v1/runs?reason=laziness", "", 422, api.Invalid, "reason"},
		{"runs of what is no session", "GET", "/v1/runs?session=a/b", "", 400, api.InvalidID, "session"},
		{"a long reason", "POST", "/v1/runs/run_none/cancel", `{"reason":"` + strings.Repeat("é", 501) + `"}`, 422, api.Invalid, "reason"},
		{"an unknown outcome", "POST", "/v1/runs/run_none/tools/call_1", `{"outcome":"maybe"}`, 422, api.Invalid, "outcome"},
		{"no such approval", "GET", "/v1/approvals/apr_none", "", 404, api.NotFound, ""},
		{"no such approval to decide", "POST", "/v1/approvals/apr_none", `{"decision":"deny"}`, 404, api.NotFound, ""},
		{"no decision", "POST", "/v1/approvals/apr_none", `{}`, 422, api.Invalid, ""},
		{"an unknown decision", "POST", "/v1/approvals/apr_none", `{"decision":"yes"}`, 422, api.Invalid, "decision"},
		{"approvals of no status", "GET", "/v1/approvals?status=open", "", 422, api.Invalid, "status"},

		{"events of no session", "GET", "/v1/sessions/ses_none/events", "", 404, api.NotFound, ""},
		{"events of what is no id", "GET", "/v1/sessions/a%00b/events", "", 400, api.InvalidID, "id"},
		{"too many events", "GET", "/v1/sessions/ses_1/events?limit=10001", "", 422, api.Invalid, "limit"},
		{"no events", "GET", "/v1/sessions/ses_1/events?limit=0", "", 422, api.Invalid, "limit"},
		{"a wait too long", "GET", "/v1/sessions/ses_1/events?wait=61s", "", 422, api.Invalid, "wait"},
		{"a wait without a unit", "GET", "/v1/sessions/ses_1/events?wait=5", "", 422, api.Invalid, "wait"},
		{"a misspelt cursor", "GET", "/v1/sessions/ses_1/events?afer=5", "", 422, api.Invalid, "afer"},
		{"a hash that is none", "GET", "/v1/sessions/ses_1/blobs/abc", "", 400, api.InvalidID, "hash"},
		{"no such blob", "GET", "/v1/sessions/ses_1/blobs/" + strings.Repeat("a", 64), "", 404, api.NotFound, ""},
		{"a blob of no session", "GET", "/v1/sessions/ses_none/blobs/" + strings.Repeat("a", 64), "", 404, api.NotFound, ""},
		{"a WebSocket without an upgrade", "GET", "/v1/connect", "", 426, api.UpgradeRequired, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var body any
			if c.body != "" {
				body = c.body
			}
			p := w.do(c.method, c.path, body).problem(c.status, c.code)
			fields := []string{}
			for _, e := range p.Errors {
				fields = append(fields, e.Field)
			}
			if c.field != "" && (len(fields) == 0 || fields[0] != c.field) {
				t.Errorf("fields are %q, want %q: %+v", fields, c.field, p)
			}
			if p.Detail == "" {
				t.Errorf("nothing for people: %+v", p)
			}
		})
	}
	var head struct{ Seq int64 }
	w.do("GET", "/v1/sessions/ses_1", nil).into(200, &head)
	if head.Seq != 3 {
		t.Errorf("refusals have written: seq is %d", head.Seq)
	}
}

func TestARouteNamesItsMethods(t *testing.T) {
	w := newWorld(t, worldOptions{})
	a := w.do("DELETE", "/v1/sessions", nil)
	a.problem(405, api.MethodNotAllowed)
	if got := a.header.Get("Allow"); got != "GET, HEAD, POST" {
		t.Errorf("Allow is %q", got)
	}
}

func TestASessionIsBegunOnce(t *testing.T) {
	w := newWorld(t, worldOptions{})
	var first, again api.SessionDone
	create := api.CreateSession{ID: "ses_1", Title: "plans", Agent: "other", Metadata: json.RawMessage(`{"n":12345678901234567890,"a":1,"a":2}`)}
	w.do("POST", "/v1/sessions", create).into(201, &first)
	if first.Seq != 1 || first.Session.ID != "ses_1" || first.Session.Title != "plans" || string(first.Session.Metadata) != `{"n":12345678901234567890,"a":1,"a":2}` {
		t.Errorf("begun as %+v", first)
	}
	create.Title = "other plans"
	w.do("POST", "/v1/sessions", create).into(200, &again)
	if again.Session.Title != "plans" || again.Seq != 1 {
		t.Errorf("begun again as %+v", again)
	}
	var unnamed api.SessionDone
	w.do("POST", "/v1/sessions", nil).into(201, &unnamed)
	if !strings.HasPrefix(unnamed.Session.ID, session.SessionPrefix) {
		t.Errorf("unnamed is %+v", unnamed)
	}
	w.do("POST", "/v1/sessions", "{}", "Idempotency-Key", "key-1").is(201)
	w.do("POST", "/v1/sessions", "{}", "Idempotency-Key", "key-1").is(200)
	w.do("POST", "/v1/sessions", "{}", "Idempotency-Key", "key 1").problem(400, api.InvalidID)
}

func TestASessionIsChangedListedAndDeleted(t *testing.T) {
	bothWays(t, worldOptions{}, func(t *testing.T, w *world) {
		for i := range 3 {
			w.do("POST", "/v1/sessions", api.CreateSession{ID: fmt.Sprintf("ses_%d", i), Title: fmt.Sprintf("Number %d", i)}).is(201)
		}
		title := "Zwölf"
		var done api.SessionDone
		w.do("PATCH", "/v1/sessions/ses_0", api.UpdateSession{Title: &title, Metadata: json.RawMessage(`{"a":1}`)}).into(200, &done)
		if done.Session.Title != title || string(done.Session.Metadata) != `{"a":1}` || done.Seq != 2 {
			t.Errorf("changed to %+v", done)
		}
		w.do("PATCH", "/v1/sessions/ses_0", "{}").into(200, &done)
		if done.Seq != 2 || done.Session.Title != title {
			t.Errorf("changed by nothing to %+v", done)
		}
		var found api.SessionList
		w.do("GET", "/v1/sessions?search=zW%C3%B6lf", nil).into(200, &found)
		if len(found.Items) != 1 || found.Items[0].ID != "ses_0" {
			t.Errorf("found %+v", found)
		}
		seen := map[string]bool{}
		for cursor := ""; ; {
			var page api.SessionList
			w.do("GET", "/v1/sessions?limit=2&cursor="+cursor, nil).into(200, &page)
			for _, row := range page.Items {
				if seen[row.ID] {
					t.Errorf("%s is listed twice", row.ID)
				}
				seen[row.ID] = true
			}
			if cursor = page.Next; cursor == "" {
				break
			}
		}
		if len(seen) != 3 {
			t.Errorf("listed %v", seen)
		}
		w.do("DELETE", "/v1/sessions/ses_0", nil).is(204)
		w.do("DELETE", "/v1/sessions/ses_0", nil).problem(404, api.NotFound)
	})
}

func TestAMessageSentAgainIsTheSameRun(t *testing.T) {
	bothWays(t, worldOptions{}, func(t *testing.T, w *world) {
		send := api.SendMessage{ID: "msg_1", Parts: []api.Part{{Type: session.PartText, Text: "hello"}}}
		var ids sync.Map
		var all sync.WaitGroup
		var accepted, repeated, other int
		var mu sync.Mutex
		for range 20 {
			all.Go(func() {
				a := w.do("POST", "/v1/sessions/ses_1/messages", send)
				var out api.MessageAccepted
				if err := json.Unmarshal(a.body, &out); err != nil {
					t.Error(err)
				}
				ids.Store(out.Run.ID, true)
				mu.Lock()
				defer mu.Unlock()
				switch a.status {
				case 202:
					accepted++
				case 200:
					repeated++
				default:
					other++
				}
			})
		}
		all.Wait()
		count := 0
		ids.Range(func(any, any) bool { count++; return true })
		if accepted != 1 || repeated != 19 || other != 0 || count != 1 {
			t.Errorf("%d accepted, %d repeated, %d other, %d runs", accepted, repeated, other, count)
		}
		lease := w.claim()
		w.end(lease, session.RunCompleted{})
		var out api.MessageAccepted
		w.do("POST", "/v1/sessions/ses_1/messages", send).into(200, &out)
		if out.Run.ID != lease.Run || out.Run.Status != session.Completed || len(out.Message.Parts) != 1 {
			t.Errorf("repeated after the end: %+v", out)
		}
	})
}

func TestTheIdempotencyKeyIsTheIDOfAMessageWithoutOne(t *testing.T) {
	w := newWorld(t, worldOptions{})
	text := func(s string) api.SendMessage {
		return api.SendMessage{Parts: []api.Part{{Type: session.PartText, Text: s}}}
	}
	var first, again api.MessageAccepted
	w.do("POST", "/v1/sessions/ses_1/messages", text("one"), "Idempotency-Key", "7f1c").into(202, &first)
	w.do("POST", "/v1/sessions/ses_1/messages", text("one"), "Idempotency-Key", "7f1c").into(200, &again)
	if first.Message.ID != "7f1c" || again.Run.ID != first.Run.ID {
		t.Errorf("%+v, then %+v", first, again)
	}
	w.do("POST", "/v1/sessions/ses_1/messages", text("two"), "Idempotency-Key", "7f1c").problem(409, "message_conflict")
	with := text("three")
	with.ID = "msg_3"
	w.do("POST", "/v1/sessions/ses_1/messages", with, "Idempotency-Key", "7f1c").into(202, &again)
	if again.Message.ID != "msg_3" {
		t.Errorf("the key won over the id: %+v", again)
	}
}

func TestAWaitingMessageIsEditedAndTakenBack(t *testing.T) {
	w := newWorld(t, worldOptions{})
	w.say("ses_1", "msg_1", "first")
	second := w.say("ses_1", "msg_2", "second")
	if second.Inbox == nil || second.Inbox.Message.ID != "msg_2" || second.Run.Status != session.Queued {
		t.Fatalf("second is %+v", second)
	}
	var edited api.InboxDone
	w.do("PATCH", "/v1/sessions/ses_1/inbox/msg_2", api.EditInbox{Parts: []api.Part{{Type: session.PartText, Text: "better"}}}).into(200, &edited)
	if edited.Inbox.Message.Text() != "better" || edited.Seq <= second.Seq {
		t.Errorf("edited to %+v", edited)
	}
	var snap holdfast.Snapshot
	w.do("GET", "/v1/sessions/ses_1", nil).into(200, &snap)
	if len(snap.Inbox) != 1 || snap.Inbox[0].Message.Text() != "better" || snap.Seq != edited.Seq {
		t.Errorf("snapshot has %+v", snap)
	}
	w.do("DELETE", "/v1/sessions/ses_1/inbox/msg_2", nil).is(204)
	w.do("DELETE", "/v1/sessions/ses_1/inbox/msg_2", nil).problem(409, "inbox_delivered")
	var run session.Run
	w.do("GET", "/v1/runs/"+second.Run.ID, nil).into(200, &run)
	if run.Status != session.Cancelled {
		t.Errorf("the run of the message that was taken back is %s", run.Status)
	}
	var again api.MessageAccepted
	w.do("POST", "/v1/sessions/ses_1/messages", api.SendMessage{ID: "msg_2", Parts: []api.Part{{Type: session.PartText, Text: "second"}}}).into(200, &again)
	if again.Message.ID != "msg_2" || again.Run.Status != session.Cancelled || again.Inbox != nil {
		t.Errorf("sent again: %+v", again)
	}
}

func TestTheInboxIsBounded(t *testing.T) {
	w := newWorld(t, worldOptions{})
	for i := range session.MaxInbox + 1 {
		w.say("ses_1", fmt.Sprintf("msg_%d", i), "hello")
	}
	w.do("POST", "/v1/sessions/ses_1/messages", api.SendMessage{ID: "msg_more", Parts: []api.Part{{Type: session.PartText, Text: "x"}}}).problem(429, "inbox_full")
}

func TestCancelSaysWhoWon(t *testing.T) {
	w := newWorld(t, worldOptions{})
	queued := w.say("ses_1", "msg_1", "hello")
	var done api.RunDone
	w.do("POST", "/v1/runs/"+queued.Run.ID+"/cancel", api.CancelRun{Reason: "changed my mind"}).into(200, &done)
	if done.Run.Status != session.Cancelled || done.Run.CancelReason != "changed my mind" {
		t.Errorf("cancelled in the queue: %+v", done)
	}
	var again api.RunDone
	w.do("POST", "/v1/runs/"+queued.Run.ID+"/cancel", nil).into(200, &again)
	if again.Run.Status != session.Cancelled || again.Seq < done.Seq {
		t.Errorf("cancelled again: %+v", again)
	}

	w.say("ses_2", "msg_1", "hello")
	lease := w.claim()
	w.do("POST", "/v1/runs/"+lease.Run+"/cancel", "").into(202, &done)
	if done.Run.Status != session.Running || done.Run.CancelDeadline == nil || done.Run.CancelRequestedAt == nil {
		t.Errorf("cancelled while it runs: %+v", done.Run)
	}
	w.do("POST", "/v1/runs/"+lease.Run+"/cancel", "{}").is(202)

	w.say("ses_3", "msg_1", "hello")
	lease = w.claim()
	w.end(lease, session.RunCompleted{})
	p := w.do("POST", "/v1/runs/"+lease.Run+"/cancel", nil).problem(409, "run_terminal")
	if p.Run == nil || p.Run.Status != session.Completed || p.Run.ID != lease.Run {
		t.Errorf("too late: %+v", p)
	}
}

func TestARetryIsANewRunOnce(t *testing.T) {
	w := newWorld(t, worldOptions{})
	first := w.say("ses_1", "msg_1", "hello")
	p := w.do("POST", "/v1/runs/"+first.Run.ID+"/retry", nil).problem(409, "run_not_terminal")
	if p.Run == nil || p.Run.ID != first.Run.ID {
		t.Errorf("not terminal: %+v", p)
	}
	w.end(w.claim(), session.RunFailed{Error: session.Failure{Code: "x", Message: "y"}})
	var done, again api.RunDone
	w.do("POST", "/v1/runs/"+first.Run.ID+"/retry", api.RetryRun{ID: "run_again"}).into(202, &done)
	w.do("POST", "/v1/runs/"+first.Run.ID+"/retry", api.RetryRun{ID: "run_again"}).into(200, &again)
	if done.Run.ID != "run_again" || done.Run.RetryOf != first.Run.ID || again.Run.ID != "run_again" {
		t.Errorf("%+v, then %+v", done, again)
	}
	p = w.do("POST", "/v1/runs/"+first.Run.ID+"/retry", nil).problem(409, "run_active")
	if p.Run == nil || p.Run.ID != "run_again" {
		t.Errorf("active: %+v", p)
	}
	w.do("POST", "/v1/runs/run_again/retry", api.RetryRun{ID: first.Run.ID}).problem(409, "message_conflict")
}

func TestRunsAreListedWithoutStepsAndByStatus(t *testing.T) {
	w := newWorld(t, worldOptions{})
	w.say("ses_1", "msg_1", "hello")
	lease := w.claim()
	run, err := w.store.Run(t.Context(), lease.Run)
	if err != nil {
		t.Fatal(err)
	}
	w.append("ses_1", session.Event{Run: lease.Run, Step: 1, Attempt: 1, Data: session.StepStarted{Message: run.Message}})
	w.say("ses_2", "msg_1", "hello")
	var list api.RunList
	w.do("GET", "/v1/runs?status=running", nil).into(200, &list)
	if len(list.Items) != 1 || list.Items[0].ID != lease.Run || list.Items[0].Steps != nil {
		t.Errorf("running: %+v", list)
	}
	w.do("GET", "/v1/runs?status=running,queued&session=ses_2", nil).into(200, &list)
	if len(list.Items) != 1 || list.Items[0].Session != "ses_2" {
		t.Errorf("of ses_2: %+v", list)
	}
	w.do("GET", "/v1/runs?reason=approval", nil).into(200, &list)
	if len(list.Items) != 0 {
		t.Errorf("waiting: %+v", list)
	}
	var one session.Run
	w.do("GET", "/v1/runs/"+lease.Run, nil).into(200, &one)
	if len(one.Steps) != 1 {
		t.Errorf("one: %+v", one)
	}
	var snap holdfast.Snapshot
	w.do("GET", "/v1/sessions/ses_1", nil).into(200, &snap)
	if len(snap.Runs) != 1 || snap.Runs[0].Steps != nil {
		t.Errorf("snapshot has %+v", snap.Runs)
	}
}

func TestPagesOfMessagesJoinWithoutOverlap(t *testing.T) {
	bothWays(t, worldOptions{}, func(t *testing.T, w *world) {
		for i := range 12 {
			w.say("ses_1", fmt.Sprintf("msg_%02d", i), "hello")
			w.end(w.claim(), session.RunCompleted{})
		}
		var got []string
		for before := ""; ; {
			query := "?limit=5"
			if before != "" {
				query += "&before=" + before
			}
			var page holdfast.MessagePage
			w.do("GET", "/v1/sessions/ses_1/messages"+query, nil).into(200, &page)
			ids := []string{}
			for _, m := range page.Messages {
				ids = append(ids, m.ID)
			}
			got = append(ids, got...)
			if !page.HasMore {
				break
			}
			before = ids[0]
		}
		if len(got) != 24 || got[0] != "msg_00" || got[22] != "msg_11" {
			t.Errorf("paged through %q", got)
		}
		var snap holdfast.Snapshot
		w.do("GET", "/v1/sessions/ses_1?window=3", nil).into(200, &snap)
		if len(snap.Messages) != 3 || !snap.HasMore || snap.Messages[2].ID != got[23] {
			t.Errorf("window: %+v", snap)
		}
	})
}

func TestAHeadIsTheNewestMessageBelow(t *testing.T) {
	w := newWorld(t, worldOptions{})
	w.say("ses_1", "msg_1", "one")
	w.end(w.claim(), session.RunCompleted{})
	w.say("ses_1", "msg_2", "two")
	w.end(w.claim(), session.RunCompleted{})
	var before holdfast.Snapshot
	w.do("GET", "/v1/sessions/ses_1", nil).into(200, &before)
	parent := before.Messages[1].ID
	w.do("POST", "/v1/sessions/ses_1/messages", api.SendMessage{ID: "msg_3", Parent: &parent, Parts: []api.Part{{Type: session.PartText, Text: "two, edited"}}}).is(202)
	head := "msg_2"
	p := w.do("PATCH", "/v1/sessions/ses_1", api.UpdateSession{Head: &head}).problem(409, "run_active")
	if p.Run == nil {
		t.Errorf("the active run is not told: %+v", p)
	}
	w.end(w.claim(), session.RunCompleted{})
	w.do("PATCH", "/v1/sessions/ses_1", api.UpdateSession{Head: &head}).is(200)
	var after holdfast.Snapshot
	w.do("GET", "/v1/sessions/ses_1", nil).into(200, &after)
	if after.Head != before.Head || len(after.Messages) != 4 || len(after.Messages[2].Siblings) != 2 {
		t.Errorf("head is %s, want %s: %+v", after.Head, before.Head, after.Messages)
	}
}

func TestAgentsAreListedWithTheirTools(t *testing.T) {
	w := newWorld(t, worldOptions{})
	var list api.AgentList
	w.do("GET", "/v1/agents", nil).into(200, &list)
	if list.Default != "helper" || len(list.Items) != 2 || len(list.Items[0].Tools) != 3 {
		t.Fatalf("agents are %+v", list)
	}
	if got := list.Items[0].Tools[2]; got.Approval != "rule" || got.Effects != session.Idempotent {
		t.Errorf("refund is %+v", got)
	}
}

func TestAStoreThatIsAwayIsUnavailableAndAFaultOfOursIsInternal(t *testing.T) {
	var broken error
	var mu sync.Mutex
	w := newWorld(t, worldOptions{faults: memory.Options{BeforeCall: func(string) error {
		mu.Lock()
		defer mu.Unlock()
		return broken
	}}})
	set := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		broken = err
	}
	defer set(nil)
	secret := "password=hunter2 at /var/lib/holdfast"
	set(fmt.Errorf("%w: %s", store.ErrUnavailable, secret))
	for _, path := range []string{"/v1/sessions", "/v1/runs/run_1", "/v1/sessions/ses_1/events", "/readyz"} {
		a := w.do("GET", path, nil)
		p := a.problem(503, api.Unavailable)
		if p.RetryAfterMs <= 0 || a.header.Get("Retry-After") != "1" {
			t.Errorf("%s: no time to retry: %+v %v", path, p, a.header)
		}
		if strings.Contains(string(a.body), "hunter2") {
			t.Errorf("%s leaks: %s", path, a.body)
		}
	}
	w.do("GET", "/healthz", nil).is(200)
	set(errors.New("boom " + secret))
	a := w.do("POST", "/v1/sessions", "{}")
	a.problem(500, api.Internal)
	if strings.Contains(string(a.body), "boom") {
		t.Errorf("leaks: %s", a.body)
	}
	if id := a.header.Get("X-Request-Id"); !strings.Contains(w.log.String(), id) || !strings.Contains(w.log.String(), "boom") {
		t.Errorf("the log does not have %s and its cause:\n%s", id, w.log)
	}
}
