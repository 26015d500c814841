package engine_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/engine"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/model/modeltest"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/memory"
	"github.com/holdfast-run/holdfast/tool"
)

// far is a store that takes a while to reach, carries out what is on its way
// whatever becomes of its caller, and loses the answers that lose chooses.
type far struct {
	*memory.Store
	lose func([]session.Event) bool
}

var errLost = errors.New("the answer was lost")

func (f far) Append(ctx context.Context, id string, decide session.Decide) (store.Appended, error) {
	time.Sleep(300 * time.Millisecond)
	done, err := f.Store.Append(context.WithoutCancel(ctx), id, decide)
	if err == nil && f.lose != nil && f.lose(done.Events) {
		return store.Appended{}, errLost
	}
	return done, err
}

// carryOne lets a carrier carry one run over a far store. The model is made
// with stop, which ends the carrier's context with cause, after a cancel
// is recorded if that is the cause. It gives the error of Carry, what the run
// said and the session's state.
func carryOne(t *testing.T, speak func(stop func()) model.Model, lose func([]session.Event) bool, cause error, tools ...tool.Tool) (said string, s *session.State, err error) {
	t.Helper()
	set, err := tool.NewSet(tools...)
	if err != nil {
		t.Fatal(err)
	}
	book, err := agent.NewBook(agent.Agent{Name: "a", Model: "script", Tools: set})
	if err != nil {
		t.Fatal(err)
	}
	near := memory.New(store.Options{})
	submit := &session.Submit{
		ID: "m", Run: "r", Output: "o", Tenant: "t", Owner: "o", DefaultAgent: "a",
		Parts: []session.Part{{Type: session.PartText, Text: "go"}},
	}
	if _, err := near.Append(t.Context(), "s", submit.Decide); err != nil {
		t.Fatal(err)
	}
	leases, err := near.Claim(t.Context(), "w", time.Minute, 1)
	if err != nil || len(leases) != 1 {
		t.Fatalf("%v, %v", leases, err)
	}
	ctx, end := context.WithCancelCause(t.Context())
	stop := func() {
		if errors.Is(cause, engine.ErrCancelled) {
			cancel := session.Cancel{Run: "r", By: "p", At: time.Now(), Grace: time.Minute}
			if _, err := near.Append(t.Context(), "s", cancel.Decide); err != nil {
				t.Error(err)
			}
		}
		end(cause)
	}
	speaker := speak(stop)
	c := &engine.Carrier{
		Store: far{near, lose}, Agents: book, Log: slog.New(slog.DiscardHandler),
		Models: func(string) (model.Model, error) { return speaker, nil },
	}
	err = c.Carry(ctx, leases[0], engine.Signals{})
	if viewErr := near.View(t.Context(), "s", func(state *session.State) { s = state.Clone() }); viewErr != nil {
		t.Fatal(viewErr)
	}
	messages, readErr := near.Messages(t.Context(), "s", []string{"o"})
	if readErr != nil || len(messages) != 1 {
		t.Fatalf("%v, %v", messages, readErr)
	}
	return messages[0].Text(), s, err
}

// many repeats a test of something that hangs on which of two goroutines is faster.
func many(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	for range 30 {
		synctest.Test(t, test)
	}
}

func lastWords(stop func()) model.Model {
	return modeltest.NewScript(modeltest.Reply(modeltest.Text("the last words"), modeltest.Do(stop), modeltest.Stall()))
}

func TestTheLastWordsAreKeptByACancel(t *testing.T) {
	many(t, func(t *testing.T) {
		said, s, err := carryOne(t, lastWords, nil, engine.ErrCancelled)
		if err != nil || s.Run("r").Status != session.Cancelled {
			t.Fatalf("%v; the run is %s", err, s.Run("r").Status)
		}
		if said != "the last words" {
			t.Errorf("it is kept that %q was said", said)
		}
	})
}

func TestTheLastWordsAreKeptByAHandOver(t *testing.T) {
	many(t, func(t *testing.T) {
		said, s, err := carryOne(t, lastWords, nil, engine.ErrDraining)
		if err != nil || s.Run("r").Status != session.Waiting {
			t.Fatalf("%v; the run is %s", err, s.Run("r").Status)
		}
		if said != "the last words" {
			t.Errorf("it is kept that %q was said", said)
		}
	})
}

