package agent

import (
	"strings"

	"github.com/holdfast-run/holdfast/session"
)

// Context bounds what the model is shown. The zero value means the defaults.
type Context struct {
	// Window is the model's window in tokens, input and answer together.
	// Default: what is known of the model, else 128,000.
	Window int `yaml:"window"`
}

// MinWindow is the smallest window that an agent may be given.
const MinWindow = 2_048

const (
	defaultWindow  = 128_000 // a provider that has less says so, and is then believed: see [Draft.Compact]
	defaultReserve = 8_192   // for the answer, where the agent has no MaxTokens
)

// windows are those of known models that differ from the default, by how the
// name begins: the first that fits. What a model may take in is counted, where
// that is less than its window.
var windows = []struct {
	prefix string
	tokens int
}{
	{"claude", 200_000},
	{"gpt-5", 272_000},
	{"gpt-4.1", 1_000_000},
	{"gpt-4-turbo", 128_000},
	{"o1", 200_000},
	{"o3", 200_000},
	{"o4", 200_000},
	{"gemini", 1_000_000},
	{"qwen3-coder", 256_000},
	{"gpt-4-", 8_192},
	{"gpt-3.5", 16_385},
}

// WindowOf is the window of a model by its reference, in tokens: what is known of it, else 128,000.
func WindowOf(ref string) int {
	name := strings.ToLower(ref[strings.LastIndexByte(ref, '/')+1:])
	for _, w := range windows {
		if strings.HasPrefix(name, w.prefix) {
			return w.tokens
		}
	}
	return defaultWindow
}

// Budget is what a context has to fit into, in tokens.
type Budget struct {
	Window int
	// Reserve is kept for the answer.
	Reserve int
	// Room is what [Seen.Counted] may be: the rest, in the measure of the estimate.
	Room int
	// Scale is what the provider counts for each estimated token.
	Scale float64
}

// Tokens is a count in the provider's measure, as far as it is known.
func (b Budget) Tokens(counted int) int { return int(float64(counted)*b.Scale + 0.5) }

// How far a provider's count corrects the estimate.
const (
	minScale = 0.8
	maxScale = 4
)

// Budget says what a context has to fit into. most bounds the window if it is
// not 0; measured is how an estimate compared with what the provider counted.
func (a Agent) Budget(most int, measured session.Measure) Budget {
	b := Budget{Window: a.Context.Window, Scale: 1}
	if b.Window <= 0 {
		b.Window = WindowOf(a.Model)
	}
	if most > 0 {
		b.Window = min(b.Window, most)
	}
	b.Window = max(b.Window, MinWindow)
	b.Reserve = min(defaultReserve, b.Window/4)
	if a.MaxTokens > 0 {
		b.Reserve = min(a.MaxTokens, b.Window/2)
	}
	if measured.Counted > 0 && measured.Reported > 0 {
		b.Scale = min(maxScale, max(minScale, float64(measured.Reported)/float64(measured.Counted)))
	}
	b.Room = int(float64(b.Window-b.Reserve) / b.Scale)
	return b
}
