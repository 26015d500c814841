package aisdk

import "github.com/holdfast-run/holdfast/session"

// waits is where the run waits for a person.
func (p *Projector) waits() {
	switch {
	case !p.seen: // the client has all this from the stream before
		p.silence()
		p.held, p.mark, p.started, p.inStep = p.held[:0], 0, false, false
		for _, q := range p.asked {
			p.find(q.call).requested = true
		}
	case p.view.Approval != "" || p.at >= p.view.Until:
		p.pause()
	default: // it may be over by then
		p.finishStep()
	}
}

// pause ends the answer for now, with the questions that are open.
func (p *Projector) pause() {
	p.silence()
	for _, q := range p.asked {
		c := p.find(q.call)
		c.requested = true
		p.emit(Chunk{Type: approvalRequest, ApprovalID: q.id, ToolCallID: q.call})
	}
	p.finishStep()
	p.emit(p.finishing("tool-calls", p.metadata(session.Waiting)))
	p.end = Finished
}

// messageEnds closes what is open. How the run ends is told by the next event.
func (p *Projector) messageEnds(streamed []session.Part, cut bool) error {
	if p.answer.shown && !p.answer.done && !cut && len(streamed) == 0 {
		p.supersede() // a steer came between two attempts: what the first said is not in the message
		if p.end != Open {
			return nil
		}
	}
	for _, part := range streamed {
		if part.Step != p.answer.step {
			continue
		}
		if p.answer.parts == nil {
			p.answer.parts = map[int]*spoken{}
		}
		if err := p.whole(part); err != nil {
			return err
		}
	}
	p.silence()
	for _, c := range p.calls {
		if !c.settled { // the model never finished writing it
			p.settle(c, Chunk{Type: outputError, ErrorText: "This call was cut off."})
		}
	}
	p.tellFiles()
	p.ended, p.waiting = true, false
	return nil
}

// conclude is the end of the run, or of its part in this message.
func (p *Projector) conclude(reason string, m *Metadata) {
	if !p.begun { // cancelled in the queue: there is no message, and there must be none on the page
		p.started = true
		if m.Status == session.Failed {
			p.emit(Chunk{Type: failure, ErrorText: errorText(m.Error)})
		} else {
			p.emit(Chunk{Type: abort})
		}
		p.emit(p.finishing(reason, nil))
		p.end, p.seen = Finished, true
		return
	}
	p.finishStep()
	if p.toolsInStep {
		// A step of calls that all have results looks to a client with
		// sendAutomaticallyWhen like one that it has to send again.
		p.emit(Chunk{Type: startStep})
		p.emit(Chunk{Type: finishStep})
	}
	switch m.Status {
	case session.Cancelled:
		c := Chunk{Type: abort}
		if p.view.Profile == V7 {
			c.Reason = "cancelled"
		}
		p.emit(c)
	case session.Failed:
		p.emit(Chunk{Type: messageMetadata, MessageMetadata: m})
		p.emit(Chunk{Type: failure, ErrorText: errorText(m.Error)})
	}
	p.emit(p.finishing(reason, m))
	p.end, p.seen = Finished, true
}

// errorText says what is wrong, and never nothing.
func errorText(f *session.Failure) string {
	switch {
	case f == nil:
		return "It failed."
	case f.Message != "":
		return f.Message
	}
	return f.Code
}

// finishReasons are the six that every release knows.
var finishReasons = map[string]string{
	"": "other", "stop": "stop", "length": "length", "tool_calls": "tool-calls", "content_filter": "content-filter",
}
