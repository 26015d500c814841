package fakellm_test

import (
	"encoding/json"
	"flag"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/fakellm"
)

var update = flag.Bool("update", false, "rewrite the files in testdata")

var (
	serverID = regexp.MustCompile(`_[0-9a-f]{8}(\d)|-[0-9a-f]{8}(\d)`)
	created  = regexp.MustCompile(`"(created|created_at)":\d+`)
)

// compare holds got against a file. Ids and times are made equal first.
func compare(t *testing.T, file, got string) {
	t.Helper()
	got = serverID.ReplaceAllString(got, "_SERVER$1$2")
	got = created.ReplaceAllString(got, `"$1":0`)
	file = filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (run with -update and look at the diff):\n%s", file, got)
	}
}

// everything is an answer with all that an answer can have.
func everything() fakellm.Turn {
	return fakellm.Reply(
		fakellm.Reasoning("first ", "think"),
		fakellm.HiddenReasoning("c2VjcmV0"),
		fakellm.Ping(),
		fakellm.Text("Hel", "lo <b>\u2603</b>\x00"),
		fakellm.Call{ID: "call_a", Name: "add", Args: `{"a":1,"b":"é"}`, Every: 4},
		fakellm.Call{ID: "call_n", Name: "now"},
		fakellm.Finish{Usage: &fakellm.Usage{Input: 100, Output: 20, Cached: 30, Reasoning: 5}},
	)
}

func TestAStreamedAnswerHasTheBytesOfItsWire(t *testing.T) {
	eachWire(t, func(t *testing.T, wire fakellm.Wire, llm *fakellm.Server) {
		llm.Script(everything())
		compare(t, string(wire)+".sse", stream(t, llm, wire))
	})
}

func TestAWholeAnswerHasTheBytesOfItsWire(t *testing.T) {
	eachWire(t, func(t *testing.T, wire fakellm.Wire, llm *fakellm.Server) {
		llm.Script(everything())
		response := open(t, llm, wire, ask(wire, "hi", false))
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		if got := response.Header.Get("Content-Type"); got != "application/json" {
			t.Errorf("content type %q", got)
		}
		if !json.Valid(body) {
			t.Errorf("not JSON: %s", body)
		}
		compare(t, string(wire)+".json", string(body))
	})
}

func TestAClientOfEachWireHearsTheSameAnswer(t *testing.T) {
	eachWire(t, func(t *testing.T, wire fakellm.Wire, llm *fakellm.Server) {
		llm.Script(everything())
		h := listen(t, wire, stream(t, llm, wire))
		if h.text != "Hello <b>\u2603</b>\x00" || h.reasoning != "first think" {
			t.Errorf("text %q, reasoning %q", h.text, h.reasoning)
		}
		if want := map[string]string{"add": `{"a":1,"b":"é"}`, "now": ""}; !maps.Equal(h.calls, want) {
			t.Errorf("calls %v", h.calls)
		}
		if !h.ended {
			t.Error("the stream did not end properly")
		}
		want := map[fakellm.Wire]string{fakellm.Chat: "tool_calls", fakellm.Responses: "completed", fakellm.Messages: "tool_use"}
		if h.reason != want[wire] {
			t.Errorf("reason %q", h.reason)
		}
		if input := h.input; h.output != 20 || wire == fakellm.Messages && input != 70 || wire != fakellm.Messages && input != 100 {
			t.Errorf("usage %d in, %d out", h.input, h.output)
		}
	})
}

func TestEachFinishReasonIsSaidInTheWordsOfTheWire(t *testing.T) {
	reasons := map[fakellm.Wire]map[string]string{
		fakellm.Chat: {
			fakellm.Stop: "stop", fakellm.Length: "length", fakellm.ToolCalls: "tool_calls", fakellm.ContentFilter: "content_filter", "odd": "odd",
		},
		fakellm.Responses: {
			fakellm.Stop: "completed", fakellm.Length: "max_output_tokens", fakellm.ToolCalls: "completed", fakellm.ContentFilter: "content_filter", "odd": "odd",
		},
		fakellm.Messages: {
			fakellm.Stop: "end_turn", fakellm.Length: "max_tokens", fakellm.ToolCalls: "tool_use", fakellm.ContentFilter: "refusal", "odd": "odd",
		},
	}
	eachWire(t, func(t *testing.T, wire fakellm.Wire, llm *fakellm.Server) {
		for reason, want := range reasons[wire] {
			llm.Script(fakellm.Reply(fakellm.Text("x"), fakellm.Finish{Reason: reason}))
			if h := listen(t, wire, stream(t, llm, wire)); h.reason != want || !h.ended {
				t.Errorf("%s: reason %q, want %q; ended %v", reason, h.reason, want, h.ended)
			}
		}
	})
}

func TestChatSendsUsageOnlyToThoseWhoAsk(t *testing.T) {
	llm := fakellm.Start(t, fakellm.Options{})
	_, text, err := exchange(t, llm, fakellm.Chat, `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`)
	if err != nil || strings.Contains(text, "usage") {
		t.Errorf("error %v; a stream with usage: %s", err, text)
	}
	frames := events(stream(t, llm, fakellm.Chat))
	if last := frames[len(frames)-2].data; !strings.Contains(last, `"choices":[],"usage":{"prompt_tokens"`) {
		t.Errorf("the frame before [DONE] is %s", last)
	}
	if !strings.HasSuffix(frames[0].data, `"usage":null}`) {
		t.Errorf("the first frame is %s", frames[0].data)
	}
}

