package modeltest

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/model"
)

// Harness says how to build the provider under test.
type Harness struct {
	// Type is the type that its configuration has.
	Type string
	// Path is what the base URL has after the server's address, "/v1" for
	// OpenAI's.
	Path string
	// New builds it.
	New model.Constructor
	// Signs says that its reasoning comes with a signature on every server.
	Signs bool
}

// apiKey is in every configuration of the suite, and may be in no error.
const apiKey = "sk-very-secret-0123456789"

// Exercise holds a provider to the contract of [model.Model], against a provider
// on a real socket that behaves as real ones do on their bad days.
func Exercise(t *testing.T, h Harness) {
	t.Run("Answer", h.answer)
	t.Run("Request", h.request)
	t.Run("Ends", h.ends)
	t.Run("Silence", h.silence)
	t.Run("Refusals", h.refusals)
	t.Run("Calls", h.calls)
	t.Run("Sizes", h.sizes)
	t.Run("Encoding", h.encoding)
	t.Run("Leaving", h.leaving)
}

// bench is one provider and its server, for one test.
type bench struct {
	*testing.T
	llm   *fakellm.Server
	model model.Model
}

// start gives a bench whose server plays these turns.
func (h Harness) start(t *testing.T, turns ...fakellm.Turn) bench {
	t.Helper()
	return h.startWith(t, fakellm.Options{}, turns...)
}

func (h Harness) startWith(t *testing.T, options fakellm.Options, turns ...fakellm.Turn) bench {
	t.Helper()
	llm := fakellm.Start(t, options)
	llm.Script(turns...)
	return bench{t, llm, h.at(t, llm.URL())}
}

// at builds a model of the server at url.
func (h Harness) at(t *testing.T, url string) model.Model {
	t.Helper()
	p, err := h.New(model.ProviderConfig{Type: h.Type, BaseURL: url + h.Path, APIKey: apiKey})
	if err != nil {
		t.Fatal(err)
	}
	m, err := p.Model("fake-model")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// patience bounds every wait of the suite, for a test that hangs.
const patience = 30 * time.Second

func (b bench) context() context.Context {
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	b.Cleanup(cancel)
	return ctx
}

// ask sends one user message and reads the answer to its end.
func (b bench) ask() Answer {
	b.Helper()
	return b.send(model.Request{Messages: []model.Message{user("Hello?")}})
}

func (b bench) send(req model.Request) Answer {
	b.Helper()
	a := Collect(b, b.model.Stream(b.context(), req))
	var e *model.Error
	if a.Err != nil && !errors.As(a.Err, &e) {
		b.Errorf("the stream ends with %T: %v", a.Err, a.Err)
	}
	if a.Err != nil && strings.Contains(chain(a.Err), apiKey) {
		b.Errorf("the key is in the error: %s", chain(a.Err))
	}
	return a
}

// chain is everything that an error and its causes say.
func chain(err error) string {
	var all strings.Builder
	for ; err != nil; err = errors.Unwrap(err) {
		all.WriteString(err.Error() + "\n")
	}
	return all.String()
}

// fails checks an answer's error.
func (b bench) fails(a Answer, code model.Code, retryable bool) *model.Error {
	b.Helper()
	var e *model.Error
	if !errors.As(a.Err, &e) || e.Code != code || e.Retryable != retryable {
		b.Fatalf("got %v (%v), want code %s, retryable %v", a.Err, a, code, retryable)
	}
	return e
}

// asked checks that the server was asked n times, no more.
func (b bench) asked(n int) {
	b.Helper()
	if got := len(b.llm.Requests()); got != n {
		b.Errorf("the server was asked %d times, want %d", got, n)
	}
}

func user(text string) model.Message {
	return model.Message{Role: model.User, Parts: []model.Part{{Kind: model.TextPart, Text: text}}}
}

// each runs a test for each case, in parallel.
func each[C any](t *testing.T, cases map[string]C, test func(t *testing.T, name string, c C)) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, name, c)
		})
	}
}

