package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// Source is what the feed reads: the part of [store.Store] that it needs.
type Source interface {
	Read(ctx context.Context, id string, after int64, limit int) ([]session.Frame, error)
	Head(ctx context.Context, id string) (int64, error)
	Sessions(ctx context.Context, q store.SessionQuery) (store.Page[store.SessionRow], error)
	Session(ctx context.Context, id string) (store.SessionRow, error)
}

// Options shape a hub. The zero value works.
type Options struct {
	// Heal is how often the store is asked whether a followed session has more
	// than was published. It bounds what a lost call of Publish costs. Default: 2 seconds.
	Heal time.Duration
	// TailBytes and TailFrames bound the hot tail of one session. Default: 512 KiB and 4096 frames.
	TailBytes, TailFrames int
	// TotalBytes bounds the hot tails of all sessions together: once it is
	// reached, each session is cut down to its equal share, as it grows or within
	// a heal interval. At twice this nothing grows any more. Default: 128 MiB.
	TotalBytes int64
	// Linger is how long a session stays hot without a reader, and its tail
	// without an event. Default: 30 seconds.
	Linger time.Duration
	// Heartbeat is the longest silence on a stream. Default: 15 seconds.
	Heartbeat time.Duration
	// WriteTimeout is how long a client may take for one write, of at most 32 KiB
	// unless a single frame is larger. Default: 30 seconds.
	WriteTimeout time.Duration
	// Retry is the longest that clients are told to wait before they come back;
	// each is told something between a sixth of it and all, by chance. Default: 6 seconds.
	Retry time.Duration
	// Log gets what an operator should know. Default: slog.Default().
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Heal = cmp.Or(o.Heal, 2*time.Second)
	o.TailBytes = cmp.Or(o.TailBytes, 512<<10)
	o.TailFrames = cmp.Or(o.TailFrames, 4096)
	o.TotalBytes = cmp.Or(o.TotalBytes, 128<<20)
	o.Linger = cmp.Or(o.Linger, 30*time.Second)
	o.Heartbeat = cmp.Or(o.Heartbeat, 15*time.Second)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 30*time.Second)
	o.Retry = cmp.Or(o.Retry, 6*time.Second)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o
}

const (
	shards      = 16 // of the session map; the heal poll takes one at a time
	healers     = 4  // concurrent rereads of the store
	batchBytes  = 256 << 10
	deltaBytes  = 256 // JSON of a usual frame, so that a page has about the bytes that are wanted
	frameWeight = 48  // bytes of a frame in memory beside its JSON
)

// Hub lets readers follow the logs of one store. It is safe for concurrent use.
type Hub struct {
	src    Source
	opts   Options
	seed   maphash.Seed
	shards [shards]shard
	lists  lists
	rung   queue
	wheel  wheel

	life    context.Context // until Close
	stop    context.CancelFunc
	work    sync.WaitGroup
	closing atomic.Pointer[error] // set once, by Close

	topics    atomic.Int64
	readers   atomic.Int64
	tailBytes atomic.Int64
	reads     atomic.Int64
	lost      atomic.Int64
	failing   atomic.Bool // the last reread failed
}

// shard is a part of the sessions that are hot.
type shard struct {
	mu     sync.RWMutex
	topics map[string]*topic // guarded by mu
}

// New makes a hub that reads src and starts its clockwork. Close ends it.
func New(src Source, opts Options) *Hub {
	h := &Hub{src: src, opts: opts.withDefaults(), seed: maphash.MakeSeed()}
	for i := range h.shards {
		h.shards[i].topics = map[string]*topic{}
	}
	h.lists.hub = h
	h.lists.all = map[owner]*list{}
	h.rung.init()
	h.wheel.init(h.opts.Heartbeat)
	ctx, stop := context.WithCancel(context.Background())
	h.life, h.stop = ctx, stop
	h.work.Go(func() { h.wheel.turn(ctx) })
	h.work.Go(func() { h.sweep(ctx) })
	for range healers {
		h.work.Go(func() { h.heal(ctx) })
	}
	return h
}

// Publish tells the readers of a commit. It is the store's OnCommit: it never
// blocks, and must be called in order for each session. A commit that it is
// never told of is found by the heal poll; one that it is told twice is ignored.
func (h *Hub) Publish(c store.Commit) {
	if t := h.find(c.Session); t != nil {
		if c.Deleted {
			_ = h.end(t, fmt.Errorf("session %s was deleted: %w", c.Session, store.ErrNotFound))
		} else {
			t.publish(c.Frames)
		}
	}
	h.lists.publish(c)
}

// Ring says that a session may have more than this process was told of, such
// as after a commit on another node. It never blocks; rings that come while one
// is being followed up are joined.
func (h *Hub) Ring(id string) {
	h.RingLog(id)
	h.RingRow(id)
}

