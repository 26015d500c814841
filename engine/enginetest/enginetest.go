package enginetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/model/modeltest"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/memory"
	"github.com/holdfast-run/holdfast/tool"
)

// Exercise holds an engine to its promises, on a store in memory.
func Exercise(t *testing.T, make Make) {
	ExerciseOn(t, func(_ *testing.T, opts store.Options) store.Store { return memory.New(opts) }, make)
}

// ExerciseOn holds an engine to its promises on a store. open makes an empty
// one and ends it with t.Cleanup.
func ExerciseOn(t *testing.T, open func(t *testing.T, opts store.Options) store.Store, make Make) {
	on := house{make, open}
	for name, test := range map[string]func(*testing.T, house){
		"ARunIsCarriedToItsEnd":                          carriesToTheEnd,
		"ARunQueuedBeforeTheEngineStartedIsFound":        findsEarlierRuns,
		"ALostHintCostsTimeOnly":                         livesWithoutHints,
		"ManyWorkersCarryEachRunOnce":                    carriesOnce,
		"ALostWorkersRunIsTakenOver":                     takesOver,
		"AWorkerThatLostItsLeaseWritesNothing":           fencesOff,
		"ARunWhoseWorkerIsStuckIsTakenOverFromItself":    takesOverFromItself,
		"ARunThatLosesEveryWorkerFails":                  givesUp,
		"CancelInTheModelCallClosesIt":                   cancelsModel,
		"CancelInAToolStopsIt":                           cancelsTool,
		"CancelOfADeafToolHoldsTheBound":                 cancelsDeaf,
		"CancelOfALostWorkersRunHoldsTheBound":           cancelsLost,
		"CancelDoesNotWaitForALostWorkersLease":          cancelsBeforeTheLeaseEnds,
		"CancelRacingCompletionEndsOnce":                 cancelRaces,
		"AnApprovalHoldsNothingAndIsCarriedOn":           waitsForApproval,
		"AnApprovedCallRunsWhileASiblingStillWaits":      approvesOneByOne,
		"AFailedAttemptIsRetriedAndReplaced":             retries,
		"ALongRetryWaitHoldsNothing":                     retriesLater,
		"AnErrorThatNoRetryMendsFailsAtOnce":             failsAtOnce,
		"DrainHandsOverWithoutACrash":                    drains,
		"AStartedIdempotentCallIsRepeatedWithItsKey":     repeatsIdempotent,
		"AStartedUnsafeCallWaitsForAPerson":              asksAboutUnsafe,
		"AnUnsafeCallThatIsDeafToItsTimeoutIsAskedAbout": asksAboutDeaf,
		"ACallThatIsLostFollowsItsEffects":               followsEffects,
		"ASteerIsHeardBeforeTheNextModelCall":            steers,
		"AnEnqueuedMessageRunsNext":                      runsTheInbox,
		"ADeferredCallHoldsNothingUntilOthersEndIt":      defers,
		"ADeferredCallIsGivenUpAtItsTime":                givesUpDeferred,
		"SubagentsWorkSideBySideAndTheirParentHoldsNone": carriesChildren,
		"ASubagentThatFailsFailsItsCallOnly":             childFails,
		"CancelOfAParentCancelsItsChildren":              cancelsChildren,
		"CancelOfAChildIsToldToItsParent":                childIsCancelled,
		"AChildOfALostWorkerEndsOnceAndIsToldOnce":       childChangesHands,
		"AChildThatWasBegunIsFoundAgain":                 findsChild,
		"SubagentsKeepToDepthAndTokens":                  boundsChildren,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, on)
		})
	}
}

func carriesToTheEnd(t *testing.T, on house) {
	var calls atomic.Int32
	w := newWorld(t, on, counter("look", session.ReadOnly, &calls))
	w.script.Add(
		modeltest.Reply(modeltest.Text("one "), modeltest.Call("c", "look", `{}`), modeltest.Call("d", "look", `{}`)),
		modeltest.Reply(modeltest.Text("two")),
	)
	w.worker()
	run := w.submit("ses")
	w.untilStatus("ses", run, session.Completed)
	if got := w.answer("ses", run); got != "one two" {
		t.Errorf("the answer is %q", got)
	}
	if calls.Load() != 2 {
		t.Errorf("the tool ran %d times, not twice", calls.Load())
	}
	w.endsOnce("ses")
}

func findsEarlierRuns(t *testing.T, on house) {
	w := newWorld(t, on)
	w.script.Add(modeltest.Reply(modeltest.Text("found")))
	run := w.submit("ses")
	w.worker()
	w.untilStatus("ses", run, session.Completed)
}

