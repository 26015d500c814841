package anthropic

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"

	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"

	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/model/internal/wire"
)

// Stream implements [model.Model].
func (m messages) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		if err := m.stream(ctx, req, yield); err != nil {
			yield(model.Chunk{}, err)
		}
	}
}

// stream yields the answer's chunks. It gives nil after the finish chunk, and
// when yield wants no more.
func (m messages) stream(ctx context.Context, req model.Request, yield func(model.Chunk, error) bool) error {
	params, err := m.body(req)
	if err != nil {
		return m.line.Fail(model.CodeInvalidRequest, err.Error(), err)
	}
	var res *http.Response
	if err := m.client.Post(ctx, "v1/messages", params, &res); err != nil {
		return m.line.Failed(ctx, err)
	}
	defer res.Body.Close()
	body := wire.Meter(res)
	events := ssestream.NewDecoder(res)
	a := answer{messages: m, yield: yield, open: map[int]*block{}}
	for !a.over && events.Next() {
		body.NextEvent()
		event := events.Event()
		if len(bytes.TrimSpace(event.Data)) == 0 {
			continue
		}
		if more, err := a.add(event); !more {
			return err
		}
	}
	// After a stop reason the answer is whole, however the connection ends.
	if a.stop == "" {
		return m.line.Broke(ctx, events.Err())
	}
	if err := a.close(); err != nil {
		return err
	}
	body.Drain()
	return nil
}

// event is what is read of an event. What we do not need costs no decoding.
type event struct {
	Type    string `json:"type"`
	Index   *int   `json:"index"`
	Message struct {
		Usage *usage `json:"usage"`
	} `json:"message"`
	ContentBlock struct {
		Type      string          `json:"type"`
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Input     json.RawMessage `json:"input"`
		Text      string          `json:"text"`
		Thinking  string          `json:"thinking"`
		Signature string          `json:"signature"`
		Data      string          `json:"data"`
	} `json:"content_block"`
	Delta struct {
		Type        string `json:"type"`
		Text        string `json:"text"`
		Thinking    string `json:"thinking"`
		Signature   string `json:"signature"`
		PartialJSON string `json:"partial_json"`
		StopReason  string `json:"stop_reason"`
	} `json:"delta"`
	Usage *usage `json:"usage"`
}

