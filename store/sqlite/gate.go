package sqlite

import (
	"context"
	"sync"
)

// gate guards the state of one session: many may look, or one may hold it. The
// writer holds it from its first change until the commit, so a look sees
// committed state only. Waiting ends with the context. Nobody starves: a holder
// that waits keeps new lookers out, and lookers that wait go before the next tryHold.
type gate struct {
	mu      sync.Mutex
	lookers int
	held    bool
	looking int           // lookers that wait
	holding int           // holders that wait
	changed chan struct{} // closed when the gate may have become free; nil while nobody waits
}

// look waits until nobody holds the gate. lookDone must follow.
func (g *gate) look(ctx context.Context) error {
	return g.wait(ctx, &g.looking, func() bool {
		if g.held || g.holding > 0 {
			return false
		}
		g.lookers++
		return true
	})
}

func (g *gate) lookDone() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lookers--; g.lookers == 0 {
		g.tellLocked()
	}
}

// tryHold holds the gate if nobody else holds it or looks.
func (g *gate) tryHold() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.looking == 0 && g.holdLocked()
}

func (g *gate) holdLocked() bool {
	if g.held || g.lookers > 0 {
		return false
	}
	g.held = true
	return true
}

// hold waits until it holds the gate. release must follow.
func (g *gate) hold(ctx context.Context) error { return g.wait(ctx, &g.holding, g.holdLocked) }

func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = false
	g.tellLocked()
}

// wait tries until try is true or ctx ends, and counts itself in waiting. try runs with the lock.
func (g *gate) wait(ctx context.Context, waiting *int, try func() bool) error {
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

func (g *gate) tellLocked() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}
