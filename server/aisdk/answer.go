package aisdk

import (
	"encoding/json"
	"strconv"

	"github.com/holdfast-run/holdfast/session"
)

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
		if c, ok := partChunk(part, p.blobs); ok {
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
	if part.Blob == nil || p.blobs.Read == nil {
		return part.Text, nil
	}
	raw, err := p.blobs.Read(*part.Blob)
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

// partChunk is a part that is neither text nor a call, as a chunk.
func partChunk(part session.Part, blobs Blobs) (Chunk, bool) {
	id := "s" + strconv.Itoa(part.Step) + "p" + strconv.Itoa(part.Part)
	switch part.Type {
	case session.PartFile:
		if part.File == nil {
			break
		}
		if url, ok := blobs.file(*part.File); ok {
			return Chunk{Type: filePart, URL: url, MediaType: part.File.MediaType}, true
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
