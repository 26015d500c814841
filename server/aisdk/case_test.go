package aisdk_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast/server/aisdk"
	"github.com/holdfast-run/holdfast/server/aisdk/aisdktest"
	"github.com/holdfast-run/holdfast/session"
)

var update = flag.Bool("update", false, "write the streams of the protocol's conversations to testdata")

// conversation is one of protocol/cases.
type conversation struct {
	name   string
	frames []session.Frame
}

func conversations(t *testing.T) []conversation {
	t.Helper()
	files, err := filepath.Glob("../../protocol/cases/*.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []conversation
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var c struct {
			Frames []json.RawMessage
			Events []json.RawMessage
		}
		if json.Unmarshal(raw, &c) != nil || len(c.Frames) == 0 {
			continue // streams and cursors
		}
		one := conversation{name: strings.TrimSuffix(filepath.Base(file), ".json")}
		for _, f := range c.Frames {
			one.frames = append(one.frames, frameOf(t, f))
		}
		all = append(all, one)
	}
	if len(all) < 25 {
		t.Fatalf("there are only %d conversations", len(all))
	}
	return all
}

// blobs have addresses and are not read.
var blobs = aisdk.Blobs{URL: func(b session.Blob) string { return "/blobs/" + b.Hash[:8] }}

func frameOf(t *testing.T, raw json.RawMessage) session.Frame {
	t.Helper()
	var line bytes.Buffer
	if err := json.Compact(&line, raw); err != nil {
		t.Fatal(err)
	}
	var at struct{ Seq, From, To int64 }
	if err := json.Unmarshal(line.Bytes(), &at); err != nil {
		t.Fatal(err)
	}
	if at.Seq != 0 {
		at.From, at.To = at.Seq, at.Seq
	}
	return session.Frame{From: at.From, To: at.To, JSON: line.Bytes()}
}

// state is what is true after the frames up to seq.
func (c conversation) state(t *testing.T, seq int64) *session.State {
	t.Helper()
	s := session.New("ses_1")
	for _, f := range c.frames {
		if f.To > seq {
			break
		}
		e, ok, err := f.Event()
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			s.Apply(e)
		}
	}
	return s
}

func (c conversation) end() int64 { return c.frames[len(c.frames)-1].To }

// answers are the messages that runs write, with their views from the first event on.
func (c conversation) answers(t *testing.T) []aisdk.View {
	t.Helper()
	var views []aisdk.View
	s := c.state(t, c.end())
	for _, m := range s.Messages {
		if m.Role == session.RoleAssistant && s.Run(m.Run) != nil {
			views = append(views, aisdk.View{Run: m.Run, Message: m.ID, Profile: aisdk.Safe, Index: true})
		}
	}
	return views
}

