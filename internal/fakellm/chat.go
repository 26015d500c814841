package fakellm

import "time"

// chatEncoder writes OpenAI chat completions.
type chatEncoder struct {
	id        string
	model     string
	created   int64
	withUsage bool   // stream_options.include_usage
	reasoning string // the field for thoughts, which OpenAI itself does not have
}

func newChatEncoder(r Request, id string, reasoningField string) *chatEncoder {
	return &chatEncoder{
		id: "chatcmpl-" + id, model: r.Model, created: time.Now().Unix(),
		withUsage: r.includeUsage, reasoning: reasoningField,
	}
}

func (c *chatEncoder) chunk(choices []raw, usage any) []byte {
	pairs := []any{
		"id", c.id, "object", "chat.completion.chunk", "created", c.created, "model", c.model,
		"service_tier", "default", "system_fingerprint", "fp_fakellm", "choices", choices,
	}
	if c.withUsage {
		pairs = append(pairs, "usage", usage)
	}
	return frame(object(pairs...))
}

func (c *chatEncoder) choice(delta raw, finish any) []byte {
	return c.chunk([]raw{object("index", 0, "delta", delta, "logprobs", nil, "finish_reason", finish)}, nil)
}

func (c *chatEncoder) begin() []byte {
	return c.choice(object("role", "assistant", "content", "", "refusal", nil), nil)
}

func (c *chatEncoder) open(*block) []byte { return nil }

func (c *chatEncoder) delta(b *block, piece escaped) []byte {
	if b.kind == reasoningBlock {
		return c.choice(object(c.reasoning, piece), nil)
	}
	return c.choice(object("content", piece), nil)
}

func (c *chatEncoder) fragment(_ *block, f Fragment, first bool) []byte {
	var call, function []any
	if !f.NoIndex {
		call = append(call, "index", f.Index)
	}
	if f.ID != "" {
		call = append(call, "id", f.ID)
	}
	if first || f.ID != "" {
		call = append(call, "type", "function")
	}
	if f.Name != "" {
		function = append(function, "name", f.Name)
	}
	function = append(function, "arguments", f.Args)
	call = append(call, "function", object(function...))
	return c.choice(object("tool_calls", []raw{object(call...)}), nil)
}

func (c *chatEncoder) close(*block) []byte { return nil }

func (c *chatEncoder) finish(_ *answer, reason string, u Usage) []byte {
	frames := c.choice(object(), reason)
	if c.withUsage {
		frames = append(frames, c.chunk(nil, c.usage(u))...)
	}
	return frames
}

func (c *chatEncoder) end(*answer, string, Usage) []byte { return []byte("data: [DONE]\n\n") }

func (c *chatEncoder) ping() []byte { return nil }

func (c *chatEncoder) fail(e providerError) []byte { return frame(raw(c.errorBody(e))) }

func (c *chatEncoder) usage(u Usage) raw {
	return object(
		"prompt_tokens", u.Input, "completion_tokens", u.Output, "total_tokens", u.Input+u.Output,
		"prompt_tokens_details", object("cached_tokens", u.Cached, "audio_tokens", 0),
		"completion_tokens_details", object("reasoning_tokens", u.Reasoning, "audio_tokens", 0,
			"accepted_prediction_tokens", 0, "rejected_prediction_tokens", 0),
	)
}

func (c *chatEncoder) whole(a *answer, reason string, u Usage) []byte {
	var content any
	if text := a.joined(textBlock); text != "" {
		content = text
	}
	message := []any{"role", "assistant", "content", content, "refusal", nil}
	if thought := a.joined(reasoningBlock); thought != "" {
		message = append(message, c.reasoning, thought)
	}
	var calls []raw
	for _, b := range a.blocks {
		if b.kind == callBlock {
			calls = append(calls, object("id", b.id, "type", "function",
				"function", object("name", b.name, "arguments", b.text())))
		}
	}
	if calls != nil {
		message = append(message, "tool_calls", calls)
	}
	return object(
		"id", c.id, "object", "chat.completion", "created", c.created, "model", c.model,
		"choices", []raw{object("index", 0, "message", object(message...), "logprobs", nil, "finish_reason", reason)},
		"usage", c.usage(u), "service_tier", "default", "system_fingerprint", "fp_fakellm",
	)
}

func (c *chatEncoder) errorBody(e providerError) []byte { return openAIError(e) }

func openAIError(e providerError) raw {
	return object("error", object("message", e.message, "type", e.kind, "param", orNull(e.param), "code", orNull(e.code)))
}
