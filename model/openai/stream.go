package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/model/internal/wire"
)

// Stream implements [model.Model].
func (c chat) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		if err := c.stream(ctx, req, yield); err != nil {
			yield(model.Chunk{}, err)
		}
	}
}

// stream yields the answer's chunks. It gives nil after the finish chunk, and
// when yield wants no more.
func (c chat) stream(ctx context.Context, req model.Request, yield func(model.Chunk, error) bool) error {
	params, err := c.params(req)
	if err != nil {
		return c.line.Fail(model.CodeInvalidRequest, err.Error(), err)
	}
	var res *http.Response
	stream := c.service.NewStreaming(ctx, params, option.WithResponseInto(&res))
	if err := stream.Err(); err != nil {
		return c.line.Failed(ctx, err)
	}
	defer res.Body.Close()
	body := wire.Meter(res)
	events := ssestream.NewDecoder(res)
	a := answer{chat: c, yield: yield}
	for events.Next() {
		body.NextEvent()
		event := events.Event()
		if bytes.HasPrefix(event.Data, []byte("[DONE]")) {
			break
		}
		if more, err := a.add(event); !more {
			return err
		}
	}
	// After a finish reason the answer is whole, however the connection ends.
	if a.finish == "" {
		return c.line.Broke(ctx, events.Err())
	}
	if err := a.close(); err != nil {
		return err
	}
	body.Drain()
	return nil
}

// chunk is what is read of an event. What we do not need costs no decoding.
type chunk struct {
	Object  string          `json:"object"`
	Error   json.RawMessage `json:"error"`
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
}

type choice struct {
	Index        int    `json:"index"`
	FinishReason string `json:"finish_reason"`
	Delta        struct {
		Content          string     `json:"content"`
		Refusal          string     `json:"refusal"`
		ReasoningContent string     `json:"reasoning_content"` // DeepSeek, vLLM, llama.cpp
		Reasoning        string     `json:"reasoning"`         // OpenRouter, Ollama, Groq, newer vLLM
		ToolCalls        []fragment `json:"tool_calls"`
	} `json:"delta"`
}

type fragment struct {
	Index    *int   `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type usage struct {
	PromptTokens        int `json:"prompt_tokens"`
	CompletionTokens    int `json:"completion_tokens"`
	PromptTokensDetails struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionTokensDetails struct {
		ReasoningTokens int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
	PromptCacheHitTokens int `json:"prompt_cache_hit_tokens"` // DeepSeek
}

// answer is one answer that is being streamed.
type answer struct {
	chat
	yield  func(model.Chunk, error) bool
	blocks int // that have begun
	// prose is the kind of the text block that grows, block its number.
	prose  model.ChunkKind
	block  int
	calls  wire.Calls
	finish string
	usage  model.Usage
}

// add takes an event. It is false when the answer is over, with the reason if it
// is an error.
func (a *answer) add(event ssestream.Event) (bool, error) {
	if event.Type == "error" {
		return false, a.line.InBand(event.Data)
	}
	if text, ok := contentOf(event.Data); ok {
		return len(text) == 0 || a.say(model.TextChunk, string(text), ""), nil
	}
	var c chunk
	if err := json.Unmarshal(event.Data, &c); err != nil {
		return false, a.line.Fail(model.CodeProtocol, "an event is not the JSON of a chunk", err)
	}
	if len(c.Error) > 0 && string(c.Error) != "null" || c.Object == "error" {
		return false, a.line.InBand(event.Data)
	}
	if c.Usage != nil {
		a.usage = model.Usage{
			InputTokens:     c.Usage.PromptTokens,
			OutputTokens:    c.Usage.CompletionTokens,
			ReasoningTokens: c.Usage.CompletionTokensDetails.ReasoningTokens,
			CachedTokens:    max(c.Usage.PromptTokensDetails.CachedTokens, c.Usage.PromptCacheHitTokens),
		}
	}
	for i := range c.Choices {
		if c.Choices[i].Index != 0 {
			continue // We ask for one.
		}
		if more, err := a.choose(&c.Choices[i]); !more {
			return false, err
		}
	}
	return true, nil
}

func (a *answer) choose(c *choice) (bool, error) {
	switch {
	case c.Delta.ReasoningContent != "":
		if !a.say(model.ReasoningChunk, c.Delta.ReasoningContent, wire.Sign(signatureKind, a.host, "")) {
			return false, nil
		}
	case c.Delta.Reasoning != "": // Who sends both sends the same twice.
		if !a.say(model.ReasoningChunk, c.Delta.Reasoning, "") {
			return false, nil
		}
	}
	if c.Delta.Content != "" && !a.say(model.TextChunk, c.Delta.Content, "") {
		return false, nil
	}
	if c.Delta.Refusal != "" && !a.say(model.TextChunk, c.Delta.Refusal, "") {
		return false, nil
	}
	for _, f := range c.Delta.ToolCalls {
		if more, err := a.call(f); !more {
			return false, err
		}
	}
	if c.FinishReason != "" {
		a.finish = c.FinishReason
	}
	return true, nil
}

// say adds to the prose block that grows, or begins one of another kind. The
// signature goes with the first chunk of a block.
func (a *answer) say(kind model.ChunkKind, text, signature string) bool {
	if a.prose != kind {
		a.prose, a.block = kind, a.begin()
	} else {
		signature = ""
	}
	return a.yield(model.Chunk{Kind: kind, Block: a.block, Text: text, Signature: signature}, nil)
}

func (a *answer) begin() int {
	a.blocks++
	return a.blocks - 1
}

func (a *answer) call(f fragment) (bool, error) {
	call, begun, err := a.calls.Add(wire.Fragment{
		Index: f.Index, ID: f.ID, Name: f.Function.Name, Arguments: f.Function.Arguments,
	})
	if err != nil {
		return false, a.line.Fail(model.CodeProtocol, err.Error(), nil)
	}
	if begun {
		call.Block = a.begin()
	}
	if !begun && f.Function.Arguments == "" {
		return true, nil
	}
	return a.yield(model.Chunk{
		Kind: model.CallChunk, Block: call.Block, Call: call.ID, Name: call.Name, Text: f.Function.Arguments,
	}, nil), nil
}

// close yields the finish chunk.
func (a *answer) close() error {
	if err := a.calls.Close(); err != nil {
		return a.line.Fail(model.CodeProtocol, err.Error(), nil)
	}
	reason := model.Stop
	switch a.finish {
	case "length":
		reason = model.Length
	case "content_filter":
		reason = model.ContentFilter
	case "error":
		return a.line.Fail(model.CodeUnavailable, "the provider ended the answer with an error", nil)
	case "abort":
		return a.line.Fail(model.CodeIncomplete, "the provider broke the answer off", nil)
	case "tool_calls", "function_call":
		if !a.calls.Any() {
			return a.line.Fail(model.CodeProtocol, fmt.Sprintf("the answer ends with %q and has no tool call", a.finish), nil)
		}
		reason = model.ToolCalls
	default:
		if a.calls.Any() { // Some say "stop" after calls, too.
			reason = model.ToolCalls
		}
	}
	a.yield(model.Chunk{Kind: model.FinishChunk, Finish: &model.Finish{Reason: reason, Usage: a.usage}}, nil)
	return nil
}
