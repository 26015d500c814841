package fakellm

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

type blockKind int

const (
	textBlock blockKind = iota
	reasoningBlock
	hiddenBlock
	callBlock
)

// A block is one part of the answer: a text, a thought or a tool call.
type block struct {
	kind      blockKind
	index     int             // among the blocks, as the wire says it
	callIndex int             // among the calls, as the wire says it
	scripted  bool            // a call made of Fragments
	id, name  string          // of a call
	body      strings.Builder // escaped text, thought or arguments
	deltas    int
	signature string // of a thought, once closed
	closed    bool
}

func (b *block) text() escaped { return escaped(b.body.String()) }

// An answer is what has been said in one turn.
type answer struct {
	blocks []*block
}

func (a *answer) add(b *block) {
	b.index = len(a.blocks)
	a.blocks = append(a.blocks, b)
}

func (a *answer) last() *block {
	if len(a.blocks) == 0 {
		return nil
	}
	return a.blocks[len(a.blocks)-1]
}

func (a *answer) calls() int {
	n := 0
	for _, b := range a.blocks {
		if b.kind == callBlock {
			n++
		}
	}
	return n
}

// firstCall returns the position of the first call block.
func (a *answer) firstCall() int {
	for i, b := range a.blocks {
		if b.kind == callBlock {
			return i
		}
	}
	return len(a.blocks)
}

// callOf returns the open call that f continues, or nil if it opens one.
func (a *answer) callOf(f Fragment) *block {
	for i := len(a.blocks) - 1; i >= 0; i-- {
		b := a.blocks[i]
		if b.kind != callBlock || b.closed {
			continue
		}
		if f.ID != "" {
			if b.id == f.ID {
				return b
			}
		} else if f.NoIndex || b.callIndex == f.Index {
			return b
		}
	}
	return nil
}

// joined returns all of the answer's text of one kind.
func (a *answer) joined(kind blockKind) escaped {
	var all strings.Builder
	for _, b := range a.blocks {
		if b.kind == kind {
			all.WriteString(b.body.String())
		}
	}
	return escaped(all.String())
}

// estimate counts a token for each delta, and one for four bytes of request.
func (a *answer) estimate(requestBytes int) *Usage {
	u := &Usage{Input: requestBytes/4 + 1}
	for _, b := range a.blocks {
		u.Output += b.deltas + 1
		if b.kind == reasoningBlock {
			u.Reasoning += b.deltas + 1
		}
	}
	return u
}

const signaturePrefix = "fakellm-"

// sign gives the signature of a thought, which a later request must bring back
// with the same text.
func sign(thought string) string {
	if strings.Contains(thought, fillerOpen) {
		return "unchecked" // The text is never seen whole.
	}
	sum := sha256.Sum256([]byte(thought))
	return signaturePrefix + base64.RawURLEncoding.EncodeToString(sum[:])
}
