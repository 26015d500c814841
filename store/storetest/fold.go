package storetest

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

var foldPromises = []promise{
	{"the deltas of ended runs become folded ranges, and nothing else changes", foldingDropsDeltas},
	{"a folded log reads without a hole from every cursor", aFoldedLogReadsFromEveryCursor},
	{"only runs that ended before the time are folded", onlyEndedRunsAreFolded},
	{"folding again drops nothing", foldingAgainDropsNothing},
	{"what an interrupted run had said outlives its deltas", interruptedRunsKeepWhatTheySaid},
	{"a folded log goes on", aFoldedLogGoesOn},
	{"deltas of two runs that alternate fold into their own messages", alternatingRunsFold},
	{"a run beside an open one folds alone", aRunBesideAnOpenOneFoldsAlone},
	{"many sessions are folded in a few calls", manySessionsAreFolded},
	{"nothing to fold is no error", func(t *testing.T, w *world) {
		if n := w.foldAll(w.clock.Now()); n != 0 {
			t.Errorf("dropped %d of nothing", n)
		}
	}},
}

// foldAll folds until nothing is left to fold.
func (w *world) foldAll(before time.Time) int64 {
	w.t.Helper()
	var dropped int64
	for range 1000 {
		n, err := w.Fold(w.ctx, before)
		if err != nil {
			w.t.Fatalf("fold: %v", err)
		}
		if n == 0 {
			return dropped
		}
		dropped += n
	}
	w.t.Fatal("folding has no end")
	return 0
}

// entry is what a log says at one seq.
type entry struct {
	event string // JSON
	into  string // the message of a folded range
}

// entries spreads frames out, so that ranges which are cut differently are equal.
func entries(t rapid.TB, id string, frames []session.Frame) []entry {
	t.Helper()
	var all []entry
	for _, f := range frames {
		e, ok, err := f.Event()
		if err != nil {
			t.Fatalf("frame %d..%d: %v", f.From, f.To, err)
		}
		if ok {
			if e.Seq != f.From || f.From != f.To || e.Session != id {
				t.Fatalf("frame %d..%d holds event %d of %s", f.From, f.To, e.Seq, e.Session)
			}
			all = append(all, entry{event: string(f.JSON)})
			continue
		}
		var folded session.Folded
		if err := json.Unmarshal(f.JSON, &folded); err != nil {
			t.Fatalf("frame %d..%d: %v", f.From, f.To, err)
		}
		if folded.Type != "folded" || folded.Session != id || folded.From != f.From || folded.To != f.To {
			t.Fatalf("frame %d..%d says %s", f.From, f.To, f.JSON)
		}
		for range f.To - f.From + 1 {
			all = append(all, entry{into: folded.Into})
		}
	}
	return all
}

// foldedEntries is what entries become when the deltas of the given runs are folded.
func foldedEntries(t *testing.T, frames []session.Frame, runs map[string]bool) (want []entry, dropped int64) {
	t.Helper()
	for _, f := range frames {
		e, ok, err := f.Event()
		if err != nil || !ok {
			t.Fatalf("frame %d..%d is no event: %v", f.From, f.To, err)
		}
		if session.IsDelta(e.Data) && runs[e.Run] {
			want = append(want, entry{into: deltaMessage(e.Data)})
			dropped++
		} else {
			want = append(want, entry{event: string(f.JSON)})
		}
	}
	return want, dropped
}

func deltaMessage(d session.Data) string {
	switch d := d.(type) {
	case session.TextDelta:
		return d.Message
	case session.ReasoningDelta:
		return d.Message
	case session.ToolInputDelta:
		return d.Message
	case session.ToolProgress:
		return d.Message
	}
	return ""
}

func sameEntries(t rapid.TB, what string, got, want []entry) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d entries, not %d", what, len(got), len(want))
		return
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%s: at %d is %+v, not %+v", what, i+1, got[i], want[i])
			return
		}
	}
}

