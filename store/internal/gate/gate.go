// Package gate keeps what is not committed yet out of sight.
package gate

import (
	"context"
	"sync"
)

// Gate guards the state of one session: many may look, or one may hold it. The
// writer holds it from its first change until the commit, so a look sees
// committed state only. Waiting ends with the context. Nobody starves: a holder
// that waits keeps new lookers out, and lookers that wait go before the next TryHold.
type Gate struct {
	mu      sync.Mutex
	lookers int
	held    bool
	looking int           // lookers that wait
	holding int           // holders that wait
	changed chan struct{} // closed when the gate may have become free; nil while nobody waits
}

// Look waits until nobody holds the gate. LookDone must follow.
func (g *Gate) Look(ctx context.Context) error {
	return g.wait(ctx, &g.looking, func() bool {
		if g.held || g.holding > 0 {
			return false
		}
		g.lookers++
		return true
	})
}

// LookDone ends a look.
func (g *Gate) LookDone() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lookers--; g.lookers == 0 {
		g.tellLocked()
	}
}

// TryHold holds the gate if nobody else holds it or looks.
func (g *Gate) TryHold() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.looking == 0 && g.holdLocked()
}

func (g *Gate) holdLocked() bool {
	if g.held || g.lookers > 0 {
		return false
	}
	g.held = true
	return true
}

// Hold waits until it holds the gate. Release must follow.
func (g *Gate) Hold(ctx context.Context) error { return g.wait(ctx, &g.holding, g.holdLocked) }

// Release ends a hold.
func (g *Gate) Release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = false
	g.tellLocked()
}

// wait tries until try is true or ctx ends, and counts itself in waiting. try runs with the lock.
func (g *Gate) wait(ctx context.Context, waiting *int, try func() bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if try() {
		return nil
	}
	*waiting++
	defer func() {
		*waiting--
		g.tellLocked() // others may have waited for this one only
	}()
	for !try() {
		if g.changed == nil {
			g.changed = make(chan struct{})
		}
		changed := g.changed
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			g.mu.Lock()
			return context.Cause(ctx)
		}
		g.mu.Lock()
	}
	return nil
}

func (g *Gate) tellLocked() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}
