package simtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast/session"
)

// plan is all that will happen to a world and that the world itself does not
// decide. It is made of one seed.
type plan struct {
	seed     int64
	sessions []string
	length   time.Duration // of the busy time: then everything heals
	calm     bool          // nothing goes wrong but models and tools

	// The engines and the runtime.
	lease, poll, drain, grace time.Duration
	slots                     int
	exclusive                 bool // one worker at a time, that owns the store alone
	retention                 time.Duration
	approvalTimeout           time.Duration
	runTime                   time.Duration
	tokens                    int

	// The faults.
	latency time.Duration // the longest way to the store
	outages []window      // nobody reaches the store
	flaky   []window      // calls fail, or their answers are lost, with the chance flakiness
	deaf    []window      // commits are not told, told late or twice, with the chance deafness
	jumps   []jump        // of the clock of the store and of everybody
	// flakiness and deafness are chances.
	flakiness, deafness float64

	workers int
	crash   crash // of the first worker, if it is to be at a certain write
	// fatality, frailty and turnover are the chances that a worker dies, freezes and is told to leave.
	fatality, frailty, turnover float64
	skew                        time.Duration // the most a worker's clock may be off

	temper temper
	// attention is the chance that a person looks at an open question within a few seconds.
	attention float64

	actions   []action
	reactions []reaction
	readers   []readerPlan
	lists     int // how many follow the list of sessions
	folds     []time.Duration
}

// temper is how models and tools behave: chances.
type temper struct {
	calls float64 // the model calls tools
	fails float64 // a model call or a tool fails
	slow  float64 // it takes long
	deaf  float64 // it does not hear that it should stop
	odd   float64 // it says what nobody expects
	large float64 // it says more than fits in an event
}

// crash is the death of a worker at its n-th write, before or after it. 0: it does not die.
type crash struct {
	at    int
	after bool
}

// jump is a step of the clock.
type jump struct {
	at, by time.Duration
}

// setBack is how far the clock is set back in all: so much longer a lease may last.
func (p *plan) setBack() (by time.Duration) {
	for _, j := range p.jumps {
		by -= min(j.by, 0)
	}
	return by
}

// action is something that a person does.
type action struct {
	at      time.Duration
	kind    string
	session string
	number  int
	run     string // of a reaction: the run whose event it was
	// Of a submission.
	message    string
	mode       session.OnBusy
	background bool
	agent      string
	// again is when the same request comes once more, after its first time.
	again []time.Duration
}

func (a action) String() string {
	return fmt.Sprintf("%s %s", a.kind, a.session)
}

// reaction is an action that happens soon after an event is committed: when it
// hurts most.
type reaction struct {
	to    string // the type of the event
	nth   int    // which one of the session
	after time.Duration
	action
}

// readerPlan is somebody who follows a session.
type readerPlan struct {
	session string
	from    time.Duration
	kind    string        // "stream", "pages" or "mirror"
	slow    time.Duration // the longest pause between two reads
	drops   float64       // the chance that a connection is lost after a read
}

// newPlan makes the plan of a seed.
func newPlan(seed int64) *plan {
	d := roll(seed, "plan")
	p := &plan{
		seed: seed, length: d.span(15*time.Second, 50*time.Second), calm: d.chance(0.12),
		lease: 15 * time.Second, poll: time.Second, drain: 10 * time.Second, grace: 5 * time.Second,
		retention: -1, runTime: time.Hour, workers: pick(d, 1, 2, 2, 3, 3),
		attention: pick(d, 0, 0.3, 0.6, 0.9),
	}
	if d.chance(0.3) {
		p.lease, p.poll, p.drain = 6*time.Second, 500*time.Millisecond, 3*time.Second
	}
	if d.chance(0.15) {
		p.retention = pick(d, 10*time.Second, 30*time.Second)
	}
	if d.chance(0.2) {
		p.approvalTimeout = d.span(5*time.Second, 30*time.Second)
	}
	if d.chance(0.1) {
		p.runTime = d.span(3*time.Second, 15*time.Second)
	}
	if d.chance(0.05) {
		p.tokens = 30
	}
	if d.chance(0.25) {
		p.slots = pick(d, 1, 2)
	}
	p.temper = temper{calls: pick(d, 0.2, 0.5, 0.8), fails: pick(d, 0, 0.1, 0.3), slow: pick(d, 0, 0.1, 0.3)}
	if d.chance(0.4) {
		p.temper.deaf = 0.2
	}
	if d.chance(0.5) {
		p.temper.odd = pick(d, 0.1, 0.4)
	}
	if d.chance(0.02) {
		p.temper.large = 0.05
	}
	if !p.calm {
		p.planFaults(d)
	}
	p.planPeople(d)
	return p
}

