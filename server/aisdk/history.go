package aisdk

import (
	"encoding/json"
	"strings"

	"github.com/holdfast-run/holdfast/session"
)

// Message is a UIMessage.
type Message struct {
	ID       string       `json:"id"`
	Role     session.Role `json:"role"`
	Parts    []Part       `json:"parts"`
	Metadata *Metadata    `json:"metadata,omitempty"`
}

// Part is a part of a UIMessage. Which fields are set follows from Type.
type Part struct {
	Type  string  `json:"type"`
	Text  *string `json:"text,omitempty"`
	State string  `json:"state,omitempty"`

	ToolCallID       string          `json:"toolCallId,omitempty"`
	Input            json.RawMessage `json:"input,omitempty"`
	RawInput         json.RawMessage `json:"rawInput,omitempty"`
	Output           json.RawMessage `json:"output,omitempty"`
	ErrorText        string          `json:"errorText,omitempty"`
	ProviderExecuted bool            `json:"providerExecuted,omitempty"`
	Approval         *Approval       `json:"approval,omitempty"`

	MediaType string `json:"mediaType,omitempty"`
	Filename  string `json:"filename,omitempty"`
	URL       string `json:"url,omitempty"`
	SourceID  string `json:"sourceId,omitempty"`
	Title     string `json:"title,omitempty"`

	ID   string          `json:"id,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
}

// Approval is the question of a tool part, and the answer to it.
type Approval struct {
	ID       string `json:"id"`
	Approved *bool  `json:"approved,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// Past is what the messages of a branch are told from.
type Past struct {
	Messages []session.Message
	// Runs are those that wrote the messages.
	Runs []session.Run
	// Pending are the approvals that nobody decided.
	Pending []session.Approval
	Profile Profile
	Blobs   Blobs
}

// History gives the messages as a client has them that followed their streams.
// An answer that is being written is left out: its stream tells it whole, and
// older clients would show it twice.
func History(p Past) []Message {
	h := historian{Past: p, runs: map[string]*session.Run{}, pending: map[string]bool{}, asked: map[string]int{}}
	for i := range p.Runs {
		h.runs[p.Runs[i].ID] = &p.Runs[i]
	}
	for _, a := range p.Pending {
		h.pending[a.ID] = true
		h.asked[a.Run]++
	}
	messages := []Message{}
	for i := range p.Messages {
		m := &p.Messages[i]
		if m.Role == session.RoleUser {
			messages = append(messages, h.user(m))
		} else if m.Status != session.MessageStreaming || h.waits(m) {
			messages = append(messages, h.assistant(m))
		}
	}
	return messages
}

type historian struct {
	Past
	runs    map[string]*session.Run
	pending map[string]bool
	asked   map[string]int // pending approvals of each run
}

// waits says that the message is told as far as it is.
func (h *historian) waits(m *session.Message) bool {
	run := h.runs[m.Run]
	return run != nil && run.Message == m.ID && h.Profile != V5 && WaitsForPerson(run, h.asked[run.ID])
}

func (h *historian) user(m *session.Message) Message {
	out := Message{ID: UIMessageID(m.ID), Role: m.Role, Parts: []Part{}}
	for _, p := range m.Parts {
		switch p.Type {
		case session.PartText:
			out.Parts = append(out.Parts, Part{Type: "text", Text: &p.Text})
		case session.PartFile:
			out.Parts = append(out.Parts, h.file(p.File))
		case session.PartData:
			out.Parts = append(out.Parts, userData(p.Data))
		}
	}
	return out
}

func (h *historian) file(f *session.File) Part {
	url, _ := h.Blobs.file(*f)
	return Part{Type: "file", MediaType: f.MediaType, Filename: f.Name, URL: url}
}

func (h *historian) assistant(m *session.Message) Message {
	out := Message{ID: m.ID, Role: m.Role, Parts: []Part{}, Metadata: h.metadata(m)}
	tools := false           // in the last step
	marked := 0              // the step whose mark was told
	var files []session.File // that the step's calls gave: see Projector.tellFiles
	stepEnds := func() {
		for _, f := range files {
			if url, ok := h.Blobs.file(f); ok {
				out.Parts = append(out.Parts, Part{Type: filePart, MediaType: f.MediaType, URL: url})
			}
		}
		files = nil
	}
	add := func(p *session.Part, part Part) {
		if p.Step != marked {
			stepEnds()
			out.Parts = append(out.Parts, Part{Type: "step-start"})
			marked, tools = p.Step, false
		}
		out.Parts = append(out.Parts, part)
	}
	for i := range m.Parts {
		p := &m.Parts[i]
		switch p.Type {
		case session.PartText, session.PartReasoning:
			if p.Text != "" {
				add(p, Part{Type: string(p.Type), Text: &p.Text, State: "done"})
			}
		case session.PartTool:
			if p.Tool != nil && p.Tool.Status != session.CallWriting {
				add(p, h.tool(p.Tool))
				tools, files = true, append(files, p.Tool.Files...)
			}
		default:
			if c, ok := partChunk(*p, h.Blobs); ok {
				part := Part{Type: c.Type, URL: c.URL, MediaType: c.MediaType, SourceID: c.SourceID, Title: c.Title, Data: c.Data}
				if c.Data != nil {
					part.ID = c.ID
				}
				add(p, part)
			}
		}
	}
	if m.Status == session.MessageStreaming {
		return out
	}
	stepEnds()
	if tools {
		out.Parts = append(out.Parts, Part{Type: "step-start"}) // as the stream ends: see Projector.conclude
	}
	return out
}

func (h *historian) metadata(m *session.Message) *Metadata {
	run := h.runs[m.Run]
	if run == nil {
		return nil
	}
	switch {
	case run.Message != m.ID: // the run went on in another message
		return &Metadata{RunID: run.ID, Status: session.Completed}
	case run.Status.Terminal():
		return &Metadata{RunID: run.ID, Status: run.Status, Usage: usageOf(run.Usage), Error: run.Error}
	}
	return &Metadata{RunID: run.ID, Status: run.Status}
}

// tool is a call with how it ended.
func (h *historian) tool(c *session.ToolCall) Part {
	out := Part{Type: "tool-" + c.Name, ToolCallID: c.ID, State: "input-available", ProviderExecuted: c.Approval == ""}
	yes, no := true, false
	switch {
	case c.Arguments != nil || c.ArgumentsBlob != nil:
		out.Input = clean(c.Arguments)
	case c.RawArguments != "":
		out.RawInput = session.JSONString(c.RawArguments)
		out.ProviderExecuted = false
	default:
		out.ProviderExecuted = false
	}
	refused := func(note, text string) {
		if c.Approval == "" || h.Profile == V5 {
			out.State, out.ErrorText = "output-error", text
			return
		}
		out.State, out.Approval = "output-denied", &Approval{ID: c.Approval, Approved: &no, Reason: note}
	}
	agreed := func() {
		if c.Approval != "" && h.Profile != V5 {
			out.Approval = &Approval{ID: c.Approval, Approved: &yes, Reason: c.Note}
		}
	}
	switch c.Status {
	case session.CallCompleted:
		out.State, out.Output = "output-available", clean(c.Result)
		agreed()
	case session.CallFailed:
		out.State, out.ErrorText = "output-error", errorText(c.Error)
		agreed()
	case session.CallDenied:
		refused(c.Note, deniedText(c.Note))
	case session.CallCancelled:
		if c.Approval != "" && c.By == "" { // nobody had decided
			refused(c.Note, stoppedText(c.Note))
			break
		}
		out.State, out.ErrorText = "output-error", stoppedText(c.Note)
		agreed()
	default:
		switch {
		case c.Approval == "" || h.Profile == V5:
		case h.pending[c.Approval]:
			out.State, out.Approval = "approval-requested", &Approval{ID: c.Approval}
		default:
			out.State = "approval-responded"
			agreed()
		}
	}
	return out
}

// userData is a data part that a person sent, with the name it had.
func userData(raw json.RawMessage) Part {
	var part Part
	if json.Unmarshal(raw, &part) == nil && strings.HasPrefix(part.Type, "data-") && part.Data != nil {
		return Part{Type: part.Type, ID: part.ID, Data: clean(part.Data)}
	}
	return Part{Type: dataPart, Data: clean(raw)}
}
