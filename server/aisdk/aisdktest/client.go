// Package aisdktest is a client of the AI SDK, for tests: a small model of what
// useChat does with a stream, as strict as its oldest release.
package aisdktest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/server/aisdk"
)

// Client folds the chunks of one message. The zero value is a page before the
// first chunk. It is for one goroutine.
type Client struct {
	ID       string
	Parts    []map[string]any
	Metadata map[string]any
	Finished bool
	Aborted  bool
	Errored  string // what an error chunk said

	open    map[string]map[string]any // text and reasoning parts that grow
	started bool
	steps   int
	going   bool // a message that goes on: its first half is known already
}

// fields are what the strictest releases accept of each type, as a set.
var fields = map[string]string{
	"start": "messageId messageMetadata", "finish": "finishReason messageMetadata", "abort": "", "error": "errorText",
	"start-step": "", "finish-step": "", "message-metadata": "messageMetadata",
	"text-start": "id", "text-delta": "id delta", "text-end": "id",
	"reasoning-start": "id", "reasoning-delta": "id delta", "reasoning-end": "id",
	"tool-input-start": "toolCallId toolName", "tool-input-delta": "toolCallId inputTextDelta",
	"tool-input-available": "toolCallId toolName input providerExecuted", "tool-input-error": "toolCallId toolName input errorText",
	"tool-output-available": "toolCallId output providerExecuted", "tool-output-error": "toolCallId errorText providerExecuted",
	"source-url": "sourceId url title", "file": "url mediaType",
	"data-tool-progress": "id data transient", "data-part": "id data", "data-approval": "id data transient",
}

var approvalFields = map[string]string{"tool-approval-request": "approvalId toolCallId", "tool-output-denied": "toolCallId"}

var newestFields = map[string]string{"tool-approval-response": "approvalId approved reason", "abort": "reason", "reset-step": ""}

var finishReasons = []string{"stop", "length", "content-filter", "tool-calls", "error", "other"}

// allowed are the fields of a type, or false for one that the profile does not know.
func allowed(p aisdk.Profile, kind string) ([]string, bool) {
	tables := []map[string]string{fields}
	if p != aisdk.V5 {
		tables = append(tables, approvalFields)
	}
	if p == aisdk.V7 {
		tables = append(tables, newestFields)
	}
	for i := len(tables) - 1; i >= 0; i-- {
		if names, ok := tables[i][kind]; ok {
			return strings.Fields(names), true
		}
	}
	return nil, false
}

// Take takes one event of a stream, as it is on the wire. The error says what a
// client of the profile would refuse the whole answer for.
func (c *Client) Take(p aisdk.Profile, event []byte) error {
	data, ok := bytes.CutPrefix(event, []byte("data: "))
	data, ok2 := bytes.CutSuffix(data, []byte("\n\n"))
	if !ok || !ok2 || bytes.ContainsAny(data, "\n\r") {
		return fmt.Errorf("this is no event of one line: %q", event)
	}
	var chunk map[string]any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&chunk); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("more than one value in %s", data)
	}
	kind, _ := chunk["type"].(string)
	names, known := allowed(p, kind)
	if !known {
		return fmt.Errorf("%s is no type that every client of profile %s takes", kind, p)
	}
	for name, value := range chunk {
		if name == "type" {
			continue
		}
		if !slices.Contains(names, name) {
			return fmt.Errorf("%s has the field %s", kind, name)
		}
		if value == nil && name != "input" && name != "output" && name != "data" {
			return fmt.Errorf("%s has null in %s", kind, name)
		}
	}
	if key := poison("", chunk); key != "" {
		return fmt.Errorf("%s carries the key %s, for which a client refuses the answer", kind, key)
	}
	return c.apply(kind, chunk)
}

// poison finds the keys that the SDK's parser refuses.
func poison(key string, value any) string {
	switch v := value.(type) {
	case []any:
		for _, one := range v {
			if bad := poison("", one); bad != "" {
				return bad
			}
		}
	case map[string]any:
		for name, member := range v {
			if name == "__proto__" || name == "prototype" && key == "constructor" {
				return name
			}
			if bad := poison(name, member); bad != "" {
				return bad
			}
		}
	}
	return ""
}