// deaf is a model that says one word, is told to stop, and talks on for two seconds.
type deaf struct {
	stop func()
	done chan struct{}
}

func (d deaf) Stream(context.Context, model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		defer close(d.done)
		say := func(text string) bool { return yield(model.Chunk{Kind: model.TextChunk, Text: text}, nil) }
		say("one ")
		time.Sleep(time.Second)
		d.stop()
		for range 40 {
			time.Sleep(49 * time.Millisecond)
			if !say("more ") {
				return
			}
		}
	}
}

func TestWhatADeafModelStillSaysGoesNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		said, s, err := carryOne(t, func(stop func()) model.Model { return deaf{stop, done} }, nil, engine.ErrCancelled)
		if err != nil || s.Run("r").Status != session.Cancelled {
			t.Fatalf("%v; the run is %s", err, s.Run("r").Status)
		}
		if said != "one " {
			t.Errorf("it is kept that %q was said", said)
		}
		<-done
	})
}

func TestAWriteWhoseAnswerWasLostIsNotRepeated(t *testing.T) {
	many(t, func(t *testing.T) {
		var stop func()
		quick := tool.New("quick", "", func(_ context.Context, _ struct{}, c tool.Call) (string, error) {
			c.Progress(session.Progress{Message: "half"})
			time.AfterFunc(100*time.Millisecond, stop) // while the result is being written
			return "done", nil
		})
		speak := func(s func()) model.Model {
			stop = s
			return modeltest.NewScript(modeltest.Reply(modeltest.Call("c", "quick", `{}`)))
		}
		reports := 0
		lose := func(events []session.Event) (result bool) {
			for _, e := range events {
				switch e.Data.(type) {
				case session.ToolProgress:
					reports++
				case session.ToolCompleted:
					result = true
				}
			}
			return result
		}
		_, s, err := carryOne(t, speak, lose, engine.ErrCancelled, quick)
		if err != nil || s.Run("r").Status != session.Cancelled {
			t.Fatalf("%v; the run is %s", err, s.Run("r").Status)
		}
		if reports != 1 {
			t.Errorf("one report of progress was written %d times", reports)
		}
	})
}

// approving is a world in which a run waits for the approval of a call of pay,
// which expires after a minute.
type approving struct {
	t       *testing.T
	store   *memory.Store
	carrier *engine.Carrier
	paid    int
}

func newApproving(t *testing.T) *approving {
	t.Helper()
	w := &approving{t: t, store: memory.New(store.Options{})}
	pay := tool.New("pay", "", func(context.Context, struct{}, tool.Call) (string, error) {
		w.paid++
		return "paid", nil
	}, tool.WithApproval(tool.Always))
	set, err := tool.NewSet(pay)
	if err != nil {
		t.Fatal(err)
	}
	book, err := agent.NewBook(agent.Agent{Name: "a", Model: "script", Tools: set, ApprovalTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	submit := &session.Submit{
		ID: "m", Run: "r", Output: "o", Tenant: "t", Owner: "o", DefaultAgent: "a",
		Parts: []session.Part{{Type: session.PartText, Text: "go"}},
	}
	if _, err := w.store.Append(t.Context(), "s", submit.Decide); err != nil {
		t.Fatal(err)
	}
	script := modeltest.NewScript(modeltest.Reply(modeltest.Call("c", "pay", `{}`)), modeltest.Reply(modeltest.Text("done")))
	w.carrier = &engine.Carrier{
		Store: w.store, Agents: book, Log: slog.New(slog.DiscardHandler),
		Models: func(string) (model.Model, error) { return script, nil },
	}
	if status := w.carry(); status != session.Waiting {
		t.Fatalf("the run is %s, not waiting for its approval", status)
	}
	return w
}

// carry claims the run and carries it, and says what became of it.
func (w *approving) carry() session.Status {
	w.t.Helper()
	leases, err := w.store.Claim(w.t.Context(), "w", time.Minute, 1)
	if err != nil || len(leases) != 1 {
		w.t.Fatalf("%v, %v", leases, err)
	}
	if err := w.carrier.Carry(w.t.Context(), leases[0], engine.Signals{}); err != nil {
		w.t.Fatal(err)
	}
	run, err := w.store.Run(w.t.Context(), "r")
	if err != nil {
		w.t.Fatal(err)
	}
	return run.Status
}

func TestAWorkerWhoseClockIsBehindDoesNotGiveBackWhatIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newApproving(t)
		time.Sleep(time.Minute) // the approval expires by the store's clock
		w.carrier.Now = func() time.Time { return time.Now().Add(-10 * time.Second) }
		if status := w.carry(); status != session.Completed || w.paid != 0 {
			t.Errorf("the run is %s after the time for its approval, and pay was called %d times", status, w.paid)
		}
	})
}