type usage struct {
	InputTokens              int `json:"input_tokens"`
	CacheCreationInputTokens int `json:"cache_creation_input_tokens"`
	CacheReadInputTokens     int `json:"cache_read_input_tokens"`
	OutputTokens             int `json:"output_tokens"`
	OutputTokensDetails      struct {
		ThinkingTokens int `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

// answer is one answer that is being streamed.
type answer struct {
	messages
	yield  func(model.Chunk, error) bool
	blocks int // that have begun
	open   map[int]*block
	calls  map[string]bool // the ids
	stop   string
	over   bool
	usage  model.Usage
}

// block is a content block between its start and its stop.
type block struct {
	kind      model.ChunkKind // "" for one that we have no use for
	number    int
	id, name  string
	arguments wire.Arguments
}

// add takes an event. It is false when the answer is over, with the reason if it
// is an error.
func (a *answer) add(raw ssestream.Event) (bool, error) {
	var e event
	if err := json.Unmarshal(raw.Data, &e); err != nil {
		if raw.Type == "error" {
			return false, a.line.InBand(raw.Data)
		}
		return false, a.broken("an event is not the JSON that it should be", err)
	}
	switch e.Type {
	case "error":
		return false, a.line.InBand(raw.Data)
	case "message_start":
		a.count(e.Message.Usage)
	case "content_block_start":
		return a.start(&e)
	case "content_block_delta":
		return a.delta(&e)
	case "content_block_stop":
		b, err := a.at(&e)
		if b != nil {
			delete(a.open, *e.Index)
		}
		return err == nil, err
	case "message_delta":
		a.count(e.Usage)
		if e.Delta.StopReason != "" {
			a.stop = e.Delta.StopReason
		}
	case "message_stop":
		a.over = true
	}
	return true, nil // A ping, or something that did not exist when this was written.
}

func (a *answer) broken(how string, cause error) error {
	return a.line.Fail(model.CodeProtocol, how, cause)
}

// count takes the counters that an event has; each is a sum so far.
func (a *answer) count(u *usage) {
	if u == nil {
		return
	}
	// This API counts apart what was read from the cache and written to it.
	if input := u.InputTokens + u.CacheReadInputTokens + u.CacheCreationInputTokens; input > 0 {
		a.usage.InputTokens = input
		a.usage.CachedTokens = u.CacheReadInputTokens
	}
	a.usage.OutputTokens = max(a.usage.OutputTokens, u.OutputTokens)
	a.usage.ReasoningTokens = max(a.usage.ReasoningTokens, u.OutputTokensDetails.ThinkingTokens)
}

// at gives the open block that an event is about.
func (a *answer) at(e *event) (*block, error) {
	if e.Index == nil {
		return nil, a.broken("a "+e.Type+" event has no index", nil)
	}
	b := a.open[*e.Index]
	if b == nil {
		return nil, a.broken(fmt.Sprintf("a %s event is about block %d, which is not open", e.Type, *e.Index), nil)
	}
	return b, nil
}

func (a *answer) start(e *event) (bool, error) {
	switch {
	case e.Index == nil:
		return false, a.broken("a content block has no index", nil)
	case a.open[*e.Index] != nil:
		return false, a.broken(fmt.Sprintf("two content blocks are open at index %d", *e.Index), nil)
	}
	b := &block{}
	a.open[*e.Index] = b
	c := model.Chunk{}
	switch start := e.ContentBlock; start.Type {
	case "text":
		c.Kind, c.Text = model.TextChunk, start.Text
	case "thinking":
		c.Kind, c.Text = model.ReasoningChunk, start.Thinking
		if start.Signature != "" {
			c.Signature = wire.Sign(signatureKind, a.host, start.Signature)
		}
	case "redacted_thinking":
		c.Kind, c.Signature = model.ReasoningChunk, wire.Sign(hiddenKind, a.host, start.Data)
	case "tool_use":
		if start.ID == "" || start.Name == "" {
			return false, a.broken("a tool call has no id or no name", nil)
		}
		if a.calls[start.ID] {
			return false, a.broken(fmt.Sprintf("two tool calls have the id %q", start.ID), nil)
		}
		if a.calls == nil {
			a.calls = map[string]bool{}
		}
		a.calls[start.ID] = true
		b.id, b.name = start.ID, start.Name
		c.Kind, c.Call, c.Name = model.CallChunk, start.ID, start.Name
		// Anthropic begins with {} and streams the arguments; some servers that
		// imitate it send them whole with the start.
		if input := bytes.TrimSpace(start.Input); !bytes.Equal(input, []byte("{}")) && !bytes.Equal(input, []byte("null")) {
			c.Text = string(input)
			b.arguments.Add(c.Text)
		}
	default:
		return true, nil // Nothing that we ask for.
	}
	b.kind, b.number = c.Kind, a.blocks
	c.Block = a.blocks
	a.blocks++
	if c.Text == "" && c.Signature == "" && c.Kind != model.CallChunk {
		return true, nil
	}
	return a.yield(c, nil), nil
}

func (a *answer) delta(e *event) (bool, error) {
	b, err := a.at(e)
	if err != nil || b.kind == "" {
		return err == nil, err
	}
	c := model.Chunk{Block: b.number, Call: b.id, Name: b.name}
	switch e.Delta.Type {
	case "text_delta":
		c.Kind, c.Text = model.TextChunk, e.Delta.Text
	case "thinking_delta":
		c.Kind, c.Text = model.ReasoningChunk, e.Delta.Thinking
	case "signature_delta":
		c.Kind = model.ReasoningChunk
		if e.Delta.Signature != "" {
			c.Signature = wire.Sign(signatureKind, a.host, e.Delta.Signature)
		}
	case "input_json_delta":
		c.Kind, c.Text = model.CallChunk, e.Delta.PartialJSON
		if !b.arguments.Add(c.Text) {
			return false, a.broken(fmt.Sprintf("the arguments of two calls are welded together in tool call %q", b.id), nil)
		}
	default:
		return true, nil // Citations, for example.
	}
	if c.Kind != b.kind {
		return false, a.broken(fmt.Sprintf("a %s is about a block of %s", e.Delta.Type, b.kind), nil)
	}
	if c.Text == "" && c.Signature == "" {
		return true, nil
	}
	return a.yield(c, nil), nil
}

// close yields the finish chunk.
func (a *answer) close() error {
	reason := model.Stop
	switch a.stop {
	case "max_tokens", "model_context_window_exceeded":
		reason = model.Length
	case "refusal":
		reason = model.ContentFilter
	case "tool_use":
		if len(a.calls) == 0 {
			return a.broken("the answer ends with \"tool_use\" and has no tool call", nil)
		}
		reason = model.ToolCalls
	default:
		if len(a.calls) > 0 {
			reason = model.ToolCalls
		}
	}
	a.yield(model.Chunk{Kind: model.FinishChunk, Finish: &model.Finish{Reason: reason, Usage: a.usage}}, nil)
	return nil
}
