package fakellm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

var toolUseID = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// parseMessages reads an Anthropic messages body and checks its history.
func (c *checker) parseMessages(r *Request) {
	var body struct {
		Model     string          `json:"model"`
		Stream    bool            `json:"stream"`
		MaxTokens *int            `json:"max_tokens"`
		System    json.RawMessage `json:"system"`
		Thinking  struct {
			Type   string `json:"type"`
			Budget int    `json:"budget_tokens"`
		} `json:"thinking"`
		Tools []struct {
			Type        string          `json:"type"`
			Name        string          `json:"name"`
			Description string          `json:"description"`
			InputSchema json.RawMessage `json:"input_schema"`
		} `json:"tools"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	c.decode("", r.Body, &body)
	r.Model, r.Stream = body.Model, body.Stream
	if r.Header.Get("Anthropic-Version") == "" {
		c.refuse(RuleVersion, "anthropic-version", "header is required")
	}
	switch {
	case body.MaxTokens == nil:
		c.refuse(RuleMaxTokens, "max_tokens", "field required")
	case *body.MaxTokens < 1:
		c.refuse(RuleMaxTokens, "max_tokens", "must be greater than or equal to 1")
	case body.Thinking.Type == "enabled" && *body.MaxTokens <= body.Thinking.Budget:
		c.refuse(RuleMaxTokens, "max_tokens", "must be greater than thinking.budget_tokens")
	}
	if n := bytes.Count(r.Body, []byte(`"cache_control":{`)); n > 4 {
		c.refuse(RuleTooManyCacheMark, "cache_control", "a maximum of 4 blocks with cache_control may be provided, found %d", n)
	}
	var tools []Tool
	for _, t := range body.Tools {
		if t.Type == "" || t.Type == "custom" { // others are the provider's own
			tools = append(tools, Tool{Name: t.Name, Description: t.Description, Schema: t.InputSchema})
		}
	}
	c.tools(r, tools, true)
	r.System = c.anthropicSystem(body.System)
	if len(body.Messages) == 0 {
		c.refuse(RuleNoMessages, "messages", "at least one message is required")
	} else if body.Messages[0].Role != "user" {
		c.refuse(RuleFirstUser, "messages[0]", "the first message must use the user role")
	}
	h := anthropicHistory{checker: c}
	for i, m := range body.Messages {
		r.Messages = append(r.Messages, h.message(fmt.Sprintf("messages[%d]", i), m.Role, m.Content, i == len(body.Messages)-1))
	}
	h.pending.settle(c, "the end")
}

func (c *checker) anthropicSystem(data json.RawMessage) string {
	text, parts, isString := c.parts("system", data)
	if isString {
		return text
	}
	var texts []string
	for i, part := range parts {
		c.anthropicText(fmt.Sprintf("system[%d]", i), part.Text)
		texts = append(texts, part.Text)
	}
	return strings.Join(texts, "\n\n")
}

func (c *checker) anthropicText(at, text string) {
	switch {
	case text == "":
		c.refuse(RuleEmptyText, at, "text content blocks must be non-empty")
	case strings.TrimSpace(text) == "":
		c.refuse(RuleEmptyText, at, "text content blocks must contain non-whitespace text")
	}
}

// anthropicHistory reads the messages of a body one after another.
type anthropicHistory struct {
	*checker
	pending pendingCalls
}

func (h *anthropicHistory) message(at, role string, content json.RawMessage, last bool) Message {
	m := Message{Role: role}
	text, blocks, isString := h.parts(at+".content", content)
	if isString {
		blocks = nil
		if text != "" {
			blocks = []contentPart{{Type: "text", Text: text}}
		}
	}
	if len(blocks) == 0 && !(last && role == "assistant") {
		h.refuse(RuleEmptyContent, at, "all messages must have non-empty content except for the optional final assistant message")
	}
	if role == "assistant" {
		h.pending.settle(h.checker, at)
	}
	resultsOver := false
	for i, b := range blocks {
		at := fmt.Sprintf("%s.content[%d]", at, i)
		if b.Type == "tool_result" && resultsOver {
			h.refuse(RuleResultsFirst, at, "tool_result blocks must come first in the user message")
		}
		resultsOver = resultsOver || b.Type != "tool_result"
		h.block(at, role, b, &m)
	}
	switch role {
	case "user":
		h.pending.settle(h.checker, "the end of "+at)
	case "assistant":
		if last && endsWithSpace(blocks) {
			h.refuse(RuleTrailingSpace, at, "final assistant content cannot end with trailing whitespace")
		}
	default:
		h.refuse(RuleShape, at+".role", "unknown role %q", role)
	}
	return m
}

func (h *anthropicHistory) block(at, role string, b contentPart, m *Message) {
	said := role == "assistant"
	switch {
	case b.Type == "text":
		h.anthropicText(at, b.Text)
		m.Text += b.Text
	case b.Type == "thinking" && said:
		switch {
		case b.Signature == "":
			h.refuse(RuleSignature, at, "thinking.signature: field required")
		case strings.HasPrefix(b.Signature, signaturePrefix) && b.Signature != sign(b.Thinking):
			h.refuse(RuleSignature, at, "invalid signature in thinking block: the text was changed")
		}
		m.Reasoning += b.Thinking
	case b.Type == "redacted_thinking" && said:
		if b.Data == "" {
			h.refuse(RuleShape, at, "redacted_thinking.data: field required")
		}
	case b.Type == "tool_use" && said:
		if !toolUseID.MatchString(b.ID) {
			h.refuse(RuleCallID, at+".id", "%q does not match %s", b.ID, toolUseID)
		}
		h.name(at+".name", b.Name)
		h.arguments(at+".input", string(b.Input))
		h.pending.call(h.checker, at, b.ID)
		m.Calls = append(m.Calls, Call{ID: b.ID, Name: b.Name, Args: string(b.Input)})
	case b.Type == "tool_result" && !said:
		h.pending.result(h.checker, at, b.ToolUseID)
		m.Results = append(m.Results, h.result(at, b, m))
	case (b.Type == "image" || b.Type == "document" || b.Type == "search_result") && !said:
		m.Media = append(m.Media, b.Type)
	default:
		h.refuse(RuleShape, at+".type", "a block of type %q in a message of role %q", b.Type, role)
	}
}

func (h *anthropicHistory) result(at string, b contentPart, m *Message) Result {
	text, parts, _ := h.parts(at+".content", b.Content)
	for _, part := range parts {
		switch part.Type {
		case "text":
			if part.Text == "" {
				h.refuse(RuleEmptyText, at, "text content blocks must be non-empty")
			}
			text += part.Text
		case "image", "document", "search_result":
			m.Media = append(m.Media, part.Type)
		default:
			h.refuse(RuleShape, at, "a block of type %q in a tool_result", part.Type)
		}
	}
	return Result{ID: b.ToolUseID, Text: text, Error: b.IsError}
}

func endsWithSpace(blocks []contentPart) bool {
	if len(blocks) == 0 {
		return false
	}
	b := blocks[len(blocks)-1]
	return b.Type == "text" && strings.TrimRightFunc(b.Text, unicode.IsSpace) != b.Text
}
