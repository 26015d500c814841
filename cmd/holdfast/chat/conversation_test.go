package chat

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/cmd/holdfast/client"
	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
)

var update = flag.Bool("update", false, "rewrite testdata from what is told now")

// conversation is one of the protocol's cases.
type conversation struct {
	Name    string
	Session string
	Frames  []json.RawMessage
	States  map[string]holdfast.Snapshot
}

func conversations(t *testing.T) []conversation {
	t.Helper()
	files, err := filepath.Glob("../../../protocol/cases/*.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []conversation
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var c conversation
		if json.Unmarshal(raw, &c) == nil && len(c.Frames) > 0 {
			all = append(all, c)
		}
	}
	if len(all) < 10 {
		t.Fatalf("there are only %d conversations", len(all))
	}
	return all
}

// tellFrom tells the frames after a state of the session.
func (c conversation) tellFrom(t *testing.T, tl *teller) {
	t.Helper()
	for _, raw := range c.Frames {
		u, _, to, err := client.ParseFrame(raw)
		if err != nil {
			t.Fatal(err)
		}
		if to <= tl.mirror.Seq {
			continue
		}
		switch u := u.(type) {
		case client.Event:
			tl.now = func() time.Time { return u.At }
			tl.mirror.Apply(u.Event)
			tl.tell(u.Event)
		case client.Folded:
			tl.mirror.Seq = u.To
		}
	}
}

// runs are the foreground runs of a conversation, in order.
func (c conversation) runs(t *testing.T) []string {
	t.Helper()
	var runs []string
	for _, raw := range c.Frames {
		u, _, _, err := client.ParseFrame(raw)
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := u.(client.Event); ok {
			if d, ok := e.Data.(session.RunQueued); ok && !d.Background {
				runs = append(runs, e.Run)
			}
		}
	}
	return runs
}

// piped is what a run's answer is elsewhere than on a terminal, and what is noted besides.
func (c conversation) piped(t *testing.T, m mirror, run string) (answered, noted string) {
	t.Helper()
	var out, err bytes.Buffer
	tl := &teller{
		mirror: m, notes: newScreen(&err, false, false, nil), target: run, now: time.Now,
		answer: &answer{out: &out, ctx: t.Context()},
	}
	tl.missed()
	c.tellFrom(t, tl)
	if e := tl.answer.end(); e != nil {
		t.Fatal(e)
	}
	_ = tl.notes.Flush()
	return out.String(), err.String()
}

// shown is what a terminal shows in the end.
func (c conversation) shown(t *testing.T, m mirror, width int) string {
	t.Helper()
	g := newGlass(width, 200)
	tl := &teller{mirror: m, notes: g.screen(), now: time.Now}
	tl.tail(tailLength)
	c.tellFrom(t, tl)
	_ = tl.notes.Flush()
	return strings.Join(g.rows(), "\n") + "\n"
}

// statuses are the status lines of the last run, one after the other.
func (c conversation) statuses(t *testing.T) []string {
	t.Helper()
	m := mirror{session.New(c.Session)}
	runs := c.runs(t)
	var all []string
	for _, raw := range c.Frames {
		u, _, _, err := client.ParseFrame(raw)
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := u.(client.Event); ok && len(runs) > 0 {
			m.Apply(e.Event)
			if m.Run(runs[len(runs)-1]) != nil {
				all = append(all, statusOf(m, runs[len(runs)-1], e.At)+"\n")
			}
		}
	}
	return slices.Compact(all)
}

