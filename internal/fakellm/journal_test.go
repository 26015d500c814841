package fakellm_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/internal/fakellm"
)

func TestARequestIsRecordedAsItCame(t *testing.T) {
	eachWire(t, func(t *testing.T, wire fakellm.Wire, llm *fakellm.Server) {
		body := ask(wire, "hi", true)
		response := open(t, llm, wire, body)
		io.Copy(io.Discard, response.Body)
		r, err := llm.WaitClosed(soon(t), 1)
		if err != nil {
			t.Fatal(err)
		}
		if r.Number != 1 || r.Wire != wire || r.Path != paths[wire] || string(r.Body) != body ||
			r.Model != "fake-model" || !r.Stream || r.LastUser() != "hi" || len(r.Messages) != 1 || r.Status != 200 || r.ClientLeft {
			t.Errorf("record %+v", r)
		}
		if r.Header.Get("Authorization") != "Bearer any-key" {
			t.Errorf("headers %v", r.Header)
		}
		if r.At.IsZero() || r.ClosedAt.Before(r.At) {
			t.Errorf("from %v to %v", r.At, r.ClosedAt)
		}
	})
}

func TestOpenStreamsAreCounted(t *testing.T) {
	llm := fakellm.Start(t, fakellm.Options{})
	const n = 5
	llm.Script(fakellm.Reply(fakellm.WaitGate("go")).Times(n))
	var clients sync.WaitGroup
	for range n {
		clients.Go(func() { say(t, llm, "q") })
	}
	if _, err := llm.WaitRequest(soon(t), n); err != nil {
		t.Fatal(err)
	}
	if open, most := llm.OpenStreams(), llm.MaxOpenStreams(); open != n || most != n {
		t.Errorf("%d open, at most %d", open, most)
	}
	llm.OpenGate("go")
	llm.OpenGate("go") // once more does no harm
	clients.Wait()
	if err := llm.WaitIdle(soon(t)); err != nil {
		t.Fatal(err)
	}
	if open, most := llm.OpenStreams(), llm.MaxOpenStreams(); open != 0 || most != n {
		t.Errorf("%d open, at most %d", open, most)
	}
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	llm := fakellm.Start(t, fakellm.Options{})
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := llm.WaitRequest(ctx, 1); !errors.Is(err, why) || !strings.Contains(err.Error(), "request 1 to arrive (0 have arrived)") {
		t.Errorf("WaitRequest: %v", err)
	}
	if _, err := llm.WaitClosed(ctx, 1); !errors.Is(err, why) {
		t.Errorf("WaitClosed: %v", err)
	}
	if err := llm.WaitGate(ctx, "g"); !errors.Is(err, why) {
		t.Errorf("WaitGate: %v", err)
	}
	if err := llm.WaitIdle(ctx); err != nil {
		t.Errorf("WaitIdle of an idle server: %v", err)
	}
}

func TestOnlyTheLastRequestsKeepTheirContent(t *testing.T) {
	llm := fakellm.Start(t, fakellm.Options{Keep: 2})
	for _, text := range []string{"a", "b", "c"} {
		say(t, llm, text)
	}
	all := llm.Requests()
	if len(all) != 3 || all[0].Body != nil || all[0].Messages != nil || all[0].Number != 1 || all[1].LastUser() != "b" || all[2].LastUser() != "c" {
		t.Errorf("records %+v", all)
	}
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	eachWire(t, func(t *testing.T, wire fakellm.Wire, _ *fakellm.Server) {
		llm := fakellm.Start(nil, fakellm.Options{})
		llm.Script(fakellm.Reply(fakellm.Text("x"), fakellm.Stall()))
		response := open(t, llm, wire, ask(wire, "hi", true))
		readUntil(t, response.Body, "x")
		llm.Close()
		if _, err := io.ReadAll(response.Body); err == nil {
			t.Error("the stream ended cleanly")
		}
		if r := llm.Requests()[0]; !r.Closed() || r.ClientLeft {
			t.Errorf("record %+v", r)
		}
	})
}

// failures is a testing.TB that keeps what it is told.
type failures struct {
	testing.TB
	cleanups []func()
	errors   []string
	logs     []string
}

func (f *failures) Cleanup(c func())                  { f.cleanups = append(f.cleanups, c) }
func (f *failures) Errorf(format string, args ...any) { f.errors = append(f.errors, format) }
func (f *failures) Logf(format string, args ...any)   { f.logs = append(f.logs, format) }
func (f *failures) Failed() bool                      { return len(f.errors) > 0 }

func TestAMistakeInTheScriptFailsTheTestAndTellsWhatWasAsked(t *testing.T) {
	var tb failures
	llm := fakellm.Start(&tb, fakellm.Options{})
	llm.Script(
		fakellm.Reply(fakellm.Text("x"), fakellm.Status{Code: 500}),
		fakellm.Reply(nil),
		answer("never"),
	)
	for n := range 2 {
		response, err := send(t.Context(), llm, fakellm.Chat, ask(fakellm.Chat, "q", true))
		if err == nil {
			_, err = io.ReadAll(response.Body)
			response.Body.Close()
		}
		if err == nil {
			t.Errorf("turn %d ended cleanly", n)
		}
		if done, err := llm.WaitClosed(soon(t), n+1); err != nil || !strings.Contains(done.PlayError, "bad script") || done.ClientLeft {
			t.Errorf("turn %d: %v, record %+v", n, err, done)
		}
	}
	for _, c := range tb.cleanups {
		c()
	}
	if len(tb.errors) != 2 || len(tb.logs) != 3 {
		t.Errorf("errors %v, logs %v", tb.errors, tb.logs)
	}
}

func TestAPanicInATestsOwnFunctionIsABadScript(t *testing.T) {
	var tb failures
	llm := fakellm.Start(&tb, fakellm.Options{})
	llm.Script(
		fakellm.Reply(fakellm.Do(func() { panic("in a step") })),
		answer("").On(fakellm.Match{Func: func(fakellm.Request) bool { panic("in a match") }}),
	)
	for i, want := range []string{"in a step", "in a match"} {
		if response, err := send(t.Context(), llm, fakellm.Chat, ask(fakellm.Chat, "q", true)); err == nil {
			response.Body.Close()
			t.Error("the client got an answer")
		}
		if done, err := llm.WaitClosed(soon(t), i+1); err != nil || !strings.Contains(done.PlayError, want) {
			t.Errorf("%v, record %+v", err, done)
		}
	}
	llm.Close()
}

func TestAStepThatEndsItsGoroutineStillClosesTheRecord(t *testing.T) {
	llm := fakellm.Start(t, fakellm.Options{})
	llm.Script(fakellm.Reply(fakellm.Do(runtime.Goexit))) // as t.FailNow does
	if response, err := send(t.Context(), llm, fakellm.Chat, ask(fakellm.Chat, "q", true)); err == nil {
		response.Body.Close()
		t.Error("the client got an answer")
	}
	if _, err := llm.WaitClosed(soon(t), 1); err != nil {
		t.Error(err)
	}
	if llm.OpenStreams() != 0 {
		t.Error("the stream counts as open")
	}
}
