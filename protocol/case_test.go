package protocol_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// conversation is one file of cases/.
type conversation struct {
	Name    string `json:"name"`
	About   string `json:"about"`
	Session string `json:"session"`
	// Frames are events and folded ranges in wire form.
	Frames []json.RawMessage `json:"frames"`
	// States are snapshots with an unbounded window, by seq.
	States map[string]json.RawMessage `json:"states"`
}

// streams are the files of cases/ that are not conversations.
var streams = []string{"sse.json", "cursor.json"}

func conversations(t *testing.T) map[string]conversation {
	t.Helper()
	files, err := filepath.Glob("cases/*.json")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]conversation{}
	for _, file := range files {
		if slices.Contains(streams, filepath.Base(file)) {
			continue
		}
		var c conversation
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &c); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if want := strings.TrimSuffix(filepath.Base(file), ".json"); c.Name != want {
			t.Errorf("%s is named %q", file, c.Name)
		}
		all[c.Name] = c
	}
	if len(all) == 0 {
		t.Fatal("there are no cases")
	}
	return all
}

// parsed gives the frames with their ranges.
func (c conversation) parsed(t *testing.T) []session.Frame {
	t.Helper()
	var frames []session.Frame
	for _, raw := range c.Frames {
		var line bytes.Buffer
		if err := json.Compact(&line, raw); err != nil {
			t.Fatal(err)
		}
		var kind struct {
			Seq, From, To int64
		}
		if err := json.Unmarshal(line.Bytes(), &kind); err != nil {
			t.Fatal(err)
		}
		f := session.Frame{From: kind.Seq, To: kind.Seq, JSON: line.Bytes()}
		if kind.Seq == 0 {
			f.From, f.To = kind.From, kind.To
		}
		frames = append(frames, f)
	}
	return frames
}