// RingLog is Ring for the session's log alone, such as for deltas, which change no list of sessions.
func (h *Hub) RingLog(id string) {
	if t := h.find(id); t != nil {
		h.rung.push(t)
	}
}

// RingRow is Ring for the session's row in lists alone.
func (h *Hub) RingRow(id string) { h.lists.ring(id) }

// Followed says whether a session is followed here, and how far its log is known.
func (h *Hub) Followed(id string) (head int64, ok bool) {
	t := h.find(id)
	if t == nil {
		return 0, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.head, t.known && t.err == nil
}

// Follow subscribes to a session after a cursor: 0 for the whole log. The reader
// is to be closed. ErrAhead if the log ends before the cursor, store.ErrNotFound
// if there is no such session, ErrClosing after Close.
func (h *Hub) Follow(ctx context.Context, id string, after int64) (*Reader, error) {
	if after < 0 {
		return nil, fmt.Errorf("follow session %s: cursor %d is negative", id, after)
	}
	t, err := h.hold(id)
	if err != nil {
		return nil, fmt.Errorf("follow session %s: %w", id, err)
	}
	if err := t.meet(ctx, after); err != nil {
		h.release(t)
		return nil, fmt.Errorf("follow session %s: %w", id, err)
	}
	h.readers.Add(1)
	return &Reader{topic: t, after: after}, nil
}

// Close ends every reader with ErrClosing and the cause, and waits for the
// hub's own goroutines. Streams say goodbye and end; whoever serves them waits
// for them. Closing twice is harmless.
func (h *Hub) Close(cause error) {
	err := ErrClosing
	if cause != nil && !errors.Is(cause, ErrClosing) {
		err = fmt.Errorf("%w: %w", ErrClosing, cause)
	}
	if h.closing.CompareAndSwap(nil, &err) {
		h.rung.close()
		for i := range h.shards {
			s := &h.shards[i]
			s.mu.Lock()
			for _, t := range s.topics {
				_ = t.end(err)
				h.topics.Add(-1)
			}
			clear(s.topics)
			s.mu.Unlock()
		}
		h.lists.end(err)
		h.stop()
	}
	h.work.Wait()
}

// retry is how long one client is told to wait before it comes back.
func (h *Hub) retry() time.Duration {
	most := h.opts.Retry
	return most/6 + rand.N(most-most/6)
}

// Stats is how a hub is doing. The numbers are not of one instant.
type Stats struct {
	Sessions  int64 // kept hot
	Readers   int64 // open readers of sessions
	TailBytes int64 // in the hot tails
	Reads     int64 // pages read from the store, ever
	Lost      int64 // commits that were found by rereading, ever
}

// Stats says how the hub is doing.
func (h *Hub) Stats() Stats {
	return Stats{
		Sessions: h.topics.Load(), Readers: h.readers.Load(), TailBytes: h.tailBytes.Load(),
		Reads: h.reads.Load(), Lost: h.lost.Load(),
	}
}

// share is how large one tail may be now.
func (h *Hub) share() int {
	all, limit := h.tailBytes.Load(), h.opts.TotalBytes
	switch {
	case all <= limit:
		return h.opts.TailBytes
	case all <= 2*limit:
		return min(h.opts.TailBytes, int(limit/max(1, h.topics.Load())))
	}
	return 0
}

func (h *Hub) shard(id string) *shard {
	return &h.shards[maphash.String(h.seed, id)%shards]
}

func (h *Hub) find(id string) *topic {
	s := h.shard(id)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.topics[id]
}

// hold gives the topic of a session and keeps it until release.
func (h *Hub) hold(id string) (*topic, error) {
	s := h.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	// Asked under the lock, so that Close either sees the topic or is seen.
	if err := h.closing.Load(); err != nil {
		return nil, *err
	}
	t := s.topics[id]
	if t == nil {
		t = &topic{id: id, hub: h}
		s.topics[id] = t
		h.topics.Add(1)
	}
	t.holders++
	return t, nil
}

func (h *Hub) release(t *topic) {
	s := h.shard(t.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	t.holders--
	if t.holders > 0 {
		return
	}
	t.leftAt = time.Now()
	if !t.met() {
		h.dropLocked(s, t) // nothing is known of it, perhaps it does not exist
	}
}

// end closes a topic to its readers and to those to come. It gives the reason
// that stands, which is the first one.
func (h *Hub) end(t *topic, err error) error {
	s := h.shard(t.id)
	s.mu.Lock()
	h.dropLocked(s, t)
	s.mu.Unlock()
	return t.end(err)
}

func (h *Hub) dropLocked(s *shard, t *topic) {
	if s.topics[t.id] == t {
		delete(s.topics, t.id)
		h.topics.Add(-1)
		t.cool()
	}
}
