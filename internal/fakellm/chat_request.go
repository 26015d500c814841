package fakellm

import (
	"encoding/json"
	"fmt"
	"strings"
)

type chatMessage struct {
	Role             string          `json:"role"`
	Content          json.RawMessage `json:"content"`
	Refusal          string          `json:"refusal"`
	ReasoningContent string          `json:"reasoning_content"`
	Reasoning        json.RawMessage `json:"reasoning"`
	ToolCalls        json.RawMessage `json:"tool_calls"`
	ToolCallID       string          `json:"tool_call_id"`
}

type chatCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

// parseChat reads a chat completions body and checks its history.
func (c *checker) parseChat(r *Request) {
	var body struct {
		Model         string          `json:"model"`
		Stream        bool            `json:"stream"`
		Messages      []chatMessage   `json:"messages"`
		Tools         json.RawMessage `json:"tools"`
		ToolChoice    json.RawMessage `json:"tool_choice"`
		StreamOptions *struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	c.decode("", r.Body, &body)
	r.Model, r.Stream = body.Model, body.Stream
	if body.StreamOptions != nil {
		r.includeUsage = body.StreamOptions.IncludeUsage
		if !body.Stream {
			c.refuse(RuleStreamOptions, "stream_options", "only allowed when stream is enabled")
		}
	}
	c.openAITools(r, body.Tools, body.ToolChoice, true)
	if len(body.Messages) == 0 {
		c.refuse(RuleNoMessages, "messages", "too short - 'messages'")
	}
	var pending pendingCalls
	var system []string
	for i, m := range body.Messages {
		at := fmt.Sprintf("messages[%d]", i)
		if m.Role != "tool" {
			pending.settle(c, at)
		}
		message := Message{Role: m.Role}
		var parts []contentPart
		var isString bool
		message.Text, parts, isString = c.parts(at+".content", m.Content)
		for _, part := range parts {
			c.chatPart(at, m.Role, part, &message)
		}
		switch m.Role {
		case "system", "developer":
			system = append(system, message.Text)
			continue
		case "user":
			if isString && message.Text == "" || !isString && len(parts) == 0 {
				c.refuse(RuleEmptyContent, at, "a user message without content")
			}
		case "assistant":
			message.Reasoning = m.thought()
			c.chatCalls(at, m.ToolCalls, &message, &pending)
			if message.Text == "" && len(message.Calls) == 0 && m.Refusal == "" {
				c.refuse(RuleEmptyAssistant, at, "an assistant message must have either content or tool_calls")
			}
		case "tool":
			if !isString && len(parts) == 0 {
				c.refuse(RuleEmptyContent, at, "a tool message without content")
			}
			pending.result(c, at, m.ToolCallID)
			message.Results = []Result{{ID: m.ToolCallID, Text: message.Text}}
			message.Text = ""
		default:
			c.refuse(RuleShape, at+".role", "unknown role %q", m.Role)
		}
		r.Messages = append(r.Messages, message)
	}
	pending.settle(c, "the end")
	r.System = strings.Join(system, "\n\n")
}

func (m chatMessage) thought() string {
	var text string
	if m.ReasoningContent == "" && json.Unmarshal(m.Reasoning, &text) == nil {
		return text
	}
	return m.ReasoningContent
}

// chatPart adds a content part to its message.
func (c *checker) chatPart(at, role string, part contentPart, message *Message) {
	switch part.Type {
	case "text":
		if part.Text == "" && role != "tool" {
			c.refuse(RuleEmptyText, at, "an empty text part")
		}
		message.Text += part.Text
	case "refusal":
		message.Text += part.Refusal
	case "image_url", "input_audio", "file":
		if role != "user" {
			c.refuse(RuleShape, at, "a part of type %q in a message of role %q", part.Type, role)
		}
		message.Media = append(message.Media, part.Type)
	default:
		c.refuse(RuleShape, at, "unknown part type %q", part.Type)
	}
}

// chatCalls reads the tool calls of an assistant message.
func (c *checker) chatCalls(at string, data json.RawMessage, message *Message, pending *pendingCalls) {
	if len(data) == 0 || string(data) == "null" {
		return
	}
	var calls []chatCall
	c.decode(at+".tool_calls", data, &calls)
	if len(calls) == 0 {
		c.refuse(RuleShape, at+".tool_calls", "[] is too short")
	}
	for i, call := range calls {
		at := fmt.Sprintf("%s.tool_calls[%d]", at, i)
		if call.Type != "function" {
			c.refuse(RuleShape, at+".type", "unknown type %q", call.Type)
		}
		if call.ID == "" || len(call.ID) > 40 {
			c.refuse(RuleCallID, at+".id", "want 1 to 40 characters, got %d", len(call.ID))
		}
		c.name(at+".function.name", call.Function.Name)
		text := c.argumentsString(at+".function.arguments", call.Function.Arguments)
		message.Calls = append(message.Calls, Call{ID: call.ID, Name: call.Function.Name, Args: text})
		pending.call(c, at, call.ID)
	}
}

// argumentsString reads arguments, which OpenAI's wires hold as a string of
// JSON.
func (c *checker) argumentsString(at string, data json.RawMessage) string {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		c.refuse(RuleArguments, at, "arguments must be a string, got %.60s", data)
		return string(data)
	}
	c.arguments(at, text)
	return text
}

// openAITools reads the tool definitions of either OpenAI wire; chat nests the
// function in a field of its own.
func (c *checker) openAITools(r *Request, data, choice json.RawMessage, nested bool) {
	if len(data) == 0 || string(data) == "null" {
		if len(choice) > 0 && string(choice) != "null" && string(choice) != `"none"` && string(choice) != `"auto"` {
			c.refuse(RuleShape, "tool_choice", "only allowed when tools are specified")
		}
		return
	}
	type function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	var definitions []struct {
		Type     string   `json:"type"`
		Function function `json:"function"`
		function
	}
	c.decode("tools", data, &definitions)
	if len(definitions) == 0 && nested {
		c.refuse(RuleShape, "tools", "[] is too short")
	}
	var tools []Tool
	for i, d := range definitions {
		f := d.function
		if nested {
			f = d.Function
		}
		if d.Type != "function" {
			if nested {
				c.refuse(RuleShape, fmt.Sprintf("tools[%d].type", i), "unknown type %q", d.Type)
			}
			continue // one of the provider's own tools
		}
		if string(f.Parameters) == "null" {
			f.Parameters = nil
		}
		tools = append(tools, Tool{Name: f.Name, Description: f.Description, Schema: f.Parameters})
	}
	c.tools(r, tools, false)
}
