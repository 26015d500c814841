package aisdk

import (
	"encoding/json"

	"github.com/holdfast-run/holdfast/session"
)

// call is a tool call that was told of.
type call struct {
	id, name  string
	raw       string // arguments that are no JSON object
	approval  string
	requested bool // the client was asked, in this stream or one before
	decided   bool // the approval
	available bool
	settled   bool
	files     []session.File // to be told when the step is over
}

type question struct{ id, call string }

// toolEvent tells what becomes of the calls.
func (p *Projector) toolEvent(e session.Event) error {
	switch d := e.Data.(type) {
	case session.ToolInputDelta:
		if d.Message == p.view.Message && p.answer.parts != nil {
			c := p.calling(d.Call, d.Name)
			if d.Text != "" {
				p.content(Chunk{Type: toolInputDelta, ToolCallID: c.id, InputTextDelta: d.Text})
			}
		}
	case session.ToolCalled:
		if d.Message == p.view.Message {
			return p.called(d)
		}
	case session.ToolProgress:
		if c := p.find(d.Call); c != nil && !c.settled && (p.view.Index || p.at > p.view.Until) {
			p.emit(Chunk{Type: dataProgress, ID: c.id, Transient: true, Data: marshal(d.Progress)})
		}
	case session.ToolCompleted:
		if c := p.find(d.Call); c != nil {
			p.settle(c, Chunk{Type: outputAvailable, Output: clean(d.Result)})
			c.files = d.Files
		}
	case session.ToolFailed:
		if c := p.find(d.Call); c != nil {
			p.settle(c, Chunk{Type: outputError, ErrorText: errorText(&d.Error)})
		}
	case session.ToolDenied:
		if c := p.find(d.Call); c != nil {
			p.deny(c, deniedText(d.Note))
		}
	case session.ToolCancelled:
		if c := p.find(d.Call); c != nil && c.approval != "" && !c.decided {
			p.deny(c, stoppedText(d.Reason))
		} else if c != nil {
			p.settle(c, Chunk{Type: outputError, ErrorText: stoppedText(d.Reason)})
		}
	case session.ApprovalRequested:
		if c := p.find(d.Approval.Call); c != nil && d.Approval.Message == p.view.Message {
			c.approval = d.Approval.ID
			p.asked = append(p.asked, &question{id: d.Approval.ID, call: c.id})
			p.tellApproval(c, session.StatusPending)
		}
	case session.ApprovalDecided:
		p.decided(d)
	case session.ApprovalExpired:
		p.unasked(d.ID, session.StatusExpired)
	case session.ApprovalVoided:
		p.unasked(d.ID, session.StatusVoided)
	}
	return nil
}

// tellFiles tells what the step's calls gave beside their results: when all have
// one, in the order of the calls, so that the history can do the same.
func (p *Projector) tellFiles() {
	for _, c := range p.calls {
		for _, f := range c.files {
			if url, ok := p.blobs.file(f); ok {
				p.emit(Chunk{Type: filePart, URL: url, MediaType: f.MediaType})
			}
		}
		c.files = nil
	}
}

func stoppedText(reason string) string {
	if reason == "" {
		return "stopped"
	}
	return "stopped: " + reason
}

func (p *Projector) find(id string) *call {
	for _, c := range p.calls {
		if c.id == id {
			return c
		}
	}
	return nil
}

// calling tells that a call is being written, once. A text may go on behind it,
// as with providers that write both at once; thoughts do not.
func (p *Projector) calling(id, name string) *call {
	c := p.find(id)
	if c == nil {
		if s := p.answer.open; s != nil && s.kind == string(session.PartReasoning) {
			p.silence()
		}
		c = &call{id: id, name: name}
		p.calls = append(p.calls, c)
		p.content(Chunk{Type: toolInputStart, ToolCallID: id, ToolName: name})
	}
	return c
}

