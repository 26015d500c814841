package holdfast

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/engine"
	"github.com/holdfast-run/holdfast/feed"
	"github.com/holdfast-run/holdfast/feed/doorbell"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/tool/callback"
)

// Options say what a runtime is made of.
type Options struct {
	// Store opens the backend, for example sqlite.At("data").
	Store func(ctx context.Context, opts store.Options) (store.Store, error)
	// Engine makes the engine, for example local.New(local.Options{}).
	Engine func(c *engine.Carrier) engine.Engine
	// Agents are what can run. The first is the default.
	Agents []agent.Agent
	// Models resolves an agent's model reference.
	Models func(ref string) (model.Model, error)
	// Feed tunes how readers follow.
	Feed feed.Options
	// Doorbell tells other processes on the same store of commits, and hears of
	// theirs. Default: nobody is told, and others are heard of at the next poll.
	Doorbell doorbell.Bell
	// CallbackKey signs what services show that answer a call later; the same in
	// every process of the store. Default: none, and no callback is taken.
	CallbackKey callback.Key
	// CancelGrace is how long a cancelled run has to end. Default: 5 seconds.
	CancelGrace time.Duration
	// Retention is how long deltas of ended runs are kept. Default: 1 hour; negative: for ever.
	Retention time.Duration
	// Now is the clock. Default: the store's, if it has one of its own, or time.Now.
	Now func() time.Time
	// Log is where the runtime reports. Default: slog.Default().
	Log *slog.Logger
}

// Runtime owns the conversations and the executions of one process. All methods
// are safe for concurrent use.
type Runtime struct {
	opts    Options
	store   store.Store
	feed    *feed.Hub
	engine  engine.Engine
	carrier *engine.Carrier
	agents  *agent.Book
	log     *slog.Logger
	// listening is the goroutine that hears the doorbell, until deafen.
	listening sync.WaitGroup
	deafen    context.CancelFunc
}

