package openai_test

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/model/modeltest"
	"github.com/holdfast-run/holdfast/model/openai"
)

func TestOpenAIKeepsTheContract(t *testing.T) {
	modeltest.Exercise(t, modeltest.Harness{Type: model.TypeOpenAI, Path: "/v1", New: openai.New})
}

func TestCompatibleServersKeepTheContract(t *testing.T) {
	modeltest.Exercise(t, modeltest.Harness{Type: model.TypeOpenAICompatible, Path: "/v1", New: openai.New, Signs: true})
}

func build(t *testing.T, kind, url string) model.Model {
	t.Helper()
	p, err := openai.New(model.ProviderConfig{Type: kind, BaseURL: url + "/v1", APIKey: "sk-0123456789"})
	if err != nil {
		t.Fatal(err)
	}
	m, err := p.Model("gpt-5-mini")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var hello = model.Request{Messages: []model.Message{{Role: model.User, Parts: []model.Part{{Kind: model.TextPart, Text: "Hello?"}}}}}

// frames is an answer of these data lines, as a server sends it.
func frames(t *testing.T, data ...string) modeltest.Answer {
	t.Helper()
	llm := fakellm.Start(t, fakellm.Options{})
	for i, d := range data {
		if !strings.Contains(d, "\n") {
			d = "data: " + d + "\n\n"
		}
		data[i] = d
	}
	llm.Script(fakellm.Reply(fakellm.RawFrame(strings.Join(data, ""))))
	return modeltest.Collect(t, build(t, model.TypeOpenAICompatible, llm.URL()).Stream(t.Context(), hello))
}

// delta is a chunk of choice 0.
func delta(fields string) string {
	return `{"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{` + fields + `},"finish_reason":null}]}`
}

const stop = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`

func TestTheRequestIsWhatTheServerExpects(t *testing.T) {
	req := model.Request{
		System: "Be brief.", MaxTokens: 100, Reasoning: "low",
		Messages: []model.Message{
			{Role: model.User, Parts: []model.Part{{Kind: model.TextPart, Text: "one"}, {Kind: model.TextPart, Text: "two"}}},
			{Role: model.Assistant, Parts: []model.Part{
				{Kind: model.TextPart, Text: "I "},
				{Kind: model.ReasoningPart, Text: "hm"},
				{Kind: model.TextPart, Text: "look."},
				{Kind: model.CallPart, Call: "call_A", Name: "look", Arguments: json.RawMessage(`{"a": 1}`)},
			}},
			{Role: model.ToolRole, Parts: []model.Part{{Kind: model.ResultPart, Call: "call_A", Name: "look", Text: "fine"}}},
			{Role: model.User, Parts: []model.Part{
				{Kind: model.FilePart, MediaType: "image/png", URL: "https://example.com/a.png"},
				{Kind: model.FilePart, MediaType: "audio/mpeg", Data: []byte("mp3")},
				{Kind: model.TextPart, Text: "three"},
			}},
		},
		Tools: []model.Tool{{Name: "look", Description: "Looks.", Parameters: json.RawMessage(`{"type":"object"}`)}},
	}
	const common = `"model":"gpt-5-mini","stream":true,"stream_options":{"include_usage":true},"reasoning_effort":"low",
		"tools":[{"type":"function","function":{"name":"look","description":"Looks.","parameters":{"type":"object"}}}],
		"messages":[
			{"role":"system","content":"Be brief."},
			{"role":"user","content":"one\n\ntwo"},
			{"role":"assistant","content":"I look.","tool_calls":[{"id":"call_A","type":"function","function":{"name":"look","arguments":"{\"a\": 1}"}}]},
			{"role":"tool","tool_call_id":"call_A","content":"fine"},
			{"role":"user","content":[
				{"type":"image_url","image_url":{"url":"https://example.com/a.png"}},
				{"type":"input_audio","input_audio":{"data":"bXAz","format":"mp3"}},
				{"type":"text","text":"three"}]}]`
	for kind, want := range map[string]string{
		model.TypeOpenAI:           `{"max_completion_tokens":100,` + common + `}`,
		model.TypeOpenAICompatible: `{"max_tokens":100,` + common + `}`,
	} {
		llm := fakellm.Start(t, fakellm.Options{})
		modeltest.Collect(t, build(t, kind, llm.URL()).Stream(t.Context(), req))
		if diff := cmp.Diff(decode(t, []byte(want)), decode(t, llm.Requests()[0].Body)); diff != "" {
			t.Errorf("%s: the body differs (-want +got):\n%s", kind, diff)
		}
	}
}

func TestFilesOfResultsFollowThemForModelsThatSurelySee(t *testing.T) {
	call := func(id string) model.Part {
		return model.Part{Kind: model.CallPart, Call: id, Name: "look", Arguments: json.RawMessage(`{}`)}
	}
	req := model.Request{
		Tools: []model.Tool{{Name: "look"}},
		Messages: []model.Message{
			{Role: model.User, Parts: []model.Part{{Kind: model.TextPart, Text: "one"}}},
			{Role: model.Assistant, Parts: []model.Part{call("a"), call("b")}},
			{Role: model.ToolRole, Parts: []model.Part{
				{Kind: model.ResultPart, Call: "a", Text: "seen", Files: []model.Part{{Kind: model.FilePart, MediaType: "image/png", Data: []byte("png")}}},
				{Kind: model.ResultPart, Call: "b", Text: "nothing"},
			}},
		},
	}
	for kind, want := range map[string]bool{model.TypeOpenAI: true, model.TypeOpenAICompatible: false} {
		llm := fakellm.Start(t, fakellm.Options{})
		modeltest.Collect(t, build(t, kind, llm.URL()).Stream(t.Context(), req))
		var sent struct{ Messages []json.RawMessage }
		if err := json.Unmarshal(llm.Requests()[0].Body, &sent); err != nil {
			t.Fatal(err)
		}
		const files = `{"role":"user","content":[{"type":"text","text":"The files of these results:"},{"type":"image_url","image_url":{"url":"data:image/png;base64,cG5n"}}]}`
		last := sent.Messages[len(sent.Messages)-1]
		if shown := cmp.Equal(decode(t, last), decode(t, []byte(files))); shown != want || want != (len(sent.Messages) == 5) {
			t.Errorf("%s: the last of %d messages is %s", kind, len(sent.Messages), last)
		}
	}
}

func decode(t *testing.T, raw []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestReasoningIsReadFromEitherFieldAndGoesBackInOne(t *testing.T) {
	for field, back := range map[string]bool{"reasoning_content": true, "reasoning": false} {
		llm := fakellm.Start(t, fakellm.Options{ReasoningField: field})
		llm.Script(
			fakellm.Reply(fakellm.Reasoning("deep ", "thought"), fakellm.Call{ID: "call_A", Name: "look", Args: `{}`}),
			fakellm.Reply(fakellm.Text("done")))
		m := build(t, model.TypeOpenAICompatible, llm.URL())
		a := modeltest.Collect(t, m.Stream(t.Context(), hello))
		if a.Reasoning != "deep thought" {
			t.Errorf("%s: got %q, %v", field, a.Reasoning, a.Err)
		}
		next := hello
		next.Messages = append(next.Messages[:1:1], a.Message(), model.Message{Role: model.ToolRole, Parts: []model.Part{{Kind: model.ResultPart, Call: "call_A", Text: "ok"}}})
		if a := modeltest.Collect(t, m.Stream(t.Context(), next)); a.Err != nil {
			t.Errorf("%s: %v", field, a.Err)
		}
		body := string(llm.Requests()[1].Body)
		if got := strings.Contains(body, `"reasoning_content":"deep thought"`); got != back || strings.Contains(body, `"reasoning":`) {
			t.Errorf("%s: sent back %v, want %v: %s", field, got, back, body)
		}
	}
	a := frames(t, delta(`"reasoning":"once","reasoning_content":"once"`), delta(`"content":"x"`), stop)
	if a.Reasoning != "once" || a.Text != "x" {
		t.Errorf("both fields: %q %q", a.Reasoning, a.Text)
	}
}

func TestProseThatChangesItsKindBeginsANewBlock(t *testing.T) {
	a := frames(t, delta(`"content":"a"`), delta(`"reasoning_content":"b"`), delta(`"content":"c"`),
		delta(`"tool_calls":[{"index":0,"id":"A","function":{"name":"look","arguments":"{}"}}]`), delta(`"content":"d"`), stop)
	var got []model.Part
	for _, p := range a.Message().Parts {
		got = append(got, model.Part{Kind: p.Kind, Text: p.Text})
	}
	want := []model.Part{{Kind: model.TextPart, Text: "a"}, {Kind: model.ReasoningPart, Text: "b"}, {Kind: model.TextPart, Text: "cd"}, {Kind: model.CallPart}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestUsageIsReadInEachDialect(t *testing.T) {
	for raw, want := range map[string]model.Usage{
		`{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":3}}`: {InputTokens: 10, OutputTokens: 5, CachedTokens: 4, ReasoningTokens: 3},
		`{"prompt_tokens":10,"completion_tokens":5,"prompt_cache_hit_tokens":7,"prompt_tokens_details":null}`:                                       {InputTokens: 10, OutputTokens: 5, CachedTokens: 7},
		`null`: {},
	} {
		// After the finish reason, as OpenAI does, and beside it, as others do.
		for _, a := range []modeltest.Answer{
			frames(t, stop, `{"choices":[],"usage":`+raw+`}`, "[DONE]"),
			frames(t, `{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}],"usage":`+raw+`}`),
		} {
			if a.Err != nil || a.Finish.Usage != want {
				t.Errorf("%s: got %+v, %v", raw, a.Finish.Usage, a.Err)
			}
		}
	}
}

