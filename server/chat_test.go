package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/server/aisdk"
	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// chat sends what useChat sends and gives the open answer.
func (w *world) chat(body string, headers ...string) *sse {
	w.t.Helper()
	return w.open("POST", "/api/chat", body, headers...)
}

// open opens an event stream in answer to any request.
func (w *world) open(method, path, body string, headers ...string) *sse {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.t.Context())
	req, err := http.NewRequestWithContext(ctx, method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := w.client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	s := &sse{t: w.t, res: res, read: bufio.NewScanner(res.Body), stop: stop}
	s.read.Buffer(nil, 16<<20)
	w.t.Cleanup(s.close)
	return s
}

// user is the body of useChat's sendMessage.
func user(chat, message, text string) string {
	return fmt.Sprintf(`{"id":%q,"messages":[{"id":%q,"role":"user","parts":[{"type":"text","text":%q}]}],"trigger":"submit-message"}`, chat, message, text)
}

// chunk is what a test looks at of a chunk.
type chunk struct {
	Type, MessageID, ID, Delta, ErrorText, FinishReason, ToolCallID, ApprovalID string
	MessageMetadata                                                             struct{ RunID, Status string }
	Output                                                                      json.RawMessage
}

// until reads chunks until one of the type has come, and gives them all.
func (s *sse) until(kind string) (all []chunk) {
	s.t.Helper()
	for {
		b, ok := s.next()
		if !ok {
			s.t.Fatalf("the stream ended before %s: %v, after %+v", kind, s.read.Err(), all)
		}
		if b.data == "" {
			continue
		}
		var c chunk
		if err := json.Unmarshal([]byte(b.data), &c); err != nil {
			s.t.Fatalf("%v in %s", err, b.data)
		}
		if all = append(all, c); c.Type == kind {
			return all
		}
	}
}

// finish reads a stream to its right end.
func (s *sse) finish() []chunk {
	s.t.Helper()
	all := s.until("finish")
	if b, ok := s.next(); !ok || b.data != "[DONE]" {
		s.t.Fatalf("after finish comes %+v, %v", b, s.read.Err())
	}
	if b, ok := s.next(); ok || s.read.Err() != nil {
		s.t.Fatalf("after [DONE] comes %+v, %v", b, s.read.Err())
	}
	return all
}

// cut reads a stream that must break off.
func (s *sse) cut() {
	s.t.Helper()
	for {
		b, ok := s.next()
		if b.data == "[DONE]" {
			s.t.Fatal("a stream that is cut says that it is whole")
		}
		if !ok {
			break
		}
	}
	if err := s.read.Err(); !errors.Is(err, io.ErrUnexpectedEOF) {
		s.t.Fatalf("a stream that is cut ends with %v", err)
	}
}

// words joins what was said in text parts.
func words(all []chunk) string {
	var b strings.Builder
	for _, c := range all {
		if c.Type == "text-delta" {
			b.WriteString(c.Delta)
		}
	}
	return b.String()
}

func types(all []chunk) string {
	var names []string
	for _, c := range all {
		if len(names) == 0 || names[len(names)-1] != c.Type {
			names = append(names, c.Type)
		}
	}
	return strings.Join(names, " ")
}

// at makes an event of the first try of a run's first step.
func at(lease store.Lease, d session.Data) session.Event {
	return session.Event{Run: lease.Run, Step: 1, Attempt: 1, Data: d}
}

// writes lets a claimed run begin to say something.
func (w *world) writes(lease store.Lease, pieces ...string) {
	w.t.Helper()
	run, err := w.store.Run(w.t.Context(), lease.Run)
	if err != nil {
		w.t.Fatal(err)
	}
	var events []session.Event
	if run.CurrentStep == 0 {
		events = append(events, at(lease, session.StepStarted{Message: run.Message}))
	}
	for _, piece := range pieces {
		events = append(events, at(lease, session.TextDelta{Message: run.Message, Text: piece}))
	}
	w.append(lease.Session, events...)
}

// completes ends a claimed run that said this, all of it.
func (w *world) completes(lease store.Lease, text string) {
	w.t.Helper()
	run, err := w.store.Run(w.t.Context(), lease.Run)
	if err != nil {
		w.t.Fatal(err)
	}
	w.append(lease.Session, at(lease, session.ModelCompleted{
		Message: run.Message, Finish: "stop", Parts: []session.Part{{Type: session.PartText, Text: text}},
	}), at(lease, session.StepCompleted{}))
	w.end(lease, session.RunCompleted{Usage: session.Usage{InputTokens: 3, OutputTokens: 4}})
}

func (w *world) chatHistory(chat string) api.Chat {
	w.t.Helper()
	var out api.Chat
	w.do("GET", "/api/chat/"+chat, nil).into(200, &out)
	return out
}

