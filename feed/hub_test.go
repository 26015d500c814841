package feed_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/feed"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// comeAndGo writes a log up to total while readers come at random moments with
// random cursors, 50 of them, and waits until each has read to the end (RG-01).
func comeAndGo(w *world, total int64, read func(ctx context.Context, after, to int64) error) {
	w.t.Helper()
	const readers = 50
	ctx, cancel := context.WithTimeout(w.t.Context(), soon)
	defer cancel()
	w.write("s", 1)
	come := map[int64]int{}
	for range readers {
		come[1+rand.Int64N(total-1)]++
	}
	var reading sync.WaitGroup
	for seq := int64(1); seq < total; seq++ {
		for i := range come[seq] {
			after := int64(0)
			if i%2 == 1 || seq%2 == 1 {
				after = rand.Int64N(seq + 1)
			}
			reading.Go(func() {
				if err := read(ctx, after, total); err != nil {
					w.t.Errorf("from %d: %v", after, err)
				}
			})
		}
		w.write("s", 1)
	}
	reading.Wait()
}

func TestReadersThatComeWhileEventsAreWrittenSeeEachOnce(t *testing.T) {
	w := newWorld(t, feed.Options{})
	comeAndGo(w, 2000, func(ctx context.Context, after, to int64) error {
		r, err := w.hub.Follow(ctx, "s", after)
		if err != nil {
			return err
		}
		defer r.Close()
		return readTo(ctx, r, to)
	})
}

func TestReadersSeeEachEventOnceWhenTheTailHoldsAlmostNothing(t *testing.T) {
	w := newWorld(t, feed.Options{TailFrames: 3, TailBytes: 600})
	comeAndGo(w, 2000, func(ctx context.Context, after, to int64) error {
		r, err := w.hub.Follow(ctx, "s", after)
		if err != nil {
			return err
		}
		defer r.Close()
		return readTo(ctx, r, to)
	})
}

func TestReadersSeeEachEventOnceWhenHalfOfTheCommitsAreNeverTold(t *testing.T) {
	w := newWorld(t, feed.Options{Heal: 20 * time.Millisecond})
	w.losing(func(store.Commit) bool { return rand.IntN(2) == 0 })
	comeAndGo(w, 2000, func(ctx context.Context, after, to int64) error {
		r, err := w.hub.Follow(ctx, "s", after)
		if err != nil {
			return err
		}
		defer r.Close()
		return readTo(ctx, r, to)
	})
}

func TestALostCommitIsFoundWithinAHealInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feed.Options{Heal: 2 * time.Second})
		w.write("s", 5)
		r := w.follow("s", 5)
		w.losing(func(store.Commit) bool { return true })
		w.write("s", 1)
		began := time.Now()
		if err := readTo(t.Context(), r, 6); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("it took %v", took)
		}
		if lost := w.hub.Stats().Lost; lost != 1 {
			t.Errorf("%d commits count as lost, want 1", lost)
		}
	})
}

func TestARingFindsWhatAnotherNodeWrote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feed.Options{Heal: time.Hour})
		w.write("s", 5)
		r := w.follow("s", 5)
		w.losing(func(store.Commit) bool { return true })
		w.write("s", 3)
		w.hub.Ring("s")
		w.hub.Ring("nobody follows this")
		synctest.Wait()
		reads := w.src.reads.Load()
		if err := readTo(t.Context(), r, 8); err != nil {
			t.Fatal(err)
		}
		if w.src.reads.Load() != reads {
			t.Error("the reader read again what the ring had read")
		}
	})
}

func TestACommitThatIsToldTwiceOrLateIsGivenOnce(t *testing.T) {
	w := newWorld(t, feed.Options{Heal: time.Hour})
	w.write("s", 2)
	r := w.follow("s", 0)
	var commits []store.Commit
	w.losing(func(c store.Commit) bool { commits = append(commits, c); return true })
	for range 4 {
		w.write("s", 2)
	}
	for _, i := range []int{0, 0, 2, 1, 3, 2, 0} {
		w.hub.Publish(commits[i])
	}
	if err := readTo(t.Context(), r, 10); err != nil {
		t.Fatal(err)
	}
}

