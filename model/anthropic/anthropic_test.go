package anthropic_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/model/anthropic"
	"github.com/holdfast-run/holdfast/model/modeltest"
)

func TestAnthropicKeepsTheContract(t *testing.T) {
	modeltest.Exercise(t, modeltest.Harness{Type: model.TypeAnthropic, New: anthropic.New, Signs: true})
}

func build(t *testing.T, url, name string) model.Model {
	t.Helper()
	p, err := anthropic.New(model.ProviderConfig{Type: model.TypeAnthropic, BaseURL: url, APIKey: "sk-0123456789"})
	if err != nil {
		t.Fatal(err)
	}
	m, err := p.Model(name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var hello = model.Request{Messages: []model.Message{{Role: model.User, Parts: []model.Part{{Kind: model.TextPart, Text: "Hello?"}}}}}

// events is an answer of these events, as a server sends it.
func events(t *testing.T, data ...string) modeltest.Answer {
	t.Helper()
	llm := fakellm.Start(t, fakellm.Options{})
	var raw strings.Builder
	for _, d := range data {
		var e struct{ Type string }
		if json.Unmarshal([]byte(d), &e) == nil {
			d = "event: " + e.Type + "\ndata: " + d + "\n\n"
		}
		raw.WriteString(d)
	}
	llm.Script(fakellm.Reply(fakellm.RawFrame(raw.String())))
	return modeltest.Collect(t, build(t, llm.URL(), "claude-sonnet-5").Stream(t.Context(), hello))
}

const (
	textStart = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`
	callStart = `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"A","name":"look","input":{}}}`
	blockStop = `{"type":"content_block_stop","index":0}`
	endTurn   = `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}`
	toolUse   = `{"type":"message_delta","delta":{"stop_reason":"tool_use"}}`
	over      = `{"type":"message_stop"}`
)

func text(s string) string {
	return `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"` + s + `"}}`
}

func sent(t *testing.T, name string, req model.Request) (any, *fakellm.Server) {
	t.Helper()
	llm := fakellm.Start(t, fakellm.Options{})
	if a := modeltest.Collect(t, build(t, llm.URL(), name).Stream(t.Context(), req)); a.Err != nil {
		t.Fatal(a.Err)
	}
	return decode(t, llm.Requests()[0].Body), llm
}

func decode(t *testing.T, raw []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestTheRequestIsWhatTheServerExpects(t *testing.T) {
	got, _ := sent(t, "claude-sonnet-5", model.Request{
		System: "Be brief.",
		Messages: []model.Message{
			{Role: model.User, Parts: []model.Part{{Kind: model.TextPart, Text: "one"}, {Kind: model.TextPart, Text: " \n"}}},
			{Role: model.User, Parts: []model.Part{{Kind: model.FilePart, MediaType: "image/png", Data: []byte("png")}}},
			{Role: model.Assistant, Parts: []model.Part{
				{Kind: model.ReasoningPart, Text: "unsigned"},
				{Kind: model.ReasoningPart, Text: "another's", Signature: "reasoning_content@api.deepseek.com "},
				{Kind: model.TextPart, Text: "\n\n"},
				{Kind: model.CallPart, Call: "functions.look:0", Name: "look", Arguments: json.RawMessage(`{"a": 1}`)},
				{Kind: model.CallPart, Call: "B", Name: "look"},
			}},
			{Role: model.ToolRole, Parts: []model.Part{{Kind: model.ResultPart, Call: "functions.look:0", Name: "look", Text: "fine", Files: []model.Part{
				{Kind: model.FilePart, MediaType: "image/png", Data: []byte("png")},
			}}}},
			{Role: model.ToolRole, Parts: []model.Part{{Kind: model.ResultPart, Call: "B", Name: "look", Text: "broken", Failed: true}}},
			{Role: model.User, Parts: []model.Part{{Kind: model.FilePart, MediaType: "application/pdf", URL: "https://example.com/a.pdf"}}},
		},
		Tools: []model.Tool{{Name: "look", Description: "Looks.", Parameters: json.RawMessage(`{"type":"object","additionalProperties":false}`)}, {Name: "wait"}},
	})
	const want = `{"model":"claude-sonnet-5","max_tokens":8192,"stream":true,"system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],
		"tools":[
			{"name":"look","description":"Looks.","input_schema":{"type":"object","additionalProperties":false}},
			{"name":"wait","input_schema":{"type":"object","properties":{}}}],
		"messages":[
			{"role":"user","content":[{"type":"text","text":"one"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"cG5n"},"cache_control":{"type":"ephemeral"}}]},
			{"role":"assistant","content":[
				{"type":"tool_use","id":"functions_2e_look_3a_0","name":"look","input":{"a":1}},
				{"type":"tool_use","id":"B","name":"look","input":{}}]},
			{"role":"user","content":[
				{"type":"tool_result","tool_use_id":"functions_2e_look_3a_0","content":[{"type":"text","text":"fine"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"cG5n"}}]},
				{"type":"tool_result","tool_use_id":"B","is_error":true,"content":[{"type":"text","text":"broken"}]},
				{"type":"document","source":{"type":"url","url":"https://example.com/a.pdf"},"cache_control":{"type":"ephemeral"}}]}]}`
	if diff := cmp.Diff(decode(t, []byte(want)), got); diff != "" {
		t.Errorf("the body differs (-want +got):\n%s", diff)
	}
}

func TestTheCacheIsAskedToKeepWhatTheNextRequestBeginsWith(t *testing.T) {
	said := func(role model.Role, text string) model.Message {
		return model.Message{Role: role, Parts: []model.Part{{Kind: model.TextPart, Text: text}}}
	}
	got, _ := sent(t, "claude-sonnet-5", model.Request{
		Messages: []model.Message{
			said(model.User, "one"), said(model.Assistant, "two"), said(model.User, "three"), said(model.Assistant, "four"), said(model.User, "five"),
		},
		Tools: []model.Tool{{Name: "look"}, {Name: "wait"}},
	})
	raw, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	marked := regexp.MustCompile(`"cache_control":\{"type":"ephemeral"\},[^{}]*"(?:text|name)":"(\w+)"|"cache_control":\{"type":"ephemeral"\},"input_schema":\{"properties":\{\},"type":"object"\},"name":"(\w+)"`)
	var names []string
	for _, m := range marked.FindAllStringSubmatch(string(raw), -1) {
		names = append(names, m[1]+m[2])
	}
	slices.Sort(names)
	if want := []string{"five", "three", "wait"}; !slices.Equal(names, want) {
		t.Errorf("marked are %q, not %q, in %s", names, want, raw)
	}
}

func TestThinkingIsAskedForInTheFormThatTheModelKnows(t *testing.T) {
	const (
		budget   = "enabled"
		adaptive = "adaptive"
	)
	for name, want := range map[string]string{
		"claude-3-7-sonnet-20250219": budget, "claude-opus-4-20250514": budget, "claude-sonnet-4-0": budget, "claude-opus-4-1": budget,
		"claude-sonnet-4-5-20250929": budget, "claude-haiku-4-5": budget, "us.anthropic.claude-sonnet-4-5-20250929-v1:0": budget, "kimi-k2": budget,
		"claude-opus-4-6": adaptive, "claude-sonnet-4-6": adaptive, "claude-opus-4-8": adaptive, "claude-sonnet-5": adaptive,
		"claude-haiku-5-5": adaptive, "anthropic.claude-opus-4-7-20260416-v1:0": adaptive, "claude-mythos-preview": adaptive, "anthropic/claude-4.7-opus": adaptive,
	} {
		req := hello
		req.Reasoning = "medium"
		body, _ := sent(t, name, req)
		thinking := body.(map[string]any)["thinking"].(map[string]any)
		config, _ := body.(map[string]any)["output_config"].(map[string]any)
		if thinking["type"] != want || (want == adaptive) != (config["effort"] == "medium") || (want == budget) != (thinking["budget_tokens"] == 4096.0) {
			t.Errorf("%s: %v, %v; want %s", name, thinking, config, want)
		}
	}
	for _, req := range []model.Request{{Reasoning: ""}, {Reasoning: "high", MaxTokens: 1500}} {
		req.Messages = hello.Messages
		if body, _ := sent(t, "claude-haiku-4-5", req); body.(map[string]any)["thinking"] != nil {
			t.Errorf("%+v: %v", req, body)
		}
	}
}

func TestHiddenReasoningGoesBackAsItCame(t *testing.T) {
	llm := fakellm.Start(t, fakellm.Options{})
	llm.Script(
		fakellm.Reply(fakellm.HiddenReasoning("cipher=="), fakellm.Reasoning("seen"), fakellm.Text("x")),
		fakellm.Reply(fakellm.Text("done")))
	m := build(t, llm.URL(), "claude-sonnet-5")
	a := modeltest.Collect(t, m.Stream(t.Context(), hello))
	if parts := a.Message().Parts; a.Err != nil || len(parts) != 3 || parts[0].Text != "" || parts[0].Signature == "" || parts[1].Text != "seen" {
		t.Fatalf("got %+v, %v", parts, a.Err)
	}
	next := hello
	next.Messages = append(next.Messages[:1:1], a.Message(), hello.Messages[0])
	if a := modeltest.Collect(t, m.Stream(t.Context(), next)); a.Err != nil {
		t.Fatal(a.Err)
	}
	if body := string(llm.Requests()[1].Body); !strings.Contains(body, `"data":"cipher=="`) || !strings.Contains(body, `"redacted_thinking"`) {
		t.Errorf("sent %s", body)
	}
}

func TestUsageCountsWhatTheCacheGaveAndTook(t *testing.T) {
	a := events(t,
		`{"type":"message_start","message":{"usage":{"input_tokens":10,"cache_creation_input_tokens":20,"cache_read_input_tokens":30,"output_tokens":1}}}`,
		textStart, text("x"), blockStop,
		`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9,"output_tokens_details":{"thinking_tokens":4}}}`, over)
	if want := (model.Usage{InputTokens: 60, CachedTokens: 30, OutputTokens: 9, ReasoningTokens: 4}); a.Finish.Usage != want {
		t.Errorf("got %+v, want %+v, %v", a.Finish.Usage, want, a.Err)
	}
}

func TestOddButHarmlessEventsAreRead(t *testing.T) {
	for name, data := range map[string][]string{
		"an unknown event":        {`{"type":"brand_new","index":9}`, textStart, text("yes"), blockStop, endTurn, over},
		"an unknown block":        {`{"type":"content_block_start","index":1,"content_block":{"type":"server_tool_use","id":"S","name":"web"}}`, `{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{}"}}`, textStart, text("yes"), blockStop, endTurn, over},
		"an unknown delta":        {textStart, `{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{}}}`, text("yes"), blockStop, endTurn, over},
		"pings":                   {`{"type":"ping"}`, "event: ping\n\n", ": ping\n\n", textStart, text("yes"), blockStop, endTurn, over},
		"no event lines":          {"data: " + textStart + "\n\n", "data: " + text("yes") + "\n\n", "data: " + endTurn + "\n\n"},
		"text in the start":       {`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"y"}}`, text("es"), blockStop, endTurn, over},
		"an index that is reused": {textStart, text("y"), blockStop, textStart, text("es"), blockStop, endTurn, over},
		"something after the end": {textStart, text("yes"), blockStop, endTurn, over, "data: [DONE]\n\n"},
	} {
		if a := events(t, data...); a.Err != nil || a.Text != "yes" || a.Finish.Reason != model.Stop {
			t.Errorf("%s: got %q, %v", name, a.Text, a.Err)
		}
	}
}

