package agent

import (
	"strings"
	"unicode"

	"github.com/holdfast-run/holdfast/model"
)

// What is counted for things that are no text. A picture costs up to 1,600
// tokens at the providers that say so; of other files nobody knows, and a
// page of a PDF, some 50 KB of it, costs 2,000 to 3,000.
const (
	pictureTokens   = 1_600
	fileBytesAToken = 16
	maxFileTokens   = 32_000 // a page that is one big picture costs no more than others
	messageTokens   = 4      // the frame of a message
	partTokens      = 8      // the frame of a call, a result or a tool
)

// countText estimates the tokens of a text, without a vocabulary: words are
// counted by their letters and changes of case, numbers by three digits,
// punctuation by two, other scripts by what tokenizers make of them. It is
// linear, and a little over rather than under.
func countText(s string) int {
	const (
		other = iota
		lower
		upper
		digit
		mark
		space
		wide
		letter
	)
	classOf := func(r rune) int {
		switch {
		case r >= 'a' && r <= 'z':
			return lower
		case r >= 'A' && r <= 'Z':
			return upper
		case r >= '0' && r <= '9':
			return digit
		case r == ' ' || r == '\t' || r == '\n' || r == '\r':
			return space
		case r < 0x80:
			return mark
		case r >= 0x2E80 && r < 0xFB00:
			return wide // Chinese, Japanese, Korean
		case unicode.IsLetter(r) || unicode.IsMark(r):
			return letter
		}
		return other
	}
	tokens, run, class := 0, 0, space
	lines := 0
	end := func() {
		switch class {
		case lower, upper:
			tokens += (run + 6) / 7
		case digit, letter:
			tokens += (run + 2) / 3
		case mark:
			tokens += (run + 1) / 2
		case space: // a space before a word is part of it
			if lines > 0 || run > 1 {
				tokens++
			}
		case wide:
			tokens += run
		case other:
			tokens += run * 2
		}
		run, lines = 0, 0
	}
	for _, r := range s {
		next := classOf(r)
		if next == class || class == upper && next == lower && run == 1 {
			class = next
			run++
		} else {
			end()
			class, run = next, 1
		}
		if r == '\n' {
			lines++
		}
	}
	end()
	return tokens
}

// countMessage estimates what a message costs.
func countMessage(m model.Message) int {
	n := messageTokens
	for _, p := range m.Parts {
		n += countPart(p)
	}
	return n
}

func countPart(p model.Part) int {
	switch p.Kind {
	case model.CallPart:
		return partTokens + countText(p.Name) + countText(string(p.Arguments)) + len(p.Call)/3
	case model.ResultPart:
		n := partTokens + countText(p.Text) + len(p.Call)/3
		for _, f := range p.Files {
			n += countPart(f)
		}
		return n
	case model.FilePart:
		if isPicture(p.MediaType) || len(p.Data) == 0 {
			return pictureTokens
		}
		if strings.HasPrefix(p.MediaType, "text/") {
			return countText(string(p.Data))
		}
		return min(maxFileTokens, max(pictureTokens, len(p.Data)/fileBytesAToken))
	case model.ReasoningPart:
		return countText(p.Text) + len(p.Signature)/16
	}
	return countText(p.Text)
}

func isPicture(mediaType string) bool { return strings.HasPrefix(mediaType, "image/") }

func countTool(t model.Tool) int {
	return partTokens + countText(t.Name) + countText(t.Description) + countText(string(t.Parameters))
}