func TestFollowRefusesACursorAheadOfTheLog(t *testing.T) {
	w := newWorld(t, feed.Options{})
	w.write("s", 5)
	w.follow("s", 5)
	for range 2 { // with and without a topic that knows the head
		_, err := w.hub.Follow(t.Context(), "s", 6)
		var ahead *feed.AheadError
		if !errors.Is(err, feed.ErrAhead) || !errors.As(err, &ahead) || ahead.Head != 5 || ahead.After != 6 {
			t.Errorf("got %v", err)
		}
	}
	if _, err := w.hub.Follow(t.Context(), "s", -1); err == nil {
		t.Error("a negative cursor was taken")
	}
}

func TestACursorIsNotAheadWhenOnlyTheTellingWasLost(t *testing.T) {
	w := newWorld(t, feed.Options{Heal: time.Hour})
	w.write("s", 5)
	w.follow("s", 5)
	w.losing(func(store.Commit) bool { return true })
	w.write("s", 5)
	if err := readTo(t.Context(), w.follow("s", 8), 10); err != nil {
		t.Fatal(err)
	}
}

func TestFollowOfAnUnknownSessionIsNotFoundAndKeepsNothing(t *testing.T) {
	w := newWorld(t, feed.Options{})
	for i := range 100 {
		if _, err := w.hub.Follow(t.Context(), fmt.Sprint("s", i), 0); !errors.Is(err, store.ErrNotFound) {
			t.Fatalf("got %v", err)
		}
	}
	if got := w.hub.Stats(); got.Sessions != 0 || got.Readers != 0 {
		t.Errorf("kept %+v", got)
	}
}

func TestReadersOfADeletedSessionEnd(t *testing.T) {
	w := newWorld(t, feed.Options{})
	w.write("s", 5)
	r := w.follow("s", 5)
	if err := w.store.Delete(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(t.Context()); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	w.write("s", 2) // another log under the same id
	if err := readTo(t.Context(), w.follow("s", 0), 2); err != nil {
		t.Error(err)
	}
}

func TestADeletionThatNobodyToldEndsReadersWithinAHealInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feed.Options{})
		w.write("s", 5)
		gone, replaced := w.follow("s", 5), w.follow("s", 5)
		w.write("other", 5)
		w.losing(func(store.Commit) bool { return true })
		if err := w.store.Delete(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		if _, err := gone.Next(t.Context()); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("got %v", err)
		}
		if _, err := replaced.Next(t.Context()); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("got %v", err)
		}
	})
}

func TestReadersOfALogThatWasReplacedAreAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feed.Options{})
		w.write("s", 5)
		r := w.follow("s", 5)
		w.losing(func(store.Commit) bool { return true })
		if err := w.store.Delete(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		w.write("s", 2)
		var ahead *feed.AheadError
		if _, err := r.Next(t.Context()); !errors.As(err, &ahead) || ahead.Head != 2 {
			t.Errorf("got %v", err)
		}
	})
}

func TestAHoleInTheLogIsAnErrorAndNeverSkipped(t *testing.T) {
	for name, spoil := range map[string]func([]session.Frame) []session.Frame{
		"missing at the front": func(f []session.Frame) []session.Frame { return f[1:] },
		"missing inside":       func(f []session.Frame) []session.Frame { return append(f[:2:2], f[3:]...) },
		"twice":                func(f []session.Frame) []session.Frame { return append(f[:2:2], f[1:]...) },
		"missing altogether":   func([]session.Frame) []session.Frame { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, feed.Options{})
			w.src.read = func(_ string, _ int64, frames []session.Frame, err error) ([]session.Frame, error) {
				return spoil(frames), err
			}
			w.write("s", 9)
			r := w.follow("s", 1)
			if frames, err := r.Next(t.Context()); !errors.Is(err, feed.ErrBroken) {
				t.Errorf("got %d frames, %v", len(frames), err)
			}
			if r.Cursor() != 1 {
				t.Errorf("the cursor moved to %d", r.Cursor())
			}
		})
	}
}

func TestCommittedFramesThatDoNotJoinAreReadFromTheLog(t *testing.T) {
	w := newWorld(t, feed.Options{Heal: time.Hour})
	w.write("s", 3)
	r := w.follow("s", 3)
	var told store.Commit
	w.losing(func(c store.Commit) bool { told = c; return true })
	w.write("s", 4)
	told.Frames = append(told.Frames[:1:1], told.Frames[2:]...)
	w.hub.Publish(told)
	if err := readTo(t.Context(), r, 7); err != nil {
		t.Fatal(err)
	}
}

