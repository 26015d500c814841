package simtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/engine"
	"github.com/holdfast-run/holdfast/engine/local"
	"github.com/holdfast-run/holdfast/store"
)

// fleet is an engine made of several workers, each a local engine in what would
// be a process of its own. They come, die, freeze and leave as the plan has it.
type fleet struct {
	world  *world
	agents *agent.Book
	ctx    context.Context // until the runtime ends
	work   sync.WaitGroup  // what goes on in workers

	mu      sync.Mutex // guards what follows; nothing is called while it is held
	workers []*worker
}

// worker is one engine.
type worker struct {
	*local.Engine
	name string
	link *link
	skew time.Duration

	// Guarded by the fleet's mu.
	stop                 context.CancelFunc
	begun, leaving, gone bool
	health               []healthy
}

// healthy is a time in which nothing disturbed a worker: it ran, reached the
// store, and no clock jumped.
type healthy struct {
	from, to time.Duration
	open     bool          // it lasts
	offset   time.Duration // of the clock, all the time
}

func newFleet(w *world, agents *agent.Book) *fleet { return &fleet{world: w, agents: agents} }

// Run implements [engine.Engine].
func (f *fleet) Run(ctx context.Context) error {
	f.ctx = ctx
	d := roll(f.world.plan.seed, "fleet")
	for i := range f.world.plan.workers {
		name := fmt.Sprintf("w%d", i+1)
		from := d.span(0, 3*time.Second)
		f.work.Go(func() { f.life(name, from, 0) })
	}
	<-ctx.Done()
	f.work.Wait()
	return nil
}

// life is the life of a worker and of those that come in its place.
func (f *fleet) life(name string, from time.Duration, generation int) {
	p := f.world.plan
	d := roll(p.seed, "worker", name)
	if !f.sleep(from) || f.world.calm() {
		return
	}
	k := f.newWorker(name, d)
	if p.skew > 0 {
		k.skew = d.span(-p.skew, p.skew)
	}
	if d.chance(p.fatality / float64(1+generation)) {
		k.link.crashAt, k.link.late = 1+d.upTo(pick(d, 3, 15, 40)), d.chance(0.5)
		if d.chance(0.5) {
			k.link.crashAt, k.link.crashOn = 1+d.upTo(2)*d.upTo(1), pick(d, eventTypes...)
		}
	}
	if name == "w1" && p.crash.at > 0 {
		k.link.crashAt, k.link.late = p.crash.at, p.crash.after
	}
	if d.chance(p.frailty) {
		in := d.window(p.length, 100*time.Millisecond, 3*p.lease)
		how := pick(d, cut, mute, held, held)
		f.world.at(in.from, func() { f.turn(k, how) })
		f.world.at(in.to, func() { f.turn(k, open) })
	}
	if d.chance(p.turnover) {
		f.world.at(d.span(0, p.length), func() { f.leave(k) })
	}
	f.carry(k)
	if f.ctx.Err() != nil || f.world.calm() {
		return
	}
	next := fmt.Sprintf("w%d.%d", int(name[1]-'0'), generation+2)
	f.life(next, d.span(0, pick(d, 100*time.Millisecond, 5*time.Second, 25*time.Second)), generation+1)
}

// sleep waits, and says whether the runtime still runs.
func (f *fleet) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-f.ctx.Done():
		return false
	}
}

func (f *fleet) newWorker(name string, d dice) *worker {
	p := f.world.plan
	k := &worker{name: name, link: newLink(f.world, name)}
	var reach store.Store = k.link
	if f.world.broken.link != nil {
		reach = f.world.broken.link(k.link)
	}
	if p.exclusive {
		reach = owner{reach}
	}
	chance := roll(p.seed, "backoff", name)
	var mu sync.Mutex
	jitter := func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return chance.Float64()
	}
	k.Engine = local.Make(&engine.Carrier{
		Store: reach, Agents: f.agents, Log: f.world.story.log(name), Models: f.world.model,
		Backoff: engine.Backoff{Max: 10 * time.Second, Chance: jitter},
		Now:     func() time.Time { return f.world.now().Add(k.skew) },
	}, local.Options{
		Slots: p.slots,
		WorkerOptions: engine.WorkerOptions{
			Name: name, Lease: p.lease, Poll: p.poll, Drain: p.drain,
			Crash: engine.Backoff{First: time.Second, Chance: jitter},
		},
	})
	f.mu.Lock()
	f.workers = append(f.workers, k)
	f.mu.Unlock()
	return k
}

