// Package doorbelltest is the contract of a doorbell as a test suite.
package doorbelltest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/feed/doorbell"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// patience is far more than anything takes.
const patience = 20 * time.Second

// Exercise tests that bells keep the contract. open makes one more bell of the
// same house, as another process would.
func Exercise(t *testing.T, open func(t *testing.T) doorbell.Bell) {
	t.Run("every other process hears a ring, and the one that rings does not", func(t *testing.T) {
		a, b, c := join(t, open(t)), join(t, open(t)), join(t, open(t))
		a.bell.Ring(store.Commit{Session: "ses_1", Row: &store.SessionRow{}, Work: []store.RunWork{
			{Run: "run_1", Work: session.Work{Due: true}}, {Run: "run_2", Cancel: true}, {Run: "run_3"},
		}})
		for _, l := range []*listener{b, c} {
			r := l.ring(t, "ses_1")
			if !r.Facts || len(r.Work) != 3 || !r.Work[0].Work.Due || r.Work[0].Cancel || !r.Work[1].Cancel || r.Work[1].Work.Due || r.Work[2].Run != "run_3" {
				t.Errorf("it heard %+v", r)
			}
		}
		b.bell.Ring(store.Commit{Session: "ses_2"})
		if r := a.ring(t, "ses_2"); r.Facts || len(r.Work) > 0 {
			t.Errorf("deltas are told as %+v", r)
		}
		if a.has("ses_1") {
			t.Error("a process heard itself")
		}
	})
	t.Run("a ring of many runs or of a strange id is heard, as one of everything if need be", func(t *testing.T) {
		a, b := join(t, open(t)), join(t, open(t))
		var work []store.RunWork
		for i := range 200 {
			work = append(work, store.RunWork{Run: fmt.Sprintf("run_%s_%d", strings.Repeat("x", 100), i), Work: session.Work{Due: true}})
		}
		long := strings.Repeat("s", session.MaxIDLength)
		for _, id := range []string{long, "ses 1\n+ d:run_1", "你\x00"} {
			a.bell.Ring(store.Commit{Session: id, Work: work})
			b.ring(t, id)
		}
	})
	t.Run("rings that come faster than they can be told are joined, and none is lost", func(t *testing.T) {
		a, b := join(t, open(t)), join(t, open(t))
		const sessions = 2000
		for range 5 {
			for i := range sessions {
				a.bell.Ring(store.Commit{Session: fmt.Sprintf("ses_%d", i)})
			}
		}
		for i := range sessions {
			b.ring(t, fmt.Sprintf("ses_%d", i))
		}
	})
	t.Run("a ring to nobody, and before it runs, does not block", func(t *testing.T) {
		bell := open(t)
		for i := range 100_000 {
			bell.Ring(store.Commit{Session: fmt.Sprintf("ses_%d", i)})
		}
		join(t, bell)
	})
}

// listener is a bell that runs, and what it has heard.
type listener struct {
	bell  doorbell.Bell
	rings chan doorbell.Ring
	heard map[string]doorbell.Ring
}

// join runs a bell until the test ends, and waits until it hears.
func join(t *testing.T, bell doorbell.Bell) *listener {
	t.Helper()
	l := &listener{bell: bell, rings: make(chan doorbell.Ring, 100_000), heard: map[string]doorbell.Ring{}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- bell.Run(ctx, func(r doorbell.Ring) { l.rings <- r }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run gave %v", err)
		}
	})
	l.ring(t, "")
	delete(l.heard, "")
	return l
}

// ring waits for a ring of a session, or one of everything.
func (l *listener) ring(t *testing.T, id string) doorbell.Ring {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		if r, ok := l.heard[id]; ok {
			return r
		}
		if r, ok := l.heard[""]; ok {
			return r
		}
		select {
		case r := <-l.rings:
			l.heard[r.Session] = r
		case <-timer.C:
			t.Fatalf("waited in vain for a ring of %q", id)
		}
	}
}

// has says whether a ring of a session was heard, of those that have come.
func (l *listener) has(id string) bool {
	for len(l.rings) > 0 {
		r := <-l.rings
		l.heard[r.Session] = r
	}
	_, ok := l.heard[id]
	return ok
}