func TestOddButHarmlessChunksAreRead(t *testing.T) {
	for name, c := range map[string]struct {
		data []string
		text string
	}{
		"a refusal is what it says":    {[]string{delta(`"refusal":"I "`), delta(`"refusal":"will not"`), stop}, "I will not"},
		"another choice is not ours":   {[]string{`{"choices":[{"index":1,"delta":{"content":"no"}}]}`, delta(`"content":"yes"`), stop}, "yes"},
		"no choices":                   {[]string{`{"choices":[],"prompt_filter_results":[]}`, `{"choices":null}`, delta(`"content":"yes"`), stop}, "yes"},
		"nulls":                        {[]string{`{"error":null,"choices":[{"index":0,"delta":{"content":null,"tool_calls":null,"role":"assistant"},"finish_reason":null}],"usage":null}`, delta(`"content":"yes"`), stop}, "yes"},
		"no delta":                     {[]string{`{"choices":[{"index":0}]}`, delta(`"content":"yes"`), stop}, "yes"},
		"comments and other fields":    {[]string{": OPENROUTER PROCESSING\n\n", "retry: 5\nid: 7\nevent: message\ndata:" + delta(`"content":"yes"`) + "\n\n", stop}, "yes"},
		"carriage returns":             {[]string{"data: " + delta(`"content":"yes"`) + "\r\n\r\n", stop}, "yes"},
		"an event in two lines":        {[]string{"data: {\"choices\":\ndata: [{\"index\":0,\"delta\":{\"content\":\"yes\"}}]}\n\n", stop}, "yes"},
		"more after the finish reason": {[]string{delta(`"content":"yes"`), stop, delta(`"content":"!"`)}, "yes!"},
	} {
		if a := frames(t, c.data...); a.Err != nil || a.Text != c.text || a.Finish.Reason != model.Stop {
			t.Errorf("%s: got %q, %v", name, a.Text, a.Err)
		}
	}
}

