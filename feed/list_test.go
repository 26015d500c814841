package feed_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/feed"
	"github.com/holdfast-run/holdfast/store"
)

func (w *world) followList(tenant, owner string) *feed.Sessions {
	w.t.Helper()
	l, err := w.hub.FollowSessions(w.t.Context(), tenant, owner)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(l.Close)
	return l
}

// changes gives the next changes as "id@seq" and "-id".
func (w *world) changes(l *feed.Sessions) []string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), soon)
	defer cancel()
	changes, err := l.Next(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	var said []string
	for _, c := range changes {
		if c.Row != nil {
			said = append(said, fmt.Sprintf("%s@%d", c.Row.ID, c.Row.Seq))
		} else {
			said = append(said, "-"+c.Deleted)
		}
	}
	return said
}

func (w *world) expect(l *feed.Sessions, want ...string) {
	w.t.Helper()
	if got := w.changes(l); fmt.Sprint(got) != fmt.Sprint(want) {
		w.t.Errorf("got %v, want %v", got, want)
	}
}

func (w *world) delete(id string) {
	w.t.Helper()
	if err := w.store.Delete(context.Background(), id); err != nil {
		w.t.Fatal(err)
	}
}

func TestAListTellsTheNewestOfEachSessionThatChanged(t *testing.T) {
	w := newWorld(t, feed.Options{Heal: time.Hour})
	w.write("before", 1)
	l, late := w.followList("t", "o"), w.followList("t", "o")
	w.write("a", 1)
	w.expect(l, "a@1")
	w.write("b", 1)
	w.write("a", 1)
	w.write("a", 1)
	w.write("c", 1)
	w.delete("b")
	w.expect(l, "a@3", "c@1", "-b")
	w.write("b", 2)
	w.expect(l, "b@2")
	w.expect(late, "a@3", "c@1", "b@2")
}

func TestAListIsOfOneOwner(t *testing.T) {
	w := newWorld(t, feed.Options{Heal: time.Hour})
	other := []*feed.Sessions{w.followList("t", "else"), w.followList("else", "o"), w.followList("", "")}
	mine := w.followList("t", "o")
	w.write("a", 1)
	w.delete("a")
	w.expect(mine, "-a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, l := range other {
		if changes, err := l.Next(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("somebody else was told %v, %v", changes, err)
		}
	}
}

func TestAListFindsWhatNobodyTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feed.Options{})
		w.write("kept", 1)
		w.write("gone", 1)
		time.Sleep(time.Second)
		l := w.followList("t", "o")
		w.losing(func(store.Commit) bool { return true })
		time.Sleep(time.Second)
		w.write("kept", 1)
		w.write("new", 1)
		w.delete("gone")
		began := time.Now()
		seen := map[string]bool{}
		for len(seen) < 3 {
			for _, c := range w.changes(l) {
				seen[c] = true
			}
		}
		if !seen["kept@2"] || !seen["new@1"] || !seen["-gone"] {
			t.Errorf("got %v", seen)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
		// And nothing is told again.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if changes, err := l.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, %v", changes, err)
		}
	})
}

func TestARingTellsListsWhatAnotherNodeDid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feed.Options{Heal: time.Hour})
		w.write("a", 1)
		w.write("b", 1)
		l, other := w.followList("t", "o"), w.followList("t", "else")
		w.losing(func(store.Commit) bool { return true })
		w.write("a", 1)
		w.delete("b")
		w.hub.Ring("b")
		synctest.Wait()
		w.hub.Ring("a")
		synctest.Wait()
		w.hub.Ring("a")
		w.hub.Ring("b")
		synctest.Wait()
		w.expect(l, "-b", "a@2")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if changes, err := other.Next(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("somebody else was told %v, %v", changes, err)
		}
	})
}

func TestManyRingsRereadTheListsInstead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feed.Options{Heal: time.Hour})
		l := w.followList("t", "o")
		w.losing(func(store.Commit) bool { return true })
		w.write("a", 1)
		for i := range 5000 {
			w.hub.Ring(fmt.Sprint("x", i))
		}
		w.hub.Ring("a")
		synctest.Wait()
		w.expect(l, "a@1")
	})
}

func TestAReaderOfAListThatFellTooFarBehindIsTold(t *testing.T) {
	w := newWorld(t, feed.Options{Heal: time.Hour})
	behind := w.followList("t", "o")
	near := w.followList("t", "o")
	for i := range 1000 {
		w.write(fmt.Sprint("s", i), 1)
		if i%100 == 99 {
			if got := w.changes(near); len(got) != 100 || got[99] != fmt.Sprintf("s%d@1", i) {
				t.Fatalf("got %d changes, the last %v", len(got), got[len(got)-1])
			}
		}
	}
	if changes, err := behind.Next(t.Context()); !errors.Is(err, feed.ErrBehind) {
		t.Errorf("got %d changes, %v", len(changes), err)
	}
}

func TestManyChangesOfOneSessionDoNotPutAReaderBehind(t *testing.T) {
	w := newWorld(t, feed.Options{Heal: time.Hour})
	l := w.followList("t", "o")
	for range 2000 {
		w.write("a", 1)
	}
	w.expect(l, "a@2000")
}

func TestAListIsForgottenWhenNobodyFollowsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feed.Options{})
		l := w.followList("t", "o")
		l.Close()
		l.Close()
		time.Sleep(time.Minute)
		w.losing(func(store.Commit) bool { return true })
		w.write("a", 1)
		l = w.followList("t", "o") // reads how things are: a has not changed since
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if changes, err := l.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, %v", changes, err)
		}
	})
}