func (p *Projector) called(d session.ToolCalled) error {
	p.silence()
	c := p.calling(d.Call, d.Name)
	c.name, p.toolsInStep = d.Name, true
	input := d.Arguments
	if input == nil && d.ArgumentsBlob != nil && p.blobs.Read != nil {
		raw, err := p.blobs.Read(*d.ArgumentsBlob)
		if err != nil {
			return err
		}
		input = raw
	}
	if input == nil && d.ArgumentsBlob == nil {
		c.raw = d.RawArguments // it was no call that could be made: how it failed follows
		return nil
	}
	p.available(c, input, d.Approval != "")
	return nil
}

// available tells a call's arguments. A call that this server makes without
// asking is marked as made by the provider: then no page tries to make it, and
// none sends it again by itself.
func (p *Projector) available(c *call, input json.RawMessage, approval bool) {
	c.available = true
	p.emit(Chunk{Type: toolInputAvailable, ToolCallID: c.id, ToolName: c.name, Input: clean(input), ProviderExecuted: !approval})
}

// settle tells how a call ended, once.
func (p *Projector) settle(c *call, end Chunk) {
	if c.settled {
		return
	}
	c.settled = true
	end.ToolCallID = c.id
	switch {
	case c.available:
		end.ProviderExecuted = c.approval == ""
	case end.Type == outputError && c.raw != "":
		end.Type, end.ToolName, end.Input = toolInputError, c.name, session.JSONString(c.raw)
	default: // it never was a call: no page may think that it is one to send again
		end.ProviderExecuted = true
	}
	p.emit(end)
}

// deny tells that a call was refused. The client knows the question: it was
// asked, or is now.
func (p *Projector) deny(c *call, text string) {
	if c.settled {
		return
	}
	if c.approval == "" || p.view.Profile == V5 {
		p.settle(c, Chunk{Type: outputError, ErrorText: text})
		return
	}
	if !c.requested {
		c.requested = true
		p.emit(Chunk{Type: approvalRequest, ApprovalID: c.approval, ToolCallID: c.id})
	}
	c.settled = true
	p.emit(Chunk{Type: outputDenied, ToolCallID: c.id})
}

func deniedText(note string) string {
	if note == "" {
		return "denied"
	}
	return "denied: " + note
}

// decided lets the stream go on that waited for this approval.
func (p *Projector) decided(d session.ApprovalDecided) {
	status := session.StatusDenied
	if d.Decision == session.Approve {
		status = session.StatusApproved
	}
	c := p.unasked(d.ID, status)
	if c == nil {
		return
	}
	c.decided = true
	if p.view.Profile == V7 {
		if !c.requested {
			c.requested = true
			p.emit(Chunk{Type: approvalRequest, ApprovalID: d.ID, ToolCallID: c.id})
		}
		approved := d.Decision == session.Approve
		p.emit(Chunk{Type: approvalResponse, ApprovalID: d.ID, Approved: &approved, Reason: d.Note})
	}
	if d.Arguments != nil {
		p.available(c, d.Arguments, true)
	}
}

// unasked closes a question and gives its call.
func (p *Projector) unasked(approval string, status session.ApprovalStatus) *call {
	for i, q := range p.asked {
		if q.id != approval {
			continue
		}
		p.asked = append(p.asked[:i:i], p.asked[i+1:]...)
		p.waiting = false
		if approval == p.view.Approval && !p.seen {
			p.seen = true
			p.start() // at once: a call may take long to say more
		}
		c := p.find(q.call)
		p.tellApproval(c, status)
		return c
	}
	return nil
}

// tellApproval tells a client without approvals of one.
func (p *Projector) tellApproval(c *call, status session.ApprovalStatus) {
	if p.view.Profile == V5 && c != nil {
		p.emit(Chunk{Type: dataApproval, ID: c.approval, Transient: true, Data: marshal(struct {
			ToolCallID string                 `json:"toolCallId"`
			ToolName   string                 `json:"toolName"`
			Status     session.ApprovalStatus `json:"status"`
		}{c.id, c.name, status})})
	}
}
