package postgres

import (
	"context"
	"sync"
	"time"
)

// clock tells the time of the database, so that all processes judge leases by
// one clock. Between two looks at it this machine counts the time that passes,
// by a clock that nobody sets.
type clock struct {
	own func() time.Time // used instead, if it is not nil

	mu    sync.Mutex
	then  time.Time // by the database
	asked time.Time // by this machine, when it was then
}

func (c *clock) now() time.Time {
	if c.own != nil {
		return c.own()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.then.Add(time.Since(c.asked))
}

const selectClock = `SELECT clock_timestamp()`

// clockAge is after which time the database is asked again.
const clockAge = 10 * time.Second

// ask looks at the database's clock.
func (c *clock) ask(ctx context.Context, q querier) error {
	if c.own != nil {
		return nil
	}
	before := time.Now()
	var then time.Time
	if err := q.QueryRow(ctx, selectClock).Scan(&then); err != nil {
		return err
	}
	c.heard(before, then)
	return nil
}

// heard notes what the database's clock said at some time since before.
func (c *clock) heard(before, then time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.then, c.asked = then, before.Add(time.Since(before)/2)
}

// stale says that the database should be asked again.
func (c *clock) stale() bool {
	if c.own != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.asked) > clockAge
}
