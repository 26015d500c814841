package chat

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"
)

// keyboard is where a person's words come from: a terminal, where lines are
// edited, or a file or pipe, where each line is a message.
type keyboard struct {
	in  io.Reader
	tty *os.File // nil: not a terminal
	out io.Writer

	pump  sync.Once
	mu    sync.Mutex
	read  []byte        // guarded by mu
	err   error         // guarded by mu
	more  chan struct{} // something was read
	less  chan struct{} // there is room again
	ctx   context.Context
	lines *bufio.Reader
	said  *term.Terminal // with the history of what was said
}

func newKeyboard(in io.Reader, out io.Writer, tty *os.File) *keyboard {
	k := &keyboard{in: in, tty: tty, out: out, more: make(chan struct{}, 1), less: make(chan struct{}, 1), ctx: context.Background()}
	k.lines = bufio.NewReader(reading{k})
	return k
}

// Interactive says whether a person can be asked.
func (k *keyboard) Interactive() bool { return k.tty != nil }

// Message reads what a person has to say: a line, or several that were pasted
// together. io.EOF: they have nothing more to say.
func (k *keyboard) Message(ctx context.Context, prompt string) (string, error) {
	if k.tty == nil {
		k.ctx = ctx
		text, err := k.lines.ReadString('\n')
		if err == io.EOF && text != "" {
			err = nil
		}
		return strings.TrimRight(text, "\r\n"), err
	}
	if k.said == nil {
		k.said = term.NewTerminal(console{reading{k}, k.out}, "")
	}
	k.said.SetPrompt(prompt)
	var pasted []string
	for {
		text, err := k.edit(ctx, k.said, true)
		if errors.Is(err, term.ErrPasteIndicator) {
			pasted = append(pasted, text)
			k.said.SetPrompt("")
			continue
		}
		return strings.Join(append(pasted, text), "\n"), err
	}
}

// A question is asked on a terminal of its own, which others can write on meanwhile.
type question struct {
	*term.Terminal
	keys *keyboard
}

// Question begins questions. What was typed before they were seen is no answer.
func (k *keyboard) Question() *question {
	return &question{term.NewTerminal(console{reading{k}, k.out}, ""), k}
}

// Ask asks, with an answer to begin with. io.EOF: the person wants to leave.
func (q *question) Ask(ctx context.Context, prompt, answer string) (string, error) {
	q.keys.forget()
	q.SetPrompt(prompt)
	q.keys.mu.Lock()
	q.keys.read = append(q.keys.read, answer...)
	q.keys.mu.Unlock()
	text, err := q.keys.edit(ctx, q.Terminal, false)
	if errors.Is(err, term.ErrPasteIndicator) {
		err = nil
	}
	return strings.TrimSpace(text), err
}

// edit reads a line in the terminal's raw mode.
func (k *keyboard) edit(ctx context.Context, t *term.Terminal, paste bool) (string, error) {
	fd := int(k.tty.Fd())
	k.ctx = ctx
	before, err := term.MakeRaw(fd)
	if err != nil {
		return "", err
	}
	defer func() { _ = term.Restore(fd, before) }() // nothing can be done about it
	if w, h, err := term.GetSize(fd); err == nil && w > 0 {
		_ = t.SetSize(w, h)
	}
	if paste {
		t.SetBracketedPasteMode(true)
		defer t.SetBracketedPasteMode(false)
	}
	text, err := t.ReadLine()
	switch {
	case err == nil, errors.Is(err, term.ErrPasteIndicator):
	case ctx.Err() != nil: // the question is taken away
		_, _ = io.WriteString(k.out, "\r\x1b[J")
	default:
		_, _ = io.WriteString(k.out, "\r\n")
	}
	return text, err
}

// forget drops what was typed and not read.
func (k *keyboard) forget() {
	discardInput(k.tty)
	k.mu.Lock()
	k.read = nil
	k.mu.Unlock()
	nudge(k.less)
}

// console is the terminal that lines are edited on.
type console struct {
	io.Reader
	io.Writer
}

// reading reads from a keyboard until its context ends.
type reading struct{ k *keyboard }

func (r reading) Read(p []byte) (int, error) {
	k := r.k
	// A read of a terminal or a pipe cannot be broken off, so it has a goroutine
	// of its own, which ends with the input or with the process.
	k.pump.Do(func() { go k.pour() })
	for {
		k.mu.Lock()
		n, err := copy(p, k.read), k.err
		k.read = k.read[n:]
		k.mu.Unlock()
		if n > 0 {
			nudge(k.less)
			return n, nil
		}
		if err != nil {
			return 0, err
		}
		select {
		case <-k.ctx.Done():
			return 0, context.Cause(k.ctx)
		case <-k.more:
		}
	}
}

// maxAhead bounds what is read ahead, in bytes.
const maxAhead = 64 << 10

func (k *keyboard) pour() {
	buf := make([]byte, 4096)
	for {
		n, err := k.in.Read(buf)
		k.mu.Lock()
		k.read = append(k.read, buf[:n]...)
		k.err = err
		full := len(k.read) >= maxAhead
		k.mu.Unlock()
		nudge(k.more)
		if err != nil {
			return
		}
		for full {
			<-k.less
			k.mu.Lock()
			full = len(k.read) >= maxAhead
			k.mu.Unlock()
		}
	}
}

func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