// planFaults chooses what goes wrong. Each kind of fault is in some histories
// and not in others, so that they meet in all combinations.
func (p *plan) planFaults(d dice) {
	if d.chance(0.5) {
		p.latency = pick(d, 2*time.Millisecond, 50*time.Millisecond, 300*time.Millisecond, p.lease/10)
	}
	if d.chance(0.25) {
		for range 1 + d.upTo(1) {
			p.outages = append(p.outages, d.window(p.length, 200*time.Millisecond, 2*p.lease))
		}
	}
	if d.chance(0.3) {
		p.flakiness = pick(d, 0.02, 0.1, 0.3)
		for range 1 + d.upTo(1) {
			p.flaky = append(p.flaky, d.window(p.length, time.Second, p.length))
		}
	}
	if d.chance(0.35) {
		p.deafness = pick(d, 0.1, 0.5, 1)
		p.deaf = append(p.deaf, d.window(p.length, time.Second, p.length))
	}
	if d.chance(0.2) {
		for range 1 + d.upTo(2) {
			by := d.span(time.Second, 2*p.lease)
			if d.chance(0.5) {
				by = -by
			}
			p.jumps = append(p.jumps, jump{d.span(0, p.length), by})
		}
		slices.SortFunc(p.jumps, func(a, b jump) int { return int(a.at - b.at) })
	}
	if d.chance(0.2) {
		p.skew = d.span(10*time.Millisecond, 2*time.Second)
	}
	if d.chance(0.5) {
		p.fatality = pick(d, 0.3, 0.7, 1)
	}
	if d.chance(0.35) {
		p.frailty = pick(d, 0.3, 0.8)
	}
	if d.chance(0.25) {
		p.turnover = pick(d, 0.3, 0.8)
	}
	if d.chance(0.1) {
		p.exclusive, p.workers, p.frailty, p.turnover = true, 1, 0, 0
	}
}

// planPeople chooses what people do and who reads.
func (p *plan) planPeople(d dice) {
	for i := range 1 + d.upTo(1)*d.upTo(1) {
		p.sessions = append(p.sessions, string(rune('a'+i)))
	}
	for _, id := range p.sessions {
		for n := range 2 + d.upTo(4) {
			p.actions = append(p.actions, p.submission(d, id, n+1))
		}
		kinds := []string{
			"cancel", "cancel", "cancel twice", "decide", "decide", "decide late", "decide late", "resolve", "resolve", "edit", "remove", "remove",
			"head", "title", "retry", "retry", "conflict", "look", "look",
		}
		for range d.upTo(10) {
			p.act(d, pick(d, kinds...), id)
		}
		if d.chance(0.04) {
			p.act(d, "delete", id)
		}
		if d.chance(0.5) {
			for range 1 + d.upTo(3) {
				p.react(d, id)
			}
		}
		for range 1 + d.upTo(2) {
			p.readers = append(p.readers, readerPlan{
				session: id, from: d.span(0, p.length), kind: pick(d, "stream", "stream", "pages", "mirror"),
				slow: pick(d, 0, 0, 20*time.Millisecond, 3*time.Second), drops: pick(d, 0, 0.1, 0.4),
			})
		}
	}
	if d.chance(0.3) {
		p.lists = 1
	}
	if d.chance(0.4) {
		for range 1 + d.upTo(3) {
			p.folds = append(p.folds, d.span(0, p.length+20*time.Second))
		}
	}
	for i := range p.actions {
		p.actions[i].number = i
	}
	for i := range p.reactions {
		p.reactions[i].number = len(p.actions) + i
	}
}

func (p *plan) react(d dice, id string) {
	r := reaction{
		to:    pick(d, eventTypes...),
		nth:   1 + d.upTo(3)*d.upTo(1),
		after: pick(d, 0, d.span(0, time.Millisecond), d.span(0, 5*time.Millisecond), d.span(0, 100*time.Millisecond)),
		action: action{
			kind: pick(d, "cancel its run", "cancel its run", "cancel its run", "decide", "decide late", "remove", "edit", "retry", "submit", "look"), session: id,
			mode: pick(d, session.Interrupt, session.Rollback, session.Steer, session.Enqueue),
		},
	}
	r.message = fmt.Sprintf("%sr%d", id, len(p.reactions))
	p.reactions = append(p.reactions, r)
}

// eventTypes are moments in the life of a run.
var eventTypes = []string{
	"run.queued", "run.started", "run.waiting", "run.resumed", "run.reconciled", "run.completed", "step.started", "step.completed",
	"text.delta", "tool.input.delta", "tool.progress", "model.completed", "attempt.failed", "tool.started", "tool.completed",
	"approval.requested", "approval.decided", "approval.expired", "approval.voided", "inbox.queued", "inbox.delivered", "tool.unknown", "run.cancel_requested",
}

func (p *plan) act(d dice, kind, id string) {
	p.actions = append(p.actions, action{at: d.span(0, p.length), kind: kind, session: id})
}

func (p *plan) submission(d dice, id string, n int) action {
	a := action{
		at: d.span(0, p.length*3/4), kind: "submit", session: id, message: fmt.Sprintf("%s%d", id, n),
		mode: pick(d, session.Enqueue, session.Enqueue, session.Enqueue, session.Interrupt, session.Rollback, session.Steer, session.Steer, session.Reject),
	}
	switch {
	case n == 1:
		a.at /= 8
	case d.chance(0.1):
		a.background = true
	}
	if d.chance(0.25) {
		a.agent = pick(d, "tools", "plain")
	}
	for d.chance(0.3) {
		a.again = append(a.again, pick(d, d.span(0, 10*time.Microsecond), d.span(0, 5*time.Millisecond), d.span(0, p.length)))
	}
	return a
}
