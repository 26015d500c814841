package fakellm

// messagesEncoder writes Anthropic messages.
type messagesEncoder struct {
	id    string
	model string
	input int // tokens, said before anything else is known
}

func newMessagesEncoder(r Request, id string) *messagesEncoder {
	return &messagesEncoder{id: id, model: r.Model, input: len(r.Body)/4 + 1}
}

func (m *messagesEncoder) event(kind string, pairs ...any) []byte {
	return eventFrame(kind, object(append([]any{"type", kind}, pairs...)...))
}

func (m *messagesEncoder) usage(u Usage) raw {
	return object("input_tokens", u.Input-u.Cached, "cache_creation_input_tokens", 0,
		"cache_read_input_tokens", u.Cached, "output_tokens", u.Output)
}

func (m *messagesEncoder) message(content []raw, reason any, u Usage) raw {
	return object("id", "msg_"+m.id, "type", "message", "role", "assistant", "model", m.model,
		"content", content, "stop_reason", reason, "stop_sequence", nil, "usage", m.usage(u))
}

func (m *messagesEncoder) begin() []byte {
	return m.event("message_start", "message", m.message(nil, nil, Usage{Input: m.input, Output: 1}))
}

func (m *messagesEncoder) start(index any, content raw) []byte {
	return m.at("content_block_start", index, "content_block", content)
}

// at is an event of the block at index; nil leaves the index out.
func (m *messagesEncoder) at(kind string, index any, pairs ...any) []byte {
	if index != nil {
		pairs = append([]any{"index", index}, pairs...)
	}
	return m.event(kind, pairs...)
}

func (m *messagesEncoder) open(b *block) []byte {
	switch b.kind {
	case textBlock:
		return m.start(b.index, object("type", "text", "text", ""))
	case reasoningBlock:
		return m.start(b.index, object("type", "thinking", "thinking", "", "signature", ""))
	}
	return m.start(b.index, object("type", "redacted_thinking", "data", b.text()))
}

func (m *messagesEncoder) delta(b *block, piece escaped) []byte {
	delta := object("type", "text_delta", "text", piece)
	if b.kind == reasoningBlock {
		delta = object("type", "thinking_delta", "thinking", piece)
	}
	return m.at("content_block_delta", b.index, "delta", delta)
}

func (m *messagesEncoder) fragment(b *block, f Fragment, first bool) []byte {
	var index any = b.index
	if f.NoIndex {
		index = nil
	}
	var frames []byte
	if first {
		frames = m.start(index, object("type", "tool_use", "id", f.ID, "name", f.Name, "input", object()))
		if f.Args == "" {
			return frames
		}
	}
	return append(frames, m.at("content_block_delta", index,
		"delta", object("type", "input_json_delta", "partial_json", f.Args))...)
}

func (m *messagesEncoder) close(b *block) []byte {
	var frames []byte
	if b.kind == reasoningBlock {
		frames = m.at("content_block_delta", b.index, "delta", object("type", "signature_delta", "signature", b.signature))
	}
	return append(frames, m.at("content_block_stop", b.index)...)
}

func (m *messagesEncoder) reason(reason string) string {
	switch reason {
	case Stop:
		return "end_turn"
	case Length:
		return "max_tokens"
	case ToolCalls:
		return "tool_use"
	case ContentFilter:
		return "refusal"
	}
	return reason
}

func (m *messagesEncoder) finish(_ *answer, reason string, u Usage) []byte {
	return m.event("message_delta",
		"delta", object("stop_reason", m.reason(reason), "stop_sequence", nil), "usage", m.usage(u))
}

func (m *messagesEncoder) end(*answer, string, Usage) []byte { return m.event("message_stop") }

func (m *messagesEncoder) ping() []byte { return m.event("ping") }

func (m *messagesEncoder) fail(e providerError) []byte {
	return eventFrame("error", raw(m.errorBody(e)))
}

func (m *messagesEncoder) whole(a *answer, reason string, u Usage) []byte {
	var content []raw
	for _, b := range a.blocks {
		switch b.kind {
		case textBlock:
			content = append(content, object("type", "text", "text", b.text()))
		case reasoningBlock:
			content = append(content, object("type", "thinking", "thinking", b.text(), "signature", b.signature))
		case hiddenBlock:
			content = append(content, object("type", "redacted_thinking", "data", b.text()))
		case callBlock:
			// Arguments that are no object cannot be said without a stream.
			content = append(content, object("type", "tool_use", "id", b.id, "name", b.name, "input", objectOr(unescape(b.text()))))
		}
	}
	return m.message(content, m.reason(reason), u)
}

func (m *messagesEncoder) errorBody(e providerError) []byte {
	return object("type", "error", "error", object("type", e.kind, "message", e.message), "request_id", "req_"+m.id)
}
