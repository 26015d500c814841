package sqlite

import (
	"slices"
	"time"
)

const (
	// When at least gatherFrom sessions were written within the last
	// gatherWindow, a batch waits up to gatherTime for half of them, at most
	// gatherMost. A commit has a fixed price, mostly in the kernel: shared by ten
	// events it is a quarter of what it is for two. Fewer sessions gather too
	// little in that time to be worth the wait, and one alone never waits. Only
	// what continues a stream of deltas waits: the steps by which a run begins and
	// ends follow each other, and a person waits for all of them.
	gatherFrom   = 32
	gatherWindow = 20 * time.Millisecond
	gatherTime   = time.Millisecond
	gatherMost   = 64
)

// gatherer knows how many sessions are being written, and waits for them. Only
// the writer uses it.
type gatherer struct {
	window int64     // the number of the window, from 1
	began  time.Time // when it began
	seen   int       // sessions written in it
	active int       // sessions written in the one before
	timer  *time.Timer
	full   chan struct{} // of capacity 1: told when as many requests as were waited for are queued
}

func newGatherer() *gatherer {
	timer := time.NewTimer(gatherTime)
	timer.Stop()
	return &gatherer{window: 1, timer: timer, full: make(chan struct{}, 1)}
}

// wrote counts a session that is written.
func (g *gatherer) wrote(e *entry) {
	if e.window != g.window {
		e.window = g.window
		g.seen++
	}
}

// wanted is how many requests to wait for. 0: do not wait.
func (g *gatherer) wanted(now time.Time) int {
	if past := now.Sub(g.began); past >= gatherWindow {
		g.active = g.seen
		if past >= 2*gatherWindow {
			g.active = 0 // nothing at all was written in the window before
		}
		g.window++
		g.began, g.seen = now, 0
	}
	if g.active < gatherFrom {
		return 0
	}
	return min(g.active/2, gatherMost)
}

// urgent says that a request is not to wait for others.
func (r *request) urgent() bool { return r.entry == nil || !r.entry.streams.Load() }

// gather waits for more requests if that is worth it.
func (w *writer) gather() {
	g := w.gatherer
	wanted := g.wanted(time.Now())
	if wanted == 0 {
		return
	}
	w.mu.Lock()
	wait := !w.closed && len(w.queue) > 0 && len(w.queue) < wanted && !slices.ContainsFunc(w.queue, (*request).urgent)
	if wait {
		w.wanted = wanted
	}
	w.mu.Unlock()
	if !wait {
		return
	}
	g.timer.Reset(gatherTime)
	select {
	case <-g.full:
		g.timer.Stop()
	case <-g.timer.C:
	}
	w.mu.Lock()
	w.wanted = 0
	w.mu.Unlock()
	select {
	case <-g.full: // told as the time ran out
	default:
	}
}
