package fakellm_test

import (
	"errors"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"github.com/holdfast-run/holdfast/internal/fakellm"
)

// The providers' own clients are the judges of whether this is their wire: they
// hear an answer with tool calls, bring it back with results, and meet an error.

const addArgs = `{"a":1,"b":2512292042121000001}`

func scriptCalls(llm *fakellm.Server) {
	llm.Script(
		fakellm.Reply(
			fakellm.Reasoning("let me ", "see"), fakellm.Ping(), fakellm.Text("I will ", "add."),
			fakellm.Call{ID: "call_1", Name: "add", Args: addArgs, Every: 5},
			fakellm.Call{ID: "call_2", Name: "add", Args: addArgs},
			fakellm.Finish{Usage: &fakellm.Usage{Input: 12, Output: 34, Cached: 2, Reasoning: 3}},
		),
		fakellm.Reply(fakellm.Text("It is 3.")),
		fakellm.Reply(fakellm.Text("Hal"), fakellm.InBandError("overloaded_error", "busy")),
		fakellm.Reply(fakellm.Status{Code: 429, RetryAfter: "2"}),
	)
}

func TestOpenAIsOwnClientSpeaksChatWithIt(t *testing.T) {
	llm := fakellm.Start(t, fakellm.Options{})
	scriptCalls(llm)
	sdk := openai.NewClient(openaioption.WithBaseURL(llm.URL()+"/v1"), openaioption.WithAPIKey("any"), openaioption.WithMaxRetries(0), openaioption.WithHTTPClient(client))
	params := openai.ChatCompletionNewParams{
		Model:         "fake-model",
		Messages:      []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("be kind"), openai.UserMessage("1+2?")},
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
		Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: "add", Parameters: shared.FunctionParameters{"type": "object"},
		})},
	}
	read := func() (openai.ChatCompletionAccumulator, error) {
		var all openai.ChatCompletionAccumulator
		stream := sdk.Chat.Completions.NewStreaming(t.Context(), params)
		defer stream.Close()
		for stream.Next() {
			if !all.AddChunk(stream.Current()) {
				t.Fatalf("the accumulator refuses %s", stream.Current().RawJSON())
			}
		}
		return all, stream.Err()
	}
	all, err := read()
	if err != nil {
		t.Fatal(err)
	}
	message := all.Choices[0].Message
	if message.Content != "I will add." || all.Choices[0].FinishReason != "tool_calls" || len(message.ToolCalls) != 2 ||
		message.ToolCalls[0].Function.Arguments != addArgs || message.ToolCalls[1].ID != "call_2" {
		t.Errorf("heard %+v", message)
	}
	if u := all.Usage; u.PromptTokens != 12 || u.CompletionTokens != 34 || u.PromptTokensDetails.CachedTokens != 2 || u.CompletionTokensDetails.ReasoningTokens != 3 {
		t.Errorf("usage %+v", u)
	}
	params.Messages = append(params.Messages, message.ToParam(), openai.ToolMessage("3", "call_1"), openai.ToolMessage("3", "call_2"))
	if all, err = read(); err != nil || all.Choices[0].Message.Content != "It is 3." || all.Choices[0].FinishReason != "stop" {
		t.Errorf("%v, heard %+v", err, all.Choices)
	}
	if _, err := read(); err == nil {
		t.Error("the error in the stream was not heard")
	}
	var refused *openai.Error
	if _, err := read(); !errors.As(err, &refused) || refused.StatusCode != 429 || refused.Code != "rate_limit_exceeded" || refused.Response.Header.Get("Retry-After") != "2" {
		t.Errorf("429 was heard as %v", err)
	}
	params.StreamOptions = openai.ChatCompletionStreamOptionsParam{}
	if whole, err := sdk.Chat.Completions.New(t.Context(), params); err != nil || whole.Choices[0].Message.Content != `The tool gave "3".` {
		t.Errorf("%v, %+v", err, whole)
	}
}