func TestArgumentsThatComeWithTheStartAreRead(t *testing.T) {
	a := events(t, `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"A","name":"look","input":{"id": 9007199254740993}}}`, blockStop, toolUse, over)
	if a.Err != nil || len(a.Calls) != 1 || a.Calls[0].Arguments != `{"id": 9007199254740993}` {
		t.Errorf("got %+v, %v", a.Calls, a.Err)
	}
}

func TestEventsThatBreakTheProtocolAreRefused(t *testing.T) {
	args := func(json string) string {
		return `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"` + json + `"}}`
	}
	for name, data := range map[string][]string{
		"a delta without a block":   {text("x")},
		"a delta after the stop":    {textStart, blockStop, text("x")},
		"a stop without a block":    {blockStop},
		"no index":                  {`{"type":"content_block_start","content_block":{"type":"text"}}`},
		"a delta without an index":  {textStart, `{"type":"content_block_delta","delta":{"type":"text_delta","text":"x"}}`},
		"two blocks at one index":   {textStart, textStart},
		"text in a call":            {callStart, text("x")},
		"arguments in text":         {textStart, args("{}")},
		"a call without an id":      {`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","name":"look"}}`},
		"two calls with one id":     {callStart, blockStop, callStart},
		"two calls in one":          {callStart, args("{}"), args("{}")},
		"arguments twice":           {`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"A","name":"look","input":{"a":1}}}`, args("{")},
		"tool_use without a call":   {textStart, text("x"), blockStop, toolUse, over},
		"an event that is not JSON": {"event: content_block_delta\ndata: {broken\n\n"},
	} {
		if a := events(t, data...); a.Code() != model.CodeProtocol {
			t.Errorf("%s: got %v", name, a.Err)
		}
	}
}

func TestAnErrorEventThatIsNotJSONIsAnError(t *testing.T) {
	if a := events(t, textStart, text("Hel"), "event: error\ndata: Service Unavailable\n\n"); a.Code() != model.CodeUnavailable || a.Text != "Hel" {
		t.Errorf("got %v", a.Err)
	}
}
