package modeltest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/model"
)

// Script is a model in memory that plays prepared turns, one for each call, in
// order, and keeps the requests it received. It is its own [model.Provider].
// All methods may be called concurrently; it works inside a synctest bubble.
//
//	m := modeltest.NewScript(
//		modeltest.Reply(modeltest.Text("Let me ", "see."), modeltest.Call("c1", "clock", `{}`)),
//		modeltest.Reply(modeltest.Fail(&model.Error{Code: model.CodeOverloaded, Retryable: true})),
//		modeltest.Reply(modeltest.Text("It is noon.")),
//	)
type Script struct {
	mu        sync.Mutex // guards what follows
	turns     []Turn
	otherwise func(model.Request) Turn
	requests  []model.Request
	open      int
	changed   chan struct{} // closed at the next change, then replaced
}

// NewScript gives a model that plays these turns.
func NewScript(turns ...Turn) *Script {
	return &Script{turns: turns, changed: make(chan struct{})}
}

// Turn is what the model does with one request. A turn that neither finishes nor
// fails is finished after its last step: with [model.ToolCalls] if there was a
// call, else with [model.Stop].
type Turn []Step

// Reply is a turn of these steps.
func Reply(steps ...Step) Turn { return steps }

// Step is one thing that the model does.
type Step func(*play) error

// Text streams each piece as one chunk of prose.
func Text(pieces ...string) Step { return say(model.TextChunk, pieces) }

// Reasoning streams each piece as one chunk of reasoning.
func Reasoning(pieces ...string) Step { return say(model.ReasoningChunk, pieces) }

func say(kind model.ChunkKind, pieces []string) Step {
	return func(p *play) error {
		for _, piece := range pieces {
			if p.prose != kind {
				p.prose, p.block = kind, p.begin()
			}
			if err := p.send(model.Chunk{Kind: kind, Block: p.block, Text: piece}); err != nil {
				return err
			}
		}
		return nil
	}
}

// Call streams a tool call: its name, then each fragment of its arguments.
func Call(id, name string, fragments ...string) Step {
	return func(p *play) error {
		c := model.Chunk{Kind: model.CallChunk, Block: p.begin(), Call: id, Name: name}
		p.prose, p.called = "", true
		if err := p.send(c); err != nil {
			return err
		}
		for _, c.Text = range fragments {
			if err := p.send(c); err != nil {
				return err
			}
		}
		return nil
	}
}

// Send streams a chunk as it is. Its block is the script's own affair.
func Send(c model.Chunk) Step {
	return func(p *play) error {
		p.finished = p.finished || c.Finish != nil
		return p.send(c)
	}
}

// Finish ends the answer.
func Finish(reason model.FinishReason, usage model.Usage) Step {
	return Send(model.Chunk{Kind: model.FinishChunk, Finish: &model.Finish{Reason: reason, Usage: usage}})
}

// Fail ends the answer with an error.
func Fail(err error) Step { return func(*play) error { return err } }

// Wait holds the answer until gate is closed or gives a value.
func Wait(gate <-chan struct{}) Step {
	return func(p *play) error {
		select {
		case <-gate:
			return nil
		case <-p.ctx.Done():
			return stopped(p.ctx)
		}
	}
}

// Stall says nothing more until the call's context ends.
func Stall() Step { return Wait(nil) }

// Pause waits by the clock.
func Pause(d time.Duration) Step {
	return func(p *play) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-p.ctx.Done():
			return stopped(p.ctx)
		}
	}
}

// Do calls f when the answer gets there: what was said before has been read.
func Do(f func()) Step {
	return func(*play) error {
		f()
		return nil
	}
}

// Then does step, and calls f when it has ended, however it ended.
func Then(step Step, f func()) Step {
	return func(p *play) error {
		defer f()
		return step(p)
	}
}

// play is one turn that is being played.
type play struct {
	ctx      context.Context
	yield    func(model.Chunk, error) bool
	blocks   int
	prose    model.ChunkKind
	block    int
	called   bool
	finished bool
}

// errLeft ends a turn whose reader wants no more.
var errLeft = errors.New("modeltest: the reader left")

func (p *play) begin() int {
	p.blocks++
	return p.blocks - 1
}

func (p *play) send(c model.Chunk) error {
	if p.ctx.Err() != nil {
		return stopped(p.ctx)
	}
	if !p.yield(c, nil) {
		return errLeft
	}
	return nil
}

func stopped(ctx context.Context) error {
	return fmt.Errorf("modeltest: call stopped: %w", context.Cause(ctx))
}

// Add appends turns to the script.
func (s *Script) Add(turns ...Turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns = append(s.turns, turns...)
}

// Otherwise sets what answers when the script is used up. Default: an error that
// is not retryable.
func (s *Script) Otherwise(answer func(model.Request) Turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.otherwise = answer
}

// Model gives the script itself, whatever the name.
func (s *Script) Model(string) (model.Model, error) { return s, nil }

// Stream implements [model.Model].
func (s *Script) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		turn := s.take(req)
		defer s.change(func() { s.open-- })
		p := &play{ctx: ctx, yield: yield}
		for _, step := range turn {
			if err := step(p); err != nil {
				if !errors.Is(err, errLeft) {
					yield(model.Chunk{}, err)
				}
				return
			}
		}
		if p.finished {
			return
		}
		reason := model.Stop
		if p.called {
			reason = model.ToolCalls
		}
		if err := Finish(reason, model.Usage{})(p); err != nil && !errors.Is(err, errLeft) {
			yield(model.Chunk{}, err)
		}
	}
}

// take records a request and gives its turn.
func (s *Script) take(req model.Request) Turn {
	var turn Turn
	var otherwise func(model.Request) Turn
	n, scripted := 0, false
	s.change(func() {
		s.open++
		s.requests = append(s.requests, clone(req))
		n, otherwise, scripted = len(s.requests), s.otherwise, len(s.turns) > 0
		if scripted {
			turn, s.turns = s.turns[0], s.turns[1:]
		}
	})
	switch {
	case scripted:
		return turn
	case otherwise != nil:
		return otherwise(req)
	}
	return Reply(Fail(&model.Error{Code: model.CodeInvalidRequest, Message: fmt.Sprintf("the script has no turn for call %d", n)}))
}

func clone(req model.Request) model.Request {
	req.Messages = slices.Clone(req.Messages)
	for i := range req.Messages {
		req.Messages[i].Parts = slices.Clone(req.Messages[i].Parts)
	}
	req.Tools = slices.Clone(req.Tools)
	return req
}

func (s *Script) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// Requests are those received so far, oldest first.
func (s *Script) Requests() []model.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Unplayed is how many turns nobody asked for yet.
func (s *Script) Unplayed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.turns)
}

// WaitRequest waits until request number n (from 1) has come, and gives it.
func (s *Script) WaitRequest(ctx context.Context, n int) (model.Request, error) {
	var found model.Request
	err := s.await(ctx, func() bool {
		if len(s.requests) < n {
			return false
		}
		found = s.requests[n-1]
		return true
	})
	return found, err
}

// WaitIdle waits until no answer is being streamed.
func (s *Script) WaitIdle(ctx context.Context) error {
	return s.await(ctx, func() bool { return s.open == 0 })
}

// await returns when ready says so, which is asked under the lock.
func (s *Script) await(ctx context.Context, ready func() bool) error {
	for {
		s.mu.Lock()
		ok, changed := ready(), s.changed
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return stopped(ctx)
		}
	}
}
