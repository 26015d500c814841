package fakellm

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

type responsesItem struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Output    json.RawMessage `json:"output"`
	Summary   []contentPart   `json:"summary"`
	Encrypted string          `json:"encrypted_content"`
}

// parseResponses reads a responses body and checks its history.
func (c *checker) parseResponses(r *Request) {
	var body struct {
		Model        string          `json:"model"`
		Stream       bool            `json:"stream"`
		Instructions string          `json:"instructions"`
		Input        json.RawMessage `json:"input"`
		Tools        json.RawMessage `json:"tools"`
		ToolChoice   json.RawMessage `json:"tool_choice"`
		Previous     string          `json:"previous_response_id"`
		Store        *bool           `json:"store"`
		Include      []string        `json:"include"`
	}
	c.decode("", r.Body, &body)
	r.Model, r.Stream = body.Model, body.Stream
	r.encryptReasoning = slices.Contains(body.Include, "reasoning.encrypted_content")
	if body.Previous != "" {
		c.refuse(RuleStateless, "previous_response_id", "previous response with id %q not found", body.Previous)
	}
	c.openAITools(r, body.Tools, body.ToolChoice, false)
	if len(body.Input) > 0 && body.Input[0] == '"' {
		var text string
		c.decode("input", body.Input, &text)
		if text == "" {
			c.refuse(RuleEmptyContent, "input", "the input is empty")
		}
		r.System = body.Instructions
		r.Messages = []Message{{Role: "user", Text: text}}
		return
	}
	var items []responsesItem
	c.decode("input", body.Input, &items)
	if len(items) == 0 {
		c.refuse(RuleNoMessages, "input", "the input is empty")
	}
	h := responsesHistory{checker: c, request: r, stored: body.Store == nil || *body.Store}
	if body.Instructions != "" {
		h.system = append(h.system, body.Instructions)
	}
	for i, item := range items {
		h.item(fmt.Sprintf("input[%d]", i), item)
	}
	h.pending.settle(c, "the end")
	h.thoughtFollowed("the end", false)
	r.System = strings.Join(h.system, "\n\n")
}

// responsesHistory reads the items of a body one after another.
type responsesHistory struct {
	*checker
	request *Request
	stored  bool
	system  []string
	pending pendingCalls
	thought string // where a reasoning item is that nothing has followed yet
}

func (h *responsesHistory) item(at string, item responsesItem) {
	switch item.Type {
	case "message", "":
		if item.Role != "assistant" || h.pending.started() {
			h.pending.settle(h.checker, at) // What the model said beside its calls is of the same turn.
		}
		h.thoughtFollowed(at, item.Role == "assistant")
		h.message(at, item)
	case "function_call":
		if h.pending.started() {
			h.pending.settle(h.checker, at)
		}
		h.thoughtFollowed(at, true)
		h.itemID(at, item.ID, "fc")
		h.callID(at, item.CallID)
		h.name(at+".name", item.Name)
		text := h.argumentsString(at+".arguments", item.Arguments)
		h.pending.call(h.checker, at, item.CallID)
		h.add(Message{Role: "assistant", Calls: []Call{{ID: item.CallID, Name: item.Name, Args: text}}})
	case "function_call_output":
		h.thoughtFollowed(at, false)
		h.callID(at, item.CallID)
		text, parts, isString := h.parts(at+".output", item.Output)
		if !isString && len(parts) == 0 {
			h.refuse(RuleEmptyContent, at+".output", "an output is required")
		}
		m := Message{Role: "tool"}
		for _, part := range parts {
			h.part(at+".output", "user", part, &m)
		}
		m.Results = []Result{{ID: item.CallID, Text: text + m.Text}}
		m.Text = ""
		h.pending.result(h.checker, at, item.CallID)
		h.add(m)
	case "reasoning":
		h.itemID(at, item.ID, "rs")
		if !h.stored && item.Encrypted == "" {
			h.refuse(RuleReasoningKept, at, "item with id %q not found: items are not persisted when store is false", item.ID)
		}
		m := Message{Role: "assistant"}
		for _, part := range item.Summary {
			m.Reasoning += part.Text
		}
		h.thought = at
		h.add(m)
	case "item_reference":
		h.refuse(RuleStateless, at, "item with id %q not found", item.ID)
	default:
		h.refuse(RuleShape, at+".type", "unknown item type %q", item.Type)
	}
}

func (h *responsesHistory) message(at string, item responsesItem) {
	m := Message{Role: item.Role}
	var parts []contentPart
	var isString bool
	m.Text, parts, isString = h.parts(at+".content", item.Content)
	for _, part := range parts {
		h.part(at+".content", item.Role, part, &m)
	}
	if isString && m.Text == "" || !isString && len(parts) == 0 {
		h.refuse(RuleEmptyContent, at+".content", "a message without content")
	}
	switch item.Role {
	case "system", "developer":
		h.system = append(h.system, m.Text)
		return
	case "assistant":
		h.itemID(at, item.ID, "msg")
	case "user":
	default:
		h.refuse(RuleShape, at+".role", "unknown role %q", item.Role)
	}
	h.add(m)
}

// part adds a content part; what the model said and what it was told have
// different types.
func (h *responsesHistory) part(at, role string, part contentPart, m *Message) {
	said := role == "assistant"
	switch {
	case part.Type == "output_text" && said, part.Type == "input_text" && !said:
		if part.Text == "" {
			h.refuse(RuleEmptyText, at, "an empty text part")
		}
		m.Text += part.Text
	case part.Type == "refusal" && said:
		m.Text += part.Refusal
	case (part.Type == "input_image" || part.Type == "input_file" || part.Type == "input_audio") && !said:
		m.Media = append(m.Media, part.Type)
	default:
		h.refuse(RuleShape, at, "invalid value %q for a part of role %q", part.Type, role)
	}
}

// thoughtFollowed checks that a reasoning item is followed by what was thought.
func (h *responsesHistory) thoughtFollowed(at string, said bool) {
	if h.thought != "" && !said {
		h.refuse(RuleReasoningAlone, h.thought, "the reasoning item was provided without its required following item; next is %s", at)
	}
	h.thought = ""
}

func (h *responsesHistory) itemID(at, id, prefix string) {
	if id != "" && !strings.HasPrefix(id, prefix) {
		h.refuse(RuleItemID, at+".id", "invalid %q: expected an id that begins with %q", id, prefix)
	}
}

func (h *responsesHistory) callID(at, id string) {
	if id == "" || len(id) > 64 {
		h.refuse(RuleCallID, at+".call_id", "want 1 to 64 characters, got %d", len(id))
	}
}

func (h *responsesHistory) add(m Message) { h.request.Messages = append(h.request.Messages, m) }
