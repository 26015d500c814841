package simtest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/model"
)

// mind is a model that says things by chance. What it says to a request hangs
// on the request: each word carries the name of the turn it belongs to, so that
// whoever mixes turns, repeats or loses a word is found out.
type mind struct {
	world *world

	mu    sync.Mutex // guards what follows
	asked map[string]int
	turns map[string]*turn
	told  map[string]try // the attempt that a turn was told by, for the checks
}

// turn is one answer.
type turn struct {
	name  string // of what it answers, how far the conversation was, and how often that was asked
	beats []beat
	// blocks are the whole texts of the blocks, as far as they will be said.
	blocks []block

	began time.Duration

	mu       sync.Mutex // guards what follows
	finished bool       // its finish reason was taken
	ended    time.Duration
}

type block struct {
	kind model.ChunkKind
	text string
}

// beat is one thing that happens in a turn, after a wait.
type beat struct {
	wait  time.Duration
	deaf  bool        // the wait does not end with the call
	chunk model.Chunk // nothing is said if it has no kind
	err   error       // ends the turn, if it is set
}

func newMind(w *world) *mind {
	return &mind{world: w, asked: map[string]int{}, turns: map[string]*turn{}, told: map[string]try{}}
}

// Stream implements [model.Model].
func (m *mind) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		m.world.acts.Add(1)
		defer m.world.acts.Done()
		t := m.turn(req)
		m.world.story.note("model", "is asked for %s", t.name)
		end := m.play(ctx, t, yield)
		t.mu.Lock()
		t.ended = m.world.since()
		t.mu.Unlock()
		m.world.story.note("model", "%s: %s", t.name, end)
	}
}

func (m *mind) play(ctx context.Context, t *turn, yield func(model.Chunk, error) bool) string {
	for _, b := range t.beats {
		if b.deaf {
			time.Sleep(b.wait)
		} else if err := pause(ctx, b.wait); err != nil {
			yield(model.Chunk{}, err)
			return "is stopped"
		}
		switch {
		case b.err != nil:
			yield(model.Chunk{}, b.err)
			return "fails: " + b.err.Error()
		case b.chunk.Kind == "":
		case b.chunk.Finish != nil:
			t.mu.Lock()
			t.finished = true
			t.mu.Unlock()
			yield(b.chunk, nil)
			return "has finished: " + string(b.chunk.Finish.Reason)
		case !yield(b.chunk, nil):
			return "is left"
		}
	}
	return "is cut"
}

// pause waits, at most until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stopped: %w", context.Cause(ctx))
	}
}

// turn makes the answer to a request.
func (m *mind) turn(req model.Request) *turn {
	if err := wellFormed(req); err != nil {
		m.world.find("the model is sent what a strict provider refuses: %v", err)
	}
	about := "?"
	for _, msg := range req.Messages {
		if msg.Role != model.User || len(msg.Parts) == 0 {
			continue
		}
		switch text := msg.Parts[0].Text; {
		case strings.HasPrefix(text, "[Earlier messages of this conversation"):
		case strings.HasPrefix(text, "[This is an instruction of the program"):
			about = "summary"
		case strings.Contains(text, "a background run ("):
		default:
			about = m.world.people.heard(text)
		}
	}
	key := fmt.Sprintf("%s/%d", about, len(req.Messages))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked[key]++
	t := &turn{name: fmt.Sprintf("%s/%d", key, m.asked[key]), began: m.world.since()}
	m.turns[t.name] = t
	t.compose(roll(m.world.plan.seed, "turn", t.name), m.world.plan.temper, len(req.Tools) > 0)
	return t
}

// compose decides what the turn says.
func (t *turn) compose(d dice, temper temper, tools bool) {
	t.wait(d, temper)
	fails := d.chance(temper.fails)
	if fails && d.chance(0.5) {
		t.fail(d)
		return
	}
	reason := model.Stop
	if d.chance(0.25) {
		t.say(d, temper, model.ReasoningChunk)
	}
	if d.chance(0.8) {
		t.say(d, temper, model.TextChunk)
	}
	if odd := d.chance(temper.odd); odd {
		t.oddity(d)
	}
	if fails {
		t.fail(d)
		return
	}
	if tools && d.chance(temper.calls) {
		reason = model.ToolCalls
		for range 1 + d.upTo(2) {
			t.call(d, temper)
		}
		if d.chance(0.1) {
			t.say(d, temper, model.TextChunk)
		}
	}
	if d.chance(temper.odd / 3) {
		reason = pick(d, model.Length, model.ContentFilter, model.ToolCalls, model.Stop)
	}
	t.beats = append(t.beats, beat{wait: d.span(0, 50*time.Millisecond), chunk: model.Chunk{
		Kind: model.FinishChunk, Finish: &model.Finish{Reason: reason, Usage: model.Usage{InputTokens: 10, OutputTokens: len(t.beats)}},
	}})
}

