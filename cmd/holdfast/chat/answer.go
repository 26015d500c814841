package chat

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/holdfast-run/holdfast/session"
)

// answer writes what a run said, exactly, where somebody else reads it.
type answer struct {
	out io.Writer
	// blob fetches a text that is too large for a message.
	blob func(ctx context.Context, hash string) ([]byte, error)
	ctx  context.Context // of the command: an answer lives no longer
	last string          // the end of what was written
	err  error           // the first failure; nothing is written after it
}

// add writes the texts among parts. Texts stand apart by an empty line.
func (a *answer) add(parts []session.Part) {
	for _, p := range parts {
		if p.Type != session.PartText || p.Text == "" || p.State == session.PartFailed {
			continue
		}
		text := p.Text
		if p.Blob != nil && a.err == nil {
			raw, err := a.blob(a.ctx, p.Blob.Hash)
			if err != nil {
				a.err = fmt.Errorf("read a long text of the answer: %w", err)
				return
			}
			text = string(raw)
		}
		if a.last != "" {
			a.write(strings.Repeat("\n", 2-newlines(a.last)))
		}
		a.write(text)
	}
}

// end ends the last line. The next answer begins anew.
func (a *answer) end() error {
	if a.last != "" && newlines(a.last) == 0 {
		a.write("\n")
	}
	a.last = ""
	return a.err
}

func (a *answer) write(text string) {
	if a.err != nil || text == "" {
		return
	}
	if _, err := io.WriteString(a.out, text); err != nil {
		a.err = fmt.Errorf("write the answer: %w", err)
		return
	}
	a.last = (a.last + text)[max(0, len(a.last)+len(text)-2):]
}

// newlines is with how many line breaks a text ends: 0, 1, or 2 and more.
func newlines(text string) int {
	return min(len(text)-len(strings.TrimRight(text, "\n")), 2)
}
