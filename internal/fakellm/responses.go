package fakellm

import (
	"fmt"
	"time"
)

// responsesEncoder writes OpenAI responses.
type responsesEncoder struct {
	id       string
	model    string
	created  int64
	encrypt  bool // include: reasoning.encrypted_content
	sequence int
}

func newResponsesEncoder(r Request, id string) *responsesEncoder {
	return &responsesEncoder{id: id, model: r.Model, created: time.Now().Unix(), encrypt: r.encryptReasoning}
}

func (e *responsesEncoder) event(kind string, pairs ...any) []byte {
	all := append([]any{"type", kind, "sequence_number", e.sequence}, pairs...)
	e.sequence++
	return eventFrame(kind, object(all...))
}

// at is an event of an item; a fragment without an index leaves it out.
func (e *responsesEncoder) at(kind string, b *block, noIndex bool, pairs ...any) []byte {
	all := []any{"item_id", e.itemID(b)}
	if !noIndex {
		all = append(all, "output_index", b.index)
	}
	return e.event(kind, append(all, pairs...)...)
}

func (e *responsesEncoder) itemEvent(kind string, b *block, noIndex bool, item raw) []byte {
	if noIndex {
		return e.event(kind, "item", item)
	}
	return e.event(kind, "output_index", b.index, "item", item)
}

func (e *responsesEncoder) itemID(b *block) string {
	switch b.kind {
	case textBlock:
		return fmt.Sprintf("msg_%s_%d", e.id, b.index)
	case callBlock:
		if b.scripted && b.id != "" {
			return fmt.Sprintf("fc_%s_%s", e.id, b.id)
		}
		return fmt.Sprintf("fc_%s_%d", e.id, b.index)
	}
	return fmt.Sprintf("rs_%s_%d", e.id, b.index)
}

// item is a block as an output item; a block that is still being streamed is
// in progress and empty.
func (e *responsesEncoder) item(b *block, done bool) raw {
	status, body := "in_progress", escaped("")
	if done {
		status, body = "completed", b.text()
	}
	switch b.kind {
	case textBlock:
		var content []raw
		if done {
			content = []raw{e.textPart(body)}
		}
		return object("id", e.itemID(b), "type", "message", "status", status, "role", "assistant", "content", content)
	case callBlock:
		return object("id", e.itemID(b), "type", "function_call", "status", status,
			"call_id", b.id, "name", b.name, "arguments", body)
	case hiddenBlock:
		return object("id", e.itemID(b), "type", "reasoning", "summary", []raw{}, "encrypted_content", b.text())
	}
	var summary []raw
	var encrypted any
	if done {
		summary = []raw{e.summaryPart(body)}
		if e.encrypt {
			encrypted = b.signature // any text does, if it is the same one when it comes back
		}
	}
	return object("id", e.itemID(b), "type", "reasoning", "summary", summary, "encrypted_content", encrypted)
}

func (e *responsesEncoder) textPart(text escaped) raw {
	return object("type", "output_text", "text", text, "annotations", []raw{}, "logprobs", []raw{})
}

func (e *responsesEncoder) summaryPart(text escaped) raw {
	return object("type", "summary_text", "text", text)
}

func (e *responsesEncoder) response(status string, output []raw, failure, incomplete any, usage any) raw {
	return object(
		"id", "resp_"+e.id, "object", "response", "created_at", e.created, "status", status, "background", false,
		"error", failure, "incomplete_details", incomplete, "instructions", nil, "max_output_tokens", nil,
		"model", e.model, "output", output, "parallel_tool_calls", true, "previous_response_id", nil,
		"reasoning", object("effort", nil, "summary", nil), "service_tier", "default", "store", false,
		"temperature", 1, "text", object("format", object("type", "text")), "tool_choice", "auto", "tools", []raw{},
		"top_p", 1, "truncation", "disabled", "usage", usage, "user", nil, "metadata", object(),
	)
}

func (e *responsesEncoder) begin() []byte {
	response := e.response("in_progress", nil, nil, nil, nil)
	return append(e.event("response.created", "response", response), e.event("response.in_progress", "response", response)...)
}

