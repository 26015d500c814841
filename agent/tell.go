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

// telling is how much is told of each thing, in bytes. 0 is everything.
type telling struct {
	output    int // of a result
	arguments int // of a call
	text      int // of a text of anybody's
	// lean leaves out what only the newest steps need: pictures of tools and reasoning.
	lean  bool
	tools bool // whether calls may be told as calls
}

// shortened is how steps are told that are no longer new.
func (t telling) shortened() telling {
	t.output, t.arguments, t.lean = least(t.output, shortOutput), least(t.arguments, shortArguments), true
	return t
}

const (
	shortOutput    = 1 << 10
	shortArguments = 2 << 10
)

// least is the smaller bound, where 0 is none.
func least(a, b int) int {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// cut shortens a text on a character and says so.
func cut(text string, most int) string {
	if most == 0 || len(text) <= most {
		return text
	}
	shown := session.TrimText(text, most)
	return fmt.Sprintf("%s\n[%d more bytes are not shown]", shown, len(text)-len(shown))
}

func (t telling) user(m *session.Message) model.Message {
	out := model.Message{Role: model.User}
	for _, p := range m.Parts {
		switch p.Type {
		case session.PartText:
			if strings.TrimSpace(p.Text) != "" {
				out.Parts = append(out.Parts, model.Part{Kind: model.TextPart, Text: cut(p.Text, t.text)})
			}
		case session.PartData:
			out.Parts = append(out.Parts, model.Part{Kind: model.TextPart, Text: cut(string(p.Data), t.text)})
		case session.PartFile:
			if p.File == nil {
				continue
			}
			if part := filePart(p.File); p.File.URL != "" && (t.text == 0 || countPart(part) <= t.text) {
				out.Parts = append(out.Parts, part)
			} else {
				label := fmt.Sprintf("[file %s, %s]", p.File.Name, p.File.MediaType)
				out.Parts = append(out.Parts, model.Part{Kind: model.TextPart, Text: cut(label, t.text)})
			}
		}
	}
	if m.Background != nil {
		out.Parts = t.result(m.Background, out.Parts)
	}
	if len(out.Parts) == 0 {
		out.Parts = []model.Part{{Kind: model.TextPart, Text: "(empty message)"}}
	}
	return out
}

// result tells how a background run ended, and what it said.
func (t telling) result(b *session.Background, said []model.Part) []model.Part {
	about := "a background run"
	if b.Title != "" {
		about += fmt.Sprintf(" (%q)", b.Title)
	}
	note := fmt.Sprintf("[The result of %s follows.]", about)
	switch {
	case b.Error != nil:
		note, said = fmt.Sprintf("[%s failed: %s]", about, b.Error.Message), nil
	case len(said) == 0:
		note = fmt.Sprintf("[%s ended without a word.]", about)
	}
	return append([]model.Part{{Kind: model.TextPart, Text: cut(note, t.text)}}, said...)
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

// step tells the parts of one step: what was said, then the results of its
// calls. It tells nothing of a step that left nothing behind.
func (t telling) step(parts []session.Part) []model.Message {
	said := model.Message{Role: model.Assistant}
	results := model.Message{Role: model.ToolRole}
	empty := true // reasoning alone led to nothing, and providers refuse it
	for _, p := range parts {
		switch {
		case p.Type == session.PartText && strings.TrimSpace(p.Text) != "":
			said.Parts = append(said.Parts, model.Part{Kind: model.TextPart, Text: cut(p.Text, t.text)})
		case p.Type == session.PartReasoning && p.Signature != "":
			if !t.lean {
				said.Parts = append(said.Parts, model.Part{Kind: model.ReasoningPart, Text: p.Text, Signature: p.Signature})
			}
			continue
		case p.Type == session.PartTool && p.Tool != nil && p.Tool.Status != session.CallWriting:
			call, result := t.call(p.Tool)
			if !t.tools { // providers refuse calls where no tools are offered
				said.Parts = append(said.Parts, model.Part{
					Kind: model.TextPart,
					Text: cut(fmt.Sprintf("[called %s with %s: %s]", call.Name, call.Arguments, result.Text), t.text),
				})
			} else {
				said.Parts = append(said.Parts, call)
				results.Parts = append(results.Parts, result)
			}
		default:
			continue
		}
		empty = false
	}
	switch {
	case empty:
		return nil
	case len(results.Parts) == 0:
		return []model.Message{said}
	}
	return []model.Message{said, results}
}

// call gives a call and its one result.
func (t telling) call(c *session.ToolCall) (call, result model.Part) {
	call = model.Part{Kind: model.CallPart, Call: c.ID, Name: c.Name, Arguments: c.Arguments}
	if !bytes.HasPrefix(bytes.TrimSpace(c.Arguments), []byte("{")) {
		call.Arguments = json.RawMessage("{}")
	} else if t.arguments > 0 && len(c.Arguments) > t.arguments {
		call.Arguments = json.RawMessage(fmt.Sprintf(`{"not_shown":"%d bytes of arguments"}`, len(c.Arguments)))
	}
	result = model.Part{Kind: model.ResultPart, Call: c.ID, Name: c.Name}
	result.Text, result.Failed = resultText(c)
	pictures := 0
	for i := range c.Files {
		switch {
		case c.Files[i].URL == "":
		case t.lean:
			pictures++
		default:
			result.Files = append(result.Files, filePart(&c.Files[i]))
		}
	}
	result.Text = cut(result.Text, t.output)
	if c.Blob != nil {
		result.Text += fmt.Sprintf("\n[this is the beginning of %d bytes]", c.Blob.Size)
	}
	if c.Cut > 0 {
		result.Text += fmt.Sprintf("\n[the tool's output was cut: %d bytes were not kept]", c.Cut)
	}
	if pictures > 0 {
		result.Text += fmt.Sprintf("\n[%d pictures are not shown again]", pictures)
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
