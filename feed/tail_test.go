package feed

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/session"
)

// Whatever is added, in whatever order, what a tail gives joins at the cursor,
// is what was added, and the tail keeps its bounds.
func TestATailGivesOnlyWhatJoins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most, frames = 2000, 20
		var tail tail
		var given [][]session.Frame // batches that readers still hold
		end := int64(1)
		for range rapid.IntRange(1, 60).Draw(t, "commits") {
			from := max(1, end+rapid.Int64Range(-4, 2).Draw(t, "jump"))
			var batch []session.Frame
			for range rapid.IntRange(1, 8).Draw(t, "frames") {
				to := from + rapid.SampledFrom([]int64{0, 0, 0, 3}).Draw(t, "width")
				batch = append(batch, session.Frame{From: from, To: to, JSON: make([]byte, from%97)})
				from = to + 1
			}
			end = max(end, from-1)
			tail.add(batch)
			tail.trim(most, frames)

			bytes := 0
			for _, f := range tail.frames {
				bytes += weigh(f)
			}
			if bytes != tail.bytes || bytes > most || len(tail.frames) > frames || !joined(tail.frames) {
				t.Fatalf("%d frames of %d bytes, counted as %d", len(tail.frames), bytes, tail.bytes)
			}
			for after := range end + 1 {
				got := tail.cut(after, 500)
				begins := false
				for _, f := range tail.frames {
					begins = begins || f.From == after+1
				}
				if (got != nil) != begins {
					t.Fatalf("cut after %d gave %v of %v", after, got, tail.frames)
				}
				if got != nil && (got[0].From != after+1 || !joined(got)) {
					t.Fatalf("cut after %d gave %v", after, got)
				}
				if got != nil {
					given = append(given, got)
				}
			}
			for _, frames := range given {
				for _, f := range frames {
					if int64(len(f.JSON)) != f.From%97 || !joined(frames) {
						t.Fatal("a batch that was given has changed")
					}
				}
			}
		}
	})
}