// tell gives the chunks of a view as events, and how the stream ended.
func (c conversation) tell(t *testing.T, v aisdk.View) (events []string, end aisdk.End) {
	t.Helper()
	p := aisdk.NewProjector(v, blobs)
	for _, f := range c.frames {
		chunks, err := p.Apply(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, chunk := range chunks {
			events = append(events, string(chunk.AppendEvent(nil)))
		}
	}
	return events, p.End()
}

// follow lets a client take the events.
func follow(t *testing.T, c *aisdktest.Client, p aisdk.Profile, events []string) *aisdktest.Client {
	t.Helper()
	for i, e := range events {
		if err := c.Take(p, []byte(e)); err != nil {
			t.Fatalf("chunk %d, %s: %v\nof\n%s", i, strings.TrimSpace(e), err, strings.Join(events, ""))
		}
	}
	return c
}

// history gives a message as the history of the state has it.
func history(t *testing.T, s *session.State, profile aisdk.Profile, message string) map[string]any {
	t.Helper()
	past := aisdk.Past{Profile: profile, Blobs: blobs}
	for _, m := range s.Messages {
		past.Messages = append(past.Messages, *m)
	}
	for _, r := range s.Runs {
		past.Runs = append(past.Runs, *r)
	}
	for _, a := range s.Approvals {
		if a.Status == session.StatusPending {
			past.Pending = append(past.Pending, *a)
		}
	}
	for _, m := range aisdk.History(past) {
		if m.ID == message {
			return values(t, m)
		}
	}
	return nil
}

func values(t *testing.T, v any) map[string]any {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

// same compares a client's message with the history's. A replay does not ask
// again what was decided, so of an approval it may not know.
func same(t *testing.T, what string, got, want map[string]any, replay bool) {
	t.Helper()
	got, want = values(t, got), values(t, want)
	if replay {
		for _, m := range []map[string]any{got, want} {
			parts, _ := m["parts"].([]any)
			for _, p := range parts {
				if part, ok := p.(map[string]any); ok && part["state"] != "approval-requested" {
					delete(part, "approval")
				}
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: the client has (+) not what the history says (-)\n%s", what, diff)
	}
}

func TestTheStreamsOfTheConversationsAreTheseChunks(t *testing.T) {
	for _, c := range conversations(t) {
		var out strings.Builder
		for _, v := range c.answers(t) {
			events, end := c.tell(t, v)
			fmt.Fprintf(&out, "%s of %s: %s\n", v.Message, v.Run, end)
			for _, e := range events {
				out.WriteString(strings.TrimPrefix(strings.TrimSuffix(e, "\n"), "data: "))
			}
			out.WriteString("\n")
		}
		raw, err := json.MarshalIndent(historyOf(t, c), "", " ")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "history:\n%s\n", raw)
		file := filepath.Join("testdata", c.name+".txt")
		if *update {
			if err := os.WriteFile(file, []byte(out.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), out.String()); diff != "" {
			t.Errorf("%s: go test ./server/aisdk -update writes what is new, to be read\n%s", c.name, diff)
		}
	}
}

func historyOf(t *testing.T, c conversation) []aisdk.Message {
	t.Helper()
	s := c.state(t, c.end())
	past := aisdk.Past{Blobs: blobs}
	for _, id := range s.Path(s.Head) {
		past.Messages = append(past.Messages, *s.Message(id))
	}
	for _, r := range s.Runs {
		past.Runs = append(past.Runs, *r)
	}
	for _, a := range s.Approvals {
		if a.Status == session.StatusPending {
			past.Pending = append(past.Pending, *a)
		}
	}
	return aisdk.History(past)
}

// What a client folds from a whole stream is what it gets when it loads the page.
func TestAStreamFoldsToTheHistory(t *testing.T) {
	for _, c := range conversations(t) {
		for _, v := range c.answers(t) {
			for _, v.Profile = range []aisdk.Profile{aisdk.Safe, aisdk.V5, aisdk.V7} {
				events, end := c.tell(t, v)
				page := follow(t, &aisdktest.Client{}, v.Profile, events)
				if end != aisdk.Finished {
					continue // broken off, or not over: see the tests of resuming
				}
				if page.Metadata["status"] == "waiting" {
					continue // it goes on in another stream: see below
				}
				same(t, c.name+" "+string(v.Profile), page.Message(), history(t, c.state(t, c.end()), v.Profile, v.Message), v.Profile != aisdk.V5)
			}
		}
	}
}

// Wherever a page is loaded again, the answer is told from its beginning, and then goes on.
func TestAReplayAtAnyPlaceFoldsToTheHistory(t *testing.T) {
	replays := 0
	for _, c := range conversations(t) {
		for _, v := range c.answers(t) {
			for _, v.Profile = range []aisdk.Profile{aisdk.Safe, aisdk.V5, aisdk.V7} {
				for v.Until = 1; v.Until <= c.end(); v.Until++ {
					for _, v.Index = range []bool{true, false}[:1+b2i(v.Profile == aisdk.Safe)] {
						events, end := c.tell(t, v)
						page := follow(t, &aisdktest.Client{}, v.Profile, events)
						if v.Until == c.end() && end == aisdk.Superseded {
							t.Errorf("%s: a replay of what is over breaks off", c.name)
						}
						if end != aisdk.Finished || page.Metadata["status"] == "waiting" && v.Until < c.end() {
							continue
						}
						replays++
						same(t, fmt.Sprintf("%s %s at %d", c.name, v.Profile, v.Until), page.Message(), history(t, c.state(t, c.end()), v.Profile, v.Message), true)
					}
				}
			}
		}
	}
	if replays < 800 {
		t.Errorf("only %d replays", replays)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// For every k: the first k chunks and what is told to one who has k are the whole.
func TestTheFirstChunksAndTheRestAreTheWhole(t *testing.T) {
	for _, c := range conversations(t) {
		for _, v := range c.answers(t) {
			for _, v.Until = range []int64{0, c.end() / 2, c.end()} {
				for _, v.Profile = range []aisdk.Profile{aisdk.Safe, aisdk.V7} {
					whole, end := c.tell(t, v)
					if end == aisdk.Superseded { // who comes again is told why the answer is no good
						again := v
						again.Skip = len(whole)
						rest, _ := c.tell(t, again)
						page := follow(t, &aisdktest.Client{}, v.Profile, slices.Concat(whole, rest))
						if page.Errored == "" || !page.Finished {
							t.Errorf("%s: the answer of an attempt that failed just ends: %q", c.name, rest)
						}
						continue
					}
					for k := range len(whole) {
						again := v
						again.Skip = k
						rest, _ := c.tell(t, again)
						if got := slices.Concat(whole[:k], rest); !slices.Equal(got, whole) && !c.folded(v) {
							t.Fatalf("%s, %d chunks and the rest:\n%s", c.name, k, cmp.Diff(whole, got))
						}
					}
				}
			}
		}
	}
}

// folded says whether deltas of the answer are gone from the log.
func (c conversation) folded(v aisdk.View) bool {
	return slices.ContainsFunc(c.frames, func(f session.Frame) bool {
		return bytes.Contains(f.JSON, []byte(`"type":"folded"`)) && bytes.Contains(f.JSON, []byte(v.Message))
	})
}

// An answer that waited for a person goes on in the same message, and nothing
// of its first half is told again.
func TestADecisionGoesOnInTheSameMessage(t *testing.T) {
	went := 0
	for _, c := range conversations(t) {
		for _, v := range c.answers(t) {
			for _, v.Profile = range []aisdk.Profile{aisdk.Safe, aisdk.V7} {
				page, elsewhere := &aisdktest.Client{}, false
				events, end := c.tell(t, v)
				follow(t, page, v.Profile, events)
				for end == aisdk.Finished && page.Metadata["status"] == "waiting" {
					d, ok := c.decision(t, page)
					if !ok {
						break
					}
					page.Again()
					next := v
					next.Approval, next.Until = d.id, d.seq-1
					if elsewhere = elsewhere || !d.made; d.made {
						page.Decide(d.id, d.approved, d.note)
					}
					events, end = c.tell(t, next)
					if len(events) == 0 {
						t.Fatalf("%s: nothing comes of %s", c.name, d.id)
					}
					follow(t, page, v.Profile, events)
					went++
				}
				if end == aisdk.Finished {
					same(t, c.name, page.Message(), history(t, c.state(t, c.end()), v.Profile, v.Message), elsewhere)
				}
			}
		}
	}
	if went < 6 {
		t.Errorf("only %d decisions", went)
	}
}

type decision struct {
	id, note       string
	seq            int64
	made, approved bool
}

// decision is the first thing that happens to an approval that the client is asked for.
func (c conversation) decision(t *testing.T, page *aisdktest.Client) (decision, bool) {
	t.Helper()
	asked := map[string]bool{}
	for _, id := range page.Asked() {
		asked[id] = true
	}
	for _, f := range c.frames {
		e, _, err := f.Event()
		if err != nil {
			t.Fatal(err)
		}
		switch d := e.Data.(type) {
		case session.ApprovalDecided:
			if asked[d.ID] {
				return decision{d.ID, d.Note, e.Seq, true, d.Decision == session.Approve}, true
			}
		case session.ApprovalExpired:
			if asked[d.ID] {
				return decision{id: d.ID, seq: e.Seq}, true
			}
		case session.ApprovalVoided:
			if asked[d.ID] {
				return decision{id: d.ID, seq: e.Seq}, true
			}
		}
	}
	return decision{}, false
}

// Retention drops deltas and keeps what they said: a replay says the same in
// fewer chunks, and a client that counted the dropped ones is told to load the page again.
func TestFoldedDeltasChangeNoReplay(t *testing.T) {
	told := 0
	for _, c := range conversations(t) {
		s := c.state(t, c.end())
		folded := c
		folded.frames = nil
		for _, f := range c.frames {
			if e, ok, _ := f.Event(); ok && session.IsDelta(e.Data) && s.Run(e.Run) != nil && s.Run(e.Run).Status.Terminal() {
				f = session.FoldedFrame("ses_1", f.From, f.To, "")
			}
			folded.frames = append(folded.frames, f)
		}
		for _, v := range c.answers(t) {
			if !s.Run(v.Run).Status.Terminal() {
				continue
			}
			v.Until = c.end()
			events, _ := folded.tell(t, v)
			page := follow(t, &aisdktest.Client{}, v.Profile, events)
			want := history(t, s, v.Profile, v.Message)
			same(t, c.name, page.Message(), want, true)
			whole, _ := c.tell(t, v)
			for k := 1; k < len(whole); k++ {
				v.Skip = k
				rest, end := folded.tell(t, v)
				if end != aisdk.Finished || len(rest) == 0 {
					t.Fatalf("%s: who has %d chunks is told %q and is left waiting", c.name, k, rest)
				}
				page := &aisdktest.Client{}
				follow(t, page, v.Profile, whole[:k])
				if follow(t, page, v.Profile, rest); page.Errored != "" {
					told++
					continue
				}
				same(t, c.name, page.Message(), want, true)
			}
		}
	}
	if told == 0 {
		t.Error("nobody was told to load the page again")
	}
}
