// Package local carries runs in this process: it claims due runs from the
// store, and its worker carries them.
//
// Being told of a commit is a hint; looking at the store is the truth. So a
// lost hint, a crash at any point, or a second process on the same store cost
// time and nothing else.
package local

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/engine"
	"github.com/holdfast-run/holdfast/store"
)

// Options tune an engine. The zero value works.
type Options struct {
	engine.WorkerOptions
	// Slots bounds the runs carried at once. Waiting runs take none. Default:
	// 4096. Less than 0: none is carried here, but by other processes on the store.
	Slots int
}

// Engine carries runs in this process.
type Engine struct {
	*engine.Worker
	store store.Store
	slots int
	due   chan struct{} // something may be due: look
}

// New makes an engine for holdfast.Options.Engine.
func New(opts Options) func(*engine.Carrier) engine.Engine {
	return func(c *engine.Carrier) engine.Engine { return Make(c, opts) }
}

// Make makes an engine.
func Make(c *engine.Carrier, opts Options) *Engine {
	return &Engine{
		Worker: engine.NewWorker(c, opts.WorkerOptions),
		store:  c.Store, slots: cmp.Or(opts.Slots, 4096), due: make(chan struct{}, 1),
	}
}

// Notify passes on what a commit means for the runs: cancels and news reach
// those that are carried here, and what is due is looked for.
func (e *Engine) Notify(c store.Commit) {
	for _, w := range e.Worker.Notify(c) {
		if w.Work.Due {
			select {
			case e.due <- struct{}{}:
			default:
			}
		}
	}
}

// Run carries runs until ctx ends, then drains.
func (e *Engine) Run(ctx context.Context) error {
	tending, stopTending := context.WithCancel(context.WithoutCancel(ctx))
	defer stopTending()
	if x, ok := e.store.(store.Exclusive); ok && x.Exclusive() {
		e.TakeOver(ctx)
	}
	var tended sync.WaitGroup
	tended.Go(func() { e.Tend(tending) })
	e.claim(ctx)
	e.Drain()
	stopTending()
	tended.Wait()
	return nil
}

// claim claims due runs while there are slots, until ctx ends.
func (e *Engine) claim(ctx context.Context) {
	opts := e.Options()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.due:
		case <-e.Changed():
		case <-timer.C:
		}
		next := opts.Poll
		for ctx.Err() == nil {
			free := min(e.slots-e.Carrying(), 64)
			if free <= 0 {
				break
			}
			asked := time.Now()
			leases, err := e.store.Claim(ctx, opts.Name, opts.Lease, free)
			if err != nil {
				if ctx.Err() == nil {
					e.Log().Warn("claim runs", slog.Any("error", err))
				}
				break
			}
			for _, lease := range leases {
				e.Carry(ctx, lease, asked, nil)
			}
			if len(leases) < free {
				break
			}
		}
		if at, err := e.store.NextDue(ctx); err == nil && !at.IsZero() {
			// Not at once again where the store's clock is behind ours.
			next = min(next, max(at.Sub(e.Now()), opts.Poll/100))
		}
		timer.Reset(next)
	}
}
