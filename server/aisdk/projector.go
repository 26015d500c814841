package aisdk

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/holdfast-run/holdfast/session"
)

// End is how a stream ended.
type End string

// The ends.
const (
	Open End = ""
	// Finished streams are whole: they end with a finish chunk.
	Finished End = "finished"
	// Superseded streams have told what an attempt said that failed, and the next
	// one began: a client cannot take back what it was told, so its connection must
	// break, as for a lost server, and it comes again for what is said now.
	Superseded End = "superseded"
)

// Projector makes the chunks of one stream from the frames of the log, in their
// order, from the message's first on. It is for one goroutine.
type Projector struct {
	view  View
	blobs Blobs
	own   []byte // what the JSON of an event of the run contains

	at    int64   // the seq of the event that is being told
	out   []Chunk // to be given
	held  []Chunk // told once it is known that they stay
	mark  int     // the chunks of held before this attempt; -1: some of it was given
	count int     // chunks given or left out
	end   End

	begun   bool // the message was created
	started bool // the start chunk is out
	seen    bool // View.Approval was decided
	waiting bool // the run waits for a person
	ended   bool // the message did
	gone    bool // what the client has cannot be gone on with

	inStep, toolsInStep bool
	answer              answer
	calls               []*call
	asked               []*question // approvals that nobody decided
	finish              string      // the last answer's
}

// Blobs are the large values that the log only names.
type Blobs struct {
	// Read gives one. Nil: texts are told as their previews.
	Read func(session.Blob) ([]byte, error)
	// URL is where a page gets one. Nil: files that have no address of their own are left out.
	URL func(session.Blob) string
}

// file is where a page gets a file, if it can.
func (b Blobs) file(f session.File) (url string, ok bool) {
	if f.URL == "" && f.Blob != nil && b.URL != nil {
		return b.URL(*f.Blob), true
	}
	return f.URL, f.URL != ""
}

// NewProjector makes the projector of a view.
func NewProjector(v View, blobs Blobs) *Projector {
	return &Projector{
		view: v, blobs: blobs, seen: v.Approval == "",
		own: []byte(`"run":"` + v.Run + `"`),
	}
}

// End is how the stream ended, if it did. Then frames make no more chunks.
func (p *Projector) End() End { return p.end }

// Count is how many chunks there have been, those that were left out included.
func (p *Projector) Count() int { return p.count }

// Apply takes the next frame and gives the chunks that are due, which are the
// caller's until the next call.
func (p *Projector) Apply(f session.Frame) ([]Chunk, error) {
	p.out = p.out[:0]
	if p.end != Open {
		return nil, nil
	}
	p.at = f.To
	switch {
	case f.From != f.To || bytes.HasPrefix(f.JSON, []byte(`{"type":"folded"`)):
		if p.begun && p.count+len(p.held) < p.view.Skip {
			// The client counted deltas that are not in the log any more.
			p.giveUp("This answer is kept in fewer pieces by now: load the page again.")
			return p.out, nil
		}
	case bytes.Contains(f.JSON, p.own): // other runs' events are not even decoded
		e, ok, err := decode(f)
		if err != nil {
			return nil, fmt.Errorf("tell seq %d as chunks: %w", f.To, err)
		}
		if ok && e.Run == p.view.Run {
			if err := p.event(e); err != nil {
				return nil, err
			}
		}
	}
	if p.gone {
		return p.out, nil
	}
	if p.end == Open && p.waiting && p.at >= p.view.Until && p.seen {
		p.pause()
	}
	if p.at >= p.view.Until && !p.doomed() || p.answer.done || p.end != Open {
		p.release()
	}
	return p.out, nil
}

var textDeltaType, reasoningDeltaType = []byte(`"type":"` + session.TextDelta{}.Type() + `"`), []byte(`"type":"` + session.ReasoningDelta{}.Type() + `"`)

// decode gives the event of a frame. Deltas, which are nearly all, are read in
// one pass, and only as far as they are told.
func decode(f session.Frame) (session.Event, bool, error) {
	if !bytes.Contains(f.JSON, textDeltaType) && !bytes.Contains(f.JSON, reasoningDeltaType) {
		return f.Event()
	}
	var d struct {
		Type string
		Run  string
		Step int
		Data session.TextDelta // both kinds have its fields
	}
	if err := json.Unmarshal(f.JSON, &d); err != nil {
		return f.Event()
	}
	e := session.Event{Seq: f.To, Run: d.Run, Step: d.Step}
	switch d.Type {
	case session.TextDelta{}.Type():
		e.Data = d.Data
	case session.ReasoningDelta{}.Type():
		e.Data = session.ReasoningDelta(d.Data)
	default: // a text that speaks of deltas
		return f.Event()
	}
	return e, true, nil
}

// doomed says that what is held is of an attempt that failed: the next one
// replaces it, unless the run ends with it.
func (p *Projector) doomed() bool { return p.answer.failed && p.mark >= 0 && !p.ended }

