package aisdk_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/server/aisdk"
)

// client is what useChat does with a stream: a small model of the SDK's reducer
// that is as strict as its oldest release, and knows what a page sees.
type client struct {
	id       string
	parts    []map[string]any
	metadata map[string]any
	open     map[string]map[string]any // text and reasoning parts that grow
	started  bool
	finished bool
	errored  string
	aborted  bool
	steps    int
	going    bool // a message that goes on: its first half is known already
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

// take takes one event of a stream, as it is on the wire.
func (c *client) take(p aisdk.Profile, event []byte) error {
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
	if _, err := dec.Token(); err != io.EOF { //nolint:errorlint // as the decoder gives it
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

func (c *client) apply(kind string, chunk map[string]any) error {
	text := func(name string) string { s, _ := chunk[name].(string); return s }
	switch {
	case c.errored != "": // the page shows the error, and nothing of what follows
		c.finished = c.finished || kind == "finish"
		return nil
	case c.finished:
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
		for i := len(c.parts) - 1; i >= 0; i-- {
			if c.parts[i]["toolCallId"] == text("toolCallId") {
				return c.parts[i], nil
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
		if c.metadata == nil {
			c.metadata = map[string]any{}
		}
		for name, value := range metadata {
			c.metadata[name] = value
		}
	}
	switch kind {
	case "start":
		if c.going && c.id != text("messageId") || text("messageId") == "" {
			return fmt.Errorf("the message %q became %q", c.id, text("messageId"))
		}
		c.started, c.id = true, text("messageId")
	case "start-step":
		c.steps++
		c.parts = append(c.parts, map[string]any{"type": "step-start"})
	case "finish-step":
		if len(c.open) > 0 {
			return fmt.Errorf("a step ends with %d parts open", len(c.open))
		}
		c.steps--
	case "reset-step":
		for n := len(c.parts); n > 0 && c.parts[n-1]["type"] != "step-start"; n = len(c.parts) {
			c.parts = c.parts[:n-1]
		}
		clear(c.open)
	case "text-start", "reasoning-start":
		id := kind + text("id")
		if c.open[id] != nil {
			return fmt.Errorf("%s is open already", text("id"))
		}
		p := map[string]any{"type": strings.TrimSuffix(kind, "-start"), "text": "", "state": "streaming"}
		c.open[id], c.parts = p, append(c.parts, p)
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
		c.parts = append(c.parts, map[string]any{"type": "tool-" + text("toolName"), "toolCallId": text("toolCallId"), "state": "input-streaming"})
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
			c.parts = append(c.parts, p)
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
		for _, p := range c.parts {
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
		c.parts = append(c.parts, p)
	case "message-metadata":
	case "abort":
		c.aborted = true
	case "error":
		if c.errored = text("errorText"); c.errored == "" {
			return fmt.Errorf("an error that says nothing")
		}
	case "finish":
		if !slices.Contains(finishReasons, text("finishReason")) {
			return fmt.Errorf("the finish reason %q", text("finishReason"))
		}
		if len(c.open) > 0 || c.steps > 0 {
			return fmt.Errorf("it finishes with %d parts and %d steps open", len(c.open), c.steps)
		}
		c.finished = true
	default:
		if chunk["transient"] == true {
			break
		}
		for _, p := range c.parts {
			if p["type"] == kind && p["id"] == chunk["id"] {
				p["data"] = chunk["data"]
				return nil
			}
		}
		c.parts = append(c.parts, map[string]any{"type": kind, "id": chunk["id"], "data": chunk["data"]})
	}
	return nil
}

// decide is what addToolApprovalResponse does.
func (c *client) decide(approval string, approved bool, reason string) {
	for _, p := range c.parts {
		if a, ok := p["approval"].(map[string]any); ok && a["id"] == approval {
			answer := map[string]any{"id": approval, "approved": approved}
			if reason != "" {
				answer["reason"] = reason
			}
			p["state"], p["approval"] = "approval-responded", answer
		}
	}
}

// again makes the client one whose message goes on in the next stream.
func (c *client) again() { c.going, c.started, c.finished, c.steps = true, false, false, 0 }

// message is the folded message as JSON values. Argument text that never became
// a call is left out: the log does not keep it, and a page has it until it is loaded again.
func (c *client) message() map[string]any {
	parts := []any{}
	for _, p := range c.parts {
		if _, called := p["input"]; p["toolCallId"] != nil && !called && p["rawInput"] == nil {
			continue
		}
		parts = append(parts, p)
	}
	m := map[string]any{"id": c.id, "role": "assistant", "parts": parts}
	if c.metadata != nil {
		m["metadata"] = c.metadata
	}
	return m
}
