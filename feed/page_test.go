package feed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/feed"
	"github.com/holdfast-run/holdfast/store"
)

func TestPagesThatAreReadWhileEventsAreWrittenHaveEachOnce(t *testing.T) {
	w := newWorld(t, feed.Options{})
	comeAndGo(w, 2000, func(ctx context.Context, after, to int64) error {
		c := chain{after}
		for c.seq < to {
			p, err := w.hub.Page(ctx, "s", c.seq, 100, 10*time.Second)
			if err != nil {
				return err
			}
			if p.After != c.seq || len(p.Frames) > 100 || p.More && len(p.Frames) == 0 {
				return fmt.Errorf("page after %d: %d frames, more %v", p.After, len(p.Frames), p.More)
			}
			for _, f := range p.Frames {
				if err := c.add(f.From, f.To); err != nil {
					return err
				}
			}
			if p.More != (c.seq < p.Head) {
				return fmt.Errorf("page to %d of %d: more %v", c.seq, p.Head, p.More)
			}
		}
		return nil
	})
}

func TestAPageHasItsFramesAsTheyAre(t *testing.T) {
	w := newWorld(t, feed.Options{})
	w.src.read = folded
	w.write("s", 12)
	p, err := w.hub.Page(t.Context(), "s", 4, 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`{"session":"s","after":4,"frames":[{"type":"folded","session":"s","from":5,"to":8,"into":"msg_1"},%s],"head":12,"more":true}`, p.Frames[1].JSON)
	if string(raw) != want || string(p.AppendJSON(nil)) != want {
		t.Errorf("got  %s\nwant %s", raw, want)
	}
	p, err = w.hub.Page(t.Context(), "s", 12, 0, 0)
	if got := string(p.AppendJSON(nil)); err != nil || got != `{"session":"s","after":12,"frames":[],"head":12,"more":false}` {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestAPageAheadOfTheLogSaysReset(t *testing.T) {
	w := newWorld(t, feed.Options{})
	w.write("s", 5)
	p, err := w.hub.Page(t.Context(), "s", 900, 0, time.Minute)
	if got := string(p.AppendJSON(nil)); err != nil || got != `{"session":"s","after":900,"frames":[],"head":5,"more":false,"reset":true}` {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestAPageIsBounded(t *testing.T) {
	w := newWorld(t, feed.Options{})
	w.write("s", 3000)
	for limit, want := range map[int]int{0: feed.PageLimit, 1: 1, 1500: 1500, 1_000_000: 3000} {
		p, err := w.hub.Page(t.Context(), "s", 0, limit, 0)
		if err != nil || len(p.Frames) != want || p.More != (want < 3000) {
			t.Errorf("limit %d: %d frames, more %v, %v", limit, len(p.Frames), p.More, err)
		}
	}
	w.large("large", 100, 50_000)
	p, err := w.hub.Page(t.Context(), "large", 0, 0, 0)
	if err != nil || len(p.AppendJSON(nil)) > 2<<20 || len(p.Frames) < 10 || !p.More {
		t.Errorf("a page of %d bytes, %d frames, %v", len(p.AppendJSON(nil)), len(p.Frames), err)
	}
}

func TestALongPollWaitsForSomethingAndNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feed.Options{})
		w.write("s", 5)
		for wait, want := range map[time.Duration]time.Duration{0: 0, 30 * time.Second: 30 * time.Second, time.Hour: feed.WaitMost} {
			began := time.Now()
			p, err := w.hub.Page(t.Context(), "s", 5, 0, wait)
			if took := time.Since(began); err != nil || len(p.Frames) != 0 || took != want {
				t.Errorf("wait %v: %d frames after %v, %v", wait, len(p.Frames), took, err)
			}
		}
		began := time.Now()
		time.AfterFunc(7*time.Second, func() { w.write("s", 2) })
		p, err := w.hub.Page(t.Context(), "s", 5, 0, time.Minute)
		if took := time.Since(began); err != nil || len(p.Frames) != 2 || took != 7*time.Second {
			t.Errorf("%d frames after %v, %v", len(p.Frames), took, err)
		}
	})
}

func TestALongPollEndsWithItsClientTheHubOrTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feed.Options{})
		w.write("s", 5)
		left := errors.New("left")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(left) })
		if _, err := w.hub.Page(ctx, "s", 5, 0, time.Minute); !errors.Is(err, left) {
			t.Errorf("client: %v", err)
		}
		time.AfterFunc(time.Second, func() {
			if err := w.store.Delete(context.Background(), "s"); err != nil {
				t.Error(err)
			}
		})
		if _, err := w.hub.Page(t.Context(), "s", 5, 0, time.Minute); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("session: %v", err)
		}
		w.write("s", 5)
		time.AfterFunc(time.Second, func() { w.hub.Close(nil) })
		if _, err := w.hub.Page(t.Context(), "s", 5, 0, time.Minute); !errors.Is(err, feed.ErrClosing) {
			t.Errorf("hub: %v", err)
		}
	})
}