func TestOpenAIsOwnClientSpeaksResponsesWithIt(t *testing.T) {
	llm := fakellm.Start(t, fakellm.Options{})
	scriptCalls(llm)
	sdk := openai.NewClient(openaioption.WithBaseURL(llm.URL()+"/v1"), openaioption.WithAPIKey("any"), openaioption.WithMaxRetries(0), openaioption.WithHTTPClient(client))
	items := responses.ResponseInputParam{responses.ResponseInputItemParamOfMessage("1+2?", responses.EasyInputMessageRoleUser)}
	params := responses.ResponseNewParams{
		Model: "fake-model",
		Store: openai.Bool(false),
		Tools: []responses.ToolUnionParam{responses.ToolParamOfFunction("add", map[string]any{"type": "object"}, false)},
	}
	read := func() (last responses.ResponseStreamEventUnion, deltas string, err error) {
		params.Input = responses.ResponseNewParamsInputUnion{OfInputItemList: items}
		stream := sdk.Responses.NewStreaming(t.Context(), params)
		defer stream.Close()
		for stream.Next() {
			last = stream.Current()
			if last.Type == "response.output_text.delta" {
				deltas += last.Delta
			}
		}
		return last, deltas, stream.Err()
	}
	last, deltas, err := read()
	if err != nil || last.Type != "response.completed" || deltas != "I will add." || last.Response.OutputText() != deltas {
		t.Fatalf("%v, deltas %q, last %s", err, deltas, last.RawJSON())
	}
	if u := last.Response.Usage; u.InputTokens != 12 || u.OutputTokens != 34 || u.InputTokensDetails.CachedTokens != 2 || u.OutputTokensDetails.ReasoningTokens != 3 {
		t.Errorf("usage %+v", u)
	}
	calls := 0
	for _, item := range last.Response.Output {
		switch item.Type {
		case "message":
			message := item.AsMessage().ToParam()
			items = append(items, responses.ResponseInputItemUnionParam{OfOutputMessage: &message})
		case "function_call":
			calls++
			if item.AsFunctionCall().Arguments != addArgs {
				t.Errorf("arguments in %s", item.RawJSON())
			}
			call := item.AsFunctionCall().ToParam()
			items = append(items, responses.ResponseInputItemUnionParam{OfFunctionCall: &call})
		}
	}
	for _, id := range []string{"call_1", "call_2"} {
		output := responses.ResponseInputItemParamOfFunctionCallOutput("3")
		output.OfFunctionCallOutput.CallID = openai.String(id)
		items = append(items, output)
	}
	if last, deltas, err = read(); err != nil || calls != 2 || deltas != "It is 3." || last.Response.Status != "completed" {
		t.Errorf("%v, %d calls, deltas %q, last %s", err, calls, deltas, last.RawJSON())
	}
	if last, _, err = read(); err == nil && last.Type != "response.failed" {
		t.Errorf("the error in the stream was heard as %s", last.RawJSON())
	}
	var refused *openai.Error
	if _, _, err = read(); !errors.As(err, &refused) || refused.StatusCode != 429 {
		t.Errorf("429 was heard as %v", err)
	}
	if whole, err := sdk.Responses.New(t.Context(), params); err != nil || whole.OutputText() != `The tool gave "3".` {
		t.Errorf("%v, %+v", err, whole)
	}
}

func TestAnthropicsOwnClientSpeaksWithIt(t *testing.T) {
	llm := fakellm.Start(t, fakellm.Options{})
	scriptCalls(llm)
	sdk := anthropic.NewClient(anthropicoption.WithBaseURL(llm.URL()), anthropicoption.WithAPIKey("any"), anthropicoption.WithMaxRetries(0), anthropicoption.WithHTTPClient(client))
	params := anthropic.MessageNewParams{
		Model:     "fake-model",
		MaxTokens: 1000,
		System:    []anthropic.TextBlockParam{{Text: "be kind"}},
		Messages:  []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("1+2?"))},
		Tools:     []anthropic.ToolUnionParam{anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{Properties: map[string]any{}}, "add")},
	}
	read := func() (all anthropic.Message, err error) {
		stream := sdk.Messages.NewStreaming(t.Context(), params)
		defer stream.Close()
		for stream.Next() {
			if err := all.Accumulate(stream.Current()); err != nil {
				t.Fatal(err)
			}
		}
		return all, stream.Err()
	}
	all, err := read()
	if err != nil || len(all.Content) != 4 {
		t.Fatalf("%v, heard %+v", err, all)
	}
	if all.Content[0].Thinking != "let me see" || all.Content[0].Signature == "" || all.Content[1].Text != "I will add." ||
		string(all.Content[2].Input) != addArgs || all.Content[3].ID != "call_2" || all.StopReason != "tool_use" {
		t.Errorf("heard %+v", all.Content)
	}
	if u := all.Usage; u.InputTokens != 10 || u.CacheReadInputTokens != 2 || u.OutputTokens != 34 {
		t.Errorf("usage %+v", u)
	}
	params.Messages = append(params.Messages, all.ToParam(), anthropic.NewUserMessage(
		anthropic.NewToolResultBlock("call_1", "3", false), anthropic.NewToolResultBlock("call_2", "3", true)))
	if all, err = read(); err != nil || all.Content[0].Text != "It is 3." || all.StopReason != "end_turn" {
		t.Errorf("%v, heard %+v", err, all.Content)
	}
	var refused *anthropic.Error
	if _, err = read(); !errors.As(err, &refused) || refused.Type() != "overloaded_error" {
		t.Errorf("the error in the stream was heard as %v", err)
	}
	if _, err = read(); !errors.As(err, &refused) || refused.StatusCode != 429 || refused.Type() != "rate_limit_error" || refused.RequestID == "" {
		t.Errorf("429 was heard as %v", err)
	}
	if whole, err := sdk.Messages.New(t.Context(), params); err != nil || whole.Content[0].Text != `The tool gave "3" and "3".` {
		t.Errorf("%v, %+v", err, whole)
	}
}
