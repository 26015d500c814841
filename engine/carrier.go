package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// Carrier carries runs. It has no state of its own; one serves a whole engine.
type Carrier struct {
	Store  store.Store
	Agents *agent.Book
	// Models resolves an agent's model reference.
	Models func(ref string) (model.Model, error)
	// Backoff spaces the tries of a model call. The zero value means its defaults.
	Backoff Backoff
	Now     func() time.Time // default: time.Now
	Log     *slog.Logger     // default: slog.Default()
}

// Signals reach a run while it is carried. Nil channels never signal.
type Signals struct {
	// Wake says that the run's session changed in a way that may concern it.
	Wake <-chan struct{}
	// Drain is closed when the worker wants to stop: the run is handed over at
	// the next point where nothing is under way.
	Drain <-chan struct{}
}

// Carry carries the leased run until it is terminal, waits, is handed over, or
// ctx ends. The cause of ctx says why and what to do about the run:
// [ErrCancelled] ends it as cancelled, [ErrDraining] hands it over with
// whatever is half done, anything else leaves it to whoever claims it next,
// without another write. An error means that the log says nothing about how
// this claim ended: somebody must reconcile the run.
func (c *Carrier) Carry(ctx context.Context, lease store.Lease, signals Signals) error {
	ctx, cancel := context.WithCancelCause(ctx)
	k := &carry{
		Carrier: c, lease: lease, signals: signals, busy: map[string]bool{}, results: make(chan toolResult, 64),
	}
	k.tools, k.stopTools = context.WithCancelCause(ctx)
	k.notes = newNotes(func(events []session.Event) error {
		return k.append(ctx, func(*session.State, *session.Run) ([]session.Event, error) { return events, nil })
	}, cancel)
	defer k.notes.close()
	defer cancel(nil)
	err := k.protected(ctx)
	if errors.Is(err, &session.Error{Code: session.Fenced}) {
		return fmt.Errorf("carry run %s: %w", lease.Run, ErrLeaseLost)
	}
	if err != nil {
		return fmt.Errorf("carry run %s: %w", lease.Run, err)
	}
	return nil
}

// protected carries, and turns a panic into an error: whatever breaks under one
// run must not take the process with it, and every other run.
func (k *carry) protected(ctx context.Context) (err error) {
	defer func() {
		if broken := k.recovered(recover()); broken != nil {
			err = broken
		}
	}()
	return k.carry(ctx)
}

// recovered is what a panic says, logged with its stack, or nil if there was none.
func (k *carry) recovered(broken any) error {
	if broken == nil {
		return nil
	}
	k.log().Error("a panic was caught", slog.Any("panic", broken), slog.String("stack", string(debug.Stack())))
	return fmt.Errorf("panic: %v", broken)
}

// carry is one claim of one run.
type carry struct {
	*Carrier
	lease   store.Lease
	signals Signals
	skew    *time.Duration // what this clock is behind the store's, as of the claim; nil: not yet looked
	agent   agent.Agent
	notes   *notes
	// busy are the tool calls that run now, in the context tools; each sends one result.
	busy      map[string]bool
	results   chan toolResult
	tools     context.Context
	stopTools context.CancelCauseFunc
}

// now is the time, by the store's clock if that is ahead: a run that the store
// found due is due, or a worker whose clock is behind would give it back and
// claim it in a circle.
func (k *carry) now() time.Time {
	now := k.clock()
	if k.skew != nil {
		now = now.Add(*k.skew)
	}
	return now
}

func (c *Carrier) clock() time.Time {
	if c.Now != nil {
		return c.Now()
	}
	return time.Now()
}

func (c *Carrier) logger() *slog.Logger {
	if c.Log == nil {
		return slog.Default()
	}
	return c.Log
}

func (k *carry) log() *slog.Logger {
	return k.logger().With(slog.String("session", k.lease.Session), slog.String("run", k.lease.Run))
}

// append writes events of this claim. It is not cut short by the end of ctx:
// nobody would know whether the events were written, and what was said would
// be lost or told twice. The store bounds how long it takes.
func (k *carry) append(ctx context.Context, write func(s *session.State, run *session.Run) ([]session.Event, error)) error {
	_, err := k.Store.Append(context.WithoutCancel(ctx), k.lease.Session, session.Carry(k.lease.Run, k.lease.Fence, write))
	return err
}