func TestTheReasoningFieldOfChatCanBeNamed(t *testing.T) {
	llm := fakellm.Start(t, fakellm.Options{ReasoningField: "reasoning"})
	llm.Script(fakellm.Reply(fakellm.Reasoning("hm")).Times(2))
	if text := stream(t, llm, fakellm.Chat); !strings.Contains(text, `"delta":{"reasoning":"hm"}`) {
		t.Error(text)
	}
	_, text, _ := exchange(t, llm, fakellm.Chat, ask(fakellm.Chat, "hi", false))
	if !strings.Contains(text, `"reasoning":"hm"`) {
		t.Error(text)
	}
}

func TestModelsAreListedInTheShapeOfTheProviderAsked(t *testing.T) {
	llm := fakellm.Start(t, fakellm.Options{Models: []string{"small", "large"}})
	for version, want := range map[string]string{
		"":           `{"object":"list","data":[{"id":"small","object":"model"`,
		"2023-06-01": `{"data":[{"type":"model","id":"small","display_name":"small"`,
	} {
		request, _ := http.NewRequest(http.MethodGet, llm.URL()+"/v1/models", nil)
		request.Header.Set("Anthropic-Version", version)
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if !strings.HasPrefix(string(body), want) || !strings.Contains(string(body), `"large"`) || !json.Valid(body) {
			t.Errorf("version %q: %s", version, body)
		}
	}
}

func TestEachDeltaIsOnTheWireBeforeTheNextStep(t *testing.T) {
	eachWire(t, func(t *testing.T, wire fakellm.Wire, llm *fakellm.Server) {
		gate := make(chan struct{})
		told := make(chan struct{})
		llm.Script(fakellm.Reply(fakellm.Text("before"), fakellm.Do(func() { close(told) }), fakellm.Wait(gate), fakellm.Text("after")))
		response := open(t, llm, wire, ask(wire, "hi", true))
		readUntil(t, response.Body, "before") // the stream is held: only a flushed delta can come
		<-told
		close(gate)
		readUntil(t, response.Body, "after")
	})
}

func TestADemoPromptGetsStampedTokens(t *testing.T) {
	eachWire(t, func(t *testing.T, wire fakellm.Wire, llm *fakellm.Server) {
		start := time.Now()
		_, text, err := exchange(t, llm, wire, ask(wire, "please n=5 rate=100 size=30 think=20ms", true))
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < 60*time.Millisecond {
			t.Errorf("20 ms of thought and 5 tokens at 100 a second took %v", took)
		}
		tokens := regexp.MustCompile(`(\d+):(\d{19})x* `).FindAllStringSubmatch(listen(t, wire, text).text, -1)
		if len(tokens) != 5 {
			t.Fatalf("%d tokens in %s", len(tokens), text)
		}
		for i, token := range tokens {
			if len(token[0]) != 30 || token[1] != string(rune('0'+i)) {
				t.Errorf("token %d is %q", i, token[0])
			}
		}
	})
}

func TestACheckPromptGetsWhatAClientIsCheckedWith(t *testing.T) {
	tools := `"tools":[{"type":"function","function":{"name":"mail_sample","parameters":{"type":"object"}}},{"type":"function","function":{"name":"look","parameters":{"type":"object"}}}],`
	for prompt, want := range map[string]string{
		"check: short": `"words, "`, "check: long": "word90 ", "check: tool": `"look"`, "check: approval": `"mail_sample"`,
		"check: error": "the provider was asked to fail", "check: tools": `"look"`,
	} {
		llm := fakellm.Start(t, fakellm.Options{})
		_, text, err := exchange(t, llm, fakellm.Chat, `{"model":"m","stream":true,`+tools+`"messages":[{"role":"user","content":"`+prompt+`"}]}`)
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("%s is answered %s, %v", prompt, text, err)
		}
	}
	llm := fakellm.Start(t, fakellm.Options{})
	if _, text, _ := exchange(t, llm, fakellm.Chat, `{"model":"m","stream":true,"messages":[{"role":"user","content":"check: tool"}]}`); !strings.Contains(text, "no tool for this") {
		t.Errorf("without tools it is answered %s", text)
	}
}

func TestTheDefaultAnswerNamesWhatTheUserSaid(t *testing.T) {
	eachWire(t, func(t *testing.T, wire fakellm.Wire, llm *fakellm.Server) {
		if h := listen(t, wire, stream(t, llm, wire)); h.text != `You said "hi".` {
			t.Errorf("text %q", h.text)
		}
	})
}

func TestTheDefaultAnswerToAToolResultRepeatsIt(t *testing.T) {
	llm := fakellm.Start(t, fakellm.Options{})
	_, text, _ := exchange(t, llm, fakellm.Chat, `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"},
		{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"add","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"c1","content":"42"}]}`)
	if h := listen(t, fakellm.Chat, text); h.text != `The tool gave "42".` {
		t.Errorf("text %q", h.text)
	}
}