func livesWithoutHints(t *testing.T, on house) {
	w := newWorld(t, on)
	w.deaf.Store(true)
	w.script.Add(modeltest.Reply(modeltest.Text("found")))
	w.worker()
	run := w.submit("ses")
	w.untilStatus("ses", run, session.Completed)
}

func carriesOnce(t *testing.T, on house) {
	w := newWorld(t, on)
	w.script.Otherwise(func(model.Request) modeltest.Turn { return modeltest.Reply(modeltest.Text("done")) })
	for range 3 {
		w.worker()
	}
	const runs = 60
	for i := range runs {
		w.submit(fmt.Sprintf("ses_%d", i))
	}
	for i := range runs {
		id := fmt.Sprintf("ses_%d", i)
		w.untilStatus(id, fmt.Sprintf("run_%d", i+1), session.Completed)
		if n := w.types(id)["run.started"]; n != 1 {
			t.Errorf("%s was started %d times", id, n)
		}
		w.endsOnce(id)
	}
}

func takesOver(t *testing.T, on house) {
	w := newWorld(t, on)
	begun := newChan()
	w.script.Add(
		modeltest.Reply(modeltest.Text("The answer is 4"), modeltest.Do(func() { close(begun) }), modeltest.Stall()),
		modeltest.Reply(modeltest.Text("The answer is 42.")),
	)
	first := w.worker()
	run := w.submit("ses")
	<-begun
	first.link.cut.Store(true)
	w.worker()
	w.untilStatus("ses", run, session.Completed)
	if got := w.answer("ses", run); got != "The answer is 42." {
		t.Errorf("the answer is %q", got)
	}
	if n := w.types("ses")["run.reconciled"]; n != 1 {
		t.Errorf("the take-over is explained %d times", n)
	}
	w.endsOnce("ses")
}

func fencesOff(t *testing.T, on house) {
	w := newWorld(t, on)
	begun, goOn := newChan(), newChan()
	w.script.Add(
		modeltest.Reply(modeltest.Text("old "), modeltest.Do(func() { close(begun) }), deafWait(goOn), modeltest.Text("never")),
		modeltest.Reply(modeltest.Text("new")),
	)
	first := w.worker()
	run := w.submit("ses")
	<-begun
	first.link.cut.Store(true)
	w.worker()
	w.untilStatus("ses", run, session.Completed)
	first.link.cut.Store(false)
	close(goOn) // the first worker wakes up and goes on
	first.end()
	if got := w.answer("ses", run); got != "new" {
		t.Errorf("the answer is %q", got)
	}
	w.endsOnce("ses")
}

func takesOverFromItself(t *testing.T, on house) {
	w := newWorld(t, on)
	begun, told, free := newChan(), newChan(), newChan()
	w.script.Add(
		modeltest.Reply(modeltest.Text("old "), modeltest.Do(func() { close(begun) }), modeltest.Then(modeltest.Stall(), func() {
			close(told)
			<-free // deaf, as a library may be
		})),
		modeltest.Reply(modeltest.Text("new")),
	)
	only := w.worker()
	t.Cleanup(func() { close(free) })
	run := w.submit("ses")
	<-begun
	only.link.cut.Store(true)
	within(t, told, patience, "the worker to give its lease up")
	only.link.cut.Store(false)
	w.untilStatus("ses", run, session.Completed)
	if got := w.answer("ses", run); got != "new" {
		t.Errorf("the answer is %q", got)
	}
	w.endsOnce("ses")
}

func givesUp(t *testing.T, on house) {
	w := newWorld(t, on)
	var current atomic.Pointer[worker]
	lost := make2[*worker](8)
	w.script.Otherwise(func(model.Request) modeltest.Turn {
		return modeltest.Reply(modeltest.Do(func() {
			k := current.Load()
			k.link.cut.Store(true)
			lost <- k
		}), modeltest.Stall())
	})
	current.Store(w.worker())
	run := w.submit("ses")
	for range 2 {
		<-lost
		current.Store(w.worker())
	}
	<-lost
	w.worker()
	w.untilStatus("ses", run, session.Failed)
	if n := w.types("ses")["step.started"]; n != 3 {
		t.Errorf("the step was started %d times, not 3", n)
	}
	w.endsOnce("ses")
}

func make2[T any](n int) chan T { return make(chan T, n) }

