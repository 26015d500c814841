package feed_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/feed"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// SM-01
func TestReadersThatDoNotReadCostACursorEach(t *testing.T) {
	const limit = 128 << 10
	w := newWorld(t, feed.Options{TailBytes: limit})
	w.write("s", 1)
	slow := make([]*feed.Reader, 100)
	for i := range slow {
		slow[i] = w.follow("s", 1)
	}
	healthy := w.follow("s", 1)
	pad := strings.Repeat("x", 2000)
	seq := int64(1)
	for range 50 {
		w.writePadded("s", 20, pad)
		seq += 20
		if got := w.hub.Stats().TailBytes; got > limit {
			t.Fatalf("the tail has %d bytes", got)
		}
		if err := readTo(t.Context(), healthy, seq); err != nil {
			t.Fatal(err)
		}
	}
	if reads := w.src.reads.Load(); reads != 0 {
		t.Errorf("the healthy reader read the store %d times", reads)
	}
	for _, r := range slow[:3] { // they come back and miss nothing
		if err := readTo(t.Context(), r, seq); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheTailsOfAllSessionsTogetherAreBounded(t *testing.T) {
	const total, share = 1 << 20, 256 << 10
	w := newWorld(t, feed.Options{TailBytes: share, TotalBytes: total, Heal: time.Hour})
	json := []byte(strings.Repeat("x", 2000))
	var most int64
	for i := range 256 {
		id := fmt.Sprint("s", i)
		w.write(id, 1)
		w.follow(id, 1)
		for seq := int64(2); seq <= 200; seq++ {
			// What the tails hold is not looked at, so it need not be in the store.
			w.hub.Publish(store.Commit{Session: id, Frames: []session.Frame{{From: seq, To: seq, JSON: json}}})
			most = max(most, w.hub.Stats().TailBytes)
		}
	}
	if most > 2*total+share {
		t.Errorf("the tails had %d bytes, want about twice %d at most", most, total)
	}
	if most < total {
		t.Errorf("the tails had only %d bytes: the test does not reach the bound", most)
	}
}

func TestASessionCoolsDownWhenNobodyFollowsOrWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feed.Options{Linger: 30 * time.Second})
		w.write("s", 1)
		left, quiet := w.follow("s", 1), w.follow("s", 1)
		w.write("s", 10)
		if w.hub.Stats().TailBytes == 0 {
			t.Fatal("there is no tail")
		}
		time.Sleep(20 * time.Second)
		if w.hub.Stats().TailBytes == 0 {
			t.Error("the tail went too early")
		}
		time.Sleep(20 * time.Second)
		if got := w.hub.Stats().TailBytes; got != 0 {
			t.Errorf("a tail that nobody feeds has %d bytes", got)
		}
		left.Close()
		left.Close()
		if got := w.hub.Stats(); got.Readers != 1 || got.Sessions != 1 {
			t.Errorf("got %+v", got)
		}
		if err := readTo(t.Context(), quiet, 11); err != nil {
			t.Error(err)
		}
		quiet.Close()
		time.Sleep(20 * time.Second)
		if w.hub.Stats().Sessions != 1 {
			t.Error("the session did not linger")
		}
		time.Sleep(20 * time.Second)
		if got := w.hub.Stats(); got != (feed.Stats{Reads: got.Reads}) {
			t.Errorf("kept %+v", got)
		}
	})
}

func TestAReturningReaderIsServedFromMemory(t *testing.T) {
	w := newWorld(t, feed.Options{})
	w.write("s", 500)
	if err := readTo(t.Context(), w.follow("s", 0), 500); err != nil {
		t.Fatal(err)
	}
	reads := w.src.reads.Load()
	for after := int64(0); after < 500; after += 7 {
		if err := readTo(t.Context(), w.follow("s", after), 500); err != nil {
			t.Fatal(err)
		}
	}
	if w.src.reads.Load() != reads {
		t.Errorf("%d reads of the store", w.src.reads.Load()-reads)
	}
}

func TestABatchIsAsLargeAsItMayBeAndNoLarger(t *testing.T) {
	w := newWorld(t, feed.Options{Heal: time.Hour})
	w.write("s", 1)
	r := w.follow("s", 1)
	w.writePadded("s", 500, strings.Repeat("x", 900))
	for want, total := 100, 0; total < 500; {
		frames, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		bytes := 0
		for _, f := range frames {
			bytes += len(f.JSON)
		}
		total += len(frames)
		if bytes > 256<<10 || len(frames) < want && total < 500 {
			t.Errorf("a batch of %d frames and %d bytes", len(frames), bytes)
		}
	}
}

func TestManyReadersWakeOnOneCommit(t *testing.T) {
	w := newWorld(t, feed.Options{})
	w.write("s", 1)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	var readers sync.WaitGroup
	for range 1000 {
		r := w.follow("s", 1)
		readers.Go(func() {
			if err := readTo(ctx, r, 50); err != nil {
				t.Error(err)
			}
		})
	}
	for range 49 {
		w.write("s", 1)
	}
	readers.Wait()
	if reads := w.src.reads.Load(); reads > 10 {
		t.Errorf("%d reads of the store", reads)
	}
}
