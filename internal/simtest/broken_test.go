package simtest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// broken says what is wrong with a world on purpose, so that the checks can be checked.
type broken struct {
	link   func(*link) store.Store                        // a worker's way to the store
	door   func(*link) store.Store                        // the way of the process that serves people
	hint   func(store.Commit) store.Commit                // what the workers are told of a commit
	reader func(*reader, []session.Frame) []session.Frame // what a reader is given
}

// A check that never fails is none: each of these worlds breaks a promise, and
// that must be found soon.
func TestABrokenWorldIsFoundOut(t *testing.T) {
	for name, b := range map[string]broken{
		"AStoreThatDoesNotFence":                {link: func(l *link) store.Store { return &unfenced{link: l, fences: map[string]int64{}} }},
		"ACarrierThatRepeatsALostWrite":         {link: func(l *link) store.Store { return repeating{l} }},
		"AnEngineThatLooksForNoLostWorkers":     {link: func(l *link) store.Store { return careless{l} }},
		"AnEngineThatLooksForNoOverdueCancels":  {link: func(l *link) store.Store { return tolerant{l} }},
		"AnEngineThatRunsUnsafeCallsAgain":      {link: func(l *link) store.Store { return edited{l, reckless} }},
		"AnEngineThatForgetsWhatWasSaid":        {link: func(l *link) store.Store { return edited{l, forgetful} }},
		"AnEngineThatTakesRunsFromLivingOthers": {link: func(l *link) store.Store { return greedy{l} }},
		"AnEngineThatAsksNobody":                {link: func(l *link) store.Store { return edited{l, unasked} }},
		"AnEngineThatGoesOnAfterACancel":        {link: func(l *link) store.Store { return deaf{l} }},
		"AnEngineThatHearsNoCancel":             {hint: unheard},
		"AnEngineThatHearsNoSteer":              {link: func(l *link) store.Store { return edited{l, unsteered} }},
		"AnEngineThatChangesAKey":               {link: func(l *link) store.Store { return edited{l, rekeyed} }},
		"AHistoryThatTellsACallTwice":           {link: func(l *link) store.Store { return stuttering{l} }},
		"AnEngineThatLeavesAGoroutineBehind":    {link: func(l *link) store.Store { return leaving{l} }},
		"AStoreThatForgetsWhatItTook":           {door: func(l *link) store.Store { return edited{l, forgetting(l)} }},
		"AReaderThatSkips":                      {reader: skip},
		"AReaderThatReadsTwice":                 {reader: again},
	} {
		t.Run(name, func(t *testing.T) {
			skipForSeed(t)
			const most = 400
			for seed := int64(1); seed <= most; seed++ {
				if _, findings := lifetime(t, newPlan(seed), b); len(findings) > 0 {
					t.Logf("found out by seed %d: %s", seed, shorten(brief(findings[0])))
					return
				}
			}
			t.Errorf("nobody noticed in %d histories", most)
		})
	}
}

// unfenced lets a worker write under a fence that is not the run's any more.
type unfenced struct {
	*link
	fences map[string]int64 // the highest that this worker was given; guarded by the link's mu
}

func (u *unfenced) Claim(ctx context.Context, worker string, ttl time.Duration, limit int) ([]store.Lease, error) {
	leases, err := u.link.Claim(ctx, worker, ttl, limit)
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, l := range leases {
		u.fences[l.Run] = l.Fence
	}
	return leases, err
}

func (u *unfenced) Append(ctx context.Context, id string, decide session.Decide) (store.Appended, error) {
	return u.link.Append(ctx, id, func(s *session.State) ([]session.Event, error) {
		events, err := decide(s)
		if !errors.Is(err, &session.Error{Code: session.Fenced}) {
			return events, err
		}
		mine := s.Clone()
		u.mu.Lock()
		defer u.mu.Unlock()
		for _, run := range mine.Runs {
			if fence := u.fences[run.ID]; fence != 0 {
				run.Status, run.Fence = session.Running, fence
			}
		}
		return decide(mine)
	})
}

// repeating writes again when it is not told that a write succeeded, without asking what is true now.
type repeating struct{ *link }

func (r repeating) Append(ctx context.Context, id string, decide session.Decide) (store.Appended, error) {
	var wanted []session.Event
	done, err := r.link.Append(ctx, id, func(s *session.State) (events []session.Event, err error) {
		events, err = decide(s)
		wanted = events
		return events, err
	})
	if errors.Is(err, errFlaky) && wanted != nil {
		return r.link.Append(ctx, id, func(*session.State) ([]session.Event, error) { return wanted, nil })
	}
	return done, err
}

// careless finds no lease that has expired.
type careless struct{ *link }

func (careless) Expired(context.Context, int) ([]store.Lease, error) { return nil, nil }

// tolerant finds no cancel that is overdue.
type tolerant struct{ *link }

func (tolerant) Overdue(context.Context, int) ([]store.Due, error) { return nil, nil }

// edited changes what a worker writes.
type edited struct {
	*link
	edit func([]session.Event) []session.Event
}

