// Package cache keeps what a backend knows of the sessions used last.
package cache

import (
	"container/list"
	"sync"
)

// Cache keeps entries within a number of entries and a number of bytes. An entry
// that is pinned stays. It is safe for concurrent use; what is in an entry is the owner's to guard.
type Cache[E Entry] struct {
	mostEntries int
	mostBytes   int64
	make        func(id string) E

	mu      sync.Mutex
	entries map[string]E
	order   list.List // of entries, the last used in front
	bytes   int64
}

// Entry is what is cached of one session: a pointer to a struct that embeds a Slot.
type Entry interface {
	comparable
	slot() *Slot
}

// Slot is an entry's place in a cache.
type Slot struct {
	ID string

	// Guarded by Cache.mu.
	pins  int
	size  int64 // rough bytes; 0 when nothing is known
	place *list.Element
}

func (s *Slot) slot() *Slot { return s }

// New makes an empty cache. makeEntry makes an entry that knows nothing.
func New[E Entry](mostEntries int, mostBytes int64, makeEntry func(id string) E) *Cache[E] {
	return &Cache[E]{mostEntries: mostEntries, mostBytes: mostBytes, make: makeEntry, entries: map[string]E{}}
}

// Pin gives the session's entry, which may know nothing. Unpin must follow.
func (c *Cache[E]) Pin(id string) E {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[id]
	if !ok {
		e = c.make(id)
		e.slot().place = c.order.PushFront(e)
		c.entries[id] = e
	} else {
		c.order.MoveToFront(e.slot().place)
	}
	e.slot().pins++
	return e
}

// Repin pins an entry that is pinned already.
func (c *Cache[E]) Repin(e E) {
	c.mu.Lock()
	e.slot().pins++
	c.mu.Unlock()
}

// Unpin lets an entry go and says whether the cache now holds too much.
func (c *Cache[E]) Unpin(e E) (full bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := e.slot()
	if s.pins--; s.pins == 0 && s.size == 0 {
		c.removeLocked(e) // nothing is known of it, such as a session that does not exist
	}
	return c.fullLocked()
}

// Resize notes the rough size of an entry.
func (c *Cache[E]) Resize(e E, size int64) {
	c.mu.Lock()
	c.bytes += size - e.slot().size
	e.slot().size = size
	c.mu.Unlock()
}

// Grow adds to the rough size of an entry.
func (c *Cache[E]) Grow(e E, by int64) {
	c.mu.Lock()
	c.bytes += by
	e.slot().size += by
	c.mu.Unlock()
}

// Victims gives entries to throw out, pinned, the last used at the end.
func (c *Cache[E]) Victims() []E {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.fullLocked() {
		return nil
	}
	var victims []E
	entries, bytes := len(c.entries), c.bytes
	for place := c.order.Back(); place != nil && (entries > c.mostEntries || bytes > c.mostBytes); place = place.Prev() {
		e := place.Value.(E)
		s := e.slot()
		if s.pins > 0 {
			continue
		}
		s.pins++
		victims = append(victims, e)
		entries--
		bytes -= s.size
		if len(victims) == mostVictims {
			break
		}
	}
	return victims
}

// mostVictims bounds the work that throwing out adds to one commit.
const mostVictims = 64

// Drop unpins an entry and removes it unless somebody else has come to use it.
func (c *Cache[E]) Drop(e E) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := e.slot()
	if s.pins--; s.pins == 0 {
		c.removeLocked(e)
	}
}

// Len is how many entries there are.
func (c *Cache[E]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}

// Bytes is the rough size of all entries.
func (c *Cache[E]) Bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

func (c *Cache[E]) removeLocked(e E) {
	s := e.slot()
	c.bytes -= s.size
	s.size = 0
	c.order.Remove(s.place)
	delete(c.entries, s.ID)
}

func (c *Cache[E]) fullLocked() bool {
	return len(c.entries) > c.mostEntries || c.bytes > c.mostBytes
}
