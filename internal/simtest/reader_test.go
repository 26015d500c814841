package simtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast/feed"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// reader follows a session, loses its connection, comes back with its cursor,
// and must see the log, in order, once.
type reader struct {
	world *world
	plan  readerPlan
	name  string
	dice  dice
	stop  context.CancelFunc
	done  chan struct{}

	read atomic.Int64 // the cursor, for others
	// For its goroutine, and for the checks when it is done.
	cursor int64
	mirror *session.State // of a reader that folds what it sees
}

// newReader begins to follow, until end.
func newReader(w *world, n int, plan readerPlan) *reader {
	ctx, stop := context.WithCancel(context.Background())
	r := &reader{
		world: w, plan: plan, name: fmt.Sprintf("reader%d", n+1), dice: roll(w.plan.seed, "reader", n), stop: stop, done: make(chan struct{}),
	}
	go func() {
		defer close(r.done)
		if pause(ctx, r.plan.from) != nil {
			return
		}
		for ctx.Err() == nil {
			r.connect(ctx)
			_ = pause(ctx, r.dice.span(10*time.Millisecond, time.Second))
		}
	}()
	return r
}

// end ends the reader.
func (r *reader) end() {
	r.stop()
	<-r.done
}

// connect follows on one connection.
func (r *reader) connect(ctx context.Context) {
	if r.cursor == 0 && !r.meet(ctx) {
		return
	}
	if r.plan.kind == "pages" {
		r.pages(ctx)
		return
	}
	f, err := r.world.runtime.Feed().Follow(ctx, r.plan.session, r.cursor)
	if err != nil {
		r.lost(ctx, err)
		return
	}
	defer f.Close()
	for ctx.Err() == nil {
		frames, err := f.Next(ctx)
		if err != nil {
			r.lost(ctx, err)
			if errors.Is(err, store.ErrUnavailable) && r.dice.chance(0.5) {
				_ = pause(ctx, time.Second)
				continue // the same reader may go on
			}
			return
		}
		if !r.see(frames) || f.Cursor() != r.cursor {
			return
		}
		if r.rest(ctx) {
			return
		}
	}
}

// pages reads page by page, with long polls.
func (r *reader) pages(ctx context.Context) {
	for ctx.Err() == nil {
		page, err := r.world.runtime.Feed().Page(ctx, r.plan.session, r.cursor, 1+r.dice.upTo(40), 10*time.Second)
		if err != nil {
			r.lost(ctx, err)
			return
		}
		if page.Reset {
			r.lost(ctx, &feed.AheadError{Session: r.plan.session, After: r.cursor, Head: page.Head})
			return
		}
		if !r.see(page.Frames) || r.rest(ctx) {
			return
		}
	}
}

// rest waits as a slow reader does and says whether the connection is lost.
func (r *reader) rest(ctx context.Context) bool {
	if r.plan.slow > 0 && !r.world.calm() {
		_ = pause(ctx, r.dice.span(0, r.plan.slow))
	}
	return !r.world.calm() && r.dice.chance(r.plan.drops)
}

// meet chooses where to begin: at the beginning, somewhere, or for a mirror with what a page is built from.
func (r *reader) meet(ctx context.Context) bool {
	head := r.world.reached(r.plan.session)
	if head == 0 {
		return false
	}
	if r.plan.kind == "mirror" {
		err := r.world.store.View(ctx, r.plan.session, func(s *session.State) { r.mirror = s.Clone() })
		if err != nil {
			return false
		}
		r.cursor = r.mirror.Seq
		r.read.Store(r.cursor)
		return true
	}
	if r.dice.chance(0.5) {
		r.cursor = r.dice.Int64N(head + 1)
		r.read.Store(r.cursor)
	}
	return true
}

// lost is told why a connection ended. A log that is gone or replaced is read from its start.
func (r *reader) lost(ctx context.Context, err error) {
	gone := errors.Is(err, store.ErrNotFound) || errors.Is(err, feed.ErrAhead)
	switch {
	case ctx.Err() != nil, errors.Is(err, store.ErrUnavailable):
	case gone && r.world.everDeleted(r.plan.session):
		r.cursor, r.mirror = 0, nil
	default:
		r.world.find("%s at %d of %s: %v", r.name, r.cursor, r.plan.session, err)
	}
}

// see takes frames. They must join to the cursor and be those of the log.
func (r *reader) see(frames []session.Frame) bool {
	if r.world.broken.reader != nil {
		frames = r.world.broken.reader(r, frames)
	}
	for _, f := range frames {
		if f.From != r.cursor+1 || f.To < f.From {
			r.world.find("%s at %d of %s sees %d..%d", r.name, r.cursor, r.plan.session, f.From, f.To)
			return false
		}
		if !r.world.frame(r.plan.session, f.From, func(of session.Frame) bool { return bytes.Equal(of.JSON, f.JSON) }) {
			r.seeFolded(f)
		} else if r.mirror != nil {
			e, _, err := f.Event()
			if err != nil {
				r.world.find("%s at %d of %s: %v", r.name, f.From, r.plan.session, err)
			}
			r.mirror.Apply(e)
		}
		r.cursor = f.To
		r.read.Store(r.cursor)
		if r.mirror != nil {
			r.mirror.Seq = f.To
		}
	}
	return true
}

// seeFolded takes a frame that is not of the log: it must be a folded range, which may stand for deltas only.
func (r *reader) seeFolded(f session.Frame) {
	var folded session.Folded
	if err := json.Unmarshal(f.JSON, &folded); err != nil || folded.Type != "folded" || folded.From != f.From || folded.To != f.To || folded.Session != r.plan.session {
		r.world.find("%s sees at %d..%d of %s what was never committed: %s", r.name, f.From, f.To, r.plan.session, f.JSON)
		return
	}
	for seq := f.From; seq <= f.To; seq++ {
		if !r.world.frame(r.plan.session, seq, isDelta) {
			r.world.find("%s sees %d of %s folded away, and it is no delta", r.name, seq, r.plan.session)
		}
	}
}

func isDelta(f session.Frame) bool {
	e, ok, err := f.Event()
	return err == nil && ok && session.IsDelta(e.Data)
}

// readToTheEnd lets the readers come to the end of their logs, which must not
// take long, and ends them.
func (w *world) readToTheEnd() {
	until := time.Now().Add(15 * time.Second)
	for _, r := range w.readers {
		for r.read.Load() != w.reached(r.plan.session) && time.Now().Before(until) {
			time.Sleep(100 * time.Millisecond)
		}
	}
	for _, r := range w.readers {
		r.end()
		head := w.reached(r.plan.session)
		if w.everDeleted(r.plan.session) {
			continue // a cursor of the old log may have gone on in the new one
		}
		if r.cursor != head {
			w.find("%s has come to %d of %s, which ends at %d", r.name, r.cursor, r.plan.session, head)
			continue
		}
		if r.mirror != nil {
			w.checkMirror(r)
		}
	}
}

// checkMirror compares what a mirror has become with the store's state.
func (w *world) checkMirror(r *reader) {
	r.mirror.Shed()
	err := w.store.View(context.Background(), r.plan.session, func(s *session.State) {
		w.same("the mirror of "+r.name, r.mirror, s)
	})
	if err != nil {
		w.find("look at session %s: %v", r.plan.session, err)
	}
}

// same compares two things by their JSON.
func (w *world) same(what string, got, want any) {
	a, errA := json.Marshal(got)
	b, errB := json.Marshal(want)
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		w.find("%s differs:\n\tgot  %s\n\twant %s", what, a, b)
	}
}