// manySided is a run with every kind of delta, two attempts and a tool call.
func (w *world) manySided(message string) {
	w.t.Helper()
	w.submit("ses_1", message)
	lease := w.claim("wrk_1")
	w.stream(lease, "first ", "try")
	w.carry(lease, failAttempt)
	w.carry(lease, func(_ *session.State, run *session.Run) []session.Event { return beginAttempt(run) })
	w.carry(lease, func(_ *session.State, run *session.Run) []session.Event {
		return []session.Event{
			at(run, session.ReasoningDelta{Message: run.Message, Part: 0, Text: "hm"}),
			delta(run, 1, "let "), delta(run, 1, "me see"),
			at(run, session.ToolInputDelta{Message: run.Message, Part: 2, Call: "c1", Name: "look", Text: "{}"}),
		}
	})
	w.ask(lease, wanted{id: "c1", name: "look", arguments: "{}", effects: session.ReadOnly})
	w.carry(lease, func(_ *session.State, run *session.Run) []session.Event {
		return []session.Event{
			at(run, session.ToolStarted{Message: run.Message, Call: "c1", Try: 1, Key: "k"}),
			at(run, session.ToolProgress{Message: run.Message, Call: "c1", Progress: session.Progress{Fraction: 0.5}}),
			at(run, session.ToolCompleted{Message: run.Message, Call: "c1", Result: session.JSONString("seen")}),
			at(run, session.StepCompleted{}),
		}
	})
	w.stream(lease, "I ", "have ", "seen ", "it")
	w.finish(lease, "I have seen it.")
}

func foldingDropsDeltas(t *testing.T, w *world) {
	w.manySided("m1")
	w.sound("ses_1")
	before := w.readAll("ses_1")
	told := w.told.count()
	row, err := w.Session(w.ctx, "ses_1")
	if err != nil {
		t.Fatal(err)
	}
	want, deltas := foldedEntries(t, before, map[string]bool{"run_m1": true})
	if n := w.foldAll(w.clock.Now().Add(time.Hour)); n != deltas || n == 0 {
		t.Errorf("dropped %d of %d deltas", n, deltas)
	}
	sameEntries(t, "the folded log", entries(t, "ses_1", w.readAll("ses_1")), want)
	after, err := w.Session(w.ctx, "ses_1")
	if err != nil {
		t.Fatal(err)
	}
	sameRow(t, "the row after folding", after, row)
	for _, c := range w.told.since(told) {
		if len(c.Events) != 0 {
			t.Errorf("OnCommit was told of the events %v", c.Events)
		}
	}
	w.sound("ses_1")
	if w.reopen() {
		sameEntries(t, "the folded log after reopening", entries(t, "ses_1", w.readAll("ses_1")), want)
		w.sound("ses_1")
	}
}

func aFoldedLogReadsFromEveryCursor(t *testing.T, w *world) {
	w.manySided("m1")
	w.foldAll(w.clock.Now().Add(time.Hour))
	whole := entries(t, "ses_1", w.readAll("ses_1"))
	for after := range int64(len(whole)) {
		for _, limit := range []int{1, 2, 1000} {
			what := fmt.Sprintf("the log after %d in pages of %d", after, limit)
			sameEntries(t, what, entries(t, "ses_1", w.readFrom("ses_1", after, limit)), whole[after:])
		}
	}
}

func onlyEndedRunsAreFolded(t *testing.T, w *world) {
	w.manySided("early")
	ended := w.clock.Now()
	w.clock.advance(time.Minute)
	w.manySided("late")
	w.submit("ses_1", "open")
	w.stream(w.claim("wrk_1"), "still ", "going")
	before := w.readAll("ses_1")
	if n := w.foldAll(ended); n != 0 {
		t.Errorf("dropped %d deltas of a run that ended at that very time", n)
	}
	want, deltas := foldedEntries(t, before, map[string]bool{"run_early": true})
	if n := w.foldAll(ended.Add(time.Millisecond)); n != deltas {
		t.Errorf("dropped %d of %d deltas", n, deltas)
	}
	sameEntries(t, "the log", entries(t, "ses_1", w.readAll("ses_1")), want)
	w.sound("ses_1")
	want, _ = foldedEntries(t, before, map[string]bool{"run_early": true, "run_late": true})
	w.foldAll(w.clock.Now().Add(time.Hour))
	sameEntries(t, "the log without the open run's deltas", entries(t, "ses_1", w.readAll("ses_1")), want)
	w.sound("ses_1")
}

func foldingAgainDropsNothing(t *testing.T, w *world) {
	w.manySided("m1")
	w.foldAll(w.clock.Now().Add(time.Hour))
	before := w.readAll("ses_1")
	if n := w.foldAll(w.clock.Now().Add(2 * time.Hour)); n != 0 {
		t.Errorf("dropped %d more", n)
	}
	same(t, "the log", w.readAll("ses_1"), before)
}

