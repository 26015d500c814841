package storetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// What a backend's own tests write, and how they look at what was written.

// Submit is a message that begins a run.
func Submit(message, run string) *session.Submit {
	return &session.Submit{
		ID: message, Run: run, Output: "out_" + message, Tenant: "t", Owner: "o", DefaultAgent: "demo",
		Parts: []session.Part{{Type: session.PartText, Text: "hello"}},
	}
}

// Say is a worker's append of n deltas of the same text.
func Say(lease store.Lease, n int, text string) session.Decide {
	return session.Carry(lease.Run, lease.Fence, func(_ *session.State, run *session.Run) ([]session.Event, error) {
		events := make([]session.Event, n)
		for i := range events {
			events[i] = session.Event{Step: 1, Attempt: 1, Data: session.TextDelta{Message: run.Message, Text: text}}
		}
		return events, nil
	})
}

// End is a worker's append that ends the run.
func End(lease store.Lease) session.Decide {
	return session.Carry(lease.Run, lease.Fence, func(s *session.State, run *session.Run) ([]session.Event, error) {
		return s.End(run, session.RunCompleted{}), nil
	})
}

// WholeLog gives a log and checks that its frames join.
func WholeLog(s store.Store, id string) ([]session.Frame, error) {
	var all []session.Frame
	for after := int64(0); ; {
		frames, err := s.Read(context.Background(), id, after, 0)
		if err != nil || len(frames) == 0 {
			return all, err
		}
		for _, f := range frames {
			if f.From != after+1 || f.To < f.From {
				return nil, fmt.Errorf("session %s: a frame %d..%d follows seq %d", id, f.From, f.To, after)
			}
			after = f.To
		}
		all = append(all, frames...)
	}
}

// Sound checks that a session does not contradict itself.
func Sound(t testing.TB, s store.Store, id string) {
	t.Helper()
	if _, err := WholeLog(s, id); err != nil {
		t.Errorf("read: %v", err)
	}
	findings, err := s.Check(context.Background(), id)
	if err != nil {
		t.Errorf("check session %s: %v", id, err)
	}
	for _, f := range findings {
		t.Errorf("session %s: %s", id, f)
	}
}
