package fakellm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// The rules of strict mode, as Request.Rule and the error message name them.
// Each is a refusal of at least one real provider.
const (
	RuleJSON             = "body-is-a-json-object"
	RuleUTF8             = "body-is-utf-8"
	RuleLoneSurrogate    = "no-lone-surrogate" // neither in the body nor inside arguments
	RuleShape            = "known-shape"       // a field has the wrong type, or a role, part or item is unknown
	RuleModel            = "model-is-named"
	RuleNoMessages       = "messages-not-empty"
	RuleMaxTokens        = "max-tokens"
	RuleVersion          = "version-header"
	RuleStreamOptions    = "stream-options-need-stream"
	RuleFirstUser        = "first-message-is-user"
	RuleEmptyContent     = "content-not-empty"
	RuleEmptyText        = "text-not-empty"
	RuleEmptyAssistant   = "assistant-says-something"
	RuleTrailingSpace    = "no-trailing-whitespace-at-the-end"
	RuleSignature        = "thinking-is-signed"
	RuleReasoningAlone   = "reasoning-has-a-following-item"
	RuleReasoningKept    = "reasoning-is-encrypted-when-not-stored"
	RuleStateless        = "nothing-stored-here" // previous_response_id, item_reference
	RuleItemID           = "item-id-has-its-prefix"
	RuleCallID           = "call-id"
	RuleCallIDTwice      = "call-id-once-a-message"
	RuleArguments        = "arguments-are-an-object"
	RuleResultMissing    = "call-has-its-result-next"
	RuleResultOrphan     = "result-has-its-call"
	RuleResultTwice      = "result-once"
	RuleResultsFirst     = "results-come-first"
	RuleToolName         = "tool-name"
	RuleToolTwice        = "tool-name-once"
	RuleToolSchema       = "tool-schema-is-an-object"
	RuleTooManyCacheMark = "at-most-4-cache-marks"
)

// A violation is why strict mode refuses a request.
type violation struct {
	rule   string
	at     string // where in the body, "messages[3]"
	detail string
}

func (v *violation) Error() string {
	if v.at == "" {
		return fmt.Sprintf("[%s] %s", v.rule, v.detail)
	}
	return fmt.Sprintf("[%s] %s: %s", v.rule, v.at, v.detail)
}

// A checker keeps the first violation, as providers report one.
type checker struct {
	first *violation
}

func (c *checker) refuse(rule, at, format string, args ...any) {
	if c.first == nil {
		c.first = &violation{rule, at, fmt.Sprintf(format, args...)}
	}
}

// decode reads data into target. What has the wrong type is refused and left
// out.
func (c *checker) decode(at string, data []byte, target any) {
	if len(data) == 0 {
		return
	}
	if err := json.Unmarshal(data, target); err != nil {
		c.refuse(RuleShape, at, "%v", err)
	}
}

// parse fills in what the body says and returns the first rule it breaks. A
// body that is not JSON is refused even when strict is false.
func parse(r *Request, strict bool) *violation {
	var c checker
	if !isObject(r.Body) {
		c.refuse(RuleJSON, "", "the body is not a JSON object")
		return c.first
	}
	if !utf8.Valid(r.Body) {
		c.refuse(RuleUTF8, "", "the body is not valid UTF-8")
	}
	if at, found := loneSurrogate(r.Body); found {
		c.refuse(RuleLoneSurrogate, "", "the body is not valid JSON: no low surrogate in string: byte %d", at)
	}
	switch r.Wire {
	case Chat:
		c.parseChat(r)
	case Responses:
		c.parseResponses(r)
	case Messages:
		c.parseMessages(r)
	}
	if r.Model == "" {
		c.refuse(RuleModel, "model", "you must provide a model parameter")
	}
	if !strict {
		return nil
	}
	return c.first
}

// loneSurrogate finds a \u escape of half a surrogate pair in JSON text.
func loneSurrogate(b []byte) (at int, found bool) {
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			continue
		}
		unit, ok := unicodeEscape(b[i:])
		switch {
		case !ok:
			i++ // skip the escaped character, which may be a backslash
		case unit >= 0xD800 && unit <= 0xDBFF:
			low, ok := unicodeEscape(b[i+6:])
			if !ok || low < 0xDC00 || low > 0xDFFF {
				return i, true
			}
			i += 11
		case unit >= 0xDC00 && unit <= 0xDFFF:
			return i, true
		default:
			i += 5
		}
	}
	return 0, false
}

