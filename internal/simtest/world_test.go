package simtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/engine"
	"github.com/holdfast-run/holdfast/feed"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/memory"
)

// world is one life of a plan. Locks: the store's is taken before the world's,
// so nothing of the store is called while mu is held.
type world struct {
	t      *testing.T
	plan   *plan
	broken broken
	start  time.Time
	story  story

	store   *memory.Store
	runtime *holdfast.Runtime
	fleet   *fleet
	mind    *mind
	hands   *hands
	people  *people
	readers []*reader
	lists   []*lister

	work sync.WaitGroup // what the plan has begun
	acts sync.WaitGroup // calls of models and tools, which may be deaf

	// writer is the link whose rule runs now or whose commit is being made;
	// guarded by the store's lock.
	writer *link

	mu       sync.Mutex // guards what follows
	healed   bool
	offset   time.Duration // of the clock that everybody goes by
	records  map[string]*record
	past     []*record      // of deleted sessions
	happened map[string]int // events so far, by session and type
	findings []string
}

func newWorld(p *plan, b broken) *world {
	w := &world{plan: p, broken: b, records: map[string]*record{}, happened: map[string]int{}}
	w.mind, w.hands, w.people = newMind(w), newHands(w), newPeople(w)
	return w
}

// live lives the plan to its end, inside a bubble, and checks what is left.
func (w *world) live(t *testing.T) {
	p := w.plan
	w.t, w.start = t, time.Now()
	w.story.start = w.start
	w.story.note("plan", "%+v", p)
	w.open()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.runtime.Run(ctx) }()
	w.begin()
	time.Sleep(time.Until(w.start.Add(p.length)))
	w.heal()
	w.settle()
	w.readToTheEnd()
	w.listToTheEnd()
	w.checkRest()
	stop()
	if err := <-done; err != nil {
		w.find("the runtime ended with %v", err)
	}
	if err := w.runtime.Close(); err != nil {
		w.find("the runtime closed with %v", err)
	}
	w.acts.Wait()
}

// find notes that a promise was broken.
func (w *world) find(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.story.note("!!!", "%s", text)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.findings = append(w.findings, text)
}

// since is how long the world has lived.
func (w *world) since() time.Duration { return time.Since(w.start) }

// now is the clock that everybody goes by.
func (w *world) now() time.Time { return time.Now().Add(w.drift()) }

// drift is how far the clock is from the bubble's.
func (w *world) drift() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.offset
}

// calm says whether the faults have healed.
func (w *world) calm() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.healed
}

func (w *world) model(string) (model.Model, error) { return w.mind, nil }

var quiet = slog.New(slog.DiscardHandler)