// seqs are the seqs of the states, ascending.
func (c conversation) seqs(t *testing.T) []int64 {
	t.Helper()
	var seqs []int64
	for key := range c.States {
		seq, err := strconv.ParseInt(key, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	return seqs
}

// fold folds a frame as a reader does.
func fold(t *testing.T, s *session.State, f session.Frame) {
	t.Helper()
	if f.From > s.Seq+1 {
		t.Fatalf("the frame %d..%d does not join %d", f.From, f.To, s.Seq)
	}
	e, ok, err := f.Event()
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		s.Seq = f.To
		return
	}
	s.Apply(e)
}

// view is the snapshot of a whole state, as PROTOCOL.md §2 and §8 have it.
// known are siblings that the state does not have itself.
func view(s *session.State, known map[session.Place][]string) holdfast.Snapshot {
	snap := holdfast.Snapshot{
		Session: holdfast.Session{SessionRow: store.RowOf(s), Metadata: s.Metadata, ForkedFrom: s.ForkedFrom},
		Seq:     s.Seq, Head: s.Head,
		Messages: []session.Message{}, Runs: []session.Run{}, Approvals: []session.Approval{}, Inbox: []session.InboxItem{},
	}
	siblings := s.SiblingIndex()
	for place, ids := range known {
		for _, id := range siblings[place] {
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
		siblings[place] = ids
	}
	shown := map[string]bool{}
	for _, id := range s.Path(s.Head) {
		m := *s.Message(id)
		if ids := siblings[session.Place{Parent: m.Parent, Role: m.Role}]; len(ids) > 1 && !s.Aside(&m) {
			m.Siblings = ids
		}
		shown[m.Run] = true
		snap.Messages = append(snap.Messages, m)
	}
	if s.Head != "" {
		for _, role := range []session.Role{session.RoleUser, session.RoleAssistant} {
			if ids := siblings[session.Place{Parent: s.Head, Role: role}]; len(ids) > 0 {
				if snap.Below == nil {
					snap.Below = map[session.Role][]string{}
				}
				snap.Below[role] = ids
			}
		}
	}
	for _, run := range s.Runs {
		if !run.Status.Terminal() || shown[run.ID] {
			r := *run
			r.Steps = nil
			snap.Runs = append(snap.Runs, r)
		}
	}
	for _, run := range s.Runs {
		for _, id := range []string{run.Input, run.Message} {
			same := func(m session.Message) bool { return m.ID == id }
			if m := s.Message(id); m != nil && run.Background && !run.Status.Terminal() && !slices.ContainsFunc(snap.Aside, same) {
				snap.Aside = append(snap.Aside, *m)
			}
		}
	}
	for _, a := range s.Approvals {
		if a.Status == session.StatusPending {
			snap.Approvals = append(snap.Approvals, *a)
		}
	}
	for _, item := range s.Inbox {
		snap.Inbox = append(snap.Inbox, *item)
	}
	return snap
}

// encode is JSON without HTML escapes.
func encode(t *testing.T, v any) json.RawMessage {
	t.Helper()
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSpace(out.Bytes())
}

// compact makes two JSON texts of the same layout, so that they compare byte for byte.
func compact(t *testing.T, raw []byte) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Compact(&out, raw); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestFoldingTheFramesOfEachCaseGivesItsStates(t *testing.T) {
	for name, c := range conversations(t) {
		t.Run(name, func(t *testing.T) {
			s := session.New(c.Session)
			seen := 0
			for _, f := range c.parsed(t) {
				fold(t, s, f)
				want, ok := c.States[fmt.Sprint(s.Seq)]
				if !ok {
					continue
				}
				seen++
				if diff := cmp.Diff(compact(t, want), string(encode(t, view(s, nil)))); diff != "" {
					t.Fatalf("the state at %d (-case +fold):\n%s", s.Seq, diff)
				}
			}
			if seen != len(c.States) || c.States[fmt.Sprint(s.Seq)] == nil {
				t.Errorf("%d of %d states were reached, up to %d", seen, len(c.States), s.Seq)
			}
		})
	}
}

// A reader that begins with a snapshot ends where one that saw everything does,
// unless the log goes on about messages that were not on the snapshot's branch.
func TestGoingOnFromTheSnapshotOfAnyStateGivesEveryLaterOne(t *testing.T) {
	pairs := 0
	for name, c := range conversations(t) {
		t.Run(name, func(t *testing.T) {
			frames := c.parsed(t)
			for _, k := range c.seqs(t) {
				s, siblings := fromSnapshot(t, c.States[fmt.Sprint(k)])
				for _, f := range frames {
					if f.To <= k {
						continue
					}
					if elsewhere(t, s, f) {
						break
					}
					fold(t, s, f)
					want, ok := c.States[fmt.Sprint(s.Seq)]
					if !ok {
						continue
					}
					pairs++
					if diff := cmp.Diff(compact(t, want), string(encode(t, view(s, siblings)))); diff != "" {
						t.Fatalf("from %d to %d (-case +reader):\n%s", k, s.Seq, diff)
					}
				}
			}
		})
	}
	if pairs < 100 {
		t.Errorf("only %d pairs of states were tried", pairs)
	}
}

// fromSnapshot is the state of a reader that has nothing but a snapshot.
func fromSnapshot(t *testing.T, raw json.RawMessage) (*session.State, map[session.Place][]string) {
	t.Helper()
	var snap holdfast.Snapshot
	if err := json.Unmarshal(raw, &snap); err != nil {
		t.Fatal(err)
	}
	row := snap.Session.SessionRow
	kept := session.State{
		ID: row.ID, Seq: snap.Seq, FactSeq: row.Seq, Title: row.Title, Agent: row.Agent, Metadata: snap.Session.Metadata, ForkedFrom: snap.Session.ForkedFrom,
		Head: snap.Head, CreatedAt: row.CreatedAt, UpdatedAt: row.UpdatedAt,
	}
	if row.Parent != "" {
		kept.Parent = &session.ParentCall{Session: row.Parent}
	}
	siblings := map[session.Place][]string{}
	for i := range snap.Messages {
		m := &snap.Messages[i]
		if len(m.Siblings) > 0 {
			siblings[session.Place{Parent: m.Parent, Role: m.Role}] = m.Siblings
			m.Siblings = nil
		}
		kept.Messages = append(kept.Messages, m)
	}
	for role, ids := range snap.Below {
		siblings[session.Place{Parent: snap.Head, Role: role}] = ids
	}
	for i := range snap.Runs {
		kept.Runs = append(kept.Runs, &snap.Runs[i])
	}
	for i := range snap.Approvals {
		kept.Approvals = append(kept.Approvals, &snap.Approvals[i])
	}
	for i := range snap.Inbox {
		kept.Inbox = append(kept.Inbox, &snap.Inbox[i])
	}
	s, err := session.Load(encode(t, &kept))
	if err != nil {
		t.Fatal(err)
	}
	return s, siblings
}

// elsewhere says that a frame is about a message that the reader does not have:
// it needs a new snapshot.
func elsewhere(t *testing.T, s *session.State, f session.Frame) bool {
	t.Helper()
	e, ok, err := f.Event()
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		return false
	}
	switch d := e.Data.(type) {
	case session.Updated:
		return d.Head != nil && s.Message(*d.Head) == nil
	case session.MessageCreated:
		return d.Message.Parent != "" && s.Message(d.Message.Parent) == nil
	}
	return false
}

// The names that PROTOCOL.md promises.
func TestTheProtocolPageNamesEveryEventAndEveryErrorOfTheDomain(t *testing.T) {
	page, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, c := range conversations(t) {
		for _, f := range c.parsed(t) {
			if e, ok, _ := f.Event(); ok {
				if _, unknown := e.Data.(session.Unknown); !unknown {
					seen[e.Type()] = true
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		if !bytes.Contains(page, []byte("`"+name+"`")) {
			t.Errorf("the page does not name the event %s", name)
		}
	}
	for _, name := range eventTypes {
		if !seen[name] {
			t.Errorf("no case has the event %s", name)
		}
	}
	for _, code := range []session.ErrorCode{
		session.NotFound, session.Conflict, session.RunActive, session.RunTerminal, session.RunNotTerminal, session.ApprovalDone,
		session.ApprovalGone, session.OutcomeKnown, session.NotInInbox, session.InboxFull, session.Invalid,
	} {
		if !bytes.Contains(page, []byte("| `"+string(code)+"` |")) {
			t.Errorf("the page does not name the error %s", code)
		}
	}
}

var eventTypes = []string{
	"session.created", "session.updated", "session.forked", "message.created", "message.completed", "message.interrupted",
	"inbox.queued", "inbox.edited", "inbox.removed", "inbox.delivered",
	"run.queued", "run.started", "run.waiting", "run.resumed", "run.cancel_requested", "run.reconciled",
	"run.completed", "run.failed", "run.cancelled",
	"step.started", "attempt.failed", "text.delta", "reasoning.delta", "tool.input.delta", "model.completed", "step.completed", "context.compacted",
	"tool.called", "tool.started", "tool.deferred", "tool.progress", "tool.completed", "tool.failed", "tool.denied", "tool.cancelled",
	"tool.unknown", "tool.resolved", "approval.requested", "approval.decided", "approval.expired", "approval.voided",
}