// unicodeEscape reads \uXXXX at the start of b.
func unicodeEscape(b []byte) (unit int, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	_, err := fmt.Sscanf(string(b[2:6]), "%04x", &unit)
	return unit, err == nil
}

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// tools checks and keeps the tool definitions.
func (c *checker) tools(r *Request, tools []Tool, schemaRequired bool) {
	seen := make(map[string]bool)
	for i, t := range tools {
		at := fmt.Sprintf("tools[%d]", i)
		c.name(at+".name", t.Name)
		if seen[t.Name] {
			c.refuse(RuleToolTwice, at, "tool names must be unique: %q", t.Name)
		}
		seen[t.Name] = true
		if schemaRequired || len(t.Schema) > 0 {
			c.schema(at, t.Schema)
		}
	}
	r.Tools = tools
}

func (c *checker) name(at, name string) {
	if !toolName.MatchString(name) {
		c.refuse(RuleToolName, at, "%.100q does not match %s", name, toolName)
	}
}

// schema checks that a tool's parameters are a JSON schema of an object.
func (c *checker) schema(at string, schema json.RawMessage) {
	var object struct {
		Type       json.RawMessage            `json:"type"`
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if !isObject(schema) {
		c.refuse(RuleToolSchema, at, "the schema is not a JSON object: %.60s", schema)
		return
	}
	if err := json.Unmarshal(schema, &object); err != nil {
		c.refuse(RuleToolSchema, at, "the schema is malformed: %v", err)
		return
	}
	if string(object.Type) != `"object"` {
		c.refuse(RuleToolSchema, at, `schema must have type "object", got %.40q`, object.Type)
	}
	for name, property := range object.Properties {
		c.property(at+".properties."+name, property)
	}
}

func (c *checker) property(at string, schema json.RawMessage) {
	if text := string(bytes.TrimSpace(schema)); text == "true" || text == "false" {
		return
	}
	var property struct {
		Type       any                        `json:"type"`
		Items      json.RawMessage            `json:"items"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(schema, &property); err != nil {
		c.refuse(RuleToolSchema, at, "the schema is malformed: %v", err)
		return
	}
	if property.Type == "array" && len(property.Items) == 0 {
		c.refuse(RuleToolSchema, at, "array schema missing items")
	}
	for name, inner := range property.Properties {
		c.property(at+".properties."+name, inner)
	}
}

// arguments checks the text of a call's arguments.
func (c *checker) arguments(at, text string) {
	if !isObject([]byte(text)) {
		c.refuse(RuleArguments, at, "arguments must be a JSON object, got %.60q", text)
	}
	if _, found := loneSurrogate([]byte(text)); found {
		c.refuse(RuleLoneSurrogate, at, "half a surrogate pair inside the arguments")
	}
}

// pendingCalls follows the calls of one assistant turn until each has its
// result.
type pendingCalls struct {
	at       string
	ids      []string
	answered map[string]bool
}

// call adds a call to the turn.
func (p *pendingCalls) call(c *checker, at, id string) {
	if p.answered == nil {
		p.answered = make(map[string]bool)
		p.at = at
	}
	if _, twice := p.answered[id]; twice {
		c.refuse(RuleCallIDTwice, at, "call ids must be unique: %q", id)
		return
	}
	p.ids = append(p.ids, id)
	p.answered[id] = false
}

// result takes a result for a call of the turn.
func (p *pendingCalls) result(c *checker, at, id string) {
	answered, known := p.answered[id]
	switch {
	case !known:
		c.refuse(RuleResultOrphan, at, "no tool call with id %q right before this result", id)
	case answered:
		c.refuse(RuleResultTwice, at, "a second result for the call with id %q", id)
	default:
		p.answered[id] = true
	}
}

// started reports whether some result of the turn has come.
func (p *pendingCalls) started() bool {
	for _, answered := range p.answered {
		if answered {
			return true
		}
	}
	return false
}

func (p *pendingCalls) missing() []string {
	var missing []string
	for _, id := range p.ids {
		if !p.answered[id] {
			missing = append(missing, id)
		}
	}
	return missing
}

// settle ends the turn: something other than its results follows at place at.
func (p *pendingCalls) settle(c *checker, at string) {
	if missing := p.missing(); missing != nil {
		c.refuse(RuleResultMissing, p.at, "tool calls must be followed at once by their results; before %s none came for: %s",
			at, strings.Join(missing, ", "))
	}
	*p = pendingCalls{}
}

// parts reads content that may be one string or a list of typed parts.
func (c *checker) parts(at string, content json.RawMessage) (text string, parts []contentPart, isString bool) {
	if len(content) > 0 && content[0] == '"' {
		c.decode(at, content, &text)
		return text, nil, true
	}
	if string(content) == "null" {
		return "", nil, false
	}
	c.decode(at, content, &parts)
	return "", parts, false
}

// contentPart is any wire's content part or block.
type contentPart struct {
	Type string `json:"type"`
	Text string `json:"text"`

	// Anthropic's blocks.
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	Data      string          `json:"data"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	IsError   bool            `json:"is_error"`
	Content   json.RawMessage `json:"content"`

	// OpenAI's refusal.
	Refusal string `json:"refusal"`
}
