package anthropic

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/model/internal/wire"
)

// defaultMaxTokens is sent where the caller leaves the number to the provider,
// because this API demands one.
const defaultMaxTokens = 8192

// request builds the body of a call.
type request struct {
	messages
	params anthropic.MessageNewParams
	// arguments are those of the history's calls, in the order in which they
	// stand in the body.
	arguments []json.RawMessage
}

func (m messages) body(req model.Request) ([]byte, error) {
	r := request{messages: m, params: anthropic.MessageNewParams{
		Model:     m.name,
		MaxTokens: defaultMaxTokens,
	}}
	if req.MaxTokens > 0 {
		r.params.MaxTokens = int64(req.MaxTokens)
	}
	if req.Temperature != nil {
		r.params.Temperature = anthropic.Float(*req.Temperature)
	}
	if strings.TrimSpace(req.System) != "" {
		r.params.System = []anthropic.TextBlockParam{{Text: req.System}}
	}
	r.think(req.Reasoning)
	for _, tool := range req.Tools {
		if err := r.tool(tool); err != nil {
			return nil, err
		}
	}
	for _, message := range req.Messages {
		if err := r.message(message); err != nil {
			return nil, err
		}
	}
	r.markCache()
	r.params.SetExtraFields(map[string]any{"stream": true})
	body, err := r.params.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return r.insertArguments(body)
}

// markCache asks the provider to keep what a later request begins with too: the
// tools and the system text, and the conversation up to its last two turns of
// the user's side, of which the earlier was the end of the request before.
// Without a mark this API keeps nothing.
func (r *request) markCache() {
	if n := len(r.params.System); n > 0 {
		r.params.System[n-1].CacheControl = anthropic.NewCacheControlEphemeralParam()
	} else if n := len(r.params.Tools); n > 0 {
		r.params.Tools[n-1].OfTool.CacheControl = anthropic.NewCacheControlEphemeralParam()
	}
	marks := 2
	for i := len(r.params.Messages) - 1; i >= 0 && marks > 0; i-- {
		m := &r.params.Messages[i]
		if m.Role != anthropic.MessageParamRoleUser {
			continue
		}
		if mark := m.Content[len(m.Content)-1].GetCacheControl(); mark != nil {
			*mark = anthropic.NewCacheControlEphemeralParam()
			marks--
		}
	}
}

// think asks for reasoning in the form that the model knows: with an effort
// since Claude 4.6, with a budget of tokens before.
func (r *request) think(effort string) {
	if effort == "" {
		return
	}
	if adapts(r.name) {
		r.params.Thinking.OfAdaptive = &anthropic.ThinkingConfigAdaptiveParam{
			Display: anthropic.ThinkingConfigAdaptiveDisplaySummarized,
		}
		r.params.OutputConfig.Effort = anthropic.OutputConfigEffort(effort)
		return
	}
	budget := map[string]int64{"low": 1024, "medium": 4096, "high": 16384}[effort]
	// Thinking counts towards the answer's limit: leave half of it for the rest.
	budget = min(budget, r.params.MaxTokens/2)
	if budget >= 1024 {
		r.params.Thinking = anthropic.ThinkingConfigParamOfEnabled(budget)
	}
}

var versionNumber = regexp.MustCompile(`[-.](\d{1,2})(?:[-.](\d{1,2}))?(?:[-.@:]|$)`)

// adapts reports whether a model thinks with an effort. Claude models without a
// version in their name are newer than those that need a budget; models of
// others behind this API know the budget only.
func adapts(name string) bool {
	_, version, claude := strings.Cut(name, "claude")
	if !claude {
		return false
	}
	v := versionNumber.FindStringSubmatch(version)
	if v == nil {
		return true
	}
	major, minor := number(v[1]), number(v[2])
	return major > 4 || major == 4 && minor >= 6
}

func number(digits string) int {
	n, _ := strconv.Atoi(digits) // no digits are no version: 0
	return n
}

// tool keeps the schema as it was written.
func (r *request) tool(tool model.Tool) error {
	schema := tool.Parameters
	if len(schema) == 0 {
		schema = json.RawMessage(`{"type":"object","properties":{}}`)
	}
	if !json.Valid(schema) {
		return fmt.Errorf("the parameters of tool %q are not JSON", tool.Name)
	}
	t := &anthropic.ToolParam{
		Name:        tool.Name,
		InputSchema: param.Override[anthropic.ToolInputSchemaParam](schema),
	}
	if tool.Description != "" {
		t.Description = anthropic.String(tool.Description)
	}
	r.params.Tools = append(r.params.Tools, anthropic.ToolUnionParam{OfTool: t})
	return nil
}

