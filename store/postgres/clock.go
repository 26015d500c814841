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

const (
	// clockAge is after which time the database is asked again.
	clockAge = 10 * time.Second
	// clockTrip is how long an answer may take to be believed, unless the last
	// that was believed is very old: it may have been late on its way.
	clockTrip = 100 * time.Millisecond
)

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

// heard notes what the database's clock said soon after before.
func (c *clock) heard(before, then time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(before) > clockTrip && time.Since(c.asked) < 10*clockAge {
		return
	}
	c.then, c.asked = then, before
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
