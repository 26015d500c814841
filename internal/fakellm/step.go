package fakellm

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// A Step is one thing that the model or the network does. Steps are values and
// may be shared between turns.
type Step interface {
	play(p *player) error
}

// Text streams each piece as one delta of the answer's text.
func Text(pieces ...string) Step { return textStep(pieces) }

type textStep []string

func (s textStep) play(p *player) error { return p.say(textBlock, escapeAll(s)) }

// Paced is Text with a pause of d before each piece but the first.
func Paced(d time.Duration, pieces ...string) Step {
	return pacedStep{Every: pauseStep(d), Pieces: pieces}
}

type pacedStep struct {
	Every  pauseStep `json:"every"`
	Pieces []string  `json:"pieces"`
}

func (s pacedStep) play(p *player) error {
	for i, piece := range s.Pieces {
		if i > 0 {
			if err := s.Every.play(p); err != nil {
				return err
			}
		}
		if err := p.say(textBlock, []escaped{escape(piece)}); err != nil {
			return err
		}
	}
	return nil
}

// EscapedText is Text whose pieces are the insides of JSON strings, sent as they
// are. It can say what a Go string cannot: half of a surrogate pair, `\ud83d`.
func EscapedText(pieces ...string) Step { return escapedTextStep(pieces) }

type escapedTextStep []string

func (s escapedTextStep) play(p *player) error {
	pieces := make([]escaped, len(s))
	for i, piece := range s {
		pieces[i] = escaped(piece)
	}
	return p.say(textBlock, pieces)
}

// Reasoning streams each piece as one delta of the model's thinking. On
// Anthropic's wire the block ends with a signature over the text; strict mode
// refuses such a block if a later request brings it back changed.
func Reasoning(pieces ...string) Step { return reasoningStep(pieces) }

type reasoningStep []string

func (s reasoningStep) play(p *player) error { return p.say(reasoningBlock, escapeAll(s)) }

// HiddenReasoning is thinking that only the provider can read: Anthropic's
// redacted_thinking, the encrypted content of a reasoning item on the responses
// wire. Chat has no such thing and leaves it out.
func HiddenReasoning(data string) Step { return hiddenReasoningStep(data) }

type hiddenReasoningStep string

func (s hiddenReasoningStep) play(p *player) error {
	return p.say(hiddenBlock, []escaped{escape(string(s))})
}

// Call is a whole tool call. As a step it is streamed; in a Request it is what
// the history says.
type Call struct {
	ID   string `json:"id,omitempty"` // Default, as a step: made up, unique for the server.
	Name string `json:"name"`
	// Args is the text of the arguments, normally a JSON object. It is sent as
	// it is, so it may be cut off or no JSON at all. In a Request it is the text
	// of the history, byte for byte.
	Args string `json:"args"`
	// Every is how many bytes of Args go into one fragment; no character and no
	// Filler is cut in two. Default: all.
	Every int `json:"every,omitempty"`
}

func (c Call) play(p *player) error {
	if c.ID == "" {
		c.ID = p.newCallID()
	}
	b := &block{kind: callBlock, id: c.ID, name: c.Name, callIndex: p.answer.calls()}
	if err := p.openCall(b, Fragment{ID: c.ID, Name: c.Name, Index: b.callIndex}); err != nil {
		return err
	}
	for rest := c.Args; rest != ""; {
		n := fragmentSize(rest, c.Every)
		if err := p.fragment(b, Fragment{Index: b.callIndex, Args: rest[:n]}); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return p.closeBlocks()
}

// fragmentSize is every, or more where that would cut what must stay whole.
func fragmentSize(text string, every int) int {
	if every <= 0 || every >= len(text) || strings.Contains(text, fillerOpen) {
		return len(text)
	}
	for every < len(text) && !utf8.RuneStart(text[every]) {
		every++
	}
	return every
}

// A Fragment is one delta of a tool call, exactly as a provider might send it.
// It belongs to the call with its ID, else to the call last opened under its
// Index, else (NoIndex) to the call last opened; it opens a call when there is
// none such.
type Fragment struct {
	Index   int    `json:"index,omitempty"` // among the calls, as the wire will say it
	NoIndex bool   `json:"no_index,omitempty"`
	ID      string `json:"id,omitempty"`
	Name    string `json:"name,omitempty"`
	Args    string `json:"args,omitempty"`
}

// Fragments streams parts of tool calls in any order, with any index.
func Fragments(fragments ...Fragment) Step { return fragmentsStep(fragments) }

type fragmentsStep []Fragment

func (s fragmentsStep) play(p *player) error {
	for _, f := range s {
		b := p.answer.callOf(f)
		if b != nil {
			if err := p.fragment(b, f); err != nil {
				return err
			}
			continue
		}
		b = &block{kind: callBlock, id: f.ID, name: f.Name, callIndex: f.Index, scripted: true}
		if err := p.openCall(b, f); err != nil {
			return err
		}
	}
	return nil
}

// Reasons to finish, in the words of the chat wire; the others say them in
// their own.
const (
	Stop          = "stop"
	Length        = "length"
	ToolCalls     = "tool_calls"
	ContentFilter = "content_filter"
)

// Usage counts tokens.
type Usage struct {
	Input     int `json:"input"`
	Output    int `json:"output"`
	Cached    int `json:"cached,omitempty"`    // part of Input that was read from a cache
	Reasoning int `json:"reasoning,omitempty"` // part of Output
}

// Finish ends the answer as a provider does. Steps may follow it.
type Finish struct {
	// Reason is one of the constants, or any word, which is sent as it is.
	// Default: tool_calls if there was a call, else stop.
	Reason string `json:"reason,omitempty"`
	// Usage is what is counted. Default: an estimate that grows with the texts.
	Usage *Usage `json:"usage,omitempty"`
	// NoEnd leaves out the mark that ends the stream after the finish reason:
	// [DONE], message_stop, response.completed.
	NoEnd bool `json:"no_end,omitempty"`
}

func (f Finish) play(p *player) error { return p.finish(f) }

// Stamped streams n deltas such as "17:1764500000123456789 ": the index and the
// moment it was emitted in Unix nanoseconds, padded with x to size bytes. Rate is
// deltas a second, on a fixed schedule; 0 is as fast as the client reads.
func Stamped(n int, rate float64, size int) Step {
	return stampedStep{Tokens: n, Rate: rate, Size: size}
}

type stampedStep struct {
	Tokens int     `json:"n"`
	Rate   float64 `json:"rate,omitempty"`
	Size   int     `json:"size,omitempty"`
}

func (s stampedStep) play(p *player) error {
	start := time.Now()
	for i := range s.Tokens {
		if s.Rate > 0 {
			due := start.Add(time.Duration(float64(i) / s.Rate * float64(time.Second)))
			if err := p.pause(time.Until(due)); err != nil {
				return err
			}
		}
		token := stamp(i, time.Now().UnixNano(), s.Size)
		if err := p.say(textBlock, []escaped{escaped(token)}); err != nil {
			return err
		}
	}
	return nil
}

// Filler returns a text that stands for n times "x". It may be part of any text,
// arguments or raw frame; it is spelled out only while it is written to the
// socket, so a line of hundreds of megabytes costs no memory here.
func Filler(n int) string { return fmt.Sprintf("%s%d%s", fillerOpen, n, fillerClose) }