func TestErrorsInsideAStreamAreReadInEachDialect(t *testing.T) {
	for data, want := range map[string]struct {
		code    model.Code
		message string
	}{
		`{"error":"model runner has stopped"}`:                                      {model.CodeUnavailable, "model runner has stopped"},
		`{"error":{"code":502,"message":"Provider returned error"},"choices":[]}`:   {model.CodeUnavailable, "Provider returned error"},
		`{"error":{"code":"429","message":"slow down"}}`:                            {model.CodeRateLimited, "slow down"},
		`{"error":{"code":400,"status":"INVALID_ARGUMENT","message":"bad"}}`:        {model.CodeInvalidRequest, "bad"},
		`{"error":{"code":null,"type":"context_length_exceeded","message":"long"}}`: {model.CodeContextTooLong, "long"},
		`{"error":{"code":400,"message":"This model's maximum context length is 8192 tokens."}}`: {
			model.CodeContextTooLong, "This model's maximum context length is 8192 tokens.",
		},
		`{"error":{"type":"invalid_request_error","message":"prompt is too long: 2 tokens > 1 maximum"}}`: {
			model.CodeContextTooLong, "prompt is too long: 2 tokens > 1 maximum",
		},
		`{"error":{"type":"invalid_request_error","message":"the context of this question is unclear"}}`: {
			model.CodeInvalidRequest, "the context of this question is unclear",
		},
		`{"object":"error","message":"out of memory","type":"x","code":500}`:           {model.CodeUnavailable, "out of memory"},
		"event: error\ndata: {\"message\":\"busy\",\"type\":\"overloaded_error\"}\n\n": {model.CodeOverloaded, "busy"},
		"event: error\ndata: not JSON\n\n":                                             {model.CodeUnavailable, "the provider reported an error"},
		`{"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}`:                 {model.CodeUnavailable, "ended the answer with an error"},
		`{"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}`:                 {model.CodeIncomplete, "broke the answer off"},
		`{"choices":[{"index":0,"delta":{"content":[]}}]}`:                             {model.CodeProtocol, "not the JSON"},
		`[1]`: {model.CodeProtocol, "not the JSON"},
	} {
		a := frames(t, delta(`"content":"Hel"`), data)
		if a.Code() != want.code || !strings.Contains(a.Err.Error(), want.message) || a.Text != "Hel" {
			t.Errorf("%s: got %v, %q", data, a.Err, a.Text)
		}
	}
}

