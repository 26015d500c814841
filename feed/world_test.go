package feed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast/feed"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a memory store with a hub that is told of its commits.
type world struct {
	t     testing.TB
	store *memory.Store
	src   *watchedSource
	hub   *feed.Hub
	drop  atomic.Pointer[func(store.Commit) bool]
	ended chan struct{} // a token for each stream or socket that was served to its end
}

func newWorld(t testing.TB, opts feed.Options) *world {
	t.Helper()
	w := &world{t: t, ended: make(chan struct{}, 1000)}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	w.store = memory.NewFaulty(memory.Options{
		Options: store.Options{OnCommit: func(c store.Commit) { w.hub.Publish(c) }},
		DropCommit: func(c store.Commit) bool {
			drop := w.drop.Load()
			return drop != nil && (*drop)(c)
		},
	})
	w.src = &watchedSource{Store: w.store}
	w.hub = feed.New(w.src, opts)
	t.Cleanup(func() {
		w.hub.Close(nil)
		if err := w.store.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// losing makes the store forget to tell of the commits that drop chooses.
func (w *world) losing(drop func(store.Commit) bool) { w.drop.Store(&drop) }

// write appends count events to a session, in one commit.
func (w *world) write(id string, count int) {
	w.t.Helper()
	w.writePadded(id, count, "")
}

func (w *world) writePadded(id string, count int, pad string) {
	w.t.Helper()
	_, err := w.store.Append(context.Background(), id, func(s *session.State) ([]session.Event, error) {
		events := make([]session.Event, 0, count)
		if s.Seq == 0 {
			events = append(events, session.Event{Data: session.Created{Tenant: "t", Owner: "o"}})
		}
		for n := int64(len(events)); n < int64(count); n++ {
			raw, err := json.Marshal(map[string]any{"n": s.Seq + n + 1, "pad": pad})
			if err != nil {
				return nil, err
			}
			events = append(events, session.Event{Data: session.Unknown{Name: "test.written", Raw: raw}})
		}
		return events, nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) follow(id string, after int64) *feed.Reader {
	w.t.Helper()
	r, err := w.hub.Follow(w.t.Context(), id, after)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(r.Close)
	return r
}

// watchedSource counts what the hub reads, and lets a test meddle with it.
type watchedSource struct {
	*memory.Store
	reads, heads atomic.Int64
	read         func(id string, after int64, frames []session.Frame, err error) ([]session.Frame, error)
	head         func(id string, head int64, err error) (int64, error)
}

func (s *watchedSource) Read(ctx context.Context, id string, after int64, limit int) ([]session.Frame, error) {
	s.reads.Add(1)
	frames, err := s.Store.Read(ctx, id, after, limit)
	if s.read != nil {
		return s.read(id, after, frames, err)
	}
	return frames, err
}

func (s *watchedSource) Head(ctx context.Context, id string) (int64, error) {
	s.heads.Add(1)
	head, err := s.Store.Head(ctx, id)
	if s.head != nil {
		return s.head(id, head, err)
	}
	return head, err
}

// large makes a session of so many events of so many bytes each without the
// cost of a store.
func (w *world) large(id string, count int64, size int) {
	pad := strings.Repeat("x", size)
	w.src.head = func(of string, head int64, err error) (int64, error) {
		if of == id {
			return count, nil
		}
		return head, err
	}
	w.src.read = func(of string, after int64, frames []session.Frame, err error) ([]session.Frame, error) {
		if of != id {
			return frames, err
		}
		frames = nil
		for seq := after + 1; seq <= min(count, after+64); seq++ {
			json := fmt.Appendf(nil, `{"session":%q,"seq":%d,"type":"test.large","data":%q}`, id, seq, pad)
			frames = append(frames, session.Frame{From: seq, To: seq, JSON: json})
		}
		return frames, nil
	}
}

// chain checks that frames join from a cursor on.
type chain struct{ seq int64 }

func (c *chain) add(from, to int64) error {
	if from != c.seq+1 || to < from {
		return fmt.Errorf("after %d comes %d..%d", c.seq, from, to)
	}
	c.seq = to
	return nil
}

// readTo reads until the log is read to the given seq.
func readTo(ctx context.Context, r *feed.Reader, to int64) error {
	c := chain{r.Cursor()}
	for c.seq < to {
		frames, err := r.Next(ctx)
		if err != nil {
			return fmt.Errorf("after %d: %w", c.seq, err)
		}
		for _, f := range frames {
			if err := c.add(f.From, f.To); err != nil {
				return err
			}
			e, ok, err := f.Event()
			if err != nil {
				return fmt.Errorf("frame %d..%d: %w", f.From, f.To, err)
			}
			if ok && e.Seq != f.From {
				return fmt.Errorf("frame %d..%d holds event %d", f.From, f.To, e.Seq)
			}
		}
	}
	return nil
}

const soon = 20 * time.Second // for what should take no time at all