func TestAnApprovalInTheLastMomentIsNotExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newApproving(t)
		time.Sleep(time.Minute)
		approvals, err := w.store.Approvals(t.Context(), store.ApprovalQuery{Tenant: "t", Owner: "o"})
		if err != nil || len(approvals.Items) != 1 {
			t.Fatalf("%v, %v", approvals, err)
		}
		w.carrier.Store = far{Store: w.store}
		time.AfterFunc(100*time.Millisecond, func() { // while the expiry is on its way to the store
			yes := session.DecideApproval{ID: approvals.Items[0].ID, Decision: session.Approve, By: "p"}
			if _, err := w.store.Append(t.Context(), "s", yes.Decide); err != nil {
				t.Error(err)
			}
		})
		if status := w.carry(); status != session.Completed || w.paid != 1 {
			t.Errorf("the run is %s, and pay was called %d times", status, w.paid)
		}
	})
}

func TestACallIsNotMadeOnceItsRunIsToStop(t *testing.T) {
	many(t, func(t *testing.T) {
		made := 0
		act := tool.New("act", "", func(context.Context, struct{}, tool.Call) (string, error) {
			made++
			return "done", nil
		})
		var stop func()
		speak := func(s func()) model.Model {
			stop = s
			return modeltest.NewScript(modeltest.Reply(modeltest.Call("c", "act", `{}`)))
		}
		told := func(events []session.Event) bool {
			for _, e := range events {
				if _, ok := e.Data.(session.ToolStarted); ok {
					stop() // it is recorded that the call starts, and then the cancel
				}
			}
			return false
		}
		_, s, err := carryOne(t, speak, told, engine.ErrCancelled, act)
		if err != nil || s.Run("r").Status != session.Cancelled {
			t.Fatalf("%v; the run is %s", err, s.Run("r").Status)
		}
		if made != 0 {
			t.Errorf("the call was made %d times after the cancel", made)
		}
	})
}

func TestACancelIsObeyedWhateverElseIsWrongWithTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near := memory.New(store.Options{})
		submit := &session.Submit{
			ID: "m", Run: "r", Output: "o", Tenant: "t", Owner: "o", DefaultAgent: "gone",
			Parts: []session.Part{{Type: session.PartText, Text: "go"}},
		}
		if _, err := near.Append(t.Context(), "s", submit.Decide); err != nil {
			t.Fatal(err)
		}
		leases, err := near.Claim(t.Context(), "w", time.Minute, 1)
		if err != nil || len(leases) != 1 {
			t.Fatalf("%v, %v", leases, err)
		}
		cancel := session.Cancel{Run: "r", By: "p", At: time.Now(), Grace: time.Minute}
		if _, err := near.Append(t.Context(), "s", cancel.Decide); err != nil {
			t.Fatal(err)
		}
		book, err := agent.NewBook(agent.Agent{Name: "a", Model: "script"})
		if err != nil {
			t.Fatal(err)
		}
		c := &engine.Carrier{Store: near, Agents: book, Log: slog.New(slog.DiscardHandler)}
		if err := c.Carry(t.Context(), leases[0], engine.Signals{}); err != nil {
			t.Fatal(err)
		}
		run, err := near.Run(t.Context(), "r")
		if err != nil || run.Status != session.Cancelled || run.Error != nil {
			t.Errorf("the run whose agent is gone is %s after its cancel: %+v, %v", run.Status, run.Error, err)
		}
	})
}

