// Package temporal has a Temporal cluster say when and where runs are carried,
// https://docs.temporal.io: one workflow for each run, whose activity carries it on whatever
// worker is free and is given to another one when its heartbeats stop.
//
// Temporal holds ids and nothing else: what happened is in the log, as with
// every engine, and the log's fence is what keeps a worker that was taken for
// dead from writing. A signal that is lost, a workflow that was terminated, or
// a cluster that forgot everything cost time: the store says what is due, and
// every worker looks from time to time.
package temporal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-run/holdfast/engine"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// Options tune an engine. Client is required.
type Options struct {
	engine.WorkerOptions
	// Client of the cluster, and of the namespace in it. The engine does not close it.
	Client client.Client
	// Namespace is the client's, which does not say. Default: "default".
	Namespace string
	// TaskQueue is where workers find their work. Workflow ids begin with it. Default: "holdfast".
	TaskQueue string
	// Slots bounds the runs carried at once in this process. Waiting runs take
	// none. Default: 1000. Less than 0: none is carried here; commits are passed on to workers elsewhere.
	Slots int
	// Heartbeat is how long a worker may be silent before its runs go to another
	// one. It must be longer than the cluster takes to fail over. Default: 20 seconds.
	Heartbeat time.Duration
	// Heal is how long a run may be due before it is taken that a signal was lost. Default: 5 seconds.
	Heal time.Duration
	// CancelGrace is how long a run has to end itself when its workflow is cancelled in Temporal. Default: 10 seconds.
	CancelGrace time.Duration
	// Deployment and Build turn Temporal's worker versioning on: this worker is
	// the version Build of Deployment, and gets work once that version is current.
	// Both or none. Runs move on to the current version by themselves.
	Deployment, Build string
}

// Engine has a Temporal cluster say what to carry.
type Engine struct {
	*engine.Worker
	opts    Options
	carrier *engine.Carrier
	bell    *bell
}

// New makes an engine for holdfast.Options.Engine.
func New(opts Options) func(*engine.Carrier) engine.Engine {
	return func(c *engine.Carrier) engine.Engine { return Make(c, opts) }
}

// Make makes an engine.
func Make(c *engine.Carrier, opts Options) *Engine {
	opts.Namespace = cmp.Or(opts.Namespace, client.DefaultNamespace)
	opts.TaskQueue = cmp.Or(opts.TaskQueue, "holdfast")
	opts.Slots = cmp.Or(opts.Slots, 1000)
	opts.Heartbeat = cmp.Or(opts.Heartbeat, 20*time.Second)
	opts.Heal = cmp.Or(opts.Heal, 5*time.Second)
	opts.CancelGrace = cmp.Or(opts.CancelGrace, 10*time.Second)
	w := engine.NewWorker(c, opts.WorkerOptions)
	opts.WorkerOptions = w.Options()
	return &Engine{
		Worker: w, opts: opts, carrier: c,
		bell: &bell{
			client: opts.Client, queue: opts.TaskQueue, heartbeat: opts.Heartbeat, log: w.Log(), ring: make(chan struct{}, 1),
		},
	}
}

// Notify tells carried runs the news, and the workflows of others that they are due or to be cancelled.
func (e *Engine) Notify(c store.Commit) {
	others := e.Worker.Notify(c)
	if c.Elsewhere {
		return // whoever has committed it tells the cluster
	}
	for _, w := range others {
		run := store.Due{Session: c.Session, Run: w.Run}
		switch {
		case w.Cancel:
			e.bell.call(call{due: run, what: isCancelled})
		case w.Work.Due:
			e.bell.call(call{due: run, what: isDue})
		}
	}
	// A run that waited for a person asked for nothing, and asks for nothing now that it has ended.
	for _, event := range c.Events {
		switch event.Data.(type) {
		case session.RunCompleted, session.RunFailed, session.RunCancelled:
			if !e.Carries(event.Run) {
				e.bell.call(call{due: store.Due{Session: c.Session, Run: event.Run}, what: hasEnded})
			}
		}
	}
}

