package agent

import (
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/session"
)

// shape says how a composition is told: pieces before from are not, but for the
// question that is being answered; those before short are told shortened.
type shape struct {
	from, short int
	// tight bounds further what is told, of results and arguments and then of texts, in bytes. 0: it does not.
	tightOutput, tightText int
	// left says that more is left out than the compaction in force says.
	left bool
}

// keepWhole is how many of the newest steps are told whole while there is room.
const keepWhole = 3

// question is the range of pieces before from that are told all the same: what a person
// said that the first step told goes on answering.
func (c *composition) question(from int) (first, end int) {
	if from == 0 || from >= len(c.pieces) || c.pieces[from].user != nil {
		return from, from
	}
	end = from
	for end > 0 && c.pieces[end-1].user == nil {
		end--
	}
	for first = end; first > 0 && c.pieces[first-1].user != nil; first-- {
	}
	return first, end
}

// head stands for what is not told.
func (c *composition) head(s shape) model.Message {
	text := "[Earlier messages of this conversation are not shown any more: they did not fit.]"
	if c.summary != "" {
		text = "[Earlier messages of this conversation are not shown any more. This is a summary of them:]\n\n" + c.summary
		if c.partly || s.left {
			text += "\n\n[Of what followed, some messages are not shown either: they did not fit.]"
		}
	}
	return model.Message{Role: model.User, Parts: []model.Part{{Kind: model.TextPart, Text: cut(text, s.tightText)}}}
}

// count estimates the whole of a shape that is not tight.
func (c *composition) count(s shape) int {
	n := c.fixed
	if s.from > 0 {
		n += countMessage(c.head(s))
	}
	first, end := c.question(s.from)
	for i := first; i < len(c.pieces); i++ {
		switch {
		case i >= end && i < s.from:
		case i < s.short:
			n += c.short(i).counted
		default:
			n += c.pieces[i].whole.counted
		}
	}
	return n
}

// seen tells the composition in a shape.
func (c *composition) seen(s shape) Seen {
	out := Seen{Request: c.request, Fixed: c.fixed, Counted: c.fixed}
	add := func(mark session.Mark, f form, whole int) {
		out.Counted += f.counted
		out.Told = append(out.Told, Told{Mark: mark, Messages: f.messages, Counts: f.counts, Shortened: f.counted < whole})
		out.Request.Messages = append(out.Request.Messages, f.messages...)
	}
	if s.from > 0 {
		add(session.Mark{}, formOf([]model.Message{c.head(s)}), 0)
	}
	first, end := c.question(s.from)
	for i := first; i < len(c.pieces); i++ {
		if i < end || i >= s.from {
			add(c.pieces[i].mark, c.form(i, s), c.pieces[i].whole.counted)
		}
	}
	return out
}

// form is how piece i is told in a shape.
func (c *composition) form(i int, s shape) form {
	p, old := &c.pieces[i], i < s.short
	switch {
	case s.tightOutput == 0 && old:
		return c.short(i)
	case s.tightOutput == 0:
		return p.whole
	}
	t := c.telling
	t.output, t.arguments, t.text = least(t.output, s.tightOutput), s.tightOutput, s.tightText
	if old {
		t = t.shortened()
	}
	if told := p.told(t); len(told) > 0 {
		return formOf(told)
	}
	return p.whole
}

// fit makes a shape no larger than room: see plan. What one piece alone makes too
// large is tightened, results and arguments first, then texts.
func (c *composition) fit(s shape, room int) shape {
	if room <= 0 || c.count(s) <= room {
		return s
	}
	planned := c.plan(s, room)
	if planned.from > s.from {
		planned.left = true
	}
	s = planned
	if c.count(s) <= room {
		return s
	}
	for s.tightOutput = 32 << 10; s.tightOutput >= 256; s.tightOutput /= 2 {
		if c.seen(s).Counted <= room {
			return s
		}
	}
	s.tightOutput = 128
	for s.tightText = 128 << 10; s.tightText > 64; s.tightText /= 2 {
		if c.seen(s).Counted <= room {
			return s
		}
	}
	return s
}

// plan is how to tell the composition in at most target tokens, going on from a
// shape and losing as little as it can: first the steps before the newest are shortened,
// then whole turns are left out, then, of the last turn, older steps. It may
// come out larger than target: the newest piece is always told.
func (c *composition) plan(s shape, target int) shape {
	n := len(c.pieces)
	if n == 0 {
		return s
	}
	s.short = max(s.short, c.newest(keepWhole))
	if c.count(s) <= target {
		return s
	}
	last := 0
	for i := s.from + 1; i < n; i++ {
		if c.pieces[i].user == nil || c.pieces[i-1].user != nil {
			continue
		}
		last = i
		s.from = i
		if c.count(s) <= target {
			return s
		}
	}
	s.short = max(s.short, c.newest(1))
	if c.count(s) <= target {
		return s
	}
	for i := max(s.from, last) + 1; i < n; i++ {
		if c.pieces[i].user != nil {
			continue
		}
		s.from = i
		if c.count(s) <= target {
			return s
		}
	}
	return s
}

// newest is where the newest k steps begin.
func (c *composition) newest(k int) int {
	for i := len(c.pieces) - 1; i >= 0; i-- {
		if c.pieces[i].user == nil {
			if k--; k == 0 {
				return i
			}
		}
	}
	return 0
}

// mark is the place before piece i, nil at the beginning.
func (c *composition) mark(i int) *session.Mark {
	if i <= 0 {
		return nil
	}
	m := c.pieces[i-1].mark
	return &m
}
