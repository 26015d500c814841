package faults

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
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/server/aisdk"
	"github.com/holdfast-run/holdfast/server/aisdk/aisdktest"
	"github.com/holdfast-run/holdfast/session"
)

// answering is an open answer to useChat, with what a page makes of it.
type answering struct {
	w        *world
	status   int
	name     string // of the stream
	page     *aisdktest.Client
	events   []string
	comments int
	done     bool // [DONE] came

	read *bufio.Reader
	stop context.CancelFunc
	body io.Closer
}

// chat sends what useChat sends: a whole body.
func (w *world) chat(id, body string) *answering {
	w.t.Helper()
	w.seen[id] = true
	return w.answering("POST", "/api/chat", body)
}

// sayTo is useChat's sendMessage with a text.
func (w *world) sayTo(id, message, text string) *answering {
	w.t.Helper()
	return w.chat(id, fmt.Sprintf(`{"id":%q,"trigger":"submit-message","messages":[{"id":%q,"role":"user","parts":[{"type":"text","text":%q}]}]}`, id, message, text))
}

// resume is what useChat asks when a page is loaded.
func (w *world) resume(id string) *answering {
	w.t.Helper()
	return w.answering("GET", "/api/chat/"+id+"/stream", "")
}

func (w *world) answering(method, path, body string) *answering {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.ctx)
	req, err := http.NewRequestWithContext(ctx, method, w.srv.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	res, err := w.http.Do(req)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	a := &answering{
		w: w, status: res.StatusCode, name: res.Header.Get("X-Workflow-Run-Id"), page: &aisdktest.Client{},
		read: bufio.NewReader(res.Body), stop: stop, body: res.Body,
	}
	w.t.Cleanup(a.leave)
	return a
}

func (a *answering) leave() {
	a.stop()
	a.body.Close()
}

// next gives the page the next chunk. The error is the stream's: io.EOF is its right end.
func (a *answering) next() error {
	a.w.t.Helper()
	for {
		block := ""
		for !strings.HasSuffix(block, "\n\n") {
			line, err := a.read.ReadString('\n')
			if block += line; err != nil {
				if errors.Is(err, io.EOF) && block != "" {
					return io.ErrUnexpectedEOF
				}
				return err
			}
		}
		switch {
		case strings.HasPrefix(block, ":"):
			a.comments++
			continue
		case block == aisdk.DoneEvent:
			a.done = true
			continue
		}
		a.events = append(a.events, block)
		if err := a.page.Take(aisdk.Safe, []byte(block)); err != nil {
			a.w.t.Fatalf("%s: %v\nof\n%s", strings.TrimSpace(block), err, strings.Join(a.events, ""))
		}
		return nil
	}
}

// until takes chunks until the page is as wanted.
func (a *answering) until(wanted func(*aisdktest.Client) bool) {
	a.w.t.Helper()
	for !wanted(a.page) {
		if err := a.next(); err != nil {
			a.w.t.Fatalf("the stream ended with %v, after %s", err, strings.Join(a.events, ""))
		}
	}
}

// end takes all chunks and gives how the stream ended.
func (a *answering) end() error {
	a.w.t.Helper()
	for {
		if err := a.next(); err != nil {
			if errors.Is(err, io.EOF) != a.done || a.done != a.page.Finished {
				a.w.t.Fatalf("it ends with %v, [DONE] %v, finish %v", err, a.done, a.page.Finished)
			}
			return err
		}
	}
}

// finish takes all chunks of a stream that must be whole.
func (a *answering) finish() *aisdktest.Client {
	a.w.t.Helper()
	if err := a.end(); !errors.Is(err, io.EOF) {
		a.w.t.Fatalf("the stream ended with %v, after %s", err, strings.Join(a.events, ""))
	}
	return a.page
}

// uiHistory is what a page loads.
func (w *world) uiHistory(id string) (messages []map[string]any) {
	w.t.Helper()
	var out struct{ Messages []map[string]any }
	w.ask("GET", "/api/chat/"+id, nil).into(w.t, &out)
	return out.Messages
}

// sameAsHistory compares a page with what it gets when it loads again. What was
// decided is not asked again in a replay.
func (w *world) sameAsHistory(id string, page *aisdktest.Client) {
	w.t.Helper()
	messages := w.uiHistory(id)
	for i := range messages {
		if messages[i]["id"] != page.ID {
			continue
		}
		strip := func(m map[string]any) map[string]any {
			raw, err := json.Marshal(m)
			if err != nil {
				w.t.Fatal(err)
			}
			var plain map[string]any
			if err := json.Unmarshal(raw, &plain); err != nil {
				w.t.Fatal(err)
			}
			for _, p := range plain["parts"].([]any) {
				delete(p.(map[string]any), "approval")
			}
			return plain
		}
		if diff := cmp.Diff(strip(messages[i]), strip(page.Message())); diff != "" {
			w.t.Errorf("the page has (+) not what the history says (-)\n%s", diff)
		}
		return
	}
	w.t.Errorf("the history has no message %s: %v", page.ID, messages)
}