// open puts the runtime together, with faults at every joint.
func (w *world) open() {
	p := w.plan
	var err error
	w.runtime, err = holdfast.Open(context.Background(), holdfast.Options{
		Store: func(_ context.Context, opts store.Options) (store.Store, error) {
			w.store = memory.NewFaulty(memory.Options{
				Options: opts, BeforeCall: w.beforeCall, BeforeCommit: w.beforeCommit, AfterCommit: w.afterCommit, DropCommit: w.committed,
			})
			door := newLink(w, "door")
			if w.broken.door != nil {
				return w.broken.door(door), nil
			}
			return door, nil
		},
		Engine: func(c *engine.Carrier) engine.Engine {
			w.fleet = newFleet(w, c.Agents)
			return w.fleet
		},
		Agents:      w.agents(),
		Models:      w.model,
		Feed:        feed.Options{Log: w.story.log("feed"), Heartbeat: time.Hour, TailFrames: 40},
		CancelGrace: p.grace, Retention: p.retention, Now: w.now, Log: w.story.log("runtime"),
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) agents() []agent.Agent {
	limits := agent.Limits{Steps: 5, Attempts: 3, Time: w.plan.runTime, Tokens: w.plan.tokens}
	// Some models have a window that is soon full.
	window := agent.Context{Window: pick(roll(w.plan.seed, "context"), 0, 0, 2_048, 3_000, 8_000)}
	return []agent.Agent{
		{
			Name: "tools", Model: "sim", Instructions: "Be exact.", Tools: w.hands.set(), Limits: limits, Context: window,
			ApprovalTimeout: w.plan.approvalTimeout,
		},
		{Name: "plain", Model: "sim", Limits: limits, Context: window},
	}
}

// begin starts everything that the plan has.
func (w *world) begin() {
	p := w.plan
	for _, at := range slices.Concat(p.outages, p.flaky, p.deaf) {
		w.at(at.from, w.fleet.mark)
		w.at(at.to, w.fleet.mark)
	}
	for _, j := range p.jumps {
		w.at(j.at, func() {
			w.story.note("clock", "jumps by %s", j.by)
			w.mu.Lock()
			w.offset += j.by
			w.mu.Unlock()
			w.fleet.mark()
		})
	}
	for _, at := range p.folds {
		w.at(at, w.fold)
	}
	for _, a := range p.actions {
		w.at(a.at, func() { w.people.act(a) })
	}
	for i, r := range p.readers {
		w.readers = append(w.readers, newReader(w, i, r))
	}
	for i := range p.lists {
		w.lists = append(w.lists, newLister(w, i))
	}
	w.people.begin()
}

// at does something at a time of the plan.
func (w *world) at(at time.Duration, do func()) {
	w.work.Go(func() {
		time.Sleep(time.Until(w.start.Add(at)))
		do()
	})
}

// heal ends all faults for ever.
func (w *world) heal() {
	w.story.note("world", "heals")
	w.mu.Lock()
	w.healed = true
	w.mu.Unlock()
	w.fleet.heal()
	w.work.Wait()
}

// patience is how long a healed world may take to come to rest: longer than any
// wait in it, one after the other.
const patience = 20 * time.Minute

// settle lets people decide what is open until nothing is.
func (w *world) settle() {
	for until := time.Now().Add(patience); ; {
		open := w.openRuns()
		if len(open) == 0 {
			return
		}
		if time.Now().After(until) {
			w.find("these runs do not end: %s", open)
			return
		}
		w.people.decideAll()
		time.Sleep(500 * time.Millisecond)
	}
}

// openRuns are the runs that have not ended, with what they do.
func (w *world) openRuns() []string {
	var found []string
	for _, id := range w.plan.sessions {
		err := w.store.View(context.Background(), id, func(s *session.State) {
			for _, run := range s.Open() {
				found = append(found, fmt.Sprintf("%s in %s is %s %s", run.ID, id, run.Status, run.WaitingReason))
			}
		})
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			w.find("look at session %s: %v", id, err)
		}
	}
	return found
}

func (w *world) fold() {
	n, err := w.store.Fold(context.Background(), w.now().Add(-time.Second))
	w.story.note("world", "folds %d deltas away (%v)", n, err)
}

// within says whether the world is in one of these windows. A healed world is in none.
func (w *world) within(windows []window) bool {
	if len(windows) == 0 {
		return false
	}
	at := w.since()
	return !w.calm() && slices.ContainsFunc(windows, func(in window) bool { return in.holds(at) })
}

// latency is the longest way to the store now.
func (w *world) latency() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	most := max(w.plan.latency, 100*time.Microsecond)
	if w.healed {
		return min(most, 50*time.Millisecond)
	}
	return most
}

// chance is chance in the middle of a call: of the plan, the instant and what it is about.
func (w *world) chance(p float64, about ...any) bool {
	return p > 0 && roll(w.plan.seed, append(about, w.since())...).chance(p)
}

// beforeCall is the memory store's hook.
func (w *world) beforeCall(method string) error {
	w.writer = nil
	switch {
	case w.within(w.plan.outages):
		return errAway
	case w.within(w.plan.flaky) && w.chance(w.plan.flakiness, "call", method):
		w.story.note("store", "%s fails", method)
		return errFlaky
	}
	return nil
}