// message adds a message, or adds to the last one if that has the same role in
// this API, which knows only two.
func (r *request) message(m model.Message) error {
	role := anthropic.MessageParamRoleUser
	if m.Role == model.Assistant {
		role = anthropic.MessageParamRoleAssistant
	}
	var blocks []anthropic.ContentBlockParamUnion
	for _, part := range m.Parts {
		block, err := r.block(part)
		if err != nil {
			return err
		}
		if block != nil {
			blocks = append(blocks, *block)
		}
	}
	if len(blocks) == 0 {
		return nil
	}
	if n := len(r.params.Messages); n > 0 && r.params.Messages[n-1].Role == role {
		last := &r.params.Messages[n-1]
		last.Content = append(last.Content, blocks...)
		return nil
	}
	r.params.Messages = append(r.params.Messages, anthropic.MessageParam{Role: role, Content: blocks})
	return nil
}

// block is nil for what this API has no place for: text of white space only,
// and reasoning that it did not sign.
func (r *request) block(part model.Part) (*anthropic.ContentBlockParamUnion, error) {
	var b anthropic.ContentBlockParamUnion
	switch part.Kind {
	case model.TextPart:
		if strings.TrimSpace(part.Text) == "" {
			return nil, nil
		}
		b = anthropic.NewTextBlock(part.Text)
	case model.ReasoningPart:
		if data, ok := wire.Signed(part.Signature, hiddenKind, r.host); ok {
			b = anthropic.NewRedactedThinkingBlock(data)
		} else if data, ok := wire.Signed(part.Signature, signatureKind, r.host); ok {
			b = anthropic.NewThinkingBlock(data, part.Text)
		} else {
			return nil, nil
		}
	case model.FilePart:
		b = fileBlock(part)
	case model.CallPart:
		arguments, err := wire.History(part)
		if err != nil {
			return nil, err
		}
		r.arguments = append(r.arguments, arguments)
		b = anthropic.NewToolUseBlock(callID(part.Call), json.RawMessage(placeholder), part.Name)
	case model.ResultPart:
		result := anthropic.ToolResultBlockParam{ToolUseID: callID(part.Call)}
		if part.Failed {
			result.IsError = anthropic.Bool(true)
		}
		if strings.TrimSpace(part.Text) != "" {
			result.Content = []anthropic.ToolResultBlockParamContentUnion{{OfText: &anthropic.TextBlockParam{Text: part.Text}}}
		}
		for _, file := range part.Files {
			if image := fileBlock(file).OfImage; image != nil {
				result.Content = append(result.Content, anthropic.ToolResultBlockParamContentUnion{OfImage: image})
			}
		}
		b = anthropic.ContentBlockParamUnion{OfToolResult: &result}
	default:
		return nil, fmt.Errorf("a message has a part of kind %q", part.Kind)
	}
	return &b, nil
}

// fileBlock shows the model a file, or says that it cannot see it: a file of the
// wrong kind must not end a conversation.
func fileBlock(part model.Part) anthropic.ContentBlockParamUnion {
	data := base64.StdEncoding.EncodeToString(part.Data)
	switch part.MediaType {
	case "image/jpeg", "image/png", "image/gif", "image/webp":
		if data == "" {
			return anthropic.NewImageBlock(anthropic.URLImageSourceParam{URL: part.URL})
		}
		return anthropic.NewImageBlockBase64(part.MediaType, data)
	case "application/pdf":
		if data == "" {
			return anthropic.NewDocumentBlock(anthropic.URLPDFSourceParam{URL: part.URL})
		}
		return anthropic.NewDocumentBlock(anthropic.Base64PDFSourceParam{Data: data})
	}
	return anthropic.NewTextBlock(wire.FileAsText(part))
}

var badInID = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

// callID gives an id of another provider the letters that this one accepts. It
// gives a call and its result the same.
func callID(id string) string {
	return badInID.ReplaceAllStringFunc(id, func(s string) string { return fmt.Sprintf("_%x_", s) })
}

// The SDK writes raw JSON anew: without its white space, with its letters
// escaped otherwise. So that the model finds its arguments as it wrote them, the
// SDK is given a placeholder, which nothing else can look like: quotes inside of
// texts are escaped, and the name of the field is this API's own.
const (
	placeholder = `"\u0000arguments"`
	insertion   = `"input":` + placeholder
)

func (r *request) insertArguments(body []byte) ([]byte, error) {
	pieces := bytes.Split(body, []byte(insertion))
	if len(pieces) != len(r.arguments)+1 {
		return nil, fmt.Errorf("the history has %d tool calls, the request %d", len(r.arguments), len(pieces)-1)
	}
	var out bytes.Buffer
	for i, piece := range pieces {
		if i > 0 {
			out.WriteString(`"input":`)
			out.Write(r.arguments[i-1])
		}
		out.Write(piece)
	}
	return out.Bytes(), nil
}

// Kinds of signature: of thinking that may be read, and of thinking that only
// the provider can read, which is all signature.
const (
	signatureKind = "anthropic"
	hiddenKind    = "anthropic-redacted"
)
