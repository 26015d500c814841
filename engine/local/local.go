// Package local carries runs in this process: it claims due runs from the
// store, renews their leases, and looks after runs that nobody carries as it should.
//
// Being told of a commit is a hint; looking at the store is the truth. So a
// lost hint, a crash at any point, or a second process on the same store cost
// time and nothing else.
package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast/engine"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// Options tune an engine. The zero value works.
type Options struct {
	// Worker names this process in the log. Default: a fresh id.
	Worker string
	// Slots bounds the runs carried at once. Waiting runs take none. Default: 4096.
	Slots int
	// Lease is how long a claim lasts without being renewed. It is renewed every third of it. Default: 15 seconds.
	Lease time.Duration
	// Poll is how often the store is looked at when nothing is heard. Default: 1 second.
	Poll time.Duration
	// Drain is how long carried runs have to end when the engine stops, before
	// they are handed over. Default: 10 seconds.
	Drain time.Duration
	// Crash spaces the claims of a run whose worker was lost. The first comes at once.
	Crash engine.Backoff
}

// Engine carries runs in this process.
type Engine struct {
	opts    Options
	carrier *engine.Carrier
	store   store.Store
	log     *slog.Logger
	due     chan struct{} // something may be due: look

	mu      sync.Mutex
	carried map[string]*carriage // by run; guarded by mu
	changed chan struct{}        // a slot came free
	drain   chan struct{}
	running sync.WaitGroup
}

// carriage is a run that this process carries.
type carriage struct {
	lease   store.Lease
	trusted time.Time // until when the lease surely holds
	cancel  context.CancelCauseFunc
	wake    chan struct{}
}

// New makes an engine for holdfast.Options.Engine.
func New(opts Options) func(*engine.Carrier) engine.Engine {
	return func(c *engine.Carrier) engine.Engine { return Make(c, opts) }
}

// Make makes an engine.
func Make(c *engine.Carrier, opts Options) *Engine {
	opts.Worker = cmp.Or(opts.Worker, session.NewID(session.WorkerPrefix))
	opts.Slots = cmp.Or(max(opts.Slots, 0), 4096)
	opts.Lease = cmp.Or(opts.Lease, 15*time.Second)
	opts.Poll = cmp.Or(opts.Poll, time.Second)
	opts.Drain = cmp.Or(opts.Drain, 10*time.Second)
	log := c.Log
	if log == nil {
		log = slog.Default()
	}
	return &Engine{
		opts: opts, carrier: c, store: c.Store, log: log.With(slog.String("worker", opts.Worker)),
		due: make(chan struct{}, 1), carried: map[string]*carriage{},
		changed: make(chan struct{}, 1), drain: make(chan struct{}),
	}
}

// Carrying is how many runs are carried at this moment.
func (e *Engine) Carrying() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.carried)
}

// Notify passes on what a commit means for the runs: cancels and news reach
// those that are carried here, and what is due is looked for.
func (e *Engine) Notify(c store.Commit) {
	if len(c.Work) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, w := range c.Work {
		k := e.carried[w.Run]
		switch {
		case k == nil:
			if w.Work.Due {
				signal(e.due)
			}
		case w.Cancel:
			k.cancel(engine.ErrCancelled)
		default:
			signal(k.wake)
		}
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run carries runs until ctx ends, then drains.
func (e *Engine) Run(ctx context.Context) error {
	var g errgroup.Group
	tending, stopTending := context.WithCancel(context.WithoutCancel(ctx))
	defer stopTending()
	if x, ok := e.store.(store.Exclusive); ok && x.Exclusive() {
		e.takeOver(ctx)
	}
	g.Go(func() error { e.renew(tending); return nil })
	g.Go(func() error { e.sweep(tending); return nil })
	e.claim(ctx)
	close(e.drain)
	e.handOver()
	stopTending()
	return g.Wait()
}

// takeOver reconciles what earlier processes held: this one owns the store
// alone, so they are gone.
func (e *Engine) takeOver(ctx context.Context) {
	held, err := e.store.Held(ctx, e.opts.Worker, 100_000)
	if err != nil {
		e.log.Warn("look for runs of an earlier process", slog.Any("error", err))
	}
	for _, lease := range held {
		e.reconcile(ctx, lease, session.CauseRestart, fmt.Sprintf("worker %s was of an earlier process", lease.Worker))
	}
}

// claim claims due runs while there are slots, until ctx ends.
func (e *Engine) claim(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.due:
		case <-e.changed:
		case <-timer.C:
		}
		next := e.opts.Poll
		for ctx.Err() == nil {
			free := min(e.opts.Slots-e.Carrying(), 64)
			if free <= 0 {
				break
			}
			before := time.Now()
			leases, err := e.store.Claim(ctx, e.opts.Worker, e.opts.Lease, free)
			if err != nil {
				if ctx.Err() == nil {
					e.log.Warn("claim runs", slog.Any("error", err))
				}
				break
			}
			for _, lease := range leases {
				e.carry(ctx, lease, before)
			}
			if len(leases) < free {
				break
			}
		}
		if at, err := e.store.NextDue(ctx); err == nil && !at.IsZero() {
			// Not at once again where the store's clock is behind ours.
			next = min(next, max(at.Sub(e.now()), e.opts.Poll/100))
		}
		timer.Reset(next)
	}
}