func TestAReaderGoesOnAfterAnErrorOfTheStore(t *testing.T) {
	w := newWorld(t, feed.Options{Heal: time.Hour})
	w.write("s", 3)
	r := w.follow("s", 0)
	w.src.read = func(string, int64, []session.Frame, error) ([]session.Frame, error) {
		return nil, fmt.Errorf("disk: %w", store.ErrUnavailable)
	}
	if _, err := r.Next(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	w.src.read = nil
	if err := readTo(t.Context(), r, 3); err != nil {
		t.Error(err)
	}
}

func TestAStoreThatIsDownIsLoggedOnceAndHealedFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		w := newWorld(t, feed.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		var down atomic.Bool
		w.src.head = func(_ string, head int64, err error) (int64, error) {
			if down.Load() {
				return 0, store.ErrUnavailable
			}
			return head, err
		}
		w.write("s", 3)
		r := w.follow("s", 3)
		w.losing(func(store.Commit) bool { return true })
		down.Store(true)
		w.write("s", 1)
		time.Sleep(time.Minute)
		down.Store(false)
		if err := readTo(t.Context(), r, 4); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if lines := strings.Count(log.String(), "\n"); lines != 2 {
			t.Errorf("%d lines:\n%s", lines, log.String())
		}
	})
}

func TestNextEndsWithTheCauseOfItsContext(t *testing.T) {
	w := newWorld(t, feed.Options{})
	w.write("s", 3)
	r := w.follow("s", 3)
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("logged out")
	cancel(reason)
	if _, err := r.Next(ctx); !errors.Is(err, reason) {
		t.Errorf("got %v", err)
	}
	w.write("s", 1)
	if err := readTo(t.Context(), r, 4); err != nil {
		t.Error(err)
	}
}

// folded makes the store give 3..8 as one folded range.
func folded(id string, after int64, frames []session.Frame, err error) ([]session.Frame, error) {
	var out []session.Frame
	for _, f := range frames {
		switch {
		case f.To < 3 || f.From > 8:
			out = append(out, f)
		case f.To == 8:
			out = append(out, session.FoldedFrame(id, max(after+1, 3), 8, "msg_1"))
		}
	}
	return out, err
}

func TestACursorInsideAFoldedRangeWorks(t *testing.T) {
	w := newWorld(t, feed.Options{})
	w.src.read = folded
	w.write("s", 12)
	for after := int64(0); after <= 12; after++ { // the tail was seeded by the readers before
		r := w.follow("s", after)
		if after == 12 {
			w.write("s", 1)
		}
		if err := readTo(t.Context(), r, 12+after/12); err != nil {
			t.Errorf("from %d: %v", after, err)
		}
	}
}

func TestCloseEndsReadersWithItsCause(t *testing.T) {
	w := newWorld(t, feed.Options{})
	w.write("s", 3)
	r := w.follow("s", 3)
	list, err := w.hub.FollowSessions(t.Context(), "t", "o")
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	why := errors.New("deploy")
	w.hub.Close(why)
	w.hub.Close(nil)
	if _, err := r.Next(t.Context()); !errors.Is(err, feed.ErrClosing) || !errors.Is(err, why) {
		t.Errorf("reader: %v", err)
	}
	if _, err := list.Next(t.Context()); !errors.Is(err, feed.ErrClosing) || !errors.Is(err, why) {
		t.Errorf("list: %v", err)
	}
	if _, err := w.hub.Follow(t.Context(), "s", 0); !errors.Is(err, feed.ErrClosing) {
		t.Errorf("follow: %v", err)
	}
	if _, err := w.hub.FollowSessions(t.Context(), "t", "o"); !errors.Is(err, feed.ErrClosing) {
		t.Errorf("follow sessions: %v", err)
	}
	w.write("s", 1) // publishing is harmless
}

func TestCloseWakesAReaderThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feed.Options{})
		w.write("s", 3)
		r := w.follow("s", 3)
		ended := make(chan error, 1)
		go func() { _, err := r.Next(t.Context()); ended <- err }()
		synctest.Wait()
		w.hub.Close(nil)
		if err := <-ended; !errors.Is(err, feed.ErrClosing) {
			t.Errorf("got %v", err)
		}
	})
}
