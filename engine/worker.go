package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// WorkerOptions tune a worker. The zero value works.
type WorkerOptions struct {
	// Name names this process in the log. Default: a fresh id.
	Name string
	// Lease is how long a claim lasts without being renewed. It is renewed every third of it. Default: 15 seconds.
	Lease time.Duration
	// Poll is how often runs that nobody carries as it should are looked for. Default: 1 second.
	Poll time.Duration
	// Drain is how long carried runs have to end when the worker stops, before
	// they are handed over. Default: 10 seconds.
	Drain time.Duration
	// Crash spaces the claims of a run whose worker was lost. The first comes at once.
	Crash Backoff
}

// WithDefaults fills what is not said.
func (o WorkerOptions) WithDefaults() WorkerOptions {
	o.Name = cmp.Or(o.Name, session.NewID(session.WorkerPrefix))
	o.Lease = cmp.Or(o.Lease, 15*time.Second)
	o.Poll = cmp.Or(o.Poll, time.Second)
	o.Drain = cmp.Or(o.Drain, 10*time.Second)
	return o
}

// Worker is the part of an engine that carries: it carries leased runs each in
// a goroutine, keeps their leases, passes news on to them, sees to runs of
// workers that are gone, and drains. What it carries, and when, the engine says.
type Worker struct {
	opts    WorkerOptions
	carrier *Carrier
	log     *slog.Logger

	mu      sync.Mutex
	carried map[string]*carriage // by run; guarded by mu
	changed chan struct{}
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

// NewWorker makes a worker.
func NewWorker(c *Carrier, opts WorkerOptions) *Worker {
	opts = opts.WithDefaults()
	return &Worker{
		opts: opts, carrier: c, log: c.logger().With(slog.String("worker", opts.Name)),
		carried: map[string]*carriage{}, changed: make(chan struct{}, 1), drain: make(chan struct{}),
	}
}

// Options are the worker's options, with their defaults.
func (w *Worker) Options() WorkerOptions { return w.opts }

// Log is the worker's log, which names it.
func (w *Worker) Log() *slog.Logger { return w.log }

// Carrying is how many runs are carried at this moment.
func (w *Worker) Carrying() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.carried)
}

// Carries says whether a run is carried at this moment.
func (w *Worker) Carries(run string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.carried[run] != nil
}

// Changed receives when fewer runs are carried than before.
func (w *Worker) Changed() <-chan struct{} { return w.changed }

// Draining is closed when the worker begins to drain.
func (w *Worker) Draining() <-chan struct{} { return w.drain }

// Notify passes on what a commit means for carried runs: cancels and news. It
// gives the work that concerns runs which are not carried here.
func (w *Worker) Notify(c store.Commit) (others []store.RunWork) {
	if len(c.Work) == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, work := range c.Work {
		k := w.carried[work.Run]
		switch {
		case k == nil:
			others = append(others, work)
		case work.Cancel:
			k.cancel(ErrCancelled)
		default:
			signal(k.wake)
		}
	}
	return others
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Now is the time by the carrier's clock.
func (w *Worker) Now() time.Time {
	return w.carrier.clock()
}

// Carry carries a run in a goroutine of its own. asked is when its lease was
// asked for, by this process's clock. done, if not nil, is told once, when the run is carried no more, with the error of
// [Carrier.Carry]; the run has been reconciled then if it had to be.
func (w *Worker) Carry(ctx context.Context, lease store.Lease, asked time.Time, done func(error)) {
	carrying, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	k := &carriage{lease: lease, trusted: asked.Add(w.opts.Lease), cancel: cancel, wake: make(chan struct{}, 1)}
	w.mu.Lock()
	w.carried[lease.Run] = k
	w.mu.Unlock()
	// A cancel recorded between the claim and this line found nobody to tell:
	// the carrier sees it when it looks at the log, which it does first.
	w.running.Go(func() {
		defer cancel(nil)
		err := w.carrier.Carry(carrying, lease, Signals{Wake: k.wake, Drain: w.drain})
		w.mu.Lock()
		if w.carried[lease.Run] == k {
			delete(w.carried, lease.Run)
		}
		w.mu.Unlock()
		signal(w.changed)
		switch {
		case err == nil:
		case errors.Is(err, ErrLeaseLost), errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrNotFound):
			w.log.Info("stopped carrying", slog.String("run", lease.Run), slog.Any("why", err))
		default:
			w.log.Warn("stopped carrying", slog.String("run", lease.Run), slog.Any("error", err))
			w.Reconcile(context.WithoutCancel(ctx), lease, session.CauseLeaseExpired, "the worker gave up: "+err.Error())
		}
		if done != nil {
			done(err)
		}
	})
}

// Stop ends the carrying of a run, if it is carried under this fence. The cause says what becomes of the run:
// see [Carrier.Carry].
func (w *Worker) Stop(run string, fence int64, cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.carried[run]; k != nil && k.lease.Fence == fence {
		k.cancel(cause)
	}
}

// Tend keeps leases and looks for runs that nobody carries as it should, until ctx ends.
func (w *Worker) Tend(ctx context.Context) {
	var tending sync.WaitGroup
	tending.Go(func() { w.renew(ctx) })
	tending.Go(func() { w.sweep(ctx) })
	tending.Wait()
}

// Drain tells carried runs to end or to be handed over where nothing is under
// way, after the drain time to be handed over as they are, and returns when none is carried. It is called once.
func (w *Worker) Drain() {
	close(w.drain)
	done := make(chan struct{})
	go func() { w.running.Wait(); close(done) }()
	timer := time.NewTimer(w.opts.Drain)
	defer timer.Stop()
	select {
	case <-done:
		return
	case <-timer.C:
	}
	for _, k := range w.all() {
		k.cancel(ErrDraining)
	}
	<-done
}