func said(text string) func(*aisdktest.Client) bool {
	return func(c *aisdktest.Client) bool { return strings.Contains(c.Text(), text) }
}

func TestDU02AResumeNeverAdoptsTheAnswerBefore(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(fakellm.Reply(fakellm.Text("ANSWER-1")), fakellm.Reply(fakellm.Text("ANSWER-"), fakellm.WaitGate("pause"), fakellm.Text("2")))
	first := w.sayTo("ses", "u1", "one").finish()
	second := w.sayTo("ses", "u2", "two")
	second.until(said("ANSWER-"))
	loaded := w.uiHistory("ses")
	if len(loaded) != 3 || loaded[1]["id"] != first.ID || loaded[2]["id"] != "u2" {
		t.Errorf("a page that loads in the pause has %v", loaded)
	}
	again := w.resume("ses")
	again.until(said("ANSWER-"))
	w.llm.OpenGate("pause")
	if page := again.finish(); page.Text() != "ANSWER-2" || page.ID == first.ID || page.ID != second.finish().ID {
		t.Errorf("the page shows %q in %s beside %s", page.Text(), page.ID, first.ID)
	}
	w.sameAsHistory("ses", again.page)
	if all := w.uiHistory("ses"); len(all) != 4 || all[3]["id"] != again.page.ID || strings.Count(fmt.Sprint(all), "ANSWER-1") != 1 {
		t.Errorf("after a later load it has %v", all)
	}
	if a := w.resume("ses"); a.status != 204 {
		t.Errorf("resume with nothing active is %d", a.status)
	}
}

