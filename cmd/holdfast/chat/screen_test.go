package chat

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/hinshun/vt10x"
	"pgregory.net/rapid"
)

// glass is a terminal: a screen writes on it, and its scrollback is lost.
type glass struct {
	vt10x.Terminal
	width, height int
}

func newGlass(width, height int) *glass {
	return &glass{vt10x.New(vt10x.WithSize(width, height)), width, height}
}

// Write turns LF into CRLF, as the driver of a terminal does.
func (g *glass) Write(p []byte) (int, error) {
	if _, err := g.Terminal.Write(bytes.ReplaceAll(p, []byte("\n"), []byte("\r\n"))); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (g *glass) screen() *screen {
	return newScreen(g, true, true, func() (int, int) { return g.width, g.height })
}

// rows are what is seen, without the empty rows at the end.
func (g *glass) rows() []string {
	var rows []string
	for y := range g.height {
		var row strings.Builder
		for x := range g.width {
			if c := g.Cell(x, y).Char; c != 0 {
				row.WriteRune(c)
			} else {
				row.WriteRune(' ')
			}
		}
		rows = append(rows, strings.TrimRight(row.String(), " "))
	}
	for len(rows) > 0 && rows[len(rows)-1] == "" {
		rows = rows[:len(rows)-1]
	}
	return rows
}

// broken is how a text breaks into rows of a width.
func broken(text string, width int) []string {
	var rows []string
	for _, l := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		for len(l) > width {
			rows = append(rows, strings.TrimRight(l[:width], " "))
			l = l[width:]
		}
		rows = append(rows, strings.TrimRight(l, " "))
	}
	for len(rows) > 0 && rows[len(rows)-1] == "" {
		rows = rows[:len(rows)-1]
	}
	return rows
}

// Whatever is written in whatever order, a person sees the texts and the lines,
// the last attempt's text and not the one before, and no trace of a status.
func TestTheScreenShowsWhatWasSaidAndNothingThatWasTakenBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGlass(rapid.IntRange(5, 40).Draw(t, "width"), 60)
		s := g.screen()
		var final, lines, text string // final: before the mark; then lines among text
		marked := false
		whole := func() string { return final + text }
		fresh := func(to string) string {
			if to != "" && !strings.HasSuffix(to, "\n") {
				to += "\n"
			}
			return to
		}
		for range rapid.IntRange(0, 25).Draw(t, "steps") {
			if len(broken(whole(), g.width)) > 30 {
				break // what leaves the terminal is another test's
			}
			switch rapid.SampledFrom([]string{"text", "text", "line", "status", "clear", "mark", "back"}).Draw(t, "do") {
			case "text":
				piece := rapid.StringMatching(`[a-z ]{1,30}\n{0,2}|[a-z]{1,10}`).Draw(t, "text")
				s.Text(dim, piece)
				text += piece
			case "line":
				l := rapid.StringMatching(`[A-Z]{1,50}`).Draw(t, "line")
				s.Line(yellow, l)
				text = fresh(whole())[len(final):] + l + "\n"
				if marked {
					lines += l + "\n"
				}
			case "status":
				s.Status(rapid.StringMatching(`[0-9]{1,80}`).Draw(t, "status"))
			case "clear":
				s.Status("")
			case "mark":
				s.Mark()
				final, text, lines, marked = fresh(whole()), "", "", true
			case "back":
				if !marked {
					continue
				}
				if !s.TakeBack() {
					t.Fatal("what is on the screen could not be taken back")
				}
				text = lines
			}
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		s.Status("")
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		got, want := strings.Join(g.rows(), "\n"), strings.Join(broken(whole(), g.width), "\n")
		if got != want {
			t.Fatalf("the terminal shows\n%s\nwant\n%s", got, want)
		}
	})
}

func TestAStatusStandsUnderTheTextAndGoes(t *testing.T) {
	g := newGlass(20, 6)
	s := g.screen()
	s.Text(plain, "one two")
	s.Status("working on something very long")
	_ = s.Flush()
	if got := fmt.Sprintf("%q", g.rows()); got != `["one two" "working on somethi…"]` {
		t.Errorf("with a status: %s", got)
	}
	s.Text(plain, " three")
	_ = s.Flush()
	if got := fmt.Sprintf("%q", g.rows()); got != `["one two three"]` {
		t.Errorf("after more text: %s", got)
	}
}

func TestWhatHasLeftTheTerminalCannotBeTakenBack(t *testing.T) {
	g := newGlass(20, 6)
	s := g.screen()
	s.Mark()
	s.Text(plain, strings.Repeat("line\n", 7))
	if s.TakeBack() {
		t.Error("it was taken back")
	}
	s.Mark()
	s.Text(plain, "short")
	g.width = 30
	if s.TakeBack() {
		t.Error("it was taken back after the terminal's width had changed")
	}
}

func TestElsewhereThereAreNoEscapesAndNoStatuses(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out, false, false, nil)
	s.Status("working")
	s.Mark()
	s.Text(dim, "text")
	s.Line(red, "line")
	s.Status("working")
	if s.TakeBack() {
		t.Error("it was taken back")
	}
	_ = s.Flush()
	if out.String() != "text\nline\n" {
		t.Errorf("wrote %q", out.String())
	}
}

func TestWhatATerminalWouldObeyIsNotPassedOn(t *testing.T) {
	in := "a\x1b[2Jb\x07c\rd\u009be\u202ef\u2066g\x00h\ti\nj"
	if got, want := Printable(in), "a[2Jbcdefghi\nj"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	var out bytes.Buffer
	s := newScreen(&out, false, false, nil)
	s.Text(plain, in)
	_ = s.Flush()
	if got, want := out.String(), "a[2Jbcdefgh    i\nj"; got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}
}

func TestALineHasAtMostItsWidth(t *testing.T) {
	for in, want := range map[string]string{
		"short":                        "short",
		"two\n  lines\tand a tab":      "two lines…",
		"漢字漢字漢字漢字":                     "漢字漢字…",
		strings.Repeat("é", 1_000_000): "ééééééééé…",
	} {
		if got := oneLine(in, 10); got != want {
			t.Errorf("%.20q became %q, want %q", in, got, want)
		}
	}
}