// Open opens the store and joins feed and engine to it. Nothing is carried
// until [Runtime.Run].
func Open(ctx context.Context, opts Options) (*Runtime, error) {
	if opts.Store == nil || opts.Engine == nil || opts.Models == nil {
		return nil, errors.New("holdfast: Options needs a Store, an Engine and Models")
	}
	if opts.CancelGrace <= 0 {
		opts.CancelGrace = 5 * time.Second
	}
	if opts.Retention == 0 {
		opts.Retention = time.Hour
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	agents, err := agent.NewBook(opts.Agents...)
	if err != nil {
		return nil, err
	}
	r := &Runtime{opts: opts, agents: agents, log: opts.Log}
	// The store tells feed and engine of each commit, and they are made from the
	// store: nothing is appended before both stand.
	var ready atomic.Bool
	r.store, err = opts.Store(ctx, store.Options{
		Now: opts.Now,
		OnCommit: func(c store.Commit) {
			if !ready.Load() {
				return
			}
			r.feed.Publish(c)
			r.engine.Notify(c)
			if opts.Doorbell != nil && !c.Elsewhere {
				opts.Doorbell.Ring(c)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	if r.opts.Now == nil {
		r.opts.Now = time.Now
		if clock, ok := r.store.(store.Clock); ok {
			r.opts.Now = clock.Now
		}
	}
	if opts.Feed.Log == nil {
		opts.Feed.Log = opts.Log
	}
	r.feed = feed.New(r.store, opts.Feed)
	r.carrier = &engine.Carrier{Store: r.store, Agents: agents, Models: opts.Models, Now: r.opts.Now, Log: opts.Log}
	r.engine = opts.Engine(r.carrier)
	ready.Store(true)
	r.listen()
	return r, nil
}

// listen hears what other processes commit, until Close.
func (r *Runtime) listen() {
	var ctx context.Context
	ctx, r.deafen = context.WithCancel(context.Background())
	if r.opts.Doorbell == nil {
		return
	}
	if tail, ok := r.opts.Doorbell.(doorbell.Tail); ok {
		tail.Followed(r.feed.Followed)
	}
	r.listening.Go(func() {
		if err := r.opts.Doorbell.Run(ctx, r.heard); err != nil {
			r.log.Error("the doorbell is broken: other processes are heard of at the next poll", slog.Any("error", err))
		}
	})
}

// heard passes on what another process has committed.
func (r *Runtime) heard(ring doorbell.Ring) {
	switch {
	case ring.Session == "": // what is due is looked for; readers heal by themselves
		ring.Work = []store.RunWork{{Work: session.Work{Due: true}}}
	case len(ring.Frames) > 0:
		r.feed.Publish(store.Commit{Session: ring.Session, Frames: ring.Frames})
	default:
		r.feed.RingLog(ring.Session)
	}
	if ring.Facts {
		r.feed.RingRow(ring.Session)
	}
	r.engine.Notify(store.Commit{Session: ring.Session, Work: ring.Work, Elsewhere: true})
}

// Run carries runs until ctx ends, then drains, and returns when nothing of it
// is left. Reads and commands work before, during and after.
func (r *Runtime) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.engine.Run(ctx) })
	if r.opts.Retention > 0 {
		g.Go(func() error { r.retain(ctx); return nil })
	}
	return g.Wait()
}

// retain folds away the deltas of runs that ended long enough ago.
func (r *Runtime) retain(ctx context.Context) {
	every := min(r.opts.Retention/4+time.Second, 5*time.Minute)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r.fold(ctx)
	}
}

// fold folds until nothing is left that is old enough.
func (r *Runtime) fold(ctx context.Context) {
	before := r.opts.Now().Add(-r.opts.Retention)
	var all int64
	for {
		dropped, err := r.store.Fold(ctx, before)
		all += dropped
		if err != nil && ctx.Err() == nil {
			r.log.Warn("fold deltas", slog.Any("error", err))
		}
		if err != nil || dropped == 0 {
			break
		}
	}
	if all > 0 {
		r.log.Info("folded deltas", slog.Int64("events", all))
	}
}

// Close ends the feed's readers and closes the store. Call it after Run has returned.
func (r *Runtime) Close() error {
	r.deafen()
	r.listening.Wait()
	r.feed.Close(feed.ErrClosing)
	return r.store.Close()
}

// Agents gives the agents, the default first.
func (r *Runtime) Agents() []agent.Agent { return r.agents.All() }

// Feed is how readers follow sessions. Ask [Runtime.Allowed] first.
func (r *Runtime) Feed() *feed.Hub { return r.feed }

// Carrying is how many runs this process carries at this moment.
func (r *Runtime) Carrying() int { return r.engine.Carrying() }

// Carries says whether this process carries a run at this moment.
func (r *Runtime) Carries(run string) bool { return r.engine.Carries(run) }

// Ready is nil when commands can be taken.
func (r *Runtime) Ready(ctx context.Context) error { return r.store.Ready(ctx) }

// Allowed is nil if p may see the session, and store.ErrNotFound otherwise,
// whether it is missing or another's.
func (r *Runtime) Allowed(ctx context.Context, p Principal, id string) error {
	return r.view(ctx, p, id, func(*session.State) error { return nil })
}

// view looks at a session of p.
func (r *Runtime) view(ctx context.Context, p Principal, id string, look func(*session.State) error) error {
	var refused error
	err := r.store.View(ctx, id, func(s *session.State) {
		if s.Tenant != p.Tenant || s.Owner != p.Owner {
			refused = store.ErrNotFound
			return
		}
		refused = look(s)
	})
	if err != nil {
		return err
	}
	return refused
}

// command appends what decide says to a session of p that exists.
func (r *Runtime) command(ctx context.Context, p Principal, id string, decide session.Decide) (store.Appended, error) {
	return r.store.Append(ctx, id, func(s *session.State) ([]session.Event, error) {
		if !s.Exists() || s.Tenant != p.Tenant || s.Owner != p.Owner {
			return nil, store.ErrNotFound
		}
		return decide(s)
	})
}
