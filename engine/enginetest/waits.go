package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/model/modeltest"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

// counter is a tool that counts its calls.
func counter(name string, effects session.Effects, calls *atomic.Int32, options ...tool.Option) tool.Tool {
	return tool.New(name, "", func(context.Context, struct{}, tool.Call) (string, error) {
		calls.Add(1)
		return "ok", nil
	}, append(options, tool.WithEffects(effects))...)
}

// deafWait waits for gate whatever the context says.
func deafWait(gate <-chan struct{}) modeltest.Step { return modeltest.Do(func() { <-gate }) }

// onStop says nothing more until the call is stopped, and closes told then.
func onStop(told chan struct{}) modeltest.Step {
	stall := modeltest.Stall()
	return modeltest.Then(stall, func() { close(told) })
}

func within(t *testing.T, c <-chan struct{}, d time.Duration, what string) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c:
	case <-timer.C:
		t.Errorf("waited more than %s for %s", d, what)
	}
}

func (w *world) approvals(sessionID string) []session.Approval {
	var pending []session.Approval
	_ = w.store.View(context.Background(), sessionID, func(s *session.State) {
		for _, a := range s.Approvals {
			if a.Status == session.StatusPending {
				pending = append(pending, *a)
			}
		}
	})
	return pending
}

func waitsForApproval(t *testing.T, on house) {
	var calls atomic.Int32
	w := newWorld(t, on, counter("pay", session.Unsafe, &calls, tool.WithApproval(tool.Always)))
	w.script.Add(
		modeltest.Reply(modeltest.Call("c", "pay", `{}`)),
		modeltest.Reply(modeltest.Text("paid")),
	)
	first := w.worker()
	run := w.submit("ses")
	w.untilStatus("ses", run, session.Waiting)
	first.end() // everything that carried it is gone
	if first.Carrying() != 0 {
		t.Errorf("a waiting run is still carried")
	}
	w.worker()
	a := w.approvals("ses")
	if len(a) != 1 || calls.Load() != 0 {
		t.Fatalf("%d approvals are pending, and the tool ran %d times", len(a), calls.Load())
	}
	w.do("ses", session.DecideApproval{ID: a[0].ID, Decision: session.Approve, By: "o"}.Decide)
	w.untilStatus("ses", run, session.Completed)
	if calls.Load() != 1 {
		t.Errorf("the tool ran %d times", calls.Load())
	}
	w.endsOnce("ses")
}

func approvesOneByOne(t *testing.T, on house) {
	var logs, pays atomic.Int32
	w := newWorld(t, on, counter("log", session.Unsafe, &logs), counter("pay", session.Unsafe, &pays, tool.WithApproval(tool.Always)))
	w.script.Add(
		modeltest.Reply(modeltest.Call("1", "log", `{}`), modeltest.Call("2", "pay", `{}`), modeltest.Call("3", "pay", `{}`)),
		modeltest.Reply(modeltest.Text("done")),
	)
	w.worker()
	run := w.submit("ses")
	w.untilStatus("ses", run, session.Waiting)
	a := w.approvals("ses")
	if len(a) != 2 || logs.Load() != 1 {
		t.Fatalf("%d approvals are pending, and log ran %d times", len(a), logs.Load())
	}
	w.do("ses", session.DecideApproval{ID: a[1].ID, Decision: session.Approve, By: "o"}.Decide)
	w.until("ses", "the second call to be run", func(s *session.State) bool { return pays.Load() == 1 && s.Run(run).Status == session.Waiting })
	w.do("ses", session.DecideApproval{ID: a[0].ID, Decision: session.Deny, By: "o", Note: "no"}.Decide)
	w.untilStatus("ses", run, session.Completed)
	if logs.Load() != 1 || pays.Load() != 1 {
		t.Errorf("log ran %d times, pay %d times", logs.Load(), pays.Load())
	}
	requests := w.script.Requests()
	if len(requests) != 2 {
		t.Fatalf("the model was called %d times", len(requests))
	}
	results := requests[1].Messages[len(requests[1].Messages)-1].Parts
	failed := []bool{}
	for _, p := range results {
		failed = append(failed, p.Failed)
	}
	if !slices.Equal(failed, []bool{false, true, false}) {
		t.Errorf("the model was told %v", failed)
	}
}

func retries(t *testing.T, on house) {
	w := newWorld(t, on)
	w.script.Add(
		modeltest.Reply(modeltest.Text("The answer is 4"), modeltest.Fail(&model.Error{Code: model.CodeIncomplete, Retryable: true})),
		modeltest.Reply(modeltest.Text("The answer is 42.")),
	)
	w.worker()
	run := w.submit("ses")
	w.untilStatus("ses", run, session.Completed)
	if got := w.answer("ses", run); got != "The answer is 42." {
		t.Errorf("the answer is %q", got)
	}
	w.endsOnce("ses")
}