func (e *Engine) now() time.Time {
	if e.carrier.Now != nil {
		return e.carrier.Now()
	}
	return time.Now()
}

// carry carries a claimed run in a goroutine of its own.
func (e *Engine) carry(ctx context.Context, lease store.Lease, before time.Time) {
	runCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	k := &carriage{lease: lease, trusted: before.Add(e.opts.Lease), cancel: cancel, wake: make(chan struct{}, 1)}
	e.mu.Lock()
	e.carried[lease.Run] = k
	e.mu.Unlock()
	// A cancel recorded between the claim and this line found nobody to tell:
	// the carrier sees it when it looks at the log, which it does first.
	e.running.Go(func() {
		defer cancel(nil)
		err := e.carrier.Carry(runCtx, lease, engine.Signals{Wake: k.wake, Drain: e.drain})
		e.mu.Lock()
		if e.carried[lease.Run] == k {
			delete(e.carried, lease.Run)
		}
		e.mu.Unlock()
		signal(e.changed)
		switch {
		case err == nil:
		case errors.Is(err, engine.ErrLeaseLost), errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrNotFound):
			e.log.Info("stopped carrying", slog.String("run", lease.Run), slog.Any("why", err))
		default:
			e.log.Warn("stopped carrying", slog.String("run", lease.Run), slog.Any("error", err))
			e.reconcile(context.WithoutCancel(ctx), lease, session.CauseLeaseExpired, "the worker gave up: "+err.Error())
		}
	})
}

// renew keeps the leases of carried runs, and stops carrying one that cannot be
// trusted any more before its lease ends.
func (e *Engine) renew(ctx context.Context) {
	tick := time.NewTicker(e.opts.Lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var g errgroup.Group
		g.SetLimit(64)
		for _, k := range e.all() {
			g.Go(func() error { e.renewOne(ctx, k); return nil })
		}
		_ = g.Wait() // the functions give no error
	}
}

func (e *Engine) renewOne(ctx context.Context, k *carriage) {
	before := time.Now()
	ctx, cancel := context.WithDeadline(ctx, e.trustedUntil(k))
	defer cancel()
	lease, err := e.store.Renew(ctx, k.lease, e.opts.Lease)
	switch {
	case err == nil:
		e.mu.Lock()
		k.lease, k.trusted = lease, before.Add(e.opts.Lease)
		e.mu.Unlock()
	case errors.Is(err, store.ErrLeaseLost), !time.Now().Before(e.trustedUntil(k).Add(-e.opts.Lease / 6)):
		k.cancel(engine.ErrLeaseLost)
	default:
		e.log.Warn("renew a lease", slog.String("run", k.lease.Run), slog.Any("error", err))
	}
}

func (e *Engine) trustedUntil(k *carriage) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return k.trusted
}

func (e *Engine) all() []*carriage {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]*carriage, 0, len(e.carried))
	for _, k := range e.carried {
		all = append(all, k)
	}
	return all
}

