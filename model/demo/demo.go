// Package demo is a scripted model that needs no key and no network. It is
// plainly labelled as such in what it says. It does what a real model does on
// the wire: it streams prose and reasoning, calls tools, several at once, reads
// their results, goes on, and at times fails, so that a person can see what
// Holdfast makes of all that.
//
// What it does follows from what the person asked for: see scenes.go. It keeps
// no memory of a conversation; like any model it is told everything in the request.
package demo

import (
	"context"
	"crypto/sha256"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/model"
)

// Provider gives the demo model under any name. It is safe for concurrent use.
type Provider struct {
	// Pace is how many words a second it says. Default: 40.
	Pace float64

	mu     sync.Mutex
	failed map[[32]byte]bool // requests that were failed once already; guarded by mu
}

// New is the provider.
func New() *Provider { return &Provider{failed: map[[32]byte]bool{}} }

// Model gives the demo model.
func (p *Provider) Model(string) (model.Model, error) { return p, nil }

// Stream plays the scene that fits the request.
func (p *Provider) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		pace := p.Pace
		if pace <= 0 {
			pace = 40
		}
		s := &stage{ctx: ctx, yield: yield, pause: time.Duration(float64(time.Second) / pace), scene: read(req), provider: p}
		finish := model.Finish{Reason: model.Stop, Usage: model.Usage{InputTokens: weigh(req)}}
		err := s.play()
		switch {
		case s.left:
			return
		case err != nil:
			yield(model.Chunk{}, err)
			return
		}
		if s.called {
			finish.Reason = model.ToolCalls
		}
		finish.Usage.OutputTokens, finish.Usage.ReasoningTokens = s.words, s.thought
		yield(model.Chunk{Kind: model.FinishChunk, Finish: &finish}, nil)
	}
}

// weigh counts the words of a request, as a stand-in for tokens.
func weigh(req model.Request) int {
	words := len(strings.Fields(req.System))
	for _, m := range req.Messages {
		for _, part := range m.Parts {
			words += len(strings.Fields(part.Text)) + len(part.Arguments)/6
		}
	}
	return words
}

// failOnce says, once for each request, that this time it should fail.
func (p *Provider) failOnce(scene scene) bool {
	key := sha256.Sum256(fmt.Append(nil, scene.history))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed[key] {
		delete(p.failed, key)
		return false
	}
	if len(p.failed) >= 1024 { // bounded: forgetting costs one more retry
		clear(p.failed)
	}
	p.failed[key] = true
	return true
}

// stage is one answer being played.
type stage struct {
	ctx      context.Context
	yield    func(model.Chunk, error) bool
	pause    time.Duration
	scene    scene
	provider *Provider

	block   int // the next block
	words   int
	thought int
	called  bool
	left    bool // the reader went away
}

// send gives one chunk, unless the reader or the context is gone.
func (s *stage) send(c model.Chunk) error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	if s.left || !s.yield(c, nil) {
		s.left = true
		return errLeft
	}
	return nil
}

var errLeft = fmt.Errorf("demo: the reader went away")

// rest waits.
func (s *stage) rest(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	case <-t.C:
		return nil
	}
}

// say streams prose, a word at a time.
func (s *stage) say(text string) error {
	return s.speak(model.TextChunk, text, s.pause)
}

// think streams reasoning.
func (s *stage) think(text string) error {
	err := s.speak(model.ReasoningChunk, text, s.pause)
	s.thought += len(strings.Fields(text))
	return err
}

func (s *stage) speak(kind model.ChunkKind, text string, pause time.Duration) error {
	block := s.block
	s.block++
	for len(text) > 0 {
		end := strings.IndexAny(text[1:], " \n") + 2
		if end < 2 {
			end = len(text)
		}
		if err := s.send(model.Chunk{Kind: kind, Block: block, Text: text[:end]}); err != nil {
			return err
		}
		text = text[end:]
		s.words++
		if err := s.rest(pause); err != nil {
			return err
		}
	}
	return nil
}

// call asks for a tool, its arguments in a few pieces.
func (s *stage) call(name, arguments string) error {
	block := s.block
	s.block++
	s.called = true
	c := model.Chunk{Kind: model.CallChunk, Block: block, Call: fmt.Sprintf("demo_%d", block), Name: name}
	for len(arguments) > 0 {
		n := min(len(arguments), 24)
		for n < len(arguments) && arguments[n]&0xC0 == 0x80 {
			n++
		}
		c.Text, arguments = arguments[:n], arguments[n:]
		if err := s.send(c); err != nil {
			return err
		}
		if err := s.rest(s.pause); err != nil {
			return err
		}
	}
	return nil
}