func TestUI03AResumeAtAnyChunkGivesTheWholeMessage(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(
		fakellm.Reply(fakellm.Reasoning("I ", "think"), fakellm.Text("I ", "look"), fakellm.Call{Name: "look", Args: `{"note":"a","ms":150}`, Every: 6}),
		fakellm.Reply(fakellm.Paced(20*time.Millisecond, "It ", "is ", "so.")))
	first := w.sayTo("ses", "u1", "go")
	// Loaded again at every chunk, while it goes on.
	var replays []*answering
	for {
		if err := first.next(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if !first.page.Finished {
			replays = append(replays, w.resume("ses"))
		}
	}
	want := first.page.Message()
	w.sameAsHistory("ses", first.page)
	if len(first.events) < 15 {
		t.Fatalf("only %d chunks: %s", len(first.events), strings.Join(first.events, ""))
	}
	over := 0
	for i, r := range replays {
		if r.status == http.StatusNoContent { // it had just ended, and nobody was cut
			over++
			continue
		}
		if diff := cmp.Diff(want, r.finish().Message()); diff != "" {
			t.Errorf("loaded again at chunk %d the page shows\n%s", i, diff)
		}
	}
	if over > len(replays)/3 {
		t.Errorf("of %d loads %d came too late", len(replays), over)
	}
	// Resumed by the number of chunks.
	for k := range first.events {
		rest := w.answering("GET", fmt.Sprintf("/api/chat/%s/stream?startIndex=%d", first.name, k), "")
		for _, e := range first.events[:k] {
			if err := rest.page.Take(aisdk.Safe, []byte(e)); err != nil {
				t.Fatal(err)
			}
		}
		rest.finish()
		if got := slices.Concat(first.events[:k], rest.events); !slices.Equal(got, first.events) {
			t.Errorf("%d chunks and the rest are\n%s", k, cmp.Diff(first.events, got))
		}
	}
	if a := w.resume("ses"); a.status != 204 {
		t.Errorf("resume with nothing active is %d", a.status)
	}
}

func TestRT01AFailedAttemptsTextIsNeverBesideTheNextInAPage(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(
		fakellm.Reply(fakellm.Text("The answer", " is 4"), fakellm.WaitGate("seen"), fakellm.Cut()),
		fakellm.Reply(fakellm.Text("The answer", " is 42."), fakellm.WaitGate("reloaded")))
	page := w.sayTo("ses", "u1", "go")
	page.until(said("is 4"))
	w.llm.OpenGate("seen")
	if err := page.end(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the page that saw the first attempt ends with %v", err)
	}
	again := w.resume("ses")
	again.until(said("is 42."))
	if again.page.Text() != "The answer is 42." {
		t.Errorf("the page shows %q", again.page.Text())
	}
	w.llm.OpenGate("reloaded")
	again.finish()
	w.sameAsHistory("ses", again.page)
}

func TestCS01APageComesBackAfterACrashAndMissesNothing(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(
		fakellm.Reply(fakellm.Text("I look. "), fakellm.Call{Name: "look", Args: `{"note":"once"}`}),
		fakellm.Reply(fakellm.Text("half an ans"), fakellm.WaitGate("never")),
		fakellm.Reply(fakellm.Text("It is so.")))
	page := w.sayTo("ses", "u1", "go")
	page.until(said("half an ans"))
	id := page.page.ID
	w.crash()
	if err := page.end(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the page that was cut ends with %v", err)
	}
	if loaded := w.uiHistory("ses"); len(loaded) != 1 || loaded[0]["id"] != "u1" {
		t.Errorf("a page that loads has %v", loaded)
	}
	again := w.resume("ses").finish()
	if again.ID != id || again.Text() != "I look. It is so." {
		t.Errorf("the page shows %q in %s, which was %s", again.Text(), again.ID, id)
	}
	w.sameAsHistory("ses", again)
	if got := w.ledger(); len(got) != 1 {
		t.Errorf("the tool acted %d times", len(got))
	}
	// The same message again is the same run, also over a crash.
	if page := w.sayTo("ses", "u1", "go").finish(); page.ID != id || page.Text() != again.Text() {
		t.Errorf("sent again it is answered %q in %s", page.Text(), page.ID)
	}
}

func TestAP04AnApprovalIsGivenOnAPageAfterACrash(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(
		fakellm.Reply(fakellm.Text("I pay."), fakellm.Call{Name: "pay", Args: `{"note":"bill","ms":200}`}),
		fakellm.Reply(fakellm.Text("It is paid.")))
	first := w.sayTo("ses", "u1", "pay the bill")
	page := first.finish()
	asked := page.Asked()
	if len(asked) != 1 {
		t.Fatalf("the page is asked %q", asked)
	}
	w.crash()
	if a := w.resume("ses"); a.status != 204 {
		t.Errorf("a run that waits is resumed with %d", a.status)
	}
	w.sameAsHistory("ses", page)
	decided := fmt.Sprintf(`{"id":"ses","trigger":"submit-message","messageId":%q,"messages":[{"id":%q,"role":"assistant","parts":[
		{"type":"tool-pay","state":"approval-responded","toolCallId":"x","approval":{"id":%q,"approved":true}}]}]}`, page.ID, page.ID, asked[0])
	page.Decide(asked[0], true, "")
	on := w.chat("ses", decided)
	page.Again()
	on.page = page
	on.until(func(*aisdktest.Client) bool { return len(on.events) > 0 })
	again := w.resume("ses") // loaded again while the tool runs
	if got := on.finish(); got.Text() != "I pay.It is paid." {
		t.Errorf("the page shows %q", got.Text())
	}
	w.sameAsHistory("ses", page)
	if got := again.finish(); got.Text() != "I pay.It is paid." || got.ID != page.ID {
		t.Errorf("the page that was loaded again shows %q", got.Text())
	}
	w.sameAsHistory("ses", again.page)
	// From another tab, late.
	late := w.chat("ses", decided)
	for _, e := range first.events {
		if err := late.page.Take(aisdk.Safe, []byte(e)); err != nil {
			t.Fatal(err)
		}
	}
	late.page.Decide(asked[0], true, "")
	late.page.Again()
	if late.finish(); late.page.Text() != page.Text() {
		t.Errorf("the other tab shows %q", late.page.Text())
	}
	if got := w.ledger(); len(got) != 1 || len(w.llm.Requests()) != 2 {
		t.Errorf("the tool acted %d times, the model was asked %d times", len(got), len(w.llm.Requests()))
	}
}

func TestCA01StopCancelsTheRunAndClosingThePageDoesNot(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(fakellm.Reply(fakellm.Text("on and "), fakellm.WaitGate("never")), fakellm.Reply(fakellm.Text("next")))
	page := w.sayTo("ses", "u1", "go")
	page.until(said("on and"))
	page.leave()
	again := w.resume("ses")
	again.until(said("on and"))
	if r := w.llm.Requests()[0]; r.Closed() {
		t.Error("closing the page closed the provider's connection")
	}
	var out struct{ Stopped bool }
	stop := time.Now()
	w.ask("POST", "/api/chat/ses/stop", map[string]any{"assistantMessage": map[string]any{"id": again.page.ID}}).into(t, &out)
	if !out.Stopped {
		t.Error("nothing was stopped")
	}
	if page := again.finish(); !page.Aborted || page.Text() != "on and " {
		t.Errorf("the page that resumed ends as %+v", page)
	}
	w.closes(1, time.Second-time.Since(stop))
	w.sameAsHistory("ses", again.page)
	if a := w.resume("ses"); a.status != 204 {
		t.Errorf("a reload restarts it: %d", a.status)
	}
	if got := w.sayTo("ses", "u2", "and now").finish().Text(); got != "next" {
		t.Errorf("the next answer is %q", got)
	}
}

func TestCA02AStopBeforeTheFirstTokenIsNotLost(t *testing.T) {
	w := newWorld(t, settings{slots: 1})
	w.llm.Script(fakellm.Reply(fakellm.Text("busy"), fakellm.WaitGate("free")), fakellm.Reply(fakellm.Text("never said")))
	busy := w.sayTo("other", "u1", "go") // takes the only slot
	busy.until(said("busy"))
	page := w.sayTo("ses", "u1", "go")
	var out struct{ Stopped bool }
	w.ask("POST", "/api/chat/ses/stop", map[string]any{}).into(t, &out)
	if got := page.finish(); !out.Stopped || !got.Aborted || len(got.Parts) != 0 || got.ID != "" {
		t.Errorf("it ends as %+v", got)
	}
	w.llm.OpenGate("free")
	busy.finish()
	if n := len(w.llm.Requests()); n != 1 {
		t.Errorf("the model was asked %d times", n)
	}
}

func TestTP02AQuietAnswerIsKeptAlive(t *testing.T) {
	w := newWorld(t, settings{heartbeat: time.Second})
	w.llm.Script(fakellm.Reply(fakellm.Call{Name: "look", Args: `{"ms":3500}`}), fakellm.Reply(fakellm.Text("done")))
	page := w.sayTo("ses", "u1", "go")
	if got := page.finish(); got.Text() != "done" || page.comments < 3 {
		t.Errorf("with %d comments the page shows %q", page.comments, got.Text())
	}
}

func TestTP04AShutdownInMidAnswerIsNoEnd(t *testing.T) {
	w := newWorld(t, settings{drain: 300 * time.Millisecond})
	w.llm.Script(fakellm.Reply(fakellm.Text("half"), fakellm.WaitGate("never")), fakellm.Reply(fakellm.Text("whole")))
	page := w.sayTo("ses", "u1", "go")
	page.until(said("half"))
	w.srv.signal(syscall.SIGTERM)
	if err := page.end(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the page ends with %v", err)
	}
	<-w.srv.done
	w.http.CloseIdleConnections()
	w.again()
	if got := w.resume("ses"); got.status != 200 || got.finish().Text() != "whole" {
		t.Errorf("after the restart it is %d, %q", got.status, got.page.Text())
	}
	w.sameAsHistory("ses", w.answering("GET", "/api/chat/ses/stream?startIndex=0", "").finish())
}

func TestOR04AnAnswerThatIsCutShortIsClosedInEveryPart(t *testing.T) {
	w := newWorld(t, settings{attempts: 1})
	for i, turn := range []fakellm.Turn{
		fakellm.Reply(fakellm.Reasoning("hm"), fakellm.WaitGate("never")),
		fakellm.Reply(fakellm.Text("in the mid"), fakellm.WaitGate("never")),
		fakellm.Reply(fakellm.Text("I pay"), fakellm.Fragments(fakellm.Fragment{ID: "c1", Name: "pay", Args: `{"no`}), fakellm.WaitGate("never")),
		fakellm.Reply(fakellm.Call{Name: "look", Args: `{"ms":60000}`}),
	} {
		w.llm.Script(turn)
		page := w.sayTo("ses", fmt.Sprint("u", i), "go")
		page.until(func(c *aisdktest.Client) bool {
			last := c.Parts
			return len(last) > 0 && last[len(last)-1]["type"] != "step-start" && (i != 3 || last[len(last)-1]["state"] == "input-available") && (i != 2 || last[len(last)-1]["toolCallId"] != nil)
		})
		var out struct{ Stopped bool }
		w.ask("POST", "/api/chat/ses/stop", nil).into(t, &out)
		if got := page.finish(); !got.Aborted {
			t.Errorf("turn %d ends as %+v", i, got)
		}
		w.sameAsHistory("ses", page.page)
	}
	w.llm.Script(fakellm.Reply(fakellm.Text("half"), fakellm.Cut()))
	failed := w.sayTo("ses", "u9", "go").finish()
	if failed.Errored == "" || failed.Metadata["status"] != string(session.Failed) {
		t.Errorf("a cut that is not tried again ends as %+v", failed)
	}
	w.sameAsHistory("ses", failed)
}
