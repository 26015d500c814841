// Package storetest is the contract of package store as a test suite and a
// benchmark. A backend is right when it passes:
//
//	func TestStore(t *testing.T) {
//		storetest.Exercise(t, func(t *testing.T, opts store.Options) store.Store { … })
//	}
//
// Each promise is one subtest, found in the file of its subject. Above them
// stands a property: whatever happens to a store, it answers as the memory
// store does, and its state and read models are the fold of its log.
package storetest

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/store"
)

// Open makes an empty store for one test, which ends it with t.Cleanup. The
// test may have closed it before.
type Open func(t *testing.T, opts store.Options) store.Store

// Reopener is implemented by a store under test whose content outlives it.
// Reopen closes the store and opens another one on what it kept.
type Reopener interface {
	Reopen(opts store.Options) (store.Store, error)
}

// Damager is implemented by a store under test that can be damaged on purpose,
// behind its own back: Check must then find it. An error that wraps
// errors.ErrUnsupported says that this backend cannot have that damage.
type Damager interface {
	Damage(session string, damage Damage) error
}

// Damage is a way to make a store contradict itself.
type Damage string

// The damages. Each is done to one thing of the session, any one.
const (
	LoseEvent      Damage = "an event in the middle of the log is gone"
	ChangeSession  Damage = "the session's row has another title"
	ChangeRun      Damage = "the row of a run has another status"
	ChangeApproval Damage = "the row of an approval has another status"
	ChangeMessage  Damage = "the kept parts of a message differ"
)

// group is the promises about one subject.
type group struct {
	subject  string
	promises []promise
}

// promise is one sentence of the contract and its test.
type promise struct {
	says string
	test func(t *testing.T, w *world)
}

// Exercise tests that a store keeps the contract.
func Exercise(t *testing.T, open Open) {
	groups := []group{
		{"append", appendPromises},
		{"view", viewPromises},
		{"commit", commitPromises},
		{"read", readPromises},
		{"messages", messagePromises},
		{"index", indexPromises},
		{"page", pagePromises},
		{"claim", claimPromises},
		{"lease", leasePromises},
		{"due", duePromises},
		{"blob", blobPromises},
		{"fold", foldPromises},
		{"content", contentPromises},
		{"delete", deletePromises},
		{"concurrency", concurrencyPromises},
		{"race", racePromises},
		{"close", closePromises},
		{"reopen", reopenPromises},
		{"check", checkPromises},
	}
	for _, g := range groups {
		t.Run(g.subject, func(t *testing.T) {
			t.Parallel() // each promise has a store of its own
			for _, p := range g.promises {
				t.Run(p.says, func(t *testing.T) {
					t.Parallel()
					p.test(t, newWorld(t, open))
				})
			}
		})
	}
	t.Run("histories", func(t *testing.T) {
		t.Parallel()
		exerciseHistories(t, open)
	})
}

// world is a store with a clock that stands still and an ear for its commits.
type world struct {
	store.Store
	t     rapid.TB
	ctx   context.Context
	clock *clock
	told  *told
	opts  store.Options
	open  Open
}

func newWorld(t *testing.T, open Open) *world {
	w := &world{t: t, ctx: t.Context(), clock: newClock(), told: newTold(), open: open}
	w.opts = store.Options{Now: w.clock.Now, OnCommit: w.told.hear}
	w.Store = open(t, w.opts)
	t.Cleanup(func() {
		for _, fault := range w.told.faults() {
			t.Errorf("OnCommit: %s", fault)
		}
	})
	return w
}

// reopen closes the store and opens another on what it kept. It says false if this backend keeps nothing.
func (w *world) reopen() bool {
	w.t.Helper()
	r, ok := w.Store.(Reopener)
	if !ok {
		return false
	}
	s, err := r.Reopen(w.opts)
	if err != nil {
		w.t.Fatalf("reopen: %v", err)
	}
	w.Store = s
	return true
}
