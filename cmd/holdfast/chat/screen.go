package chat

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/mattn/go-runewidth"
)

// style is how a piece of text looks on a terminal that can show it.
type style string

const (
	plain  style = ""
	dim    style = "\x1b[2m"
	bold   style = "\x1b[1m"
	red    style = "\x1b[31m"
	green  style = "\x1b[32m"
	yellow style = "\x1b[33m"
)

// screen writes text that grows, whole lines among it, and one status line that
// comes and goes under it. On a terminal it knows where the cursor is, so that
// what was said can be taken back. Elsewhere it writes no escape codes, and
// statuses nowhere. It is for one goroutine.
type screen struct {
	out   io.Writer
	live  bool // it is a terminal: lines can be taken back
	color bool
	size  func() (width, height int)

	buf    bytes.Buffer
	col    int // columns of the current line that are written
	width  int
	status string
	below  bool // the status stands on the row below the current line
	// What was written since the mark.
	mark  bool
	rows  int // how many rows the cursor is below the mark
	wide  int // the width then
	lines []line
}

type line struct {
	style style
	text  string
}

func newScreen(out io.Writer, live, color bool, size func() (int, int)) *screen {
	s := &screen{out: out, live: live, color: color, size: size}
	s.measure()
	return s
}

func (s *screen) measure() {
	s.width = 80
	if s.live {
		if w, _ := s.size(); w > 0 {
			s.width = w
		}
	}
}

// Text adds to what is being said.
func (s *screen) Text(look style, text string) {
	if text == "" {
		return
	}
	s.hideStatus()
	s.measure()
	s.paint(look, text)
}

// Line writes a line of its own.
func (s *screen) Line(look style, text string) {
	s.hideStatus()
	s.measure()
	s.freshLine()
	s.paint(look, text)
	s.newline()
	if s.mark {
		s.lines = append(s.lines, line{look, text})
	}
}

// FreshLine ends the current line if it has begun.
func (s *screen) FreshLine() {
	s.hideStatus()
	s.freshLine()
}

// Mark begins what [screen.TakeBack] takes back.
func (s *screen) Mark() {
	s.FreshLine()
	s.measure()
	s.mark, s.rows, s.wide, s.lines = s.live, 0, s.width, nil
}

// Unmark makes what was said final.
func (s *screen) Unmark() { s.mark, s.lines = false, nil }

// TakeBack removes the text since the mark and keeps the lines among it. It is
// false when that text cannot be reached any more: it is no terminal, or the text
// has left it, or the terminal's width has changed since.
func (s *screen) TakeBack() bool {
	s.hideStatus()
	if !s.mark {
		return false
	}
	s.measure()
	_, height := s.size()
	if s.width != s.wide || height > 0 && s.rows > height-2 {
		return false
	}
	s.buf.WriteString("\r")
	if s.rows > 0 {
		fmt.Fprintf(&s.buf, "\x1b[%dA", s.rows)
	}
	s.buf.WriteString("\x1b[J")
	lines := s.lines
	s.col, s.rows, s.lines = 0, 0, nil
	for _, l := range lines {
		s.Line(l.style, l.text)
	}
	return true
}

// Status shows what is going on now, until something else is written. Empty: nothing.
func (s *screen) Status(text string) {
	if !s.live || text == s.status {
		return
	}
	s.hideStatus()
	if text == "" {
		return
	}
	s.measure()
	s.status = text
	if s.below = s.col > 0 && s.col < s.width; s.below {
		s.buf.WriteString("\n")
	} else if s.col == s.width { // the cursor hangs behind the last column
		s.newline()
	}
	s.paintRaw(dim, fit(Printable(text), s.width-1))
}

func (s *screen) hideStatus() {
	if s.status == "" {
		return
	}
	s.status = ""
	s.buf.WriteString("\r\x1b[K")
	if s.below {
		s.buf.WriteString("\x1b[1A")
		fmt.Fprintf(&s.buf, "\x1b[%dC", s.col)
		s.below = false
	}
}

// Flush puts everything out.
func (s *screen) Flush() error {
	if s.buf.Len() == 0 {
		return nil
	}
	_, err := s.out.Write(s.buf.Bytes())
	s.buf.Reset()
	return err
}

// Lend puts everything out and gives the terminal to somebody who writes on it;
// what is written meanwhile goes through out. The function given back takes it again.
func (s *screen) Lend(out io.Writer) (takeBack func() error, err error) {
	s.FreshLine()
	s.Unmark()
	if err := s.Flush(); err != nil {
		return nil, err
	}
	own, live := s.out, s.live
	s.out, s.live = out, false
	return func() error {
		err := s.Flush()
		s.out, s.live, s.col = own, live, 0
		return err
	}, nil
}

func (s *screen) freshLine() {
	if s.col > 0 {
		s.newline()
	}
}

func (s *screen) newline() {
	s.buf.WriteString("\n")
	s.col = 0
	s.rows++
}

// paint writes text and follows the cursor.
func (s *screen) paint(look style, text string) {
	text = Printable(strings.ReplaceAll(text, "\t", "    "))
	for text != "" {
		piece, rest, broken := strings.Cut(text, "\n")
		s.paintRaw(look, piece)
		for _, r := range piece {
			s.advance(runewidth.RuneWidth(r))
		}
		if broken {
			s.newline()
		}
		text = rest
	}
}

func (s *screen) paintRaw(look style, text string) {
	if text == "" {
		return
	}
	if !s.color || look == plain {
		s.buf.WriteString(text)
		return
	}
	s.buf.WriteString(string(look) + text + "\x1b[0m")
}

// advance moves the cursor as a terminal does: the row is left when something
// comes that has no room on it.
func (s *screen) advance(w int) {
	if s.col+w > s.width {
		s.rows++
		s.col = 0
	}
	s.col += w
}

// Printable takes out what a terminal would obey: a model's words, a tool's result
// and a title are shown, never executed.
func Printable(text string) string {
	if !strings.ContainsFunc(text, isControl) {
		return text
	}
	return strings.Map(func(r rune) rune {
		if isControl(r) {
			return -1
		}
		return r
	}, text)
}

func isControl(r rune) bool {
	// Bidirectional overrides would show other text than what is there.
	return r != '\n' && (unicode.IsControl(r) || r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069)
}

// fit cuts a text to so many columns.
func fit(text string, width int) string { return runewidth.Truncate(text, max(width, 1), "…") }

// oneLine makes a text one line of at most so many columns.
func oneLine(text string, width int) string {
	if len(text) > 8*width+64 {
		text = strings.ToValidUTF8(text[:8*width+64], "") + "…"
	}
	return fit(Printable(strings.Join(strings.Fields(text), " ")), width)
}