func retriesLater(t *testing.T, on house) {
	w := newWorld(t, on)
	w.script.Add(
		modeltest.Reply(modeltest.Fail(&model.Error{Code: model.CodeRateLimited, Retryable: true, RetryAfter: 4 * time.Second})),
		modeltest.Reply(modeltest.Text("ok")),
	)
	k := w.worker()
	run := w.submit("ses")
	start := time.Now()
	w.untilStatus("ses", run, session.Waiting)
	k.idles(t)
	w.untilStatus("ses", run, session.Completed)
	if took := time.Since(start); took < 4*time.Second {
		t.Errorf("it was retried after %s", took)
	}
	if w.types("ses")["run.waiting"] != 1 {
		t.Errorf("the wait is not told")
	}
}

// idles waits until the worker carries nothing, which no commit tells.
func (k *worker) idles(t *testing.T) {
	t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for k.Carrying() > 0 {
		select {
		case <-look.C:
		case <-timeout.C:
			t.Fatalf("%d runs are still carried", k.Carrying())
		}
	}
}

func failsAtOnce(t *testing.T, on house) {
	w := newWorld(t, on)
	w.script.Add(modeltest.Reply(modeltest.Fail(&model.Error{Code: model.CodeUnauthorized, Message: "no"})))
	w.worker()
	run := w.submit("ses")
	w.untilStatus("ses", run, session.Failed)
	if n := w.types("ses")["step.started"]; n != 1 {
		t.Errorf("it was tried %d times", n)
	}
	w.endsOnce("ses")
}

func drains(t *testing.T, on house) {
	w := newWorld(t, on)
	begun := newChan()
	w.script.Add(
		modeltest.Reply(modeltest.Text("half "), modeltest.Do(func() { close(begun) }), modeltest.Stall()),
		modeltest.Reply(modeltest.Text("whole")),
	)
	first := w.worker()
	run := w.submit("ses")
	<-begun
	first.end()
	w.until("ses", "the run to be handed over", func(s *session.State) bool { return s.Run(run).Status == session.Waiting })
	w.worker()
	w.untilStatus("ses", run, session.Completed)
	if got := w.answer("ses", run); got != "whole" {
		t.Errorf("the answer is %q", got)
	}
	for _, e := range w.events("ses") {
		if r, ok := e.Data.(session.RunReconciled); ok && r.Cause != session.CauseDrain {
			t.Errorf("the hand-over is told as %s", r.Cause)
		}
	}
	w.endsOnce("ses")
}