func (r edited) Append(ctx context.Context, id string, decide session.Decide) (store.Appended, error) {
	return r.link.Append(ctx, id, func(s *session.State) ([]session.Event, error) {
		events, err := decide(s)
		return r.edit(slices.Clone(events)), err
	})
}

// reckless takes a call whose outcome nobody knows for one that may be made again.
func reckless(events []session.Event) []session.Event {
	return slices.DeleteFunc(events, func(e session.Event) bool {
		waiting, _ := e.Data.(session.RunWaiting)
		_, unknown := e.Data.(session.ToolUnknown)
		return unknown || waiting.Reason == session.WaitToolOutcome
	})
}

// forgetful ends an interrupted message without the words that no answer holds.
func forgetful(events []session.Event) []session.Event {
	for i, e := range events {
		if d, ok := e.Data.(session.MessageInterrupted); ok {
			d.Parts = nil
			events[i].Data = d
		}
	}
	return events
}

// forgetting takes what people ask for and writes nothing, now and then.
func forgetting(l *link) func([]session.Event) []session.Event {
	return func(events []session.Event) []session.Event {
		if l.world.chance(0.1, "forget") {
			return nil
		}
		return events
	}
}

// unasked makes calls without the approval that they need.
func unasked(events []session.Event) []session.Event {
	for i, e := range events {
		if d, ok := e.Data.(session.ToolCalled); ok {
			d.Approval = ""
			events[i].Data = d
		}
	}
	return slices.DeleteFunc(events, func(e session.Event) bool { return e.Type() == "approval.requested" })
}

// rekeyed gives each try of a call a key of its own.
func rekeyed(events []session.Event) []session.Event {
	for i, e := range events {
		if d, ok := e.Data.(session.ToolStarted); ok && d.Try > 1 {
			d.Key += " again"
			events[i].Data = d
		}
	}
	return events
}

// unsteered leaves steers in the inbox.
func unsteered(events []session.Event) []session.Event {
	if !slices.ContainsFunc(events, func(e session.Event) bool { return e.Type() == "step.started" }) {
		return events
	}
	at := slices.IndexFunc(events, func(e session.Event) bool { return e.Type() == "inbox.delivered" })
	if at < 1 || events[at-1].Type() != "message.completed" {
		return events
	}
	for i, e := range events {
		if d, ok := e.Data.(session.StepStarted); ok { // it goes on in the message before
			d.Message = events[at-1].Data.(session.MessageCompleted).Message
			events[i].Data = d
		}
	}
	return slices.DeleteFunc(events, func(e session.Event) bool {
		return slices.Contains([]string{"message.completed", "inbox.delivered", "message.created"}, e.Type())
	})
}

// deaf does not see that a cancel is recorded.
type deaf struct{ *link }

func (d deaf) View(ctx context.Context, id string, look func(*session.State)) error {
	return d.link.View(ctx, id, func(s *session.State) { look(uncancelled(s)) })
}

func (d deaf) Append(ctx context.Context, id string, decide session.Decide) (store.Appended, error) {
	return d.link.Append(ctx, id, func(s *session.State) ([]session.Event, error) { return decide(uncancelled(s)) })
}

func uncancelled(s *session.State) *session.State {
	s = s.Clone()
	for _, run := range s.Open() {
		run.CancelRequestedAt, run.CancelDeadline = nil, nil
	}
	return s
}

// unheard keeps from the workers that a run they carry is cancelled.
func unheard(c store.Commit) store.Commit {
	c.Work = slices.Clone(c.Work)
	for i := range c.Work {
		c.Work[i].Cancel = false
	}
	return c
}

// stuttering gives messages in which each call stands twice.
type stuttering struct{ *link }

func (s stuttering) Messages(ctx context.Context, id string, ids []string) ([]session.Message, error) {
	messages, err := s.link.Messages(ctx, id, ids)
	for i, m := range messages {
		messages[i].Parts = nil
		for _, p := range m.Parts {
			messages[i].Parts = append(messages[i].Parts, p)
			if p.Tool != nil {
				messages[i].Parts = append(messages[i].Parts, p)
			}
		}
	}
	return messages, err
}

// greedy finds that every lease of others has expired.
type greedy struct{ *link }

func (g greedy) Expired(ctx context.Context, limit int) ([]store.Lease, error) {
	return g.Held(ctx, g.name, limit)
}

// leaving waits for ever in a goroutine that nobody waits for.
type leaving struct{ *link }

func (l leaving) Claim(ctx context.Context, worker string, ttl time.Duration, limit int) ([]store.Lease, error) {
	if worker == "healer" {
		never := make(chan struct{})
		go func() { <-never }()
	}
	return l.link.Claim(ctx, worker, ttl, limit)
}

// skip leaves out a frame now and then.
func skip(r *reader, frames []session.Frame) []session.Frame {
	if r.dice.chance(0.05) {
		return frames[1:]
	}
	return frames
}

// again gives a frame twice now and then.
func again(r *reader, frames []session.Frame) []session.Frame {
	if n := len(frames); n > 0 && r.dice.chance(0.05) {
		return append(frames[:n:n], frames[n-1])
	}
	return frames
}