// sweep looks for ever for runs whose worker was lost, and for cancels that were not obeyed.
func (e *Engine) sweep(ctx context.Context) {
	tick := time.NewTicker(e.opts.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		e.sweepExpired(ctx)
		e.sweepOverdue(ctx)
		if ctx.Err() == nil {
			e.stopUntrusted()
		}
	}
}

func (e *Engine) sweepExpired(ctx context.Context) {
	expired, err := e.store.Expired(ctx, 256)
	if err != nil {
		if ctx.Err() == nil {
			e.log.Warn("look for expired leases", slog.Any("error", err))
		}
		return
	}
	for _, lease := range expired {
		e.mu.Lock()
		k := e.carried[lease.Run]
		ours := k != nil && k.lease.Fence == lease.Fence
		e.mu.Unlock()
		if ours {
			continue // its own renewal decides, on a clock that cannot jump
		}
		e.reconcile(ctx, lease, session.CauseLeaseExpired,
			fmt.Sprintf("the lease of worker %s ended at %s", lease.Worker, lease.Until.UTC().Format(time.RFC3339Nano)))
	}
}

func (e *Engine) sweepOverdue(ctx context.Context) {
	overdue, err := e.store.Overdue(ctx, 256)
	if err != nil {
		if ctx.Err() == nil {
			e.log.Warn("look for overdue cancels", slog.Any("error", err))
		}
		return
	}
	for _, due := range overdue {
		_, err := e.store.Append(ctx, due.Session, session.CancelOverdue{Run: due.Run, At: e.now()}.Decide)
		if err != nil && !errors.Is(err, &session.Error{Code: session.NotDue}) && ctx.Err() == nil {
			e.log.Warn("end an overdue cancel", slog.String("run", due.Run), slog.Any("error", err))
		}
		e.mu.Lock()
		if k := e.carried[due.Run]; k != nil && err == nil {
			k.cancel(engine.ErrLeaseLost)
			delete(e.carried, due.Run) // its slot is free, whatever its goroutine is stuck in
		}
		e.mu.Unlock()
	}
}

// stopUntrusted stops carrying runs whose lease could not be renewed in time.
func (e *Engine) stopUntrusted() {
	for _, k := range e.all() {
		if time.Now().After(e.trustedUntil(k)) {
			k.cancel(engine.ErrLeaseLost)
		}
	}
}

// reconcile takes a run from a worker that is gone.
func (e *Engine) reconcile(ctx context.Context, lease store.Lease, cause session.ReconcileCause, evidence string) {
	_, err := e.store.Append(ctx, lease.Session, func(s *session.State) ([]session.Event, error) {
		c := session.Reconcile{
			Run: lease.Run, Fence: lease.Fence, Cause: cause, Evidence: evidence, At: e.now(),
			Backoff: func(n int) time.Duration {
				if n <= 1 {
					return 0
				}
				return e.opts.Crash.After(n - 1)
			},
		}
		if run := s.Run(lease.Run); run != nil {
			if a, ok := e.carrier.Agents.Find(run.Agent); ok {
				c.MaxCrashes = a.Limits.Crashes
			}
		}
		return c.Decide(s)
	})
	switch {
	case err == nil:
		e.log.Info("reconciled", slog.String("run", lease.Run), slog.String("cause", string(cause)), slog.String("evidence", evidence))
	case errors.Is(err, &session.Error{Code: session.Fenced}), errors.Is(err, &session.Error{Code: session.NotFound}), ctx.Err() != nil:
	default:
		e.log.Warn("reconcile", slog.String("run", lease.Run), slog.Any("error", err))
	}
}

// handOver waits for the carried runs to end or hand over, and after the drain time tells them to.
func (e *Engine) handOver() {
	done := make(chan struct{})
	go func() { e.running.Wait(); close(done) }()
	timer := time.NewTimer(e.opts.Drain)
	defer timer.Stop()
	select {
	case <-done:
		return
	case <-timer.C:
	}
	for _, k := range e.all() {
		k.cancel(engine.ErrDraining)
	}
	<-done
}