func TestACallBeginsOnlyWhenItsStartIsKept(t *testing.T) {
	many(t, func(t *testing.T) {
		var kept atomic.Bool
		early := 0
		act := tool.New("act", "", func(context.Context, struct{}, tool.Call) (string, error) {
			if !kept.Load() {
				early++
			}
			return "done", nil
		})
		var stop func()
		speak := func(s func()) model.Model {
			stop = s
			return modeltest.NewScript(modeltest.Reply(modeltest.Call("c", "act", `{}`)))
		}
		keep := func(events []session.Event) bool {
			for _, e := range events {
				switch e.Data.(type) {
				case session.ToolStarted:
					time.Sleep(100 * time.Millisecond) // whoever does not wait for it is now on his way
					kept.Store(true)
				case session.ToolCompleted:
					stop()
				}
			}
			return false
		}
		if _, _, err := carryOne(t, speak, keep, engine.ErrCancelled, act); err != nil {
			t.Fatal(err)
		}
		if !kept.Load() || early > 0 {
			t.Errorf("the call was made before its start was kept (%v)", kept.Load())
		}
	})
}

func TestAClockThatIsSetBackDoesNotHoldARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := time.Duration(0)
		now := func() time.Time { return time.Now().Add(-back) }
		near := memory.New(store.Options{Now: now})
		submit := &session.Submit{
			ID: "m", Run: "r", Output: "o", Tenant: "t", Owner: "o", DefaultAgent: "a",
			Parts: []session.Part{{Type: session.PartText, Text: "go"}},
		}
		if _, err := near.Append(t.Context(), "s", submit.Decide); err != nil {
			t.Fatal(err)
		}
		leases, err := near.Claim(t.Context(), "w", time.Minute, 1)
		if err != nil || len(leases) != 1 {
			t.Fatalf("%v, %v", leases, err)
		}
		book, err := agent.NewBook(agent.Agent{Name: "a", Model: "script"})
		if err != nil {
			t.Fatal(err)
		}
		script := modeltest.NewScript(
			modeltest.Reply(modeltest.Do(func() { back = time.Hour }), modeltest.Fail(&model.Error{Code: model.CodeOverloaded, Retryable: true})),
			modeltest.Reply(modeltest.Text("ok")),
		)
		c := &engine.Carrier{
			Store: near, Agents: book, Log: slog.New(slog.DiscardHandler), Now: now,
			Models: func(string) (model.Model, error) { return script, nil },
		}
		start := time.Now()
		if err := c.Carry(t.Context(), leases[0], engine.Signals{}); err != nil {
			t.Fatal(err)
		}
		run, err := near.Run(t.Context(), "r")
		if err != nil || run.Status != session.Completed {
			t.Fatalf("the run is %s, %v", run.Status, err)
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("a retry after half a second was made after %s", took)
		}
	})
}

// Code of others that panics ends neither the process nor what
// others are doing there.
func TestAModelThatPanicsLosesItsAttemptAndIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said, s, err := carryOne(t, func(func()) model.Model {
			return modeltest.NewScript(
				modeltest.Reply(modeltest.Text("half"), modeltest.Do(func() { panic("no such index") })),
				modeltest.Reply(modeltest.Text("whole")),
			)
		}, nil, nil)
		run := s.Run("r")
		if err != nil || run.Status != session.Completed || said != "whole" {
			t.Fatalf("%v; the run is %s and said %q", err, run.Status, said)
		}
		if run.Attempt != 2 {
			t.Errorf("it took %d attempts, want 2", run.Attempt)
		}
	})
}

func TestACarrierThatPanicsEndsItsClaimAndNotTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		atEnd := func(events []session.Event) bool {
			if _, ok := events[len(events)-1].Data.(session.ModelCompleted); ok {
				panic("a store with a mistake")
			}
			return false
		}
		_, s, err := carryOne(t, func(func()) model.Model {
			return modeltest.NewScript(modeltest.Reply(modeltest.Text("whole")))
		}, atEnd, nil)
		if err == nil || !strings.Contains(err.Error(), "a store with a mistake") {
			t.Fatalf("the claim ended with %v", err)
		}
		if status := s.Run("r").Status; status != session.Running {
			t.Errorf("the run is %s; whoever reconciles it decides", status)
		}
	})
}