// Run carries runs until ctx ends, then drains. It returns an error when the
// cluster refuses the worker.
func (e *Engine) Run(ctx context.Context) error {
	e.describeRuns(ctx)
	tending, stopTending := context.WithCancel(context.WithoutCancel(ctx))
	defer stopTending()
	var tended sync.WaitGroup
	tended.Go(func() { e.Tend(tending) })
	tended.Go(func() { e.bell.serve(tending) })
	tended.Go(func() { e.heal(tending) })
	err := e.serve(ctx)
	stopTending()
	tended.Wait()
	return err
}

// serve takes work from the cluster until ctx ends, then drains.
func (e *Engine) serve(ctx context.Context) error {
	if e.opts.Slots < 0 {
		<-ctx.Done()
		e.Drain()
		return nil
	}
	// Waits for ends that come with the drain, and what they write, with time to spare.
	patience := e.opts.Drain + 10*time.Second
	throttle := min(e.opts.Heartbeat/4, 2*time.Second)
	options := worker.Options{
		Identity:                           e.opts.Name,
		MaxConcurrentActivityExecutionSize: e.opts.Slots,
		MaxConcurrentActivityTaskPollers:   2, // a frozen worker takes as many tasks with it
		WorkerStopTimeout:                  patience,
		// What a dead worker has cached goes to another one after this time.
		StickyScheduleToStartTimeout:     time.Second,
		MaxHeartbeatThrottleInterval:     throttle,
		DefaultHeartbeatThrottleInterval: throttle,
		DisableRegistrationAliasing:      true,
	}
	if e.opts.Build != "" {
		options.DeploymentOptions = worker.DeploymentOptions{
			UseVersioning:             true,
			Version:                   worker.WorkerDeploymentVersion{DeploymentName: e.opts.Deployment, BuildID: e.opts.Build},
			DefaultVersioningBehavior: workflow.VersioningBehaviorAutoUpgrade,
		}
	}
	w := worker.New(e.opts.Client, e.opts.TaskQueue, options)
	register(w, &activities{Engine: e})
	if err := e.start(ctx, w); err != nil {
		return err
	}
	<-ctx.Done()
	var stopped sync.WaitGroup
	stopped.Go(w.Stop)
	e.Drain()
	stopped.Wait()
	return nil
}

// start starts the worker, for as long as the cluster cannot be reached.
func (e *Engine) start(ctx context.Context, w worker.Worker) error {
	backoff := engine.Backoff{First: 100 * time.Millisecond, Max: 5 * time.Second}
	for failures := 1; ; failures++ {
		err := w.Start()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it is no news that nothing can be reached while everything ends
		}
		if !passing(err) {
			return fmt.Errorf("start a Temporal worker: %w", err)
		}
		e.Log().Warn("start a Temporal worker", slog.Any("error", err))
		if !pause(ctx, backoff.After(failures)) {
			return nil
		}
	}
}

// heal looks for runs that have been due for so long that nobody can have been told.
func (e *Engine) heal(ctx context.Context) {
	for pause(ctx, e.opts.Heal/2) {
		due, err := e.carrier.Store.Due(ctx, e.opts.Heal, 1000)
		if err != nil && ctx.Err() == nil {
			e.Log().Warn("look for runs that nobody was told of", slog.Any("error", err))
		}
		for _, d := range due {
			e.bell.call(call{due: d, what: isDue})
		}
	}
}

// pause waits; false means that ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// passing says whether an error may pass by itself.
func passing(err error) bool {
	unavailable, late := (*serviceerror.Unavailable)(nil), (*serviceerror.DeadlineExceeded)(nil)
	return errors.As(err, &unavailable) || errors.As(err, &late) || errors.Is(err, context.DeadlineExceeded)
}
