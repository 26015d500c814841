package redis

import (
	"sync"

	"github.com/holdfast-run/holdfast/feed/doorbell"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

const (
	// mostNotes bounds the sessions that are told of by name. With more, others are told to look at everything.
	mostNotes = 10_000
	// mostBytes bounds the frames that wait, and mostOfOne those of one session
	// and of one entry of a stream. What is over it is read from the store.
	mostBytes = 32 << 20
	mostOfOne = 256 << 10
)

// note is what is to be told of a session.
type note struct {
	ring   doorbell.Ring
	frames []session.Frame // that join, up to the head
	bytes  int
	head   int64
}

// outbox gathers notes, one a session, in the order in which they first came.
type outbox struct {
	some chan struct{} // of capacity 1: there are some

	mu    sync.Mutex
	notes map[string]*note
	order []*note
	bytes int
}

func newOutbox() outbox {
	return outbox{some: make(chan struct{}, 1), notes: map[string]*note{}}
}

func (o *outbox) put(c store.Commit) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ring := doorbell.Of(c)
	n := o.notes[ring.Session]
	if n == nil && len(o.order) >= mostNotes {
		ring, c.Frames = doorbell.Ring{}, nil
		n = o.notes[""]
	}
	if n == nil {
		n = &note{ring: ring}
		o.notes[ring.Session] = n
		o.order = append(o.order, n)
	} else {
		n.ring = doorbell.Join(n.ring, ring)
	}
	o.keep(n, c)
	select {
	case o.some <- struct{}{}:
	default:
	}
}

// keep keeps the frames of a commit, if they join those that wait.
func (o *outbox) keep(n *note, c store.Commit) {
	size := 0
	for _, f := range c.Frames {
		size += len(f.JSON)
	}
	switch {
	case c.Deleted:
		o.drop(n)
		n.head = 0
		return
	case len(c.Frames) == 0:
		return
	case len(n.frames) > 0 && c.Frames[0].From != n.head+1,
		n.bytes+size > mostOfOne, o.bytes+size > mostBytes:
		o.drop(n)
	}
	n.head = c.Frames[len(c.Frames)-1].To
	if size <= mostOfOne && o.bytes+size <= mostBytes {
		n.frames = append(n.frames, c.Frames...)
		n.bytes, o.bytes = n.bytes+size, o.bytes+size
	}
}

func (o *outbox) drop(n *note) {
	o.bytes -= n.bytes
	n.frames, n.bytes = nil, 0
}

// take gives the notes that wait.
func (o *outbox) take() []note {
	o.mu.Lock()
	defer o.mu.Unlock()
	notes := make([]note, len(o.order))
	for i, n := range o.order {
		notes[i] = *n
	}
	o.order, o.bytes = o.order[:0], 0
	clear(o.notes)
	return notes
}

// forget has everything looked at, as nobody knows what was told.
func (o *outbox) forget() { o.put(store.Commit{}) }