// emit tells a chunk, behind the start chunk.
func (p *Projector) emit(c Chunk) {
	p.start()
	if last := len(p.held) - 1; !p.view.Index && last >= max(p.mark, 0) && c.Delta != "" && p.held[last].Type == c.Type && p.held[last].ID == c.ID {
		p.held[last].Delta += c.Delta
		return
	}
	p.held = append(p.held, c)
}

// start tells the start chunk, once.
func (p *Projector) start() {
	if !p.started {
		p.started = true
		p.held = append(p.held, Chunk{Type: start, MessageID: p.view.Message, MessageMetadata: p.metadata(session.Running)})
	}
}

// content tells a chunk that shows something: it is part of a step.
func (p *Projector) content(c Chunk) {
	if !p.inStep {
		p.inStep, p.toolsInStep = true, false
		p.emit(Chunk{Type: startStep})
	}
	p.answer.shown = true
	p.emit(c)
}

// release gives what is held, if it is settled that it stays.
func (p *Projector) release() {
	if !p.seen {
		return
	}
	for _, c := range p.held {
		if p.count++; p.count > p.view.Skip {
			p.out = append(p.out, c)
		}
	}
	p.held, p.mark = p.held[:0], -1
	switch {
	case p.end == Superseded && p.view.Skip > 0: // it comes again and again
		p.giveUp(begunAnew)
	case p.end == Finished && p.count <= p.view.Skip:
		p.out = append(p.out, p.finishing("other", nil)) // the client has all, but for the knowledge that it has
	}
}

const begunAnew = "This answer was begun anew after a lost connection: load the page again."

// giveUp ends a stream that cannot go on where the client is.
func (p *Projector) giveUp(text string) {
	p.out = append(p.out, Chunk{Type: failure, ErrorText: text}, p.finishing("error", nil))
	p.held, p.end, p.gone = nil, Finished, true
}

func (p *Projector) metadata(status session.Status) *Metadata {
	return &Metadata{RunID: p.view.Run, Status: status}
}

func (p *Projector) finishing(reason string, m *Metadata) Chunk {
	return Chunk{Type: finish, FinishReason: reason, MessageMetadata: m}
}

// event tells what an event of the run means.
func (p *Projector) event(e session.Event) error {
	switch d := e.Data.(type) {
	case session.MessageCreated:
		return p.created(d.Message)
	case session.RunCompleted:
		p.conclude(finishReasons[p.finish], &Metadata{RunID: p.view.Run, Status: session.Completed, Usage: usageOf(d.Usage)})
		return nil
	case session.RunFailed:
		cause := d.Error
		p.conclude("error", &Metadata{RunID: p.view.Run, Status: session.Failed, Usage: usageOf(d.Usage), Error: &cause})
		return nil
	case session.RunCancelled:
		p.conclude("other", &Metadata{RunID: p.view.Run, Status: session.Cancelled, Usage: usageOf(d.Usage)})
		return nil
	}
	if !p.begun || p.ended {
		return nil
	}
	switch d := e.Data.(type) {
	case session.MessageCompleted:
		if d.Message == p.view.Message {
			return p.messageEnds(d.Parts, false)
		}
	case session.MessageInterrupted:
		if d.Message == p.view.Message {
			return p.messageEnds(d.Parts, true)
		}
	case session.StepStarted:
		if d.Message == p.view.Message {
			p.stepStarted(e)
		}
	case session.AttemptFailed:
		if d.Message == p.view.Message {
			return p.attemptFailed(d)
		}
	case session.RunReconciled:
		p.answer.failed = true // attempt.failed is about to follow
	case session.TextDelta:
		p.spoken(d.Message, d.Part, "text", d.Text)
	case session.ReasoningDelta:
		p.spoken(d.Message, d.Part, "reasoning", d.Text)
	case session.ModelCompleted:
		if d.Message == p.view.Message {
			return p.answered(d)
		}
	case session.StepCompleted:
		p.tellFiles()
		p.finishStep()
	case session.RunWaiting:
		p.waiting = len(p.asked) > 0 && p.view.Profile != V5 &&
			(d.Reason == session.WaitApproval || d.Reason == session.WaitToolOutcome)
		if p.waiting {
			p.waits()
		}
	case session.RunResumed:
		p.waiting = false
	default:
		return p.toolEvent(e)
	}
	return nil
}

// created begins the message, or ends it if the run goes on in another one.
func (p *Projector) created(m session.Message) error {
	switch {
	case m.ID == p.view.Message && !p.begun:
		p.begun = true
		if p.view.Approval == "" {
			p.start()
		}
		return p.inherited(m.Parts)
	case m.Role == session.RoleAssistant && p.ended:
		p.conclude(finishReasons[p.finish], p.metadata(session.Completed))
	}
	return nil
}
