package aisdk

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

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
	view View
	// Blob reads a large value that an event only names. Nil: none is read.
	blob func(session.Blob) ([]byte, error)
	own  []byte // what the JSON of an event of the run contains

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

// answer is what the current attempt has said.
type answer struct {
	step   int
	parts  map[int]*spoken
	open   *spoken // at most one part is open
	done   bool    // model.completed: it stays
	failed bool
	shown  bool // something of it was told
}

// spoken is a text or reasoning part.
type spoken struct {
	id, kind string
	length   int // bytes told
}

// call is a tool call that was told of.
type call struct {
	id, name  string
	raw       string // arguments that are no JSON object
	approval  string
	requested bool // the client was asked, in this stream or one before
	decided   bool // the approval
	available bool
	settled   bool
}

type question struct{ id, call string }

// NewProjector makes the projector of a view. blob reads large values; nil: they
// are told as their previews.
func NewProjector(v View, blob func(session.Blob) ([]byte, error)) *Projector {
	return &Projector{
		view: v, blob: blob, seen: v.Approval == "",
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
		p.created(d.Message)
		return nil
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
			return p.messageEnds(e, d.Parts, false)
		}
	case session.MessageInterrupted:
		if d.Message == p.view.Message {
			return p.messageEnds(e, d.Parts, true)
		}
	case session.StepStarted:
		if d.Message == p.view.Message {
			p.stepStarted(e)
		}
	case session.AttemptFailed:
		if d.Message == p.view.Message {
			return p.attemptFailed(d)
		}
	case session.TextDelta:
		p.spoken(d.Message, d.Part, "text", d.Text)
	case session.ReasoningDelta:
		p.spoken(d.Message, d.Part, "reasoning", d.Text)
	case session.ModelCompleted:
		if d.Message == p.view.Message {
			return p.answered(d)
		}
	case session.StepCompleted:
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
func (p *Projector) created(m session.Message) {
	switch {
	case m.ID == p.view.Message && !p.begun:
		p.begun = true
		if p.view.Approval == "" {
			p.start()
		}
	case m.Role == session.RoleAssistant && p.ended:
		p.conclude(finishReasons[p.finish], p.metadata(session.Completed))
	}
}

func (p *Projector) stepStarted(e session.Event) {
	if p.answer.shown && !p.answer.done && p.answer.step == e.Step {
		p.supersede()
	}
	p.answer = answer{step: e.Step, parts: map[int]*spoken{}}
	if p.view.Until > p.at || !p.seen {
		p.mark = len(p.held)
	} else {
		p.mark = -1
	}
}

// supersede takes back what the attempt said that the next one replaces, if
// nobody was told.
func (p *Projector) supersede() {
	p.calls = withoutUnfinished(p.calls)
	switch {
	case p.mark >= 0 && p.mark <= len(p.held) && p.view.Unsure && p.count+p.mark < p.view.Skip:
		p.giveUp(begunAnew)
	case p.mark >= 0 && p.mark <= len(p.held):
		p.held = p.held[:p.mark]
		p.inStep = false
	case p.view.Profile == V7:
		p.silence()
		p.emit(Chunk{Type: resetStep})
	default:
		p.end = Superseded
	}
}

func withoutUnfinished(calls []*call) []*call {
	var kept []*call
	for _, c := range calls {
		if c.available || c.settled {
			kept = append(kept, c)
		}
	}
	return kept
}

// spoken tells text or reasoning as it streams.
func (p *Projector) spoken(message string, part int, kind, text string) {
	if message != p.view.Message || text == "" || p.answer.parts == nil {
		return
	}
	s := p.answer.parts[part]
	if s == nil || s != p.answer.open {
		s = p.begin(part, kind)
	}
	s.length += len(text)
	p.content(Chunk{Type: kind + "-delta", ID: s.id, Delta: text})
}

// begin opens a part, and so closes the one that is open.
func (p *Projector) begin(part int, kind string) *spoken {
	p.silence()
	id := "s" + strconv.Itoa(p.answer.step) + "p" + strconv.Itoa(part)
	length := 0
	if again := p.answer.parts[part]; again != nil {
		// A provider that goes back to a part it had left: the client cannot.
		id, length = again.id+"b", again.length
	}
	s := &spoken{id: id, kind: kind, length: length}
	p.answer.parts[part], p.answer.open = s, s
	p.content(Chunk{Type: kind + "-start", ID: id})
	return s
}

// silence closes the part that is open.
func (p *Projector) silence() {
	if s := p.answer.open; s != nil {
		p.emit(Chunk{Type: s.kind + "-end", ID: s.id})
		p.answer.open = nil
	}
}

func (p *Projector) finishStep() {
	p.silence()
	if p.inStep {
		p.emit(Chunk{Type: finishStep})
		p.inStep = false
	}
}

// answered makes what was told the whole answer: deltas may be gone from the log.
func (p *Projector) answered(d session.ModelCompleted) error {
	p.finish = d.Finish
	if p.answer.parts == nil { // its step.started is before the message, as after a steer
		p.answer.parts = map[int]*spoken{}
	}
	if p.contradicts(d.Parts) {
		if p.supersede(); p.end != Open {
			return nil
		}
		p.answer = answer{step: p.answer.step, parts: map[int]*spoken{}}
	}
	for i, part := range d.Parts {
		part.Step, part.Part = p.answer.step, i
		if err := p.whole(part); err != nil {
			return err
		}
	}
	p.silence()
	p.answer.done = true
	return nil
}

// contradicts says that something was told which is not in the answer. No engine
// of ours does that, but the answer is what stays.
func (p *Projector) contradicts(parts []session.Part) bool {
	for i, s := range p.answer.parts {
		if i >= len(parts) || string(parts[i].Type) != s.kind {
			return true
		}
		length := len(parts[i].Text)
		if b := parts[i].Blob; b != nil {
			length = int(b.Size)
		}
		if length < s.length {
			return true
		}
	}
	return false
}

// whole tells what was not told yet of a part.
func (p *Projector) whole(part session.Part) error {
	switch part.Type {
	case session.PartText, session.PartReasoning:
		text, err := p.textOf(part)
		if err != nil {
			return err
		}
		told := 0
		s := p.answer.parts[part.Part]
		if s != nil {
			told = s.length
		}
		if told >= len(text) {
			return nil
		}
		if s == nil || s != p.answer.open {
			s = p.begin(part.Part, string(part.Type))
		}
		s.length = len(text)
		p.content(Chunk{Type: s.kind + "-delta", ID: s.id, Delta: text[told:]})
	case session.PartFile, session.PartSource, session.PartData:
		p.silence()
		if c, ok := partChunk(part); ok {
			p.content(c)
		}
	case session.PartTool:
		if part.Tool != nil {
			p.calling(part.Tool.ID, part.Tool.Name)
		}
	}
	return nil
}

func (p *Projector) textOf(part session.Part) (string, error) {
	if part.Blob == nil || p.blob == nil {
		return part.Text, nil
	}
	raw, err := p.blob(*part.Blob)
	return string(raw), err
}

func (p *Projector) attemptFailed(d session.AttemptFailed) error {
	for _, part := range d.Parts {
		if err := p.whole(part); err != nil {
			return err
		}
	}
	p.silence()
	p.answer.failed = true
	return nil
}

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
func (p *Projector) messageEnds(e session.Event, streamed []session.Part, cut bool) error {
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

// partChunk is a part that is neither text nor a call, as a chunk.
func partChunk(part session.Part) (Chunk, bool) {
	id := "s" + strconv.Itoa(part.Step) + "p" + strconv.Itoa(part.Part)
	switch part.Type {
	case session.PartFile:
		if f := part.File; f != nil && f.URL != "" {
			return Chunk{Type: filePart, URL: f.URL, MediaType: f.MediaType}, true
		}
	case session.PartSource:
		var source struct{ URL, Title string }
		if json.Unmarshal(part.Data, &source) == nil && source.URL != "" {
			return Chunk{Type: sourceURL, SourceID: id, URL: source.URL, Title: source.Title}, true
		}
	case session.PartData:
		return Chunk{Type: dataPart, ID: id, Data: clean(part.Data)}, true
	}
	return Chunk{}, false
}
