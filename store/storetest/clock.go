package storetest

import (
	"sync"
	"time"
)

// clock is the time of a test. It moves when it is told to.
type clock struct {
	mu  sync.Mutex // guards now
	now time.Time
}

func newClock() *clock {
	c := &clock{}
	c.reset()
	return c
}

func (c *clock) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