// The transcripts are the review: they say what a person is told of each conversation.
func TestConversationsAreToldOnATerminalAndElsewhere(t *testing.T) {
	for _, c := range conversations(t) {
		t.Run(c.Name, func(t *testing.T) {
			var got strings.Builder
			fmt.Fprintf(&got, "=== on a terminal\n%s", c.shown(t, mirror{session.New(c.Session)}, 100))
			fmt.Fprintf(&got, "=== its statuses\n%s", strings.Join(c.statuses(t), ""))
			for _, run := range c.runs(t) {
				out, noted := c.piped(t, mirror{session.New(c.Session)}, run)
				fmt.Fprintf(&got, "=== %s, elsewhere\n%s=== and noted\n%s", run, out, noted)
			}
			file := filepath.Join("testdata", c.Name+".txt")
			if *update {
				if err := os.MkdirAll("testdata", 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("told otherwise (-want +got); go test -update rewrites it:\n%s", diff)
			}
		})
	}
}

// Coming back at any moment gives the same answer as having watched from the beginning.
func TestWhoComesBackAtAnyMomentGetsTheSameAnswer(t *testing.T) {
	compared := 0
	for _, c := range conversations(t) {
		for _, run := range c.runs(t) {
			want, _ := c.piped(t, mirror{session.New(c.Session)}, run)
			for seq, snap := range c.States {
				m, err := mirrorOf(snap)
				if err != nil {
					t.Fatal(err)
				}
				if state := m.Run(run); state == nil || state.Status.Terminal() {
					continue
				}
				compared++
				if got, _ := c.piped(t, m, run); got != want {
					t.Errorf("%s: %s from seq %s on answers\n%q\nnot\n%q", c.Name, run, seq, got, want)
				}
			}
		}
	}
	if compared < 50 {
		t.Errorf("only %d moments were compared", compared)
	}
}

// Coming back at any moment, a terminal shows all that the last answer says.
func TestWhoComesBackAtAnyMomentSeesTheWholeAnswer(t *testing.T) {
	compared := 0
	for _, c := range conversations(t) {
		var last int
		for seq := range c.States {
			n, _ := strconv.Atoi(seq)
			last = max(last, n)
		}
		end, err := mirrorOf(c.States[strconv.Itoa(last)])
		if err != nil {
			t.Fatal(err)
		}
		for seq, snap := range c.States {
			m, err := mirrorOf(snap)
			if err != nil {
				t.Fatal(err)
			}
			if slices.Contains([]string{"branches", "folded"}, c.Name) {
				continue // a branch that was left is not told again
			}
			seen := letters(c.shown(t, m, 1000))
			answer := end.lastAnswer()
			if answer == nil || end.Run(answer.Run).Background {
				continue
			}
			for _, p := range answer.Parts {
				if p.Type == session.PartText && p.Text != "" {
					compared++
					if !strings.Contains(seen, letters(p.Text)) {
						t.Errorf("%s: from seq %s on, %q is not shown in\n%q", c.Name, seq, p.Text, seen)
					}
				}
			}
		}
	}
	if compared < 50 {
		t.Errorf("only %d texts were looked for", compared)
	}
}

// The run that answers a message is known only once it cannot become another one:
// not between two events that belong together, however late the second comes.
func TestTheRunThatAnswersIsKnownOnlyWhenItIsTheLast(t *testing.T) {
	compared := 0
	for _, c := range conversations(t) {
		type moment struct {
			sent, run string
			seq       int64
		}
		var ended []moment
		sent, last := map[string]*following{}, map[string]string{}
		m := mirror{session.New(c.Session)}
		for _, raw := range c.Frames {
			u, _, _, err := client.ParseFrame(raw)
			if err != nil {
				t.Fatal(err)
			}
			e, ok := u.(client.Event)
			if !ok {
				continue
			}
			m.Apply(e.Event)
			for _, item := range m.Inbox {
				if sent[item.Message.ID] == nil {
					sent[item.Message.ID] = &following{
						chat: &chat{teller: teller{mirror: m}}, target: item.Run, sent: &api.SendMessage{ID: item.Message.ID},
					}
				}
			}
			for id, f := range sent {
				f.noteTakenBack(e.Event)
				run, known := f.answering()
				last[id] = run
				if state := m.Run(run); known && state != nil && state.Status.Terminal() {
					ended = append(ended, moment{id, run, e.Seq})
				}
			}
		}
		for _, at := range ended {
			compared++
			if at.run != last[at.sent] {
				t.Errorf("%s: at seq %d %s is taken to end with %s, and %s answers it", c.Name, at.seq, at.sent, at.run, last[at.sent])
			}
		}
	}
	if compared < 10 {
		t.Errorf("only %d moments were compared", compared)
	}
}

// letters are what a terminal shows of a text, without spaces and without the notes between.
func letters(text string) string {
	var b strings.Builder
	for _, l := range strings.Split(Printable(text), "\n") {
		if !strings.HasPrefix(l, "  ") {
			b.WriteString(strings.Join(strings.Fields(l), ""))
		}
	}
	return strings.ReplaceAll(b.String(), "\u200d", "")
}