// carry lets a worker work until it dies, leaves, or the runtime ends.
func (f *fleet) carry(k *worker) {
	ctx, stop := context.WithCancel(f.ctx)
	defer stop()
	k.link.crashed = func() { stop(); f.mark() } // its goroutines go on for a while, and reach nothing
	f.world.story.note(k.name, "begins")
	f.change(func() { k.begun, k.stop = true, stop })
	left := make(chan struct{})
	f.work.Go(func() {
		defer close(left)
		if err := k.Run(ctx); err != nil {
			f.world.find("worker %s ended with %v", k.name, err)
		}
		f.change(func() { k.gone = true })
		f.world.story.note(k.name, "is gone")
	})
	if f.world.plan.exclusive {
		<-left // nobody else may own the store before that
		return
	}
	<-ctx.Done()
}

// turn changes how a worker reaches the store.
func (f *fleet) turn(k *worker, to linkState) {
	f.world.story.note(k.name, "link is %s", to)
	k.link.turn(to)
	f.mark()
}

// leave tells a worker to drain.
func (f *fleet) leave(k *worker) {
	f.world.story.note(k.name, "is told to leave")
	stop := func() {}
	f.change(func() {
		if k.stop != nil {
			k.leaving, stop = true, k.stop
		}
	})
	stop()
}

// heal ends what troubles the workers, and sees to it that there is one.
func (f *fleet) heal() {
	workers := f.all()
	for _, k := range workers {
		k.link.heal()
	}
	f.mark()
	f.work.Go(func() {
		k := f.newWorker("healer", roll(f.world.plan.seed, "healer"))
		if f.world.plan.exclusive {
			f.waitForTheOthers(workers)
		}
		f.carry(k)
	})
}

// waitForTheOthers returns when none of the workers runs.
func (f *fleet) waitForTheOthers(workers []*worker) {
	for _, k := range workers {
		f.leave(k)
		for running := true; running && f.sleep(100*time.Millisecond); {
			f.mu.Lock()
			running = k.begun && !k.gone
			f.mu.Unlock()
		}
	}
}

// Notify implements [engine.Engine]. It tells each worker that is there of a
// commit, unless the plan has it lost, late or twice.
func (f *fleet) Notify(c store.Commit) {
	workers := f.all()
	w := f.world
	if w.broken.hint != nil {
		c = w.broken.hint(c)
	}
	deaf := w.within(w.plan.deaf)
	for _, k := range workers {
		if k.link.now() != open {
			continue
		}
		if !deaf {
			k.Engine.Notify(c)
			continue
		}
		d := roll(w.plan.seed, "hint", k.name, c.Session, w.since())
		switch {
		case d.chance(w.plan.deafness / 2):
		case d.chance(w.plan.deafness / 2):
			time.AfterFunc(d.span(0, 3*time.Second), func() { k.Engine.Notify(c) })
		case d.chance(w.plan.deafness / 2):
			k.Engine.Notify(c)
			k.Engine.Notify(c)
		default:
			k.Engine.Notify(c)
		}
	}
}

// Carrying implements [engine.Engine].
func (f *fleet) Carrying() int {
	workers := f.all()
	n := 0
	for _, k := range workers {
		n += k.Engine.Carrying()
	}
	return n
}

// Carries implements [engine.Engine].
func (f *fleet) Carries(run string) bool {
	return slices.ContainsFunc(f.all(), func(k *worker) bool { return k.Engine.Carries(run) })
}

// find gives a worker by its name, or nil.
func (f *fleet) find(name string) *worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.workers {
		if k.name == name {
			return k
		}
	}
	return nil
}

// link is the link of a worker.
func (f *fleet) link(name string) *link {
	if k := f.find(name); k != nil {
		return k.link
	}
	panic("no worker " + name)
}

// change changes something about a worker, which may change its health.
func (f *fleet) change(do func()) {
	f.mu.Lock()
	do()
	f.mu.Unlock()
	f.mark()
}

// mark begins a new time of health for every worker that is well, now that
// something has changed.
func (f *fleet) mark() {
	w := f.world
	at := w.since()
	troubled := w.within(w.plan.outages) || w.within(w.plan.flaky)
	offset := w.drift()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.workers {
		if n := len(k.health); n > 0 && k.health[n-1].open {
			k.health[n-1].open, k.health[n-1].to = false, at
		}
		if k.begun && !k.leaving && !k.gone && !troubled && k.link.now() == open {
			k.health = append(k.health, healthy{from: at, open: true, offset: offset})
		}
	}
}

// times are when a worker was well. The last may last until now.
func (f *fleet) times(k *worker) []healthy {
	at := f.world.since()
	f.mu.Lock()
	defer f.mu.Unlock()
	list := append([]healthy(nil), k.health...)
	if n := len(list); n > 0 && list[n-1].open {
		list[n-1].to = at
	}
	return list
}

// all are the workers there ever were.
func (f *fleet) all() []*worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.workers)
}

// leaves says whether the worker was told to leave, or died and was left to wind down.
func (f *fleet) leaves(k *worker) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return k.leaving
}
