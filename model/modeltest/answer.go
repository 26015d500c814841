// Package modeltest is for tests of and with models: the contract of
// [model.Model] as a suite over a provider on a real socket ([Exercise]), a
// scripted model in memory ([Script]), and a reader of answers that holds each
// stream to its grammar ([Collect]).
package modeltest

import (
	"errors"
	"iter"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/model"
)

// Answer is what came out of one stream.
type Answer struct {
	Chunks    []model.Chunk
	Text      string // of all text blocks, in order
	Reasoning string // of all reasoning blocks, in order
	Calls     []Called
	Finish    model.Finish // zero if there was none
	Err       error        // nil if there was a finish
}

// Called is one tool call of an [Answer]. Arguments is the raw text.
type Called struct{ ID, Name, Arguments string }

// Code is the code of the answer's error, "" if there is none or it is no
// *[model.Error].
func (a Answer) Code() model.Code {
	var e *model.Error
	if errors.As(a.Err, &e) {
		return e.Code
	}
	return ""
}

// Message gives the answer as the next request's history has it: one part for
// each block.
func (a Answer) Message() model.Message {
	var parts []model.Part
	for _, c := range a.Chunks {
		if c.Kind == model.FinishChunk {
			continue
		}
		for c.Block >= len(parts) {
			parts = append(parts, model.Part{})
		}
		p := &parts[c.Block]
		switch c.Kind {
		case model.TextChunk:
			p.Kind = model.TextPart
			p.Text += c.Text
		case model.ReasoningChunk:
			p.Kind = model.ReasoningPart
			p.Text += c.Text
			if c.Signature != "" {
				p.Signature = c.Signature
			}
		case model.CallChunk:
			p.Kind, p.Call, p.Name = model.CallPart, c.Call, c.Name
			p.Arguments = append(p.Arguments, c.Text...)
		}
	}
	return model.Message{Role: model.Assistant, Parts: parts}
}

// Collect reads a stream to its end and fails the test where the stream breaks
// the contract of [model.Model], whatever it says.
func Collect(tb testing.TB, stream iter.Seq2[model.Chunk, error]) Answer {
	tb.Helper()
	var a Answer
	var blocks []model.Chunk // the first chunk of each
	calls := map[int]int{}   // from block to place in a.Calls
	finished := false
	for c, err := range stream {
		if finished || a.Err != nil {
			tb.Errorf("the stream goes on after its end: %+v, %v", c, err)
		}
		if err != nil {
			a.Err = err
			continue
		}
		a.Chunks = append(a.Chunks, c)
		if !utf8.ValidString(c.Text) {
			tb.Errorf("a chunk's text is not UTF-8: %q", c.Text)
		}
		if (c.Kind == model.FinishChunk) != (c.Finish != nil) {
			tb.Errorf("a chunk of kind %q with finish %v", c.Kind, c.Finish)
		}
		if c.Finish != nil {
			a.Finish, finished = *c.Finish, true
			continue
		}
		switch {
		case c.Block == len(blocks):
			blocks = append(blocks, c)
		case c.Block < 0 || c.Block > len(blocks):
			tb.Errorf("block %d comes after %d blocks", c.Block, len(blocks))
			continue
		}
		first := blocks[c.Block]
		if c.Kind != first.Kind || c.Call != first.Call || c.Name != first.Name {
			tb.Errorf("block %d is %s %q %q and then %s %q %q", c.Block, first.Kind, first.Call, first.Name, c.Kind, c.Call, c.Name)
		}
		switch c.Kind {
		case model.TextChunk:
			a.Text += c.Text
		case model.ReasoningChunk:
			a.Reasoning += c.Text
		case model.CallChunk:
			if c.Call == "" || c.Name == "" {
				tb.Errorf("a call chunk without id or name: %+v", c)
			}
			at, known := calls[c.Block]
			if !known {
				at = len(a.Calls)
				calls[c.Block] = at
				a.Calls = append(a.Calls, Called{ID: c.Call, Name: c.Name})
			}
			a.Calls[at].Arguments += c.Text
		default:
			tb.Errorf("a chunk of kind %q", c.Kind)
		}
	}
	if !finished && a.Err == nil {
		tb.Error("the stream ends with neither a finish nor an error")
	}
	return a
}

// String is the answer for failure messages.
func (a Answer) String() string {
	var b strings.Builder
	for _, c := range a.Chunks {
		b.WriteString(string(c.Kind) + " " + short(c.Text) + "; ")
	}
	if a.Err != nil {
		b.WriteString(a.Err.Error())
	}
	return b.String()
}

func short(s string) string {
	if len(s) > 60 {
		return s[:60] + "…"
	}
	return s
}
