package simtest

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/session"
)

// try names one attempt at one model call.
type try struct {
	run           string
	step, attempt int
}

// spoken is what one attempt said, block by block: as its deltas have it, and once there is one, as its fact has it.
type spoken struct {
	blocks   map[int]*block
	turn     string // the model's turn that it is, as its words say; empty: it said none
	answered bool
}

// said is all the prose of an attempt.
func (s *spoken) said() string {
	var b strings.Builder
	for i := range 1000 {
		if part := s.blocks[i]; part != nil && part.kind == model.TextChunk {
			b.WriteString(part.text)
		}
	}
	return b.String()
}

// checkWords checks what a run said: each attempt says the words of one turn of
// the model, in order and from the first, once; facts say what the deltas said,
// or go on where those broke off; the final messages say what the last attempt of
// each step said, and nothing else.
func (w *world) checkWords(h *history, run string) {
	tries := map[try]*spoken{}
	var order []try
	at := func(e session.Event) *spoken {
		key := try{run, e.Step, e.Attempt}
		if tries[key] == nil {
			tries[key] = &spoken{blocks: map[int]*block{}}
			order = append(order, key)
		}
		return tries[key]
	}
	delta := func(e session.Event, part int, kind model.ChunkKind, text string) {
		s := at(e)
		if s.blocks[part] == nil {
			s.blocks[part] = &block{kind: kind}
		}
		s.blocks[part].text += text
	}
	for _, e := range h.of(run) {
		switch d := e.Data.(type) {
		case session.StepStarted:
			at(e)
		case session.TextDelta:
			delta(e, d.Part, model.TextChunk, d.Text)
		case session.ReasoningDelta:
			delta(e, d.Part, model.ReasoningChunk, d.Text)
		case session.ModelCompleted:
			at(e).answered = true
			w.checkKept(h, e, at(e), d.Parts)
		case session.AttemptFailed:
			w.checkKept(h, e, at(e), d.Parts)
		}
	}
	for _, key := range order {
		w.checkTurn(h, key, tries[key])
	}
	w.checkFinal(h, run, order, tries)
}

// checkKept checks that a fact keeps what was streamed, and takes what it says for what was said.
func (w *world) checkKept(h *history, e session.Event, s *spoken, parts []session.Part) {
	streamed := s.blocks
	s.blocks = map[int]*block{}
	for _, p := range parts {
		if p.Type != session.PartText && p.Type != session.PartReasoning {
			continue
		}
		if p.Blob != nil && h.deleted {
			s.blocks[p.Part] = streamed[p.Part]
			continue
		}
		said := &block{kind: model.TextChunk, text: p.Text}
		if p.Type == session.PartReasoning {
			said.kind = model.ReasoningChunk
		}
		if p.Blob != nil {
			said.text = w.blob(h, p.Blob.Hash)
		}
		s.blocks[p.Part] = said
	}
	for part, b := range streamed {
		if said := s.blocks[part]; b.text != "" && (said == nil || said.kind != b.kind || !strings.HasPrefix(said.text, b.text)) {
			w.find("%s of %s %d/%d keeps %+v as part %d, and its deltas say %+v (%d of %s)", e.Type(), e.Run, e.Step, e.Attempt, said, part, b, e.Seq, h.session)
		}
	}
}

// checkTurn checks the words of an attempt against the model's own memory.
func (w *world) checkTurn(h *history, key try, s *spoken) {
	for part := range 1000 {
		b := s.blocks[part]
		if b == nil || strings.TrimSpace(b.text) == "" {
			continue
		}
		name, _, _ := strings.Cut(b.text, ".")
		if s.turn == "" {
			s.turn = name
		}
		t := w.mind.recall(name)
		switch {
		case t == nil || name != s.turn:
			w.find("attempt %+v in %s says %q, in a turn that says %s", key, h.session, brief(b.text), s.turn)
			return
		case part >= len(t.blocks) || !strings.HasPrefix(t.blocks[part].text, b.text):
			w.find("attempt %+v in %s says %q, which %s did not say so", key, h.session, b.text, name)
			return
		case s.answered && (t.blocks[part].text != b.text || !t.done()):
			w.find("attempt %+v in %s says only %q of %s", key, h.session, b.text, name)
			return
		}
	}
	if s.turn == "" {
		return
	}
	if by := w.mind.claim(s.turn, key); by != key {
		w.find("the turn %s is told by the attempts %+v and %+v in %s", s.turn, key, by, h.session)
	}
}