func (c *Client) apply(kind string, chunk map[string]any) error {
	text := func(name string) string { s, _ := chunk[name].(string); return s }
	switch {
	case c.Errored != "": // the page shows the error, and nothing of what follows
		c.Finished = c.Finished || kind == "finish"
		return nil
	case c.Finished:
		return fmt.Errorf("%s after finish", kind)
	case kind == "start" && c.started:
		return fmt.Errorf("a second start")
	case kind != "start" && !c.started && kind != "abort" && kind != "error" && kind != "finish":
		return fmt.Errorf("%s before start", kind)
	}
	if c.open == nil {
		c.open = map[string]map[string]any{}
	}
	part := func() (map[string]any, error) {
		for i := len(c.Parts) - 1; i >= 0; i-- {
			if c.Parts[i]["toolCallId"] == text("toolCallId") {
				return c.Parts[i], nil
			}
		}
		return nil, fmt.Errorf("%s for the unknown call %s", kind, text("toolCallId"))
	}
	if base, _, ok := strings.Cut(kind, "-"); ok && (base == "text" || base == "reasoning") || strings.HasPrefix(kind, "tool-input") {
		if c.steps < 1 && !(c.going && kind == "tool-input-available") && kind != "tool-input-available" {
			return fmt.Errorf("%s outside of a step", kind)
		}
	}
	if metadata, ok := chunk["messageMetadata"].(map[string]any); ok {
		if c.Metadata == nil {
			c.Metadata = map[string]any{}
		}
		for name, value := range metadata {
			c.Metadata[name] = value
		}
	}
	switch kind {
	case "start":
		if c.going && c.ID != text("messageId") || text("messageId") == "" {
			return fmt.Errorf("the message %q became %q", c.ID, text("messageId"))
		}
		c.started, c.ID = true, text("messageId")
	case "start-step":
		c.steps++
		c.Parts = append(c.Parts, map[string]any{"type": "step-start"})
	case "finish-step":
		if len(c.open) > 0 {
			return fmt.Errorf("a step ends with %d parts open", len(c.open))
		}
		c.steps--
	case "reset-step":
		for n := len(c.Parts); n > 0 && c.Parts[n-1]["type"] != "step-start"; n = len(c.Parts) {
			c.Parts = c.Parts[:n-1]
		}
		clear(c.open)
	case "text-start", "reasoning-start":
		id := kind + text("id")
		if c.open[id] != nil {
			return fmt.Errorf("%s is open already", text("id"))
		}
		p := map[string]any{"type": strings.TrimSuffix(kind, "-start"), "text": "", "state": "streaming"}
		c.open[id], c.Parts = p, append(c.Parts, p)
	case "text-delta", "reasoning-delta", "text-end", "reasoning-end":
		base, step, _ := strings.Cut(kind, "-")
		p := c.open[base+"-start"+text("id")]
		if p == nil {
			return fmt.Errorf("%s for %s, which is not open", kind, text("id"))
		}
		if step == "end" {
			p["state"] = "done"
			delete(c.open, base+"-start"+text("id"))
			break
		}
		p["text"] = p["text"].(string) + text("delta")
	case "tool-input-start":
		c.Parts = append(c.Parts, map[string]any{"type": "tool-" + text("toolName"), "toolCallId": text("toolCallId"), "state": "input-streaming"})
	case "tool-input-delta":
		p, err := part()
		if err != nil {
			return err
		}
		if p["state"] != "input-streaming" {
			return fmt.Errorf("arguments of %s, which is %s", text("toolCallId"), p["state"])
		}
	case "tool-input-available", "tool-input-error":
		p, err := part()
		if err != nil {
			p = map[string]any{"type": "tool-" + text("toolName"), "toolCallId": text("toolCallId")}
			c.Parts = append(c.Parts, p)
		}
		if kind == "tool-input-error" {
			p["state"], p["rawInput"], p["errorText"] = "output-error", chunk["input"], text("errorText")
			break
		}
		if _, ok := chunk["input"]; !ok {
			return fmt.Errorf("a call without input")
		}
		p["state"], p["input"] = "input-available", chunk["input"]
		if chunk["providerExecuted"] == true {
			p["providerExecuted"] = true
		}
	case "tool-approval-request":
		p, err := part()
		if err != nil {
			return err
		}
		p["state"], p["approval"] = "approval-requested", map[string]any{"id": text("approvalId")}
	case "tool-approval-response":
		for _, p := range c.Parts {
			if a, ok := p["approval"].(map[string]any); ok && a["id"] == text("approvalId") {
				answered := map[string]any{"id": text("approvalId"), "approved": chunk["approved"]}
				if text("reason") != "" {
					answered["reason"] = text("reason")
				}
				p["state"], p["approval"] = "approval-responded", answered
				return nil
			}
		}
		return fmt.Errorf("an answer to the unknown approval %s", text("approvalId"))
	case "tool-output-available", "tool-output-error", "tool-output-denied":
		p, err := part()
		if err != nil {
			return err
		}
		if s, _ := p["state"].(string); strings.HasPrefix(s, "output-") {
			return fmt.Errorf("%s for %s, which ended already", kind, text("toolCallId"))
		}
		p["state"] = strings.TrimPrefix(kind, "tool-")
		if kind == "tool-output-available" {
			output, ok := chunk["output"]
			if !ok {
				return fmt.Errorf("a result without output")
			}
			p["output"] = output
		}
		if kind == "tool-output-error" {
			if text("errorText") == "" {
				return fmt.Errorf("an error that says nothing")
			}
			p["errorText"] = text("errorText")
		}
		if chunk["providerExecuted"] == true {
			p["providerExecuted"] = true
		}
	case "source-url", "file":
		p := map[string]any{"type": kind}
		for _, name := range []string{"sourceId", "url", "title", "mediaType"} {
			if v, ok := chunk[name]; ok {
				p[name] = v
			}
		}
		c.Parts = append(c.Parts, p)
	case "message-metadata":
	case "abort":
		c.Aborted = true
	case "error":
		if c.Errored = text("errorText"); c.Errored == "" {
			return fmt.Errorf("an error that says nothing")
		}
	case "finish":
		if !slices.Contains(finishReasons, text("finishReason")) {
			return fmt.Errorf("the finish reason %q", text("finishReason"))
		}
		if len(c.open) > 0 || c.steps > 0 {
			return fmt.Errorf("it finishes with %d parts and %d steps open", len(c.open), c.steps)
		}
		c.Finished = true
	default:
		if chunk["transient"] == true {
			break
		}
		for _, p := range c.Parts {
			if p["type"] == kind && p["id"] == chunk["id"] {
				p["data"] = chunk["data"]
				return nil
			}
		}
		c.Parts = append(c.Parts, map[string]any{"type": kind, "id": chunk["id"], "data": chunk["data"]})
	}
	return nil
}