// settle writes events behind all notes that were taken so far.
func (k *carry) settle(ctx context.Context, write func(s *session.State, run *session.Run) ([]session.Event, error)) error {
	notes := k.notes.take()
	refused := false // then nothing was written
	err := k.append(ctx, func(s *session.State, run *session.Run) ([]session.Event, error) {
		events, err := write(s, run)
		if refused = err != nil; refused {
			return nil, err
		}
		return append(notes[:len(notes):len(notes)], events...), nil
	})
	if refused || errors.Is(err, &session.Error{Code: session.CancelIsRequested}) {
		k.notes.putBack(notes)
	}
	return err
}

// flush writes the notes that wait, for a write whose events depend on what they say.
func (k *carry) flush(ctx context.Context) error {
	notes := k.notes.take()
	if len(notes) == 0 {
		return nil
	}
	return k.append(ctx, func(*session.State, *session.Run) ([]session.Event, error) { return notes, nil })
}

// at places an event at the run's current step and attempt.
func at(run *session.Run, d session.Data) session.Event {
	return session.Event{Run: run.ID, Step: run.CurrentStep, Attempt: run.Attempt, Data: d}
}

// end ends the run. A completed run completes its step first.
func (k *carry) end(ctx context.Context, terminal func(run *session.Run) session.Data) error {
	if err := k.flush(ctx); err != nil { // what was said until now is kept
		return err
	}
	if err := k.lastWords(ctx, terminal); err != nil {
		return err
	}
	return k.settle(ctx, func(s *session.State, run *session.Run) ([]session.Event, error) {
		d := terminal(run)
		var events []session.Event
		if _, completed := d.(session.RunCompleted); completed {
			if n := len(run.Steps); n > 0 && run.Steps[n-1].AnsweredAt != nil && run.Steps[n-1].CompletedAt == nil {
				events = append(events, at(run, session.StepCompleted{}))
			}
		}
		return append(events, s.End(run, d)...), nil
	})
}

// carry does what comes next until the claim ends.
func (k *carry) carry(ctx context.Context) error {
	var limit *time.Timer
	for {
		if ctx.Err() != nil {
			return k.stop(ctx)
		}
		var next agent.Next
		var left time.Duration
		var parent *session.ParentCall // of a run that has not begun
		err := k.look(ctx, func(s *session.State, run *session.Run) error {
			if run.CancelRequestedAt != nil {
				next = agent.Cancel{}
				return nil
			}
			parent = run.Parent
			if run.CurrentStep > 0 {
				parent = nil
			}
			if !k.know(run.Agent) {
				next = agent.Fail{Failure: session.Failure{Code: "agent_unknown", Message: fmt.Sprintf("the agent %q is not configured any more", run.Agent)}}
				return nil
			}
			if run.ClaimedAt != nil && k.skew == nil {
				behind := max(0, run.ClaimedAt.Sub(k.clock()))
				k.skew = &behind
			}
			left = k.agent.Limits.WithDefaults().Time - time.Duration(run.CarriedMs)*time.Millisecond
			next = k.agent.Decide(s, run, k.now(), k.busy)
			if left <= 0 {
				next = agent.Fail{Failure: overTime}
			}
			return nil
		})
		if err != nil {
			return k.orStop(ctx, err)
		}
		if parent != nil {
			orphaned, err := k.orphaned(ctx, parent)
			if err != nil {
				return k.orStop(ctx, err)
			}
			if orphaned {
				next = agent.Fail{Failure: session.Failure{Code: "parent_gone", Message: "the run that gave this task has ended"}}
			}
		}
		if limit == nil && left > 0 {
			var stop context.CancelCauseFunc
			ctx, stop = context.WithCancelCause(ctx) //nolint:fatcontext // once a claim: limit is set below
			limit = time.AfterFunc(left, func() { stop(ErrTimeLimit) })
			defer limit.Stop()
			defer stop(nil)
		}
		if done, err := k.do(ctx, next); done || err != nil {
			return k.orStop(ctx, err)
		}
	}
}

// know finds the run's agent, once: running tools read it.
func (k *carry) know(name string) (known bool) {
	if k.agent.Name == "" {
		k.agent, known = k.Agents.Find(name)
		return known
	}
	return true
}

// orStop turns an error that only says that ctx ended into what its cause asks for.
func (k *carry) orStop(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return k.stop(ctx)
	}
	if errors.Is(err, &session.Error{Code: session.CancelIsRequested}) {
		return k.cancel(ctx)
	}
	return err
}

// look shows the state if the run is still carried under this lease.
func (k *carry) look(ctx context.Context, look func(s *session.State, run *session.Run) error) error {
	var refused error
	err := k.Store.View(ctx, k.lease.Session, func(s *session.State) {
		_, refused = session.Carry(k.lease.Run, k.lease.Fence, func(s *session.State, run *session.Run) ([]session.Event, error) {
			return nil, look(s, run)
		})(s)
	})
	if err != nil {
		return err
	}
	return refused
}