// shape is the ids and parts of messages, in short.
func shape(messages []aisdk.Message) string {
	var all []string
	for _, m := range messages {
		var parts []string
		for _, p := range m.Parts {
			switch {
			case p.Text != nil:
				parts = append(parts, *p.Text)
			case p.ToolCallID != "":
				parts = append(parts, p.State)
			default:
				parts = append(parts, p.Type)
			}
		}
		all = append(all, m.ID+": "+strings.Join(parts, ", "))
	}
	return strings.Join(all, "; ")
}

func TestAMessageIsAnsweredWithWhatItsRunSays(t *testing.T) {
	w := newWorld(t, worldOptions{})
	page := w.chat(user("c1", "u1", "hello"))
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream", "X-Vercel-Ai-Ui-Message-Stream": "v1", "X-Accel-Buffering": "no", "Content-Encoding": "",
	} {
		if got := page.res.Header.Get(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	lease := w.claim()
	w.writes(lease, "Hel", "lo")
	if got := page.until("text-delta"); got[0].Type != "start" || got[0].MessageID == "" || got[0].MessageMetadata.RunID != lease.Run {
		t.Errorf("it begins with %+v", got)
	}
	if h := w.chatHistory("c1"); shape(h.Messages) != "u1: hello" || h.ActiveStreamID != lease.Run {
		t.Errorf("meanwhile the history is %s, %+v", shape(h.Messages), h)
	}
	w.completes(lease, "Hello.")
	rest := page.finish()
	if types(rest) != "text-delta text-end finish-step finish" || words(rest) != "lo." || rest[len(rest)-1].FinishReason != "stop" {
		t.Errorf("it ends with %+v", rest)
	}
	h := w.chatHistory("c1")
	if !strings.HasSuffix(shape(h.Messages), ": step-start, Hello.") || h.ActiveStreamID != "" || h.Messages[1].Metadata.Usage.TotalTokens != 7 {
		t.Errorf("then the history is %+v", h)
	}
	var list api.SessionList
	if w.do("GET", "/api/chat", nil).into(200, &list); len(list.Items) != 1 || list.Items[0].ID != "c1" || list.Items[0].Title != "hello" {
		t.Errorf("the chats are %+v", list)
	}
	w.do("DELETE", "/api/chat/c1", nil).is(204)
	if h := w.chatHistory("c1"); len(h.Messages) != 0 {
		t.Errorf("after it was deleted there is %+v", h)
	}
}

func TestTheSameMessageAgainJoinsItsRun(t *testing.T) {
	w := newWorld(t, worldOptions{})
	first := w.chat(user("c1", "u1", "hello"))
	lease := w.claim()
	w.writes(lease, "one ", "two ")
	first.until("text-delta")
	second := w.chat(user("c1", "u1", "hello"))
	if got := second.until("text-delta"); types(got) != "start start-step text-start text-delta" || got[0].MessageMetadata.RunID != lease.Run {
		t.Errorf("it is told %+v", got)
	}
	w.completes(lease, "one two three")
	a, b := words(first.finish()), words(second.finish())
	if a != "two three" || b != "two three" {
		t.Errorf("the pages hear %q and %q", a, b)
	}
	if got := words(w.chat(user("c1", "u1", "hello")).finish()); got != "one two three" {
		t.Errorf("after its end it is told as %q", got)
	}
	runs, err := w.store.Runs(t.Context(), store.RunQuery{Tenant: "local", Owner: "local", Session: "c1"})
	if err != nil || len(runs.Items) != 1 {
		t.Errorf("there are %d runs, %v", len(runs.Items), err)
	}
	w.do("POST", "/api/chat", user("c1", "u1", "something else"), "Accept", "application/json").problem(409, api.Code(session.Conflict))
	if a := w.do("POST", "/api/chat", user("c1", "u1", "something else")).is(409); !strings.Contains(string(a.body), "choose a new id") || a.body[0] == '{' {
		t.Errorf("a page would show %q", a.body)
	}
}

func TestAMessageBesideARunWaitsForItsTurn(t *testing.T) {
	w := newWorld(t, worldOptions{})
	first := w.chat(user("c1", "u1", "one"))
	lease := w.claim()
	second := w.chat(user("c1", "u2", "two")) // from another tab
	if b, _ := second.next(); b.comment != "open" {
		t.Errorf("it is not open at once: %+v", b)
	}
	w.writes(lease, "1")
	w.completes(lease, "1")
	if got := words(first.finish()); got != "1" {
		t.Errorf("the first tab hears %q", got)
	}
	lease = w.claim()
	w.writes(lease, "2")
	w.completes(lease, "2")
	if got := second.finish(); words(got) != "2" || got[0].Type != "start" {
		t.Errorf("the second tab hears %+v", got)
	}
	if got := shape(w.chatHistory("c1").Messages); !strings.HasPrefix(got, "u1: one; ") || !strings.Contains(got, "; u2: two; ") || !strings.HasSuffix(got, ", 2") {
		t.Errorf("the history is %s", got)
	}
}

func TestAMessageTakenBackEndsItsStreamWithoutAnAnswer(t *testing.T) {
	w := newWorld(t, worldOptions{})
	w.chat(user("c1", "u1", "one"))
	w.claim()
	second := w.chat(user("c1", "u2", "two"))
	w.do("DELETE", "/v1/sessions/c1/inbox/u2", nil).is(204)
	if got := second.finish(); types(got) != "abort finish" || got[1].MessageMetadata.RunID != "" {
		t.Errorf("it ends with %+v", got)
	}
}

func TestAClosedConnectionCancelsNothing(t *testing.T) {
	w := newWorld(t, worldOptions{})
	page := w.chat(user("c1", "u1", "hello"))
	lease := w.claim()
	w.writes(lease, "one ")
	page.until("text-delta")
	page.close()
	if err := w.srv.AwaitStreams(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	var run session.Run
	if w.do("GET", "/v1/runs/"+lease.Run, nil).into(200, &run); run.CancelRequestedAt != nil || run.Status != session.Running {
		t.Errorf("the run is %+v", run)
	}
	again := w.open("GET", "/api/chat/c1/stream", "")
	w.completes(lease, "one two")
	if got := again.finish(); words(got) != "one two" || types(got)[:16] != "start start-step" {
		t.Errorf("who comes back hears %+v", got)
	}
}

func TestStopEndsTheRunThatIsMeantAndNoOther(t *testing.T) {
	w := newWorld(t, worldOptions{})
	stopped := func(body any, want bool) {
		t.Helper()
		var out api.ChatStopped
		if w.do("POST", "/api/chat/c1/stop", body).into(200, &out); !out.Success || out.Stopped != want {
			t.Errorf("stop with %v is answered %+v", body, out)
		}
	}
	stopped(nil, false) // there is no such chat
	page := w.chat(user("c1", "u1", "hello"))
	// Before anybody carries it.
	stopped(`{}`, true)
	if got := page.finish(); types(got) != "abort finish" {
		t.Errorf("the page is told %+v", got)
	}
	stopped(`{}`, false)
	page = w.chat(user("c1", "u2", "again"))
	lease := w.claim()
	w.writes(lease, "one ")
	all := page.until("text-delta")
	stopped(`{"activeStreamId":"run_before"}`, false)
	stopped(`{"assistantMessage":{"id":"msg_before","role":"assistant","parts":[]},"activeStreamId":null}`, false)
	w.do("POST", "/api/chat/c1/stop", `{`).is(400)
	done := make(chan struct{})
	go func() { // the answer comes when the run has ended
		defer close(done)
		stopped(fmt.Sprintf(`{"assistantMessage":{"id":%q},"activeStreamId":%q}`, all[0].MessageID, lease.Run), true)
	}()
	watch := w.watch("/v1/sessions/c1/events?after=0")
	for {
		b, ok := watch.next()
		if !ok {
			t.Fatal("no cancel was recorded")
		}
		if strings.Contains(b.data, `"run.cancel_requested"`) && strings.Contains(b.data, lease.Run) {
			break
		}
	}
	w.end(lease, session.RunCancelled{By: "local"})
	<-done
	if got := page.finish(); types(got) != "text-end finish-step abort finish" {
		t.Errorf("the page is told %+v", got)
	}
	if got := shape(w.chatHistory("c1").Messages); !strings.HasSuffix(got, ": step-start, one ") {
		t.Errorf("the history is %s", got)
	}
	if a := w.do("GET", "/api/chat/c1/stream", nil); a.status != 204 {
		t.Errorf("a reload gets %d %s", a.status, a.body)
	}
}

func TestResumeWithNothingActiveIsNothing(t *testing.T) {
	w := newWorld(t, worldOptions{})
	resume := func(want int) {
		t.Helper()
		if a := w.do("GET", "/api/chat/c1/stream", nil); a.status != want {
			t.Fatalf("resume is answered %d %s, want %d", a.status, a.body, want)
		}
	}
	resume(204)
	w.do("POST", "/v1/sessions", `{"id":"c1"}`).is(201)
	resume(204)
	page := w.chat(user("c1", "u1", "hello"))
	lease := w.claim()
	w.writes(lease, "one")
	page.until("text-delta")
	w.chatHistory("c1") // a page loads while the answer is being written
	w.completes(lease, "one")
	page.finish()
	// It ended before that page could resume: the page gets it whole, once.
	if got := words(w.open("GET", "/api/chat/c1/stream", "").finish()); got != "one" {
		t.Errorf("the page that loaded meanwhile hears %q", got)
	}
	resume(204)
	// A connection that broke off has the beginning only.
	page = w.chat(user("c1", "u2", "again"))
	lease = w.claim()
	w.writes(lease, "two ")
	page.until("text-delta")
	page.close()
	if err := w.srv.AwaitStreams(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	w.completes(lease, "two three")
	if got := words(w.open("GET", "/api/chat/c1/stream", "").finish()); got != "two three" {
		t.Errorf("the page that was cut hears %q", got)
	}
	resume(204)
}
