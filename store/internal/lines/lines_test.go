package lines

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/session"
)

// draw is a log of some events, deltas of two runs among them.
func draw(t *rapid.T) (events []session.Event, frames []session.Frame, body []byte) {
	for i := range rapid.IntRange(1, 60).Draw(t, "events") {
		text := rapid.StringN(0, 40, -1).Draw(t, "text")
		e := session.Event{Data: session.Updated{Title: &text}}
		if n := rapid.IntRange(0, 3).Draw(t, "run"); n < 2 {
			e = session.Event{Run: fmt.Sprintf("run_%d", n), Step: 1, Attempt: 1, Data: session.TextDelta{Message: fmt.Sprintf("out_%d", n), Text: text}}
		}
		e.Seq = int64(i + 1)
		events = append(events, e)
	}
	body, frames, _, err := Encode(nil, "ses_1", 0, time.Unix(1, 0).UTC(), events)
	if err != nil {
		t.Fatal(err)
	}
	return events, frames, body
}

// read pages through chunks from a cursor.
func read(t *rapid.T, chunks []Chunk, after int64, limit int) []session.Frame {
	var all []session.Frame
	for {
		p := Page{Session: "ses_1", After: after, Limit: limit}
		for _, c := range chunks {
			if err := p.Add(c); err != nil {
				t.Fatal(err)
			}
		}
		if len(p.Frames) == 0 {
			return all
		}
		if len(p.Frames) > limit {
			t.Fatalf("a page of %d has %d frames", limit, len(p.Frames))
		}
		all, after = append(all, p.Frames...), p.After
	}
}

func TestALogIsTheSameHoweverItIsCutAndPacked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, frames, _ := draw(t)
		var chunks []Chunk
		for from := 0; from < len(frames); {
			to := rapid.IntRange(from+1, len(frames)).Draw(t, "to")
			chunks = append(chunks, join(frames[from:to]))
			from = to
		}
		after := rapid.Int64Range(0, int64(len(frames))).Draw(t, "after")
		limit := rapid.IntRange(1, 70).Draw(t, "limit")
		for _, rows := range [][]Chunk{chunks, Pack(chunks)} {
			if diff := cmp.Diff(frames[after:], read(t, rows, after, limit), cmp.Transformer("", func(b []byte) string { return string(b) })); diff != "" && int(after) < len(frames) {
				t.Fatal(diff)
			}
		}
	})
}

func TestFoldingDropsDeltasOfItsRunsAndNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events, frames, body := draw(t)
		rows, dropped, err := Fold{Session: "ses_1", Runs: map[string]bool{"run_0": true}}.Rows(Split(frames, body))
		if err != nil {
			t.Fatal(err)
		}
		var want int64
		for _, e := range events {
			if e.Run == "run_0" {
				want++
			}
		}
		if dropped != want {
			t.Fatalf("%d deltas were dropped, not %d", dropped, want)
		}
		after := int64(0)
		for _, f := range read(t, rows, 0, 1000) {
			if f.From != after+1 {
				t.Fatalf("%d..%d follows %d", f.From, f.To, after)
			}
			after = f.To
			e, kept, err := f.Event()
			if err != nil || kept && (e.Run == "run_0" || string(f.JSON) != string(frames[f.From-1].JSON)) {
				t.Fatalf("%s is left, %v", f.JSON, err)
			}
			for seq := f.From; !kept && seq <= f.To; seq++ {
				if events[seq-1].Run != "run_0" {
					t.Fatalf("seq %d was folded away", seq)
				}
			}
		}
		if after != int64(len(events)) {
			t.Fatalf("the log ends at %d, not %d", after, len(events))
		}
	})
}