// wait is the time before the first word.
func (t *turn) wait(d dice, temper temper) {
	b := beat{wait: d.span(time.Millisecond, 500*time.Millisecond)}
	if d.chance(temper.slow) {
		b.wait = d.span(time.Second, 20*time.Second)
	}
	b.deaf = d.chance(temper.deaf)
	t.beats = append(t.beats, b)
}

// word adds a piece of text to the last block, or begins one.
func (t *turn) word(d dice, kind model.ChunkKind, c model.Chunk) {
	last := len(t.blocks) - 1
	if last < 0 || t.blocks[last].kind != kind || kind == model.CallChunk && c.Text == "" {
		t.blocks = append(t.blocks, block{kind: kind})
		last++
	}
	t.blocks[last].text += c.Text
	c.Kind, c.Block = kind, last
	b := beat{wait: d.span(0, 60*time.Millisecond), chunk: c}
	if d.chance(0.3) {
		b.wait = 0
	}
	t.beats = append(t.beats, b)
}

func (t *turn) say(d dice, temper temper, kind model.ChunkKind) {
	t.blocks = append(t.blocks, block{kind: kind})
	for n := range 1 + d.upTo(6) {
		text := fmt.Sprintf("%s.%d.%d ", t.name, len(t.blocks)-1, n)
		if d.chance(temper.odd / 4) {
			text += pick(d, "\x00 ", "\u00e9\U0001F600 ", "<&> \"quoted\" \\ ", "\n\n ", "a\u2028b ")
		}
		if d.chance(temper.large) {
			text += strings.Repeat("long ", d.IntN(70_000))
		}
		t.word(d, kind, model.Chunk{Text: text})
		if d.chance(temper.slow / 3) {
			t.beats[len(t.beats)-1].wait = d.span(100*time.Millisecond, 5*time.Second)
			t.beats[len(t.beats)-1].deaf = d.chance(temper.deaf)
		}
	}
	if kind == model.ReasoningChunk && d.chance(0.5) {
		t.word(d, kind, model.Chunk{Signature: "signed by " + t.name})
	}
}

// call asks for a tool, sometimes for one that is not there or not as it must be.
func (t *turn) call(d dice, temper temper) {
	name := pick(d, "look", "look", "put", "put", "pay", "pay", "pay", "ask", "ask", "wipe")
	args := fmt.Sprintf(`{"turn":%q,"n":%d}`, t.name, len(t.blocks))
	if d.chance(temper.large) {
		args = fmt.Sprintf(`{"turn":%q,"n":%d,"pad":%q}`, t.name, len(t.blocks), strings.Repeat("x", 1+d.IntN(200_000)))
	}
	if d.chance(temper.odd / 2) {
		name = pick(d, name, name, "nothing")
		args = pick(d, args, args[:len(args)-1], "", "null", "[1]", `{"n":"one"}`, args+"}", `{"turn":"x","turn":"y","n":1}`)
	}
	c := model.Chunk{Call: pick(d, "c1", "c2"), Name: name} // providers' ids repeat
	t.word(d, model.CallChunk, c)
	for args != "" {
		n := 1 + d.IntN(len(args))
		c.Text, args = args[:n], args[n:]
		t.word(d, model.CallChunk, c)
	}
}

// oddity is something that real models do, too.
func (t *turn) oddity(d dice) {
	switch d.IntN(3) {
	case 0:
		t.word(d, model.TextChunk, model.Chunk{Text: "  \n"})
	case 1:
		t.word(d, model.ReasoningChunk, model.Chunk{Text: " "})
	case 2:
		t.word(d, model.TextChunk, model.Chunk{Text: ""})
	}
}

// fail ends the turn without an answer.
func (t *turn) fail(d dice) {
	b := beat{wait: d.span(0, time.Second)}
	after := pick(d, 0, 0, 100*time.Millisecond, 1500*time.Millisecond, 2500*time.Millisecond, 12*time.Second)
	switch d.IntN(9) {
	case 0:
		return // the stream ends and says nothing
	case 1, 2:
		b.err = &model.Error{Code: model.CodeRateLimited, Status: 429, Retryable: true, RetryAfter: after}
	case 3, 4:
		b.err = &model.Error{Code: model.CodeOverloaded, Status: 529, Retryable: true, RetryAfter: after}
	case 5:
		b.wait, b.err = 10*time.Second, &model.Error{Code: model.CodeStalled, Retryable: true}
	case 6:
		b.err = errors.New("a connection was reset")
	case 7:
		b.err = &model.Error{Code: model.CodeRateLimited, Status: 429, Retryable: true, RetryAfter: 2 * time.Hour}
	case 8:
		b.err = &model.Error{Code: pick(d, model.CodeInvalidRequest, model.CodeUnauthorized, model.CodeContextTooLong), Status: 400}
	}
	t.beats = append(t.beats, b)
}