// Text is what a page shows as text.
func (c *Client) Text() string {
	var b strings.Builder
	for _, p := range c.Parts {
		if text, ok := p["text"].(string); ok && p["type"] == "text" {
			b.WriteString(text)
		}
	}
	return b.String()
}

// Asked are the approvals that the page shows as questions.
func (c *Client) Asked() []string {
	var asked []string
	for _, p := range c.Parts {
		if a, ok := p["approval"].(map[string]any); ok && p["state"] == "approval-requested" {
			id, _ := a["id"].(string)
			asked = append(asked, id)
		}
	}
	return asked
}

// Decide is what addToolApprovalResponse does.
func (c *Client) Decide(approval string, approved bool, reason string) {
	for _, p := range c.Parts {
		if a, ok := p["approval"].(map[string]any); ok && a["id"] == approval {
			answer := map[string]any{"id": approval, "approved": approved}
			if reason != "" {
				answer["reason"] = reason
			}
			p["state"], p["approval"] = "approval-responded", answer
		}
	}
}

// Again makes the client one whose message goes on in the next stream.
func (c *Client) Again() { c.going, c.started, c.Finished, c.steps = true, false, false, 0 }

// Message is the folded message as JSON values. Argument text that never became
// a call is left out: the log does not keep it, and a page has it until it is loaded again.
func (c *Client) Message() map[string]any {
	parts := []any{}
	for _, p := range c.Parts {
		if _, called := p["input"]; p["toolCallId"] != nil && !called && p["rawInput"] == nil {
			continue
		}
		parts = append(parts, p)
	}
	m := map[string]any{"id": c.ID, "role": "assistant", "parts": parts}
	if c.Metadata != nil {
		m["metadata"] = c.Metadata
	}
	return m
}