func cancelsModel(t *testing.T, on house) {
	w := newWorld(t, on)
	begun, closed := newChan(), newChan()
	w.script.Add(modeltest.Reply(modeltest.Text("so far"), modeltest.Do(func() { close(begun) }), onStop(closed)))
	w.worker()
	run := w.submit("ses")
	<-begun
	w.until("ses", "the text to be kept", func(s *session.State) bool { return s.Message("out_1").Text() == "so far" })
	w.cancel("ses", run)
	within(t, closed, time.Second, "the model call to be closed")
	w.untilStatus("ses", run, session.Cancelled)
	if got := w.answer("ses", run); got != "so far" {
		t.Errorf("what had been said is %q", got)
	}
	w.endsOnce("ses")
}

func cancelsTool(t *testing.T, on house) {
	begun, closed := newChan(), newChan()
	slow := tool.New("slow", "", func(ctx context.Context, _ struct{}, _ tool.Call) (string, error) {
		close(begun)
		<-ctx.Done()
		close(closed)
		return "", ctx.Err()
	})
	w := newWorld(t, on, slow)
	w.script.Add(modeltest.Reply(modeltest.Call("c", "slow", `{}`)))
	w.worker()
	run := w.submit("ses")
	<-begun
	w.cancel("ses", run)
	within(t, closed, time.Second, "the tool to be told")
	w.untilStatus("ses", run, session.Cancelled)
	if n := w.types("ses")["tool.cancelled"]; n != 1 {
		t.Errorf("the call has %d results", n)
	}
	w.endsOnce("ses")
}

func cancelsDeaf(t *testing.T, on house) {
	begun, free := newChan(), newChan()
	t.Cleanup(func() { close(free) })
	deaf := tool.New("deaf", "", func(context.Context, struct{}, tool.Call) (string, error) {
		close(begun)
		<-free
		return "too late", nil
	})
	w := newWorld(t, on, deaf)
	w.script.Add(modeltest.Reply(modeltest.Call("c", "deaf", `{}`)))
	w.worker()
	run := w.submit("ses")
	<-begun
	start := time.Now()
	w.cancel("ses", run)
	w.untilStatus("ses", run, session.Cancelled)
	if took := time.Since(start); took > grace+3*time.Second {
		t.Errorf("it took %s", took)
	}
	w.endsOnce("ses")
}

func cancelsLost(t *testing.T, on house) {
	w := newWorld(t, on)
	begun := newChan()
	w.script.Add(modeltest.Reply(modeltest.Text("x"), modeltest.Do(func() { close(begun) }), modeltest.Stall()))
	first := w.worker()
	run := w.submit("ses")
	<-begun
	first.link.cut.Store(true)
	w.worker()
	w.cancel("ses", run)
	w.untilStatus("ses", run, session.Cancelled)
	w.endsOnce("ses")
	w.script.Add(modeltest.Reply(modeltest.Text("next")))
	next := w.submit("ses")
	w.untilStatus("ses", next, session.Completed)
}

func cancelsBeforeTheLeaseEnds(t *testing.T, on house) {
	w := newWorld(t, on)
	w.lease = time.Hour
	begun := newChan()
	w.script.Add(modeltest.Reply(modeltest.Text("x"), modeltest.Do(func() { close(begun) }), modeltest.Stall()))
	first := w.worker()
	run := w.submit("ses")
	<-begun
	first.link.cut.Store(true)
	w.worker()
	start := time.Now()
	w.cancel("ses", run)
	w.untilStatus("ses", run, session.Cancelled)
	if took := time.Since(start); took < grace || took > grace+3*time.Second {
		t.Errorf("it took %s, and the worker had %s", took, grace)
	}
	for _, e := range w.events("ses") {
		if r, ok := e.Data.(session.RunReconciled); ok && r.Cause != session.CauseCancelTimeout {
			t.Errorf("the end is told as %s", r.Cause)
		}
	}
	w.endsOnce("ses")
}

func cancelRaces(t *testing.T, on house) {
	w := newWorld(t, on)
	w.script.Otherwise(func(model.Request) modeltest.Turn { return modeltest.Reply(modeltest.Text("done")) })
	w.worker()
	for i := range 100 {
		id := fmt.Sprintf("ses_%d", i)
		run := w.submit(id)
		if i%3 > 0 {
			w.until(id, "the run to have begun", func(s *session.State) bool { return s.Run(run).Status != session.Queued })
		}
		_, err := w.store.Append(context.Background(), id, session.Cancel{Run: run, By: "o", At: time.Now(), Grace: grace}.Decide)
		w.until(id, "the run to end", func(s *session.State) bool { return s.Run(run).Status.Terminal() })
		_ = w.store.View(context.Background(), id, func(s *session.State) {
			if err != nil && s.Run(run).Status != session.Completed {
				t.Errorf("the cancel was refused (%v), but the run is %s", err, s.Run(run).Status)
			}
		})
		w.endsOnce(id)
	}
}