func interruptedRunsKeepWhatTheySaid(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	lease := w.claim("wrk_1")
	w.stream(lease, "half ", "a word")
	w.do("ses_1", session.Cancel{Run: lease.Run, By: owner, At: w.clock.Now()}.Decide)
	w.do("ses_1", session.CancelOverdue{Run: lease.Run, At: w.clock.Now()}.Decide)
	w.submit("ses_1", "m2")
	lease = w.claim("wrk_1")
	w.stream(lease, "another ", "half")
	w.do("ses_1", session.Reconcile{Run: lease.Run, Fence: lease.Fence, Cause: session.CauseLeaseExpired, At: w.clock.Now(), MaxCrashes: 1}.Decide)
	w.foldAll(w.clock.Now().Add(time.Hour))
	got, err := w.Messages(w.ctx, "ses_1", []string{"out_m1", "out_m2"})
	if err != nil || len(got) != 2 || got[0].Text() != "half a word" || got[1].Text() != "another half" {
		t.Errorf("the messages are %+v, %v", got, err)
	}
	w.sound("ses_1")
}

func aFoldedLogGoesOn(t *testing.T, w *world) {
	w.manySided("m1")
	w.foldAll(w.clock.Now().Add(time.Hour))
	head, err := w.Head(w.ctx, "ses_1")
	if err != nil {
		t.Fatal(err)
	}
	w.reopen()
	if a := w.do("ses_1", w.newSubmit("m2").Decide); a.First != head+1 {
		t.Errorf("the log goes on at %d after %d", a.First, head)
	}
	lease := w.claim("wrk_1")
	w.stream(lease, "and ", "on")
	w.sound("ses_1")
	w.finish(lease, "and on")
	w.sound("ses_1")
	again := w.newSubmit("m1")
	w.do("ses_1", again.Decide)
	if !again.Repeated {
		t.Error("a message of a folded run was accepted again")
	}
}

// alternating has two runs of one session stream by turns.
func (w *world) alternating() (one, two store.Lease) {
	w.t.Helper()
	w.submit("ses_1", "m1")
	one = w.claim("wrk_1")
	w.submit("ses_1", "m2", func(c *session.Submit) { c.Background = true })
	two = w.claim("wrk_2")
	w.stream(one)
	w.stream(two)
	for range 4 {
		for _, lease := range []store.Lease{one, two} {
			w.carry(lease, func(_ *session.State, run *session.Run) []session.Event {
				return []session.Event{delta(run, 0, "a"), delta(run, 0, "b")}
			})
		}
	}
	return one, two
}

func alternatingRunsFold(t *testing.T, w *world) {
	one, two := w.alternating()
	w.finish(one, "one")
	w.finish(two, "two")
	want, dropped := foldedEntries(t, w.readAll("ses_1"), map[string]bool{"run_m1": true, "run_m2": true})
	if n := w.foldAll(w.clock.Now().Add(time.Hour)); n != dropped {
		t.Errorf("dropped %d of %d deltas", n, dropped)
	}
	sameEntries(t, "the log", entries(t, "ses_1", w.readAll("ses_1")), want)
	w.sound("ses_1")
}

func aRunBesideAnOpenOneFoldsAlone(t *testing.T, w *world) {
	one, two := w.alternating()
	before := w.readAll("ses_1")
	w.finish(two, "two")
	want, _ := foldedEntries(t, before, map[string]bool{"run_m2": true})
	w.foldAll(w.clock.Now().Add(time.Hour))
	sameEntries(t, "the log while one run is open", entries(t, "ses_1", w.readAll("ses_1"))[:len(want)], want)
	w.sound("ses_1")
	w.finish(one, "one")
	want, _ = foldedEntries(t, before, map[string]bool{"run_m1": true, "run_m2": true})
	w.foldAll(w.clock.Now().Add(time.Hour))
	sameEntries(t, "the log when both have ended", entries(t, "ses_1", w.readAll("ses_1"))[:len(want)], want)
	w.sound("ses_1")
}

func manySessionsAreFolded(t *testing.T, w *world) {
	const n = 120
	for i := range n {
		w.wholeRun(fmt.Sprintf("ses_%d", i), fmt.Sprintf("m%d", i), "a", "b")
	}
	if dropped := w.foldAll(w.clock.Now().Add(time.Hour)); dropped != 2*n {
		t.Errorf("dropped %d of %d deltas", dropped, 2*n)
	}
	w.sound("ses_0")
	w.sound(fmt.Sprintf("ses_%d", n-1))
}
