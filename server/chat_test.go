package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/feed"
	"github.com/holdfast-run/holdfast/server"
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

func TestADrainBreaksAnAnswerOff(t *testing.T) {
	for _, own := range []bool{false, true} {
		w := newWorld(t, worldOptions{})
		if own { // connections that the server takes over
			w.serve()
		}
		page := w.chat(user("c1", "u1", "hello"))
		lease := w.claim()
		w.writes(lease, "one")
		page.until("text-delta")
		w.srv.Drain()
		page.cut()
		a := w.do("POST", "/api/chat", user("c1", "u2", "two")).is(503)
		if a.header.Get("Retry-After") == "" {
			t.Errorf("a message is refused without a time: %v", a.header)
		}
		if snap, _ := w.store.Session(t.Context(), "c1"); snap.Inbox != 0 {
			t.Error("a message that was refused was taken")
		}
	}
}

func TestADeletedChatBreaksItsAnswersOff(t *testing.T) {
	w := newWorld(t, worldOptions{})
	page := w.chat(user("c1", "u1", "hello"))
	lease := w.claim()
	w.writes(lease, "one")
	page.until("text-delta")
	w.do("DELETE", "/api/chat/c1", nil).is(204)
	page.cut()
}

// What an attempt said that failed cannot be taken back on a page: its
// connection breaks, and it comes again for what the next attempt says.
func TestARetriedAttemptNeverShowsTwoTexts(t *testing.T) {
	w := newWorld(t, worldOptions{})
	page, newest := w.chat(user("c1", "u1", "hello")), w.chat(user("c1", "u1", "hello"), aisdk.ProfileHeader, "v7")
	lease := w.claim()
	w.writes(lease, "half an ans")
	all := page.until("text-delta")
	message := all[0].MessageID
	event := func(attempt int, d session.Data) session.Event {
		return session.Event{Run: lease.Run, Step: 1, Attempt: attempt, Data: d}
	}
	w.append("c1",
		event(1, session.AttemptFailed{Message: message, Error: session.Failure{Code: "stream_cut", Retryable: true}, Parts: []session.Part{{Type: session.PartText, Text: "half an ans"}}}),
		event(2, session.StepStarted{Message: message, Because: "retry"}),
		event(2, session.TextDelta{Message: message, Text: "a whole "}))
	page.cut()
	again := w.open("GET", "/api/chat/c1/stream", "")
	index := w.open("GET", "/api/chat/"+page.res.Header.Get("X-Workflow-Run-Id")+"/stream?startIndex="+fmt.Sprint(len(all)), "")
	if got := index.finish(); got[len(got)-2].Type != "error" || !strings.Contains(got[len(got)-2].ErrorText, "load the page") {
		t.Errorf("who counts on is told %+v", got)
	}
	w.append("c1", event(2, session.ModelCompleted{Message: message, Finish: "stop", Parts: []session.Part{{Type: session.PartText, Text: "a whole answer"}}}))
	w.end(lease, session.RunCompleted{})
	if got := words(again.finish()); got != "a whole answer" {
		t.Errorf("who comes again hears %q", got)
	}
	if got := types(newest.finish()); !strings.Contains(got, "text-delta text-end reset-step text-start text-delta text-end") {
		t.Errorf("the newest clients are told %s", got)
	}
	if got := shape(w.chatHistory("c1").Messages); !strings.HasSuffix(got, ": step-start, a whole answer") {
		t.Errorf("the history is %s", got)
	}
}

func TestAFailedRunSaysWhy(t *testing.T) {
	w := newWorld(t, worldOptions{})
	page := w.chat(user("c1", "u1", "hello"))
	lease := w.claim()
	w.writes(lease, "one")
	w.end(lease, session.RunFailed{Error: session.Failure{Code: "overloaded", Message: "the provider is overloaded"}})
	got := page.finish()
	if types(got) != "start start-step text-start text-delta text-end finish-step message-metadata error finish" || got[len(got)-2].ErrorText != "the provider is overloaded" {
		t.Errorf("the page is told %+v", got)
	}
	h := w.chatHistory("c1")
	if m := h.Messages[1]; m.Metadata.Status != session.Failed || m.Metadata.Error.Code != "overloaded" {
		t.Errorf("the history says %+v", m.Metadata)
	}
}

func TestABackgroundRunIsNoAnswerOfTheChat(t *testing.T) {
	w := newWorld(t, worldOptions{})
	w.do("POST", "/v1/sessions/c1/messages", `{"id":"u0","parts":[{"type":"text","text":"beside"}],"background":true}`).is(202)
	background := w.claim()
	w.writes(background, "beside")
	if a := w.do("GET", "/api/chat/c1/stream", nil); a.status != 204 {
		t.Errorf("resume is answered %d %s", a.status, a.body)
	}
	page := w.chat(user("c1", "u1", "hello"))
	lease := w.claim()
	w.writes(lease, "one")
	w.writes(background, " more")
	w.completes(lease, "one")
	if got := words(page.finish()); got != "one" {
		t.Errorf("the page hears %q", got)
	}
	var out api.ChatStopped
	if w.do("POST", "/api/chat/c1/stop", nil).into(200, &out); out.Stopped {
		t.Error("Stop stopped what the page does not show")
	}
	if got := shape(w.chatHistory("c1").Messages); strings.Contains(got, "beside") {
		t.Errorf("the history is %s", got)
	}
}

