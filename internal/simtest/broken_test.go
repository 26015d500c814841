package simtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// broken says what is wrong with a world on purpose, so that the checks can be checked.
type broken struct {
	link   func(*link) store.Store                        // a worker's way to the store
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
		"AnEngineThatRunsUnsafeCallsAgain":      {link: func(l *link) store.Store { return reckless{l} }},
		"AnEngineThatForgetsWhatWasSaid":        {link: func(l *link) store.Store { return forgetful{l} }},
		"AnEngineThatTakesRunsFromLivingOthers": {link: func(l *link) store.Store { return greedy{l} }},
		"AReaderThatSkips":                      {reader: skip},
		"AReaderThatReadsTwice":                 {reader: again},
	} {
		t.Run(name, func(t *testing.T) {
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

// reckless takes a call whose outcome nobody knows for one that may be made again.
type reckless struct{ *link }

func (r reckless) Append(ctx context.Context, id string, decide session.Decide) (store.Appended, error) {
	return r.link.Append(ctx, id, func(s *session.State) ([]session.Event, error) {
		events, err := decide(s)
		kept := events[:0:0]
		for _, e := range events {
			switch d := e.Data.(type) {
			case session.ToolUnknown:
				continue
			case session.RunWaiting:
				if d.Reason == session.WaitToolOutcome {
					continue
				}
			}
			kept = append(kept, e)
		}
		return kept, err
	})
}

// forgetful ends an interrupted message without the words that no answer holds.
type forgetful struct{ *link }

func (f forgetful) Append(ctx context.Context, id string, decide session.Decide) (store.Appended, error) {
	return f.link.Append(ctx, id, func(s *session.State) ([]session.Event, error) {
		events, err := decide(s)
		for i, e := range events {
			if d, ok := e.Data.(session.MessageInterrupted); ok {
				d.Parts = nil
				events[i].Data = d
			}
		}
		return events, err
	})
}

// greedy finds that every lease of others has expired.
type greedy struct{ *link }

func (g greedy) Expired(ctx context.Context, limit int) ([]store.Lease, error) {
	return g.Held(ctx, g.name, limit)
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