// crashInTool cuts the worker off while the tool runs, and lets another take over.
func crashInTool(t *testing.T, on house, effects session.Effects) (w *world, run string, keys func() []string) {
	var mu sync.Mutex
	var seen []string
	begun, free := newChan(), newChan()
	t.Cleanup(func() { close(free) })
	act := tool.New("act", "", func(ctx context.Context, _ struct{}, call tool.Call) (string, error) {
		mu.Lock()
		seen = append(seen, call.IdempotencyKey)
		first := len(seen) == 1
		mu.Unlock()
		if first {
			close(begun)
			select {
			case <-free:
			case <-ctx.Done():
			}
			return "", errors.New("cut off")
		}
		return "did it", nil
	}, tool.WithEffects(effects))
	w = newWorld(t, on, act)
	w.script.Add(
		modeltest.Reply(modeltest.Call("c", "act", `{}`)),
		modeltest.Reply(modeltest.Text("done")),
	)
	first := w.worker()
	run = w.submit("ses")
	<-begun
	first.link.cut.Store(true)
	w.worker()
	return w, run, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

func repeatsIdempotent(t *testing.T, on house) {
	w, run, keys := crashInTool(t, on, session.Idempotent)
	w.untilStatus("ses", run, session.Completed)
	if k := keys(); len(k) != 2 || k[0] != k[1] || k[0] == "" {
		t.Errorf("the keys were %q", k)
	}
	w.endsOnce("ses")
}

func asksAboutUnsafe(t *testing.T, on house) {
	w, run, keys := crashInTool(t, on, session.Unsafe)
	w.until("ses", "a person to be asked", func(s *session.State) bool {
		return s.Run(run).Status == session.Waiting && s.Run(run).WaitingReason == session.WaitToolOutcome
	})
	if len(keys()) != 1 {
		t.Fatalf("the call was repeated")
	}
	var call string
	_ = w.store.View(context.Background(), "ses", func(s *session.State) { call = s.Calls(s.Run(run))[0].ID })
	w.do("ses", session.ResolveTool{Run: run, Call: call, Outcome: session.DidNot, By: "o"}.Decide)
	w.untilStatus("ses", run, session.Completed)
	if k := keys(); len(k) != 2 || k[0] != k[1] {
		t.Errorf("the keys were %q", k)
	}
	w.endsOnce("ses")
}

func asksAboutDeaf(t *testing.T, on house) {
	free := newChan()
	t.Cleanup(func() { close(free) })
	deaf := tool.New("deaf", "", func(context.Context, struct{}, tool.Call) (string, error) {
		<-free
		return "too late", nil
	}, tool.WithTimeout(20*time.Millisecond))
	w := newWorld(t, on, deaf)
	w.script.Add(modeltest.Reply(modeltest.Call("c", "deaf", `{}`)))
	w.worker()
	run := w.submit("ses")
	w.until("ses", "a person to be asked", func(s *session.State) bool {
		return s.Run(run).WaitingReason == session.WaitToolOutcome
	})
	w.cancel("ses", run)
	w.untilStatus("ses", run, session.Cancelled)
	w.endsOnce("ses")
}

// A call that was lost, by an MCP server that died over it, say, is started again
// if it may be, a few times; of the rest a person is asked.
func followsEffects(t *testing.T, on house) {
	var keys []string
	losing := func(name string, losses int, effects session.Effects) tool.Tool {
		return tool.New(name, "", func(_ context.Context, _ struct{}, call tool.Call) (string, error) {
			keys = append(keys, call.IdempotencyKey)
			if call.Attempt <= losses {
				return "", fmt.Errorf("%w: its server died", tool.ErrOutcomeUnknown)
			}
			return "ok", nil
		}, tool.WithEffects(effects))
	}
	w := newWorld(t, on, losing("once", 1, session.Idempotent), losing("always", 99, session.ReadOnly), losing("unsafe", 1, session.Unsafe))
	w.script.Add(
		modeltest.Reply(modeltest.Call("a", "once", `{}`)), modeltest.Reply(modeltest.Call("b", "always", `{}`)),
		modeltest.Reply(modeltest.Call("c", "unsafe", `{}`)),
	)
	w.worker()
	run := w.submit("ses")
	w.until("ses", "a person to be asked", func(s *session.State) bool {
		return s.Run(run).WaitingReason == session.WaitToolOutcome
	})
	n := w.types("ses")
	if n["tool.started"] != 2+3+1 || n["tool.completed"] != 1 || n["tool.failed"] != 1 || n["tool.unknown"] != 1 {
		t.Errorf("the log has %v", n)
	}
	if len(keys) != 6 || keys[0] != keys[1] || keys[2] != keys[4] || keys[4] == keys[5] {
		t.Errorf("the calls were made with %q", keys)
	}
	w.cancel("ses", run)
	w.untilStatus("ses", run, session.Cancelled)
	w.endsOnce("ses")
}

func steers(t *testing.T, on house) {
	begun, goOn := newChan(), newChan()
	slow := tool.New("slow", "", func(context.Context, struct{}, tool.Call) (string, error) {
		close(begun)
		<-goOn
		return "ok", nil
	})
	w := newWorld(t, on, slow)
	w.script.Add(
		modeltest.Reply(modeltest.Text("first "), modeltest.Call("c", "slow", `{}`)),
		modeltest.Reply(modeltest.Text("second")),
	)
	w.worker()
	run := w.submit("ses")
	<-begun
	c := &session.Submit{
		ID: "steer", OnBusy: session.Steer, Parts: []session.Part{{Type: session.PartText, Text: "mind this"}},
		Tenant: "t", Owner: "o", Run: "spare", Output: "steered", At: time.Now(), Grace: grace,
	}
	w.do("ses", c.Decide)
	close(goOn)
	w.untilStatus("ses", run, session.Completed)
	requests := w.script.Requests()
	last := requests[1].Messages[len(requests[1].Messages)-1]
	if last.Role != model.User || last.Parts[0].Text != "mind this" {
		t.Errorf("the model heard last: %+v", last)
	}
	if got := w.answer("ses", run); got != "second" {
		t.Errorf("the answer after the steer is %q", got)
	}
	w.endsOnce("ses")
}

func runsTheInbox(t *testing.T, on house) {
	w := newWorld(t, on)
	gate := newChan()
	w.script.Add(
		modeltest.Reply(modeltest.Text("one"), modeltest.Wait(gate)),
		modeltest.Reply(modeltest.Text("two")),
	)
	w.worker()
	one := w.submit("ses")
	w.untilStatus("ses", one, session.Running)
	two := w.submit("ses")
	close(gate)
	w.untilStatus("ses", two, session.Completed)
	requests := w.script.Requests()
	if n := len(requests[1].Messages); n != 3 {
		t.Errorf("the second call saw %d messages, not 3", n)
	}
	w.endsOnce("ses")
}
