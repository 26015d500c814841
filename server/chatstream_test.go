package server_test

import (
	"fmt"
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
)

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

func TestAPageThatWasCutBeforeAQuestionIsAsked(t *testing.T) {
	w := newWorld(t, worldOptions{})
	page := w.chat(user("c1", "u1", "hello"))
	lease := w.claim()
	page.until("start")
	page.close()
	if err := w.srv.AwaitStreams(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	w.ask(lease, "apr_1", `{}`)
	if got := types(w.open("GET", "/api/chat/c1/stream", "").finish()); !strings.HasSuffix(got, "tool-input-available tool-approval-request finish-step finish") {
		t.Errorf("it is told %s", got)
	}
	w.do("GET", "/api/chat/c1/stream", nil).is(204)
	w.do("HEAD", "/api/chat/c1/stream", nil).is(204)
}

func TestAPageMayNameTheAgent(t *testing.T) {
	w := newWorld(t, worldOptions{})
	body := strings.Replace(user("c1", "u1", "hello"), `{"id"`, `{"agent":"other","id"`, 1)
	w.chat(body)
	run, err := w.store.Run(t.Context(), w.claim().Run)
	if err != nil || run.Agent != "other" {
		t.Errorf("asked is %s, %v", run.Agent, err)
	}
	w.do("POST", "/api/chat", strings.Replace(body, "other", "nobody", 1)).is(422)
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

// Whether a worker elsewhere is still there cannot be known before its attempt
// goes on, or is replaced.
func TestAPageThatComesBackIsNotToldWhatALostWorkerHalfSaid(t *testing.T) {
	w := newWorld(t, worldOptions{elsewhere: true})
	w.chat(user("c1", "u1", "hello")).close()
	lease := w.claim()
	w.writes(lease, "half ")
	again := w.open("GET", "/api/chat/c1/stream", "")
	name := again.res.Header.Get("X-Workflow-Run-Id")
	w.writes(lease, "an ans") // it lives
	again.until("text-delta")
	lost := w.open("GET", "/api/chat/c1/stream", "") // from here on it does not
	if _, err := w.store.Append(t.Context(), "c1", session.Reconcile{
		Run: lease.Run, Fence: lease.Fence, Cause: session.CauseLeaseExpired, Evidence: "its lease ended", At: time.Now(),
	}.Decide); err != nil {
		t.Fatal(err)
	}
	again.until("text-end")
	lease = w.claim()
	run, err := w.store.Run(t.Context(), lease.Run)
	if err != nil {
		t.Fatal(err)
	}
	w.append("c1", session.Event{Run: lease.Run, Step: 1, Attempt: 2, Data: session.StepStarted{Message: run.Message, Because: "crash"}})
	again.cut() // it was told the first text
	w.completes(lease, "a whole answer")
	if got := words(lost.finish()); got != "a whole answer" {
		t.Errorf("who came back in between hears %q", got)
	}
	index := w.open("GET", "/api/chat/"+name+"/stream?startIndex=4", "")
	if got := index.finish(); !strings.Contains(types(got), "error finish") {
		t.Errorf("who counts on is told %+v", got)
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