func TestAMessageQueuedElsewhereIsAnsweredInAStreamOfItsOwn(t *testing.T) {
	w := newWorld(t, worldOptions{})
	page := w.chat(user("c1", "u1", "hello"))
	lease := w.claim()
	w.writes(lease, "one")
	w.say("c1", "u2", "and another thing") // in Holdfast's own page
	w.completes(lease, "one")
	if got := words(page.finish()); got != "one" {
		t.Errorf("the page hears %q", got)
	}
	lease = w.claim()
	w.writes(lease, "two")
	h := w.chatHistory("c1")
	if got := shape(h.Messages); !strings.HasSuffix(got, ", one; u2: and another thing") || h.ActiveStreamID != lease.Run {
		t.Errorf("a page that loads has %s, %s", got, h.ActiveStreamID)
	}
	again := w.open("GET", "/api/chat/c1/stream", "")
	w.completes(lease, "two")
	if got := words(again.finish()); got != "two" {
		t.Errorf("it hears %q", got)
	}
}

func TestStreamsAreResumedByRunAndIndex(t *testing.T) {
	w := newWorld(t, worldOptions{})
	// As WorkflowChatTransport sends it: no chat, no trigger, no media type.
	page := w.chat(`{"messages":[{"id":"u1","role":"user","parts":[{"type":"text","text":"hello"}]}]}`, "Content-Type", "text/plain;charset=UTF-8")
	lease := w.claim()
	if lease.Session != "chat_u1" || page.res.Header.Get("X-Workflow-Run-Id") != lease.Run {
		t.Errorf("it is the stream %s of %s", page.res.Header.Get("X-Workflow-Run-Id"), lease.Session)
	}
	w.writes(lease, "a ", "b ", "c ")
	w.completes(lease, "a b c d")
	whole := page.finish()
	path := "/api/chat/" + lease.Run + "/stream?startIndex="
	for k := range whole {
		if got := w.open("GET", path+fmt.Sprint(k), "").finish(); !slices.EqualFunc(got, whole[k:], func(a, b chunk) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
			t.Errorf("from %d on it is\n%+v, not\n%+v", k, got, whole[k:])
		}
	}
	for n, from := range map[int]int{3: 1, len(whole) - 1: 1, len(whole): 0, 100: 0} {
		s := w.open("GET", path+fmt.Sprint(-n), "")
		// The client takes its place from the header.
		if got, tail := s.finish(), s.res.Header.Get("X-Workflow-Stream-Tail-Index"); len(got) != len(whole)-from || tail != fmt.Sprint(from+n-1) {
			t.Errorf("the last %d are %d chunks from %d on, tail %s", n, len(got), len(whole)-len(got), tail)
		}
	}
	if got := w.open("GET", "/api/chat/chat_u1/stream?startIndex=0", "").finish(); words(got) != "a b c d" {
		t.Errorf("by the chat's name it is %+v", got)
	}
	if got := w.open("GET", "/api/chat/never/stream?startIndex=0", "").finish(); types(got) != "finish" {
		t.Errorf("a chat without a word is %+v", got)
	}
	w.do("GET", "/api/chat/run_never/stream?startIndex=4", nil).is(404)
	w.do("GET", "/api/chat/c1/stream?startIndex=x", nil).is(400)
	w.do("GET", "/api/chat/c1/stream?startIndex=1&startIndex=2", nil).is(400)
}

func TestStreamsCountAgainstTheLimit(t *testing.T) {
	w := newWorld(t, worldOptions{server: server.Options{MaxStreams: 1}})
	w.chat(user("c1", "u1", "hello"))
	w.do("POST", "/api/chat", user("c2", "u1", "hello")).is(503)
	if err := w.rt.Allowed(t.Context(), holdfast.Local, "c2"); err == nil {
		t.Error("a message that was refused made a chat")
	}
	w.do("GET", "/api/chat/c1/stream", nil).is(503)
	w.do("POST", "/api/chat/c1/stop", nil).is(200)
}

func TestSilenceIsFilledWithComments(t *testing.T) {
	w := newWorld(t, worldOptions{feed: feed.Options{Heartbeat: 40 * time.Millisecond}})
	page := w.chat(user("c1", "u1", "hello"))
	for n := 0; n < 3; {
		if b, ok := page.next(); !ok {
			t.Fatal("it ended")
		} else if b.comment == "hb" {
			n++
		}
	}
}
