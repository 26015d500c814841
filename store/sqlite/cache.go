package sqlite

import (
	"container/list"
	"sync"
	"sync/atomic"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store/internal/gate"
	"github.com/holdfast-run/holdfast/store/internal/models"
)

// entry is what is cached of one session.
type entry struct {
	id   string
	gate gate.Gate
	// loaded says that state is there. It is a hint for those who do not hold the gate.
	loaded atomic.Bool
	// streams says that the last thing written was deltas only: more of them can wait for company.
	streams atomic.Bool

	// Guarded by gate.
	state *session.State         // nil: not loaded
	work  map[string]models.Work // of the runs that have not ended
	since models.Progress        // since the snapshot in the database

	// Only the writer looks at these.
	window int64   // the gatherer's window in which it was written last
	change *change // what the batch under way does to the session; nil or own
	own    change

	// Guarded by cache.mu.
	pins  int
	size  int64 // rough bytes of state; 0 when there is no session
	place *list.Element
}

// forget drops what was cached of the session. The caller holds the gate.
func (e *entry) forget() {
	e.state, e.work = nil, nil
	e.loaded.Store(false)
}

// cache keeps the states of the sessions used last, within a number of
// sessions and a number of bytes. An entry that is pinned stays. The writer
// throws out what is too much, because it may have to write a snapshot first.
type cache struct {
	mostEntries int
	mostBytes   int64

	mu      sync.Mutex
	entries map[string]*entry
	order   list.List // of entries, the last used in front
	bytes   int64
}

func newCache(mostEntries int, mostBytes int64) *cache {
	return &cache{mostEntries: mostEntries, mostBytes: mostBytes, entries: map[string]*entry{}}
}

// pin gives the session's entry, which may not be loaded. unpin must follow.
func (c *cache) pin(id string) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[id]
	if e == nil {
		e = &entry{id: id}
		e.place = c.order.PushFront(e)
		c.entries[id] = e
	} else {
		c.order.MoveToFront(e.place)
	}
	e.pins++
	return e
}

// repin pins an entry that is pinned already.
func (c *cache) repin(e *entry) {
	c.mu.Lock()
	e.pins++
	c.mu.Unlock()
}

// unpin lets an entry go and says whether the cache now holds too much.
func (c *cache) unpin(e *entry) (full bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.pins--; e.pins == 0 && e.size == 0 {
		c.removeLocked(e) // nothing is known of it, such as a session that does not exist
	}
	return c.fullLocked()
}

// resize notes the rough size of an entry's state.
func (c *cache) resize(e *entry, size int64) {
	c.mu.Lock()
	c.bytes += size - e.size
	e.size = size
	c.mu.Unlock()
}

// grow adds to the rough size of an entry's state.
func (c *cache) grow(e *entry, by int64) {
	c.mu.Lock()
	c.bytes += by
	e.size += by
	c.mu.Unlock()
}

// victims gives entries to throw out, pinned, the last used at the end.
func (c *cache) victims() []*entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.fullLocked() {
		return nil
	}
	var victims []*entry
	entries, bytes := len(c.entries), c.bytes
	for place := c.order.Back(); place != nil && (entries > c.mostEntries || bytes > c.mostBytes); place = place.Prev() {
		e := place.Value.(*entry)
		if e.pins > 0 {
			continue
		}
		e.pins++
		victims = append(victims, e)
		entries--
		bytes -= e.size
		if len(victims) == mostVictims {
			break
		}
	}
	return victims
}

// mostVictims bounds the work that throwing out adds to one commit.
const mostVictims = 64

// drop unpins an entry and removes it unless somebody else has come to use it.
func (c *cache) drop(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.pins--; e.pins == 0 {
		c.removeLocked(e)
	}
}

func (c *cache) removeLocked(e *entry) {
	c.bytes -= e.size
	e.size = 0
	c.order.Remove(e.place)
	delete(c.entries, e.id)
}

func (c *cache) fullLocked() bool {
	return len(c.entries) > c.mostEntries || c.bytes > c.mostBytes
}