func (e *responsesEncoder) open(b *block) []byte {
	frames := e.itemEvent("response.output_item.added", b, false, e.item(b, false))
	switch b.kind {
	case textBlock:
		frames = append(frames, e.at("response.content_part.added", b, false, "content_index", 0, "part", e.textPart(""))...)
	case reasoningBlock:
		frames = append(frames, e.at("response.reasoning_summary_part.added", b, false, "summary_index", 0, "part", e.summaryPart(""))...)
	}
	return frames
}

func (e *responsesEncoder) delta(b *block, piece escaped) []byte {
	if b.kind == reasoningBlock {
		return e.at("response.reasoning_summary_text.delta", b, false, "summary_index", 0, "delta", piece)
	}
	return e.at("response.output_text.delta", b, false, "content_index", 0, "delta", piece, "logprobs", []raw{})
}

func (e *responsesEncoder) fragment(b *block, f Fragment, first bool) []byte {
	var frames []byte
	if first {
		frames = e.itemEvent("response.output_item.added", b, f.NoIndex, e.item(b, false))
		if f.Args == "" {
			return frames
		}
	}
	return append(frames, e.at("response.function_call_arguments.delta", b, f.NoIndex, "delta", f.Args)...)
}

func (e *responsesEncoder) close(b *block) []byte {
	var frames []byte
	switch b.kind {
	case textBlock:
		frames = append(frames, e.at("response.output_text.done", b, false, "content_index", 0, "text", b.text(), "logprobs", []raw{})...)
		frames = append(frames, e.at("response.content_part.done", b, false, "content_index", 0, "part", e.textPart(b.text()))...)
	case reasoningBlock:
		frames = append(frames, e.at("response.reasoning_summary_text.done", b, false, "summary_index", 0, "text", b.text())...)
		frames = append(frames, e.at("response.reasoning_summary_part.done", b, false, "summary_index", 0, "part", e.summaryPart(b.text()))...)
	case callBlock:
		frames = append(frames, e.at("response.function_call_arguments.done", b, false, "name", b.name, "arguments", b.text())...)
	}
	return append(frames, e.itemEvent("response.output_item.done", b, false, e.item(b, true))...)
}

func (e *responsesEncoder) usage(u Usage) raw {
	return object(
		"input_tokens", u.Input, "input_tokens_details", object("cached_tokens", u.Cached),
		"output_tokens", u.Output, "output_tokens_details", object("reasoning_tokens", u.Reasoning),
		"total_tokens", u.Input+u.Output,
	)
}

// finished is the whole response. This wire has no finish reason of its own:
// what is cut short is incomplete, with details.
func (e *responsesEncoder) finished(a *answer, reason string, u Usage) (status string, response raw) {
	var output []raw
	for _, b := range a.blocks {
		output = append(output, e.item(b, true))
	}
	status = "completed"
	var incomplete any
	switch reason {
	case Stop, ToolCalls:
	case Length:
		status, incomplete = "incomplete", object("reason", "max_output_tokens")
	default:
		status, incomplete = "incomplete", object("reason", reason)
	}
	return status, e.response(status, output, nil, incomplete, e.usage(u))
}

func (e *responsesEncoder) finish(*answer, string, Usage) []byte { return nil }

func (e *responsesEncoder) end(a *answer, reason string, u Usage) []byte {
	status, response := e.finished(a, reason, u)
	return e.event("response."+status, "response", response)
}

func (e *responsesEncoder) ping() []byte { return nil }

// fail says it as the real wire does: an error event, then the failed response.
func (e *responsesEncoder) fail(failure providerError) []byte {
	code := failure.code
	if code == "" {
		code = failure.kind
	}
	frames := e.event("error", "error",
		object("type", failure.kind, "code", code, "message", failure.message, "param", orNull(failure.param)))
	return append(frames, e.event("response.failed", "response",
		e.response("failed", nil, object("code", code, "message", failure.message), nil, nil))...)
}

func (e *responsesEncoder) whole(a *answer, reason string, u Usage) []byte {
	_, response := e.finished(a, reason, u)
	return response
}

func (e *responsesEncoder) errorBody(failure providerError) []byte { return openAIError(failure) }
