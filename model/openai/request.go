package openai

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"

	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/model/internal/wire"
)

// params is the request in the SDK's types.
func (c chat) params(req model.Request) (openai.ChatCompletionNewParams, error) {
	p := openai.ChatCompletionNewParams{
		Model:           c.name,
		ReasoningEffort: shared.ReasoningEffort(req.Reasoning),
		StreamOptions:   openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	}
	if req.Temperature != nil {
		p.Temperature = openai.Float(*req.Temperature)
	}
	switch {
	case req.MaxTokens > 0 && c.compatible:
		p.MaxTokens = openai.Int(int64(req.MaxTokens)) // The name that all of them know.
	case req.MaxTokens > 0:
		p.MaxCompletionTokens = openai.Int(int64(req.MaxTokens)) // The name that models which think demand.
	}
	for _, tool := range req.Tools {
		t, err := toolParam(tool)
		if err != nil {
			return p, err
		}
		p.Tools = append(p.Tools, t)
	}
	if req.System != "" {
		p.Messages = append(p.Messages, openai.SystemMessage(req.System))
	}
	for _, m := range req.Messages {
		switch m.Role {
		case model.User:
			p.Messages = append(p.Messages, userParam(m))
		case model.Assistant:
			a, err := c.assistantParam(m)
			if err != nil {
				return p, err
			}
			p.Messages = append(p.Messages, a)
		case model.ToolRole:
			var files []model.Part
			for _, part := range m.Parts {
				if part.Kind == model.ResultPart {
					p.Messages = append(p.Messages, openai.ToolMessage(part.Text, part.Call))
					files = append(files, part.Files...)
				}
			}
			// A tool's message has text only, here. Servers of others may have a model that
			// refuses what it cannot see: it knows by the text what there was.
			if len(files) > 0 && !c.compatible {
				files = append([]model.Part{{Kind: model.TextPart, Text: "The files of these results:"}}, files...)
				p.Messages = append(p.Messages, userParam(model.Message{Role: model.User, Parts: files}))
			}
		default:
			return p, fmt.Errorf("a message has the role %q", m.Role)
		}
	}
	return p, nil
}

// toolParam keeps the schema as it was written. The SDK's own field is a map, in
// which large numbers lose digits.
func toolParam(tool model.Tool) (openai.ChatCompletionToolUnionParam, error) {
	schema := tool.Parameters
	if len(schema) == 0 {
		schema = json.RawMessage(`{"type":"object","properties":{}}`)
	}
	if !json.Valid(schema) {
		return openai.ChatCompletionToolUnionParam{}, fmt.Errorf("the parameters of tool %q are not JSON", tool.Name)
	}
	return openai.ChatCompletionFunctionTool(param.Override[shared.FunctionDefinitionParam](struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
	}{tool.Name, tool.Description, schema})), nil
}

// userParam is plain text where it can be: some servers know nothing else.
func userParam(m model.Message) openai.ChatCompletionMessageParamUnion {
	var texts []string
	var parts []openai.ChatCompletionContentPartUnionParam
	plain := true
	for _, part := range m.Parts {
		switch part.Kind {
		case model.TextPart:
			texts = append(texts, part.Text)
			parts = append(parts, openai.TextContentPart(part.Text))
		case model.FilePart:
			plain = false
			parts = append(parts, fileParam(part))
		}
	}
	if plain {
		return openai.UserMessage(strings.Join(texts, "\n\n"))
	}
	return openai.UserMessage(parts)
}

// fileParam shows the model a file, or says that it cannot see it: a file of the
// wrong kind must not end a conversation.
func fileParam(part model.Part) openai.ChatCompletionContentPartUnionParam {
	data := part.URL
	if len(part.Data) > 0 {
		data = "data:" + part.MediaType + ";base64," + base64.StdEncoding.EncodeToString(part.Data)
	}
	audio := audioFormats[part.MediaType]
	switch {
	case strings.HasPrefix(part.MediaType, "image/"):
		return openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: data})
	case part.MediaType == "application/pdf" && len(part.Data) > 0:
		return openai.FileContentPart(openai.ChatCompletionContentPartFileFileParam{
			FileData: openai.String(data),
			Filename: openai.String("file.pdf"),
		})
	case audio != "" && len(part.Data) > 0:
		return openai.InputAudioContentPart(openai.ChatCompletionContentPartInputAudioInputAudioParam{
			Data:   base64.StdEncoding.EncodeToString(part.Data),
			Format: audio,
		})
	}
	return openai.TextContentPart(wire.FileAsText(part))
}

var audioFormats = map[string]string{
	"audio/mpeg": "mp3", "audio/mp3": "mp3",
	"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav",
}

func (c chat) assistantParam(m model.Message) (union openai.ChatCompletionMessageParamUnion, err error) {
	var a openai.ChatCompletionAssistantMessageParam
	var text, reasoning strings.Builder
	for _, part := range m.Parts {
		switch part.Kind {
		case model.TextPart:
			text.WriteString(part.Text)
		case model.ReasoningPart:
			if _, ours := wire.Signed(part.Signature, signatureKind, c.host); ours && c.compatible {
				reasoning.WriteString(part.Text)
			}
		case model.CallPart:
			arguments, err := wire.History(part)
			if err != nil {
				return union, err
			}
			a.ToolCalls = append(a.ToolCalls, openai.ChatCompletionMessageToolCallUnionParam{
				OfFunction: &openai.ChatCompletionMessageFunctionToolCallParam{
					ID: part.Call,
					Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{
						Name:      part.Name,
						Arguments: string(arguments),
					},
				},
			})
		}
	}
	if text.Len() > 0 || len(a.ToolCalls) == 0 {
		a.Content.OfString = openai.String(text.String())
	}
	if reasoning.Len() > 0 {
		a.SetExtraFields(map[string]any{"reasoning_content": reasoning.String()})
	}
	return openai.ChatCompletionMessageParamUnion{OfAssistant: &a}, nil
}

// signatureKind marks reasoning that came as reasoning_content. DeepSeek demands
// it back with the tool calls that it led to; servers that call it otherwise, or
// are another host, refuse the field.
const signatureKind = "reasoning_content"