// writes is the link that makes this commit.
func (w *world) writes(list []session.Event) *link {
	switch d := list[0].Data.(type) { // a claim has no rule that says who it is
	case session.RunStarted:
		return w.fleet.link(d.Worker)
	case session.RunResumed:
		return w.fleet.link(d.Worker)
	}
	if w.writer == nil {
		panic("a commit without a writer")
	}
	return w.writer
}

// beforeCommit is the memory store's hook.
func (w *world) beforeCommit(id string, list []session.Event) error {
	l := w.writes(list)
	if l.now() == dead {
		return errDead // in the middle of a claim of several runs
	}
	if l.write(list) {
		w.story.note(l.name, "DIES before it writes %s", told(list))
		l.die()
		return errDead
	}
	return nil
}

// afterCommit is the memory store's hook.
func (w *world) afterCommit(id string, list []session.Event) error {
	l := w.writes(list)
	if l.dies(list) {
		w.story.note(l.name, "DIES after its write, which nobody confirmed")
		l.die()
		return errDead
	}
	if w.within(w.plan.flaky) && w.chance(w.plan.flakiness, "answer", id, list[0].Seq) {
		w.story.note(l.name, "is not told that its write of %d in %s succeeded", list[0].Seq, id)
		return errFlaky
	}
	return nil
}

// runaway is more events than any history has: something goes round in circles, and time stands still.
const runaway = 20_000

// committed is the memory store's hook DropCommit: it sees every commit and
// says which nobody is told of.
func (w *world) committed(c store.Commit) bool {
	if c.Deleted {
		w.story.note("store", "%s is deleted", c.Session)
	} else {
		w.story.note(w.writes(c.Events).name, "%s %s", c.Session, told(c.Events))
	}
	w.mu.Lock()
	r := w.records[c.Session]
	if r == nil {
		r = &record{session: c.Session}
		w.records[c.Session] = r
	}
	r.add(c.Frames, w.since())
	if len(r.frames) > runaway {
		panic(fmt.Sprintf("seed %d: the log of %s grows without end:\n%s", w.plan.seed, c.Session, w.story.end(60)))
	}
	if c.Deleted {
		r.deleted = true
		w.past = append(w.past, r)
		delete(w.records, c.Session)
	}
	w.reactLocked(c.Events)
	w.mu.Unlock()
	return w.within(w.plan.deaf) && w.chance(w.plan.deafness*0.7, "told", c.Session, len(c.Frames))
}

// reactLocked lets people do what the plan has them do when these events happen.
func (w *world) reactLocked(list []session.Event) {
	if len(w.plan.reactions) == 0 || w.healed {
		return
	}
	for _, e := range list {
		w.happened[e.Session+e.Type()]++
		for _, r := range w.plan.reactions {
			if r.session != e.Session || r.to != e.Type() || r.nth != w.happened[e.Session+e.Type()] {
				continue
			}
			act := r.action
			act.run = e.Run
			w.work.Go(func() {
				time.Sleep(r.after)
				w.people.act(act)
			})
		}
	}
}

// reached is how far the log of a session goes.
func (w *world) reached(id string) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.records[id]; r != nil {
		return int64(len(r.frames))
	}
	return 0
}

// frame is the frame that a session's log has at a seq, of any log that the
// session ever had.
func (w *world) frame(id string, seq int64, same func(session.Frame) bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range append(slices.Clone(w.past), w.records[id]) {
		if r != nil && r.session == id && seq <= int64(len(r.frames)) && same(r.frames[seq-1]) {
			return true
		}
	}
	return false
}

// everDeleted says whether the session was deleted once.
func (w *world) everDeleted(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.past, func(r *record) bool { return r.session == id })
}

// histories are all logs there were, those of deleted sessions first.
func (w *world) histories() []*history {
	w.mu.Lock()
	records := slices.Clone(w.past)
	for _, id := range slices.Sorted(maps.Keys(w.records)) {
		records = append(records, w.records[id])
	}
	w.mu.Unlock()
	var all []*history
	for _, r := range records {
		h, err := newHistory(r)
		if err != nil {
			w.find("the log of %s: %v", r.session, err)
			continue
		}
		all = append(all, h)
	}
	return all
}