// TakeOver reconciles what earlier processes held: this one owns the store
// alone, so they are gone.
func (w *Worker) TakeOver(ctx context.Context) {
	held, err := w.carrier.Store.Held(ctx, w.opts.Name, 100_000)
	if err != nil {
		w.log.Warn("look for runs of an earlier process", slog.Any("error", err))
	}
	for _, lease := range held {
		w.Reconcile(ctx, lease, session.CauseRestart, fmt.Sprintf("worker %s was of an earlier process", lease.Worker))
	}
}

// renew keeps the leases of carried runs, and stops carrying one that cannot be
// trusted any more before its lease ends.
func (w *Worker) renew(ctx context.Context) {
	tick := time.NewTicker(w.opts.Lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var g errgroup.Group
		g.SetLimit(64)
		for _, k := range w.all() {
			g.Go(func() error { w.renewOne(ctx, k); return nil })
		}
		_ = g.Wait() // the functions give no error
	}
}

func (w *Worker) renewOne(ctx context.Context, k *carriage) {
	before := time.Now()
	ctx, cancel := context.WithDeadline(ctx, w.trustedUntil(k))
	defer cancel()
	lease, err := w.carrier.Store.Renew(ctx, k.lease, w.opts.Lease)
	switch {
	case err == nil:
		w.mu.Lock()
		k.lease, k.trusted = lease, before.Add(w.opts.Lease)
		w.mu.Unlock()
		signal(k.wake) // another process may have told of news in vain
	case errors.Is(err, store.ErrLeaseLost), !time.Now().Before(w.trustedUntil(k).Add(-w.opts.Lease / 6)):
		k.cancel(ErrLeaseLost)
	default:
		w.log.Warn("renew a lease", slog.String("run", k.lease.Run), slog.Any("error", err))
	}
}

func (w *Worker) trustedUntil(k *carriage) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return k.trusted
}

func (w *Worker) all() []*carriage {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]*carriage, 0, len(w.carried))
	for _, k := range w.carried {
		all = append(all, k)
	}
	return all
}

// sweep looks for ever for runs whose worker was lost, and for cancels that were not obeyed.
func (w *Worker) sweep(ctx context.Context) {
	tick := time.NewTicker(w.opts.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		w.sweepExpired(ctx)
		w.sweepOverdue(ctx)
		if ctx.Err() == nil {
			w.stopUntrusted()
		}
	}
}

func (w *Worker) sweepExpired(ctx context.Context) {
	expired, err := w.carrier.Store.Expired(ctx, 256)
	if err != nil {
		if ctx.Err() == nil {
			w.log.Warn("look for expired leases", slog.Any("error", err))
		}
		return
	}
	for _, lease := range expired {
		w.mu.Lock()
		k := w.carried[lease.Run]
		ours := k != nil && k.lease.Fence == lease.Fence
		w.mu.Unlock()
		if ours {
			continue // its own renewal decides, on a clock that cannot jump
		}
		w.Reconcile(ctx, lease, session.CauseLeaseExpired,
			fmt.Sprintf("the lease of worker %s ended at %s", lease.Worker, lease.Until.UTC().Format(time.RFC3339Nano)))
	}
}

func (w *Worker) sweepOverdue(ctx context.Context) {
	overdue, err := w.carrier.Store.Overdue(ctx, 256)
	if err != nil {
		if ctx.Err() == nil {
			w.log.Warn("look for overdue cancels", slog.Any("error", err))
		}
		return
	}
	for _, due := range overdue {
		err := w.carrier.ending(ctx, due.Session, due.Run, session.CancelOverdue{Run: due.Run, At: w.Now()}.Decide)
		if err != nil && !errors.Is(err, &session.Error{Code: session.NotDue}) && ctx.Err() == nil {
			w.log.Warn("end an overdue cancel", slog.String("run", due.Run), slog.Any("error", err))
		}
		w.mu.Lock()
		if k := w.carried[due.Run]; k != nil && err == nil {
			k.cancel(ErrLeaseLost)
			delete(w.carried, due.Run) // its slot is free, whatever its goroutine is stuck in
		}
		w.mu.Unlock()
	}
}

// stopUntrusted stops carrying runs whose lease could not be renewed in time.
func (w *Worker) stopUntrusted() {
	for _, k := range w.all() {
		if time.Now().After(w.trustedUntil(k)) {
			k.cancel(ErrLeaseLost)
		}
	}
}

// Reconcile takes a run from a worker that is gone.
func (w *Worker) Reconcile(ctx context.Context, lease store.Lease, cause session.ReconcileCause, evidence string) {
	err := w.carrier.ending(ctx, lease.Session, lease.Run, func(s *session.State) ([]session.Event, error) {
		c := session.Reconcile{
			Run: lease.Run, Fence: lease.Fence, Cause: cause, Evidence: evidence, At: w.Now(),
			Backoff: func(n int) time.Duration {
				if n <= 1 {
					return 0
				}
				return w.opts.Crash.After(n - 1)
			},
		}
		if run := s.Run(lease.Run); run != nil {
			if a, ok := w.carrier.Agents.Find(run.Agent); ok {
				c.MaxCrashes = a.Limits.Crashes
			}
		}
		return c.Decide(s)
	})
	switch {
	case err == nil:
		w.log.Info("reconciled", slog.String("run", lease.Run), slog.String("cause", string(cause)), slog.String("evidence", evidence))
	case errors.Is(err, &session.Error{Code: session.Fenced}), errors.Is(err, &session.Error{Code: session.NotFound}), ctx.Err() != nil:
	default:
		w.log.Warn("reconcile", slog.String("run", lease.Run), slog.Any("error", err))
	}
}
