package feed_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/feed"
)

// RG-01
func TestReadersThatComeWhileEventsAreWrittenSeeEachOnce(t *testing.T) {
	w := newWorld(t, feed.Options{})
	w.write("s", 1)
	const total = 2000
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	var readers sync.WaitGroup
	for seq := 1; seq < total; {
		if seq%40 == 1 {
			after := int64(0)
			if seq%80 == 1 {
				after = rand.Int64N(int64(seq) + 1)
			}
			readers.Go(func() {
				r, err := w.hub.Follow(ctx, "s", after)
				if err != nil {
					t.Error(err)
					return
				}
				defer r.Close()
				if err := readTo(ctx, r, total); err != nil {
					t.Errorf("from %d: %v", after, err)
				}
			})
		}
		w.write("s", 1)
		seq++
	}
	readers.Wait()
}
