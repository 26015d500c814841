package agent

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/session"
)

// Context is everything the model sees for the call of step: a pure function
// of the agent and the messages of the branch, oldest first, that ends in the
// assistant message which run writes.
//
// It cannot build a history that a strict provider refuses: every call is
// followed at once by exactly one result, in the order of the calls; arguments
// are always a JSON object; empty and blank messages do not occur; a call that
// was never made (its arguments broke off) is not told as one.
func (a Agent) Context(run *session.Run, branch []session.Message, step int) model.Request {
	req := model.Request{
		System: a.Instructions, MaxTokens: a.MaxTokens, Temperature: a.Temperature, Reasoning: a.Reasoning,
	}
	if a.Tools != nil {
		for _, spec := range a.Tools.Specs() {
			req.Tools = append(req.Tools, model.Tool{Name: spec.Name, Description: spec.Description, Parameters: spec.Parameters})
		}
	}
	limit := a.Limits.WithDefaults().ToolOutput
	for i := range branch {
		m := &branch[i]
		switch m.Role {
		case session.RoleUser:
			req.Messages = append(req.Messages, userMessage(m))
		case session.RoleAssistant:
			before := 0
			if m.ID == run.Message {
				before = step
			}
			req.Messages = append(req.Messages, assistantMessages(m, before, limit, len(req.Tools) > 0)...)
		}
	}
	return req
}

func userMessage(m *session.Message) model.Message {
	out := model.Message{Role: model.User}
	for _, p := range m.Parts {
		switch p.Type {
		case session.PartText:
			if strings.TrimSpace(p.Text) != "" {
				out.Parts = append(out.Parts, model.Part{Kind: model.TextPart, Text: p.Text})
			}
		case session.PartData:
			out.Parts = append(out.Parts, model.Part{Kind: model.TextPart, Text: string(p.Data)})
		case session.PartFile:
			if p.File != nil && p.File.URL != "" {
				out.Parts = append(out.Parts, filePart(p.File))
			} else if p.File != nil {
				out.Parts = append(out.Parts, model.Part{Kind: model.TextPart, Text: fmt.Sprintf("[file %s, %s]", p.File.Name, p.File.MediaType)})
			}
		}
	}
	if len(out.Parts) == 0 {
		out.Parts = []model.Part{{Kind: model.TextPart, Text: "(empty message)"}}
	}
	return out
}

// filePart is a file as the model sees it. Not every provider reads the content
// that is in a data URL.
func filePart(f *session.File) model.Part {
	part := model.Part{Kind: model.FilePart, MediaType: f.MediaType, URL: f.URL}
	if content, found := strings.CutPrefix(f.URL, "data:"); found {
		if kind, encoded, cut := strings.Cut(content, ";base64,"); cut {
			if raw, err := base64.StdEncoding.DecodeString(encoded); err == nil && len(raw) > 0 {
				part.URL, part.Data = "", raw
				if part.MediaType == "" {
					part.MediaType = kind
				}
			}
		}
	}
	return part
}

// assistantMessages tells one assistant message as the model must see it: a
// turn for each step, followed by the results of its calls. Parts of steps from
// before on are left out (0: none are).
func assistantMessages(m *session.Message, before, limit int, tools bool) []model.Message {
	var out []model.Message
	said := model.Message{Role: model.Assistant}
	results := model.Message{Role: model.ToolRole}
	flush := func() {
		if len(said.Parts) > 0 {
			out = append(out, said)
		}
		if len(results.Parts) > 0 {
			out = append(out, results)
		}
		said, results = model.Message{Role: model.Assistant}, model.Message{Role: model.ToolRole}
	}
	current := 0
	for _, p := range m.Parts {
		if before > 0 && p.Step >= before {
			continue
		}
		if p.Step != current {
			flush()
			current = p.Step
		}
		switch {
		case p.Type == session.PartText && strings.TrimSpace(p.Text) != "":
			said.Parts = append(said.Parts, model.Part{Kind: model.TextPart, Text: p.Text})
		case p.Type == session.PartReasoning && p.Signature != "":
			said.Parts = append(said.Parts, model.Part{Kind: model.ReasoningPart, Text: p.Text, Signature: p.Signature})
		case p.Type == session.PartTool && p.Tool != nil && p.Tool.Status != session.CallWriting:
			call, result := tell(p.Tool, limit)
			if !tools { // providers refuse calls where no tools are offered
				said.Parts = append(said.Parts, model.Part{
					Kind: model.TextPart,
					Text: fmt.Sprintf("[called %s with %s: %s]", call.Name, call.Arguments, result.Text),
				})
				continue
			}
			said.Parts = append(said.Parts, call)
			results.Parts = append(results.Parts, result)
		}
	}
	flush()
	return onlyReasoningDropped(out)
}

// onlyReasoningDropped leaves out turns that hold reasoning and nothing else: what
// it led to was cut off, and providers refuse it alone.
func onlyReasoningDropped(messages []model.Message) []model.Message {
	kept := messages[:0]
	for _, m := range messages {
		for _, p := range m.Parts {
			if p.Kind != model.ReasoningPart {
				kept = append(kept, m)
				break
			}
		}
	}
	return kept
}

// tell gives a call and its one result.
func tell(c *session.ToolCall, limit int) (call, result model.Part) {
	call = model.Part{Kind: model.CallPart, Call: c.ID, Name: c.Name, Arguments: c.Arguments}
	if !bytes.HasPrefix(bytes.TrimSpace(c.Arguments), []byte("{")) {
		call.Arguments = json.RawMessage("{}")
	}
	result = model.Part{Kind: model.ResultPart, Call: c.ID, Name: c.Name}
	result.Text, result.Failed = resultText(c)
	for i := range c.Files {
		if c.Files[i].URL != "" {
			result.Files = append(result.Files, filePart(&c.Files[i]))
		}
	}
	if len(result.Text) > limit {
		shown := session.TrimText(result.Text, limit)
		result.Text = fmt.Sprintf("%s\n[%d more bytes are not shown]", shown, len(result.Text)-len(shown))
	}
	if c.Blob != nil {
		result.Text += fmt.Sprintf("\n[this is the beginning of %d bytes]", c.Blob.Size)
	}
	if c.Cut > 0 {
		result.Text += fmt.Sprintf("\n[the tool's output was cut: %d bytes were not kept]", c.Cut)
	}
	return call, result
}

func resultText(c *session.ToolCall) (text string, failed bool) {
	note := ""
	if c.Note != "" {
		note = " " + c.Note
	}
	switch c.Status {
	case session.CallCompleted:
		var s string
		if json.Unmarshal(c.Result, &s) == nil && strings.TrimSpace(s) != "" {
			return s, false
		}
		return string(c.Result), false // a blank text as JSON: some providers refuse blanks
	case session.CallFailed:
		if c.Error != nil {
			return "Error: " + c.Error.Message, true
		}
		return "Error: the call failed.", true
	case session.CallDenied:
		return strings.TrimSpace("The call was not allowed by the person." + note), true
	case session.CallCancelled:
		if c.Try == 0 {
			return "The call was not made: the run was interrupted before it began.", true
		}
		return "The call was interrupted. Its outcome is unknown.", true
	}
	return "The call has no result. Its outcome is unknown.", true
}