// do does one thing. done says that the claim has ended.
func (k *carry) do(ctx context.Context, next agent.Next) (done bool, err error) {
	if k.draining() && len(k.busy) == 0 {
		switch next.(type) {
		case agent.CallModel, agent.UseTools:
			return true, k.handOver(ctx, "nothing was under way")
		}
	}
	switch next := next.(type) {
	case agent.CallModel:
		return false, k.callModel(ctx, next)
	case agent.UseTools:
		return false, k.useTools(ctx)
	case agent.EndStep:
		return false, k.settle(ctx, func(_ *session.State, run *session.Run) ([]session.Event, error) {
			return []session.Event{at(run, session.StepCompleted{})}, nil
		})
	case agent.Stay:
		return false, k.stay(ctx)
	case agent.Wait:
		return k.wait(ctx, next)
	case agent.Complete:
		return true, k.end(ctx, func(run *session.Run) session.Data { return session.RunCompleted{Usage: run.Usage} })
	case agent.Fail:
		return true, k.end(ctx, func(run *session.Run) session.Data {
			return session.RunFailed{Error: next.Failure, Usage: run.Usage}
		})
	case agent.Cancel:
		return true, k.cancel(ctx)
	}
	panic(fmt.Sprintf("engine: unknown next %T", next))
}

func (k *carry) draining() bool {
	select {
	case <-k.signals.Drain:
		return true
	default:
		return false
	}
}

// shortWait is how long a wait may be to be waited out under the lease.
const shortWait = 2 * time.Second

// wait gives the run up, or waits out a short time.
func (k *carry) wait(ctx context.Context, w agent.Wait) (done bool, err error) {
	if short := w.Until.Sub(k.now()); !w.Until.IsZero() && short <= shortWait && w.Reason == session.WaitRetry {
		timer := time.NewTimer(max(0, short))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-k.signals.Drain:
			return true, k.handOver(ctx, "it waited to try again")
		case <-ctx.Done():
		}
		return false, nil
	}
	err = k.settle(ctx, func(s *session.State, run *session.Run) ([]session.Event, error) {
		// What it would wait for may have come since.
		again, ok := k.agent.Decide(s, run, k.now(), k.busy).(agent.Wait)
		if !ok {
			return nil, errLookAgain
		}
		waiting := session.RunWaiting{Reason: again.Reason, Error: again.Error}
		if !again.Until.IsZero() {
			until := again.Until.UTC().Truncate(time.Millisecond)
			waiting.Until = &until
		}
		return []session.Event{at(run, waiting)}, nil
	})
	if errors.Is(err, errLookAgain) {
		return false, nil
	}
	return err == nil, err
}

var errLookAgain = errors.New("engine: look again")

// settleTime bounds the writes that end a claim, and the wait for tools that were told to stop.
const settleTime = 2 * time.Second

// stop ends the claim as the cause of ctx asks.
func (k *carry) stop(ctx context.Context) error {
	cause := context.Cause(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	switch {
	case errors.Is(cause, ErrCancelled):
		return k.cancel(ctx)
	case errors.Is(cause, ErrDraining):
		k.awaitTools(ctx)
		return k.handOver(ctx, "its drain time was over")
	case errors.Is(cause, ErrTimeLimit):
		k.awaitTools(ctx)
		return k.end(ctx, func(run *session.Run) session.Data {
			return session.RunFailed{Usage: run.Usage, Error: overTime}
		})
	}
	return cause
}

var overTime = session.Failure{Code: "time_limit", Message: "the run worked longer than its agent allows"}

func cancelled(run *session.Run) session.Data {
	return session.RunCancelled{By: run.CancelBy, Reason: run.CancelReason, Usage: run.Usage}
}

// cancel stops what is under way and ends the run as cancelled.
func (k *carry) cancel(ctx context.Context) error {
	k.awaitTools(ctx)
	return k.end(ctx, cancelled)
}

// handOver gives the run back for another worker to carry on.
func (k *carry) handOver(ctx context.Context, evidence string) error {
	if err := k.flush(ctx); err != nil { // what was said until now is kept
		return err
	}
	return k.settle(ctx, func(s *session.State, run *session.Run) ([]session.Event, error) {
		return session.Reconcile{
			Run: run.ID, Fence: k.lease.Fence, Cause: session.CauseDrain, At: k.now(),
			Evidence: fmt.Sprintf("worker %s is shutting down; %s", k.lease.Worker, evidence),
		}.Decide(s)
	})
}