func (h Harness) answer(t *testing.T) {
	t.Run("TextReasoningAndCallsArriveInOrderAndWhole", func(t *testing.T) {
		b := h.start(t, fakellm.Reply(
			fakellm.Reasoning("I should ", "ask."),
			fakellm.Text("Let me ", "look", ".\n"),
			fakellm.Call{ID: "call_A", Name: "look", Args: `{"at": "x"}`, Every: 3},
			fakellm.Call{ID: "call_B", Name: "wait", Args: `{}`},
			fakellm.Finish{Usage: &fakellm.Usage{Input: 100, Output: 20, Cached: 30}},
		))
		a := b.ask()
		if a.Err != nil {
			t.Fatal(a.Err)
		}
		if a.Reasoning != "I should ask." || a.Text != "Let me look.\n" {
			t.Errorf("reasoning %q, text %q", a.Reasoning, a.Text)
		}
		if want := []Called{{"call_A", "look", `{"at": "x"}`}, {"call_B", "wait", `{}`}}; !equal(a.Calls, want) {
			t.Errorf("calls %v, want %v", a.Calls, want)
		}
		if want := (model.Finish{Reason: model.ToolCalls, Usage: model.Usage{InputTokens: 100, OutputTokens: 20, CachedTokens: 30}}); a.Finish != want {
			t.Errorf("finish %+v, want %+v", a.Finish, want)
		}
		kinds := []model.PartKind{}
		for _, p := range a.Message().Parts {
			kinds = append(kinds, p.Kind)
		}
		if want := []model.PartKind{model.ReasoningPart, model.TextPart, model.CallPart, model.CallPart}; !equal(kinds, want) {
			t.Errorf("blocks %v, want %v", kinds, want)
		}
	})
	t.Run("EveryDeltaIsAChunkOfItsOwn", func(t *testing.T) {
		b := h.start(t, fakellm.Reply(fakellm.Text("a", "b", "c")))
		var texts []string
		for _, c := range b.ask().Chunks {
			if c.Kind == model.TextChunk {
				texts = append(texts, c.Text)
			}
		}
		if !equal(texts, []string{"a", "b", "c"}) {
			t.Errorf("got %q", texts)
		}
	})
	t.Run("TextIsHandedOnWhileTheAnswerIsStillBeingWritten", func(t *testing.T) {
		gate := make(chan struct{})
		b := h.start(t, fakellm.Reply(fakellm.Text("now"), fakellm.Wait(gate), fakellm.Text(" later")))
		text := ""
		for c, err := range b.model.Stream(b.context(), model.Request{Messages: []model.Message{user("Hello?")}}) {
			if err != nil {
				t.Fatal(err)
			}
			text += c.Text
			if text == "now" {
				close(gate) // The rest comes only because this was read.
			}
		}
		if text != "now later" {
			t.Errorf("got %q", text)
		}
	})
	t.Run("BytesThatComeOneByOneMakeTheSameAnswer", func(t *testing.T) {
		b := h.start(t, fakellm.Reply(fakellm.ByteByByte(), fakellm.Text("Grüße ", "😀"), fakellm.Call{ID: "call_A", Name: "look", Args: `{"at":"ü"}`}))
		a := b.ask()
		if a.Err != nil || a.Text != "Grüße 😀" || !equal(a.Calls, []Called{{"call_A", "look", `{"at":"ü"}`}}) {
			t.Errorf("got %v %v", a, a.Calls)
		}
	})
	t.Run("FinishReasons", func(t *testing.T) {
		each(t, map[string]model.FinishReason{
			fakellm.Stop: model.Stop, fakellm.Length: model.Length, fakellm.ContentFilter: model.ContentFilter, "a-new-one": model.Stop,
		}, func(t *testing.T, said string, means model.FinishReason) {
			b := h.start(t, fakellm.Reply(fakellm.Text("x"), fakellm.Finish{Reason: said}))
			if a := b.ask(); a.Err != nil || a.Finish.Reason != means {
				t.Errorf("got %v %v, want %s", a.Finish, a.Err, means)
			}
		})
	})
	t.Run("AFinishReasonWithoutTheEndMarkIsAnEnd", func(t *testing.T) {
		b := h.start(t, fakellm.Reply(fakellm.Text("whole"), fakellm.Finish{NoEnd: true}))
		if a := b.ask(); a.Err != nil || a.Text != "whole" || a.Finish.Reason != model.Stop {
			t.Errorf("got %v", a)
		}
	})
	t.Run("CallsThatEndWithStopAreCalls", func(t *testing.T) {
		b := h.start(t, fakellm.Reply(fakellm.Call{Name: "look", Args: `{}`}, fakellm.Finish{Reason: fakellm.Stop}))
		if a := b.ask(); a.Err != nil || a.Finish.Reason != model.ToolCalls {
			t.Errorf("got %v", a)
		}
	})
	t.Run("ToolCallsWithoutACallBreakTheProtocol", func(t *testing.T) {
		b := h.start(t, fakellm.Reply(fakellm.Text("x"), fakellm.Finish{Reason: fakellm.ToolCalls}))
		b.fails(b.ask(), model.CodeProtocol, true)
	})
	t.Run("SomethingElseThanAStreamBreaksTheProtocol", func(t *testing.T) {
		each(t, map[string]fakellm.Status{
			"a web page": {Code: 200, Header: http.Header{"Content-Type": {"text/html"}}, Body: "<html>Sign in</html>"},
			"JSON":       {Code: 200, Body: `{"id":"x","type":"message","content":[]}`},
		}, func(t *testing.T, _ string, status fakellm.Status) {
			b := h.start(t, fakellm.Reply(status))
			b.fails(b.ask(), model.CodeProtocol, true)
		})
	})
	t.Run("FramesThatAreNoJSONBreakTheProtocol", func(t *testing.T) {
		b := h.start(t, fakellm.Reply(fakellm.Text("x"), fakellm.RawFrame("data: {broken\n\n")))
		b.fails(b.ask(), model.CodeProtocol, true)
	})
	t.Run("ManyAnswersAtOnceStayApart", func(t *testing.T) {
		b := h.startWith(t, fakellm.Options{Default: func(r fakellm.Request) fakellm.Turn {
			return fakellm.Reply(fakellm.Text(strings.SplitAfter(strings.Repeat(r.LastUser(), 50), "-")...))
		}})
		done := make(chan Answer)
		const n = 30
		for i := range n {
			go func() {
				text := string(rune('a'+i)) + "-"
				a := Collect(b, b.model.Stream(b.context(), model.Request{Messages: []model.Message{user(text)}}))
				if a.Text != strings.Repeat(text, 50) {
					b.Errorf("asked %q, got %v", text, a)
				}
				done <- a
			}()
		}
		for range n {
			<-done
		}
	})
}

func equal[T comparable](a, b []T) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