func TestCallsWithoutIDsOrIndexesAreKeptApart(t *testing.T) {
	a := frames(t,
		delta(`"tool_calls":[{"function":{"name":"look","arguments":"{\"a\":1}"}},{"function":{"name":"look","arguments":"{\"a\":2}"}}]`), stop)
	if a.Err != nil || len(a.Calls) != 2 || a.Calls[0].Arguments != `{"a":1}` || a.Calls[1].Arguments != `{"a":2}` || a.Calls[0].ID == a.Calls[1].ID {
		t.Errorf("got %+v, %v", a.Calls, a.Err)
	}
}

func TestACallIsAnnouncedBeforeItsArguments(t *testing.T) {
	a := frames(t,
		delta(`"tool_calls":[{"index":0,"id":"A","type":"function"}]`),
		delta(`"tool_calls":[{"index":0,"function":{"name":"look","arguments":""}}]`),
		delta(`"tool_calls":[{"index":0,"function":{"arguments":""}}]`),
		delta(`"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]`), stop)
	want := []model.Chunk{
		{Kind: model.CallChunk, Call: "A", Name: "look"},
		{Kind: model.CallChunk, Call: "A", Name: "look", Text: "{}"},
		{Kind: model.FinishChunk, Finish: &model.Finish{Reason: model.ToolCalls}},
	}
	if diff := cmp.Diff(want, a.Chunks); diff != "" {
		t.Error(diff)
	}
}

func TestOneConnectionServesCallAfterCall(t *testing.T) {
	llm := fakellm.New(fakellm.Options{})
	t.Cleanup(llm.Close)
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(llm)
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	m := build(t, model.TypeOpenAI, server.URL)
	for range 5 {
		if a := modeltest.Collect(t, m.Stream(t.Context(), hello)); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	if got := connections.Load(); got != 1 {
		t.Errorf("%d connections for five calls", got)
	}
}