// checkInherited checks that a retry that goes on begins with what the run before it had finished, and with nothing else.
func (w *world) checkInherited(h *history, state *session.State, r *session.Run) {
	for _, e := range h.of(r.ID) {
		d, ok := e.Data.(session.MessageCreated)
		if !ok || d.Message.Role != session.RoleAssistant {
			continue
		}
		var done session.Finished
		if old := state.Run(r.RetryOf); old != nil && r.FromStep > 0 {
			done = session.FinishedOf(old, state.Message(old.Message))
		}
		if done.Next != r.FromStep || len(done.Parts) != len(d.Message.Parts) {
			w.find("%s goes on from step %d with %d parts, and %s had finished %d before step %d (%d of %s)",
				r.ID, r.FromStep, len(d.Message.Parts), r.RetryOf, len(done.Parts), done.Next, e.Seq, h.session)
		}
		return // its later messages begin empty
	}
}

// checkFinal checks the messages that a run left.
func (w *world) checkFinal(h *history, run string, order []try, tries map[try]*spoken) {
	if h.deleted {
		return
	}
	state := session.Fold(h.session, h.list)
	r := state.Run(run)
	if r == nil || !r.Status.Terminal() {
		return
	}
	w.checkInherited(h, state, r)
	var got, want strings.Builder
	for _, m := range state.Messages {
		if m.Role != session.RoleAssistant || m.Run != run {
			continue
		}
		kept, err := w.store.Messages(context.Background(), h.session, []string{m.ID})
		if err != nil || len(kept) != 1 {
			continue // found by checkStore
		}
		for _, p := range kept[0].Parts {
			switch {
			case p.Type != session.PartText || p.Step < r.FromStep:
			case p.Blob != nil:
				got.WriteString(w.blob(h, p.Blob.Hash))
			default:
				got.WriteString(p.Text)
			}
		}
		if m.Status == session.MessageStreaming {
			w.find("the message %s of %s streams on, and its run %s is %s", m.ID, h.session, run, r.Status)
		}
	}
	for i, key := range order {
		if i == len(order)-1 || order[i+1].step != key.step {
			want.WriteString(tries[key].said())
		}
	}
	if got.String() != want.String() {
		w.find("%s in %s, %s, said %q in the end; its attempts say %q", run, h.session, r.Status, got.String(), want.String())
	}
}

// blob is a large value of a session that was not deleted.
func (w *world) blob(h *history, hash string) string {
	_, r, err := w.store.Blob(context.Background(), h.session, hash)
	if err != nil {
		w.find("the blob %s of %s: %v", hash, h.session, err)
		return ""
	}
	defer r.Close()
	raw, err := io.ReadAll(r)
	if err != nil {
		w.find("the blob %s of %s: %v", hash, h.session, err)
	}
	return string(raw)
}

// recall gives a turn by its name, or nil.
func (m *mind) recall(name string) *turn {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.turns[name]
}

// claim says which attempt told of a turn first.
func (m *mind) claim(name string, by try) try {
	m.mu.Lock()
	defer m.mu.Unlock()
	if first, ok := m.told[name]; ok {
		return first
	}
	m.told[name] = by
	return by
}

// toldBy are the turns that the attempts of a run told of.
func (m *mind) toldBy(run string) (turns []*turn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, by := range m.told {
		if by.run == run {
			turns = append(turns, m.turns[name])
		}
	}
	return turns
}

// deaf says whether the turn did not hear for a while that it should stop.
func (t *turn) deaf() bool { return slices.ContainsFunc(t.beats, func(b beat) bool { return b.deaf }) }

// closed is when the turn ended, or 0.
func (t *turn) closed() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

// done says whether the turn came to its end and was taken whole.
func (t *turn) done() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.finished
}
