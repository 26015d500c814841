package enginetest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/model/modeltest"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

// later is a tool whose work others do.
type later struct{ until time.Duration }

func (later) Spec() tool.Spec { return tool.Spec{Name: "later"} }

func (l later) Call(context.Context, tool.Call) (tool.Result, error) {
	d := &tool.Deferred{}
	if l.until > 0 {
		d.Until = time.Now().Add(l.until)
	}
	return tool.Result{Deferred: d}, nil
}

// calls are the calls that a run has made in its step.
func (w *world) calls(sessionID, run string) []session.ToolCall {
	w.t.Helper()
	var calls []session.ToolCall
	if err := w.store.View(context.Background(), sessionID, func(s *session.State) {
		if r := s.Run(run); r != nil {
			for _, c := range s.Calls(r) {
				calls = append(calls, *c)
			}
		}
	}); err != nil {
		w.t.Fatal(err)
	}
	return calls
}

// untilWaiting waits until the run waits for a reason.
func (w *world) untilWaiting(sessionID, run string, reason session.WaitingReason) {
	w.t.Helper()
	w.until(sessionID, fmt.Sprintf("%s to wait for %s", run, reason), func(s *session.State) bool {
		r := s.Run(run)
		return r != nil && r.Status == session.Waiting && r.WaitingReason == reason
	})
}

// result is how a call of the run's message ended.
func (w *world) result(sessionID, run, call string) session.ToolCall {
	w.t.Helper()
	message := ""
	_ = w.store.View(context.Background(), sessionID, func(s *session.State) { message = s.Run(run).Message })
	messages, err := w.store.Messages(context.Background(), sessionID, []string{message})
	if err != nil || len(messages) != 1 {
		w.t.Fatalf("the message of %s: %v", run, err)
	}
	c := messages[0].Call(call)
	if c == nil {
		w.t.Fatalf("the run %s made no call %s", run, call)
	}
	return *c
}

func defers(t *testing.T, on house) {
	w := newWorld(t, on, later{})
	w.script.Add(modeltest.Reply(modeltest.Call("c", "later", `{}`)), modeltest.Reply(modeltest.Text("good")))
	first := w.worker()
	run := w.submit("ses")
	w.untilWaiting("ses", run, session.WaitCallback)
	first.end()
	if first.Carrying() != 0 {
		t.Errorf("a run that waits for others is still carried")
	}
	w.worker()
	call := w.calls("ses", run)[0]
	if call.Status != session.CallDeferred {
		t.Fatalf("the call is %s", call.Status)
	}
	answer := session.CompleteCall{Run: run, Call: call.ID, Completed: session.ToolCompleted{Result: json.RawMessage(`"done"`)}}
	w.do("ses", answer.Decide)
	w.untilStatus("ses", run, session.Completed)
	if got := w.answer("ses", run); got != "good" {
		t.Errorf("the answer is %q", got)
	}
	if got := w.result("ses", run, call.ID); string(got.Result) != `"done"` || got.Try != 1 {
		t.Errorf("the call ended with %s after %d tries", got.Result, got.Try)
	}
	w.endsOnce("ses")
}

func givesUpDeferred(t *testing.T, on house) {
	w := newWorld(t, on, later{until: 50 * time.Millisecond})
	w.script.Add(modeltest.Reply(modeltest.Call("c", "later", `{}`)), modeltest.Reply(modeltest.Text("a pity")))
	w.worker()
	run := w.submit("ses")
	w.untilStatus("ses", run, session.Completed)
	for _, e := range w.events("ses") {
		if failed, ok := e.Data.(session.ToolFailed); ok && failed.Error.Code == tool.CodeTimeout {
			return
		}
	}
	t.Error("no call was given up")
}

// family is a world with an agent that gives tasks to a helper, which may have tools.
func family(t *testing.T, on house, tools ...tool.Tool) *world {
	t.Helper()
	set, err := tool.NewSet(tools...)
	if err != nil {
		t.Fatal(err)
	}
	return houseOf(t, on,
		agent.Agent{Name: "a", Model: "script", Subagents: []string{"helper"}},
		agent.Agent{Name: "helper", Description: "Helps.", Model: "helper", Tools: set, Subagents: []string{"a"}})
}

// asks is a call of the helper.
func asks(id, task string) modeltest.Step {
	return modeltest.Call(id, "helper", fmt.Sprintf(`{"task":%q}`, task))
}

func carriesChildren(t *testing.T, on house) {
	w := family(t, on)
	gate := make(chan struct{})
	w.script.Add(
		modeltest.Reply(asks("c", "one"), asks("d", "two"), asks("e", "three")),
		modeltest.Reply(modeltest.Text("all done")),
	)
	w.helper.Otherwise(func(req model.Request) modeltest.Turn {
		task := req.Messages[len(req.Messages)-1].Parts[0].Text
		return modeltest.Reply(modeltest.Wait(gate), modeltest.Text("did "+task),
			modeltest.Finish(model.Stop, model.Usage{InputTokens: 10, OutputTokens: 5}))
	})
	k := w.worker()
	run := w.submit("ses")
	w.untilWaiting("ses", run, session.WaitChildRun)
	for n := 1; n <= 3; n++ { // all three work at once
		if _, err := w.helper.WaitRequest(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	calls := w.calls("ses", run)
	if n := k.Carrying(); n != 3 {
		t.Errorf("%d runs are carried while the parent waits for 3 children", n)
	}
	close(gate)
	w.untilStatus("ses", run, session.Completed)
	for i, c := range calls {
		child := *c.Child
		want := fmt.Sprintf(`"did %s"`, []string{"one", "two", "three"}[i])
		if got := w.result("ses", run, c.ID); string(got.Result) != want || got.Status != session.CallCompleted {
			t.Errorf("the call %d is %s with %s, not %s", i, got.Status, got.Result, want)
		}
		w.untilStatus(child.Session, child.Run, session.Completed)
		w.endsOnce(child.Session)
		_ = w.store.View(t.Context(), child.Session, func(s *session.State) {
			r := s.Run(child.Run)
			if r.ParentRunID != run || r.Parent.Call != c.ID || s.Parent.Session != "ses" || r.Depth != 1 || s.Owner != "o" {
				t.Errorf("the child %d is %+v of %+v", i, r, s.Parent)
			}
		})
	}
	_ = w.store.View(t.Context(), "ses", func(s *session.State) {
		if used := s.Run(run).Usage; used.InputTokens < 30 || used.OutputTokens < 15 {
			t.Errorf("what the children used is not counted: %+v", used)
		}
	})
	if n := w.types("ses")["run.resumed"]; n != 1 {
		t.Errorf("the parent was woken %d times", n)
	}
	w.endsOnce("ses")
}

func childFails(t *testing.T, on house) {
	w := family(t, on)
	w.script.Add(modeltest.Reply(asks("c", "hard")), modeltest.Reply(modeltest.Text("never mind")))
	w.helper.Add(modeltest.Reply(modeltest.Fail(&model.Error{Code: model.CodeInvalidRequest, Message: "no such thing"})))
	w.worker()
	run := w.submit("ses")
	w.untilStatus("ses", run, session.Completed)
	for _, e := range w.events("ses") {
		if failed, ok := e.Data.(session.ToolFailed); ok {
			if failed.Error.Code != "child_failed" || !strings.Contains(failed.Error.Message, "no such thing") {
				t.Errorf("the call failed with %+v", failed.Error)
			}
			return
		}
	}
	t.Error("the call did not fail")
}

func cancelsChildren(t *testing.T, on house) {
	var pays atomic.Int32
	w := family(t, on, counter("pay", session.Unsafe, &pays, tool.WithApproval(tool.Always)))
	w.script.Add(modeltest.Reply(asks("c", "pay"), asks("d", "think")))
	told := make(chan struct{})
	w.helper.Otherwise(func(req model.Request) modeltest.Turn {
		if req.Messages[0].Parts[0].Text == "pay" { // it waits for a person
			return modeltest.Reply(modeltest.Call("p", "pay", `{}`))
		}
		return modeltest.Reply(onStop(told))
	})
	w.worker()
	run := w.submit("ses")
	w.untilWaiting("ses", run, session.WaitChildRun)
	calls := w.calls("ses", run)
	paying, thinking := *calls[0].Child, *calls[1].Child
	w.untilWaiting(paying.Session, paying.Run, session.WaitApproval)
	w.until(thinking.Session, "a model call", func(s *session.State) bool { return len(s.Run(thinking.Run).Steps) > 0 })
	w.cancel("ses", run)
	w.untilStatus("ses", run, session.Cancelled)
	w.untilStatus(paying.Session, paying.Run, session.Cancelled)
	w.untilStatus(thinking.Session, thinking.Run, session.Cancelled)
	within(t, told, patience, "the child's model call to be closed")
	if n := len(w.approvals(paying.Session)); n != 0 || pays.Load() != 0 {
		t.Errorf("%d approvals are pending, and %d payments were made", n, pays.Load())
	}
	for _, id := range []string{"ses", paying.Session, thinking.Session} {
		w.endsOnce(id)
	}
}

func childIsCancelled(t *testing.T, on house) {
	w := family(t, on)
	w.script.Add(modeltest.Reply(asks("c", "think"), asks("d", "think")), modeltest.Reply(modeltest.Text("without it")))
	gate := make(chan struct{})
	w.helper.Otherwise(func(model.Request) modeltest.Turn {
		return modeltest.Reply(modeltest.Wait(gate), modeltest.Text("thought"))
	})
	w.worker()
	run := w.submit("ses")
	w.untilWaiting("ses", run, session.WaitChildRun)
	calls := w.calls("ses", run)
	child := *calls[0].Child
	w.until(child.Session, "the child to exist", func(s *session.State) bool { return s.Run(child.Run) != nil })
	w.cancel(child.Session, child.Run)
	w.untilStatus(child.Session, child.Run, session.Cancelled)
	close(gate)
	w.untilStatus("ses", run, session.Completed)
	if got := w.result("ses", run, calls[0].ID); got.Status != session.CallFailed || got.Error.Code != "child_cancelled" {
		t.Errorf("the call is %s with %+v", got.Status, got.Error)
	}
	if got := w.result("ses", run, calls[1].ID); got.Status != session.CallCompleted {
		t.Errorf("its sibling is %s", got.Status)
	}
	w.endsOnce(child.Session)
	w.endsOnce("ses")
}

func childChangesHands(t *testing.T, on house) {
	w := family(t, on)
	w.script.Add(modeltest.Reply(asks("c", "think")), modeltest.Reply(modeltest.Text("done")))
	gate := make(chan struct{})
	w.helper.Add(modeltest.Reply(modeltest.Text("half"), modeltest.Wait(gate)), modeltest.Reply(modeltest.Text("thought")))
	first := w.worker()
	run := w.submit("ses")
	w.untilWaiting("ses", run, session.WaitChildRun)
	child := *w.calls("ses", run)[0].Child
	if _, err := w.helper.WaitRequest(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	first.link.cut.Store(true)
	w.worker()
	w.untilStatus("ses", run, session.Completed)
	w.untilStatus(child.Session, child.Run, session.Completed)
	close(gate)
	first.link.cut.Store(false)
	if n := w.types("ses")["tool.completed"]; n != 1 {
		t.Errorf("the parent was told %d times", n)
	}
	if got := w.answer(child.Session, child.Run); got != "thought" {
		t.Errorf("the child answered %q", got)
	}
	w.endsOnce(child.Session)
	w.endsOnce("ses")
}

func boundsChildren(t *testing.T, on house) {
	w := houseOf(t, on,
		agent.Agent{Name: "a", Model: "script", Subagents: []string{"helper"}, Limits: agent.Limits{Children: 2, Tokens: 1000}},
		agent.Agent{Name: "helper", Model: "helper", Subagents: []string{"a"}, Limits: agent.Limits{Depth: 1}})
	w.script.Add(
		modeltest.Reply(asks("c", "1"), asks("d", "2"), asks("e", "3"), modeltest.Finish(model.ToolCalls, model.Usage{InputTokens: 200})),
		modeltest.Reply(modeltest.Text("done")),
	)
	w.helper.Otherwise(func(req model.Request) modeltest.Turn {
		if len(req.Messages) > 1 {
			return modeltest.Reply(modeltest.Text("alone"))
		}
		return modeltest.Reply(modeltest.Call("x", "a", `{"task":"deeper"}`))
	})
	w.worker()
	run := w.submit("ses")
	w.untilStatus("ses", run, session.Completed)
	codes := map[string]int{}
	for _, e := range w.events("ses") {
		if failed, ok := e.Data.(session.ToolFailed); ok {
			codes[failed.Error.Code]++
		}
		if started, ok := e.Data.(session.ToolStarted); ok {
			_ = w.store.View(t.Context(), started.Child.Session, func(s *session.State) {
				if r := s.Run(started.Child.Run); r.TokenLimit > 800 || r.TokenLimit < 300 {
					t.Errorf("the child may use %d tokens of the 800 that were left", r.TokenLimit)
				}
			})
			for _, e := range w.events(started.Child.Session) {
				if failed, ok := e.Data.(session.ToolFailed); ok {
					codes[failed.Error.Code]++
				}
			}
		}
	}
	if codes["children_limit"] != 1 || codes["depth_limit"] != 2 {
		t.Errorf("the refusals are %v", codes)
	}
}

// The worker died after the child had begun, and before the parent's log said that it works.
func findsChild(t *testing.T, on house) {
	w := family(t, on)
	run := w.submit("ses")
	w.do("ses", (&session.Claim{Run: run, Worker: "lost", At: time.Now()}).Decide)
	child := session.Child{Session: "ses_x", Run: "run_x", Agent: "helper"}
	w.do("ses", session.Carry(run, 1, func(_ *session.State, r *session.Run) ([]session.Event, error) {
		at := func(d session.Data) session.Event { return session.Event{Run: run, Step: 1, Attempt: 1, Data: d} }
		part := session.Part{Type: session.PartTool, Tool: &session.ToolCall{ID: "call_x", Name: "helper"}}
		return []session.Event{
			at(session.StepStarted{Message: r.Message}),
			at(session.ModelCompleted{Message: r.Message, Parts: []session.Part{part}, Finish: "tool_calls"}),
			at(session.ToolCalled{Message: r.Message, Call: "call_x", Name: "helper", Arguments: json.RawMessage(`{"task":"it"}`), Effects: session.Idempotent}),
			at(session.ToolStarted{Message: r.Message, Call: "call_x", Try: 1, Key: run + ".call_x", Child: &child}),
		}, nil
	}))
	w.do(child.Session, (&session.Submit{
		ID: "msg_x", Parts: []session.Part{{Type: session.PartText, Text: "it"}}, Tenant: "t", Owner: "o", Agent: "helper",
		Run: child.Run, Output: "msg_xa", Child: &session.ChildOf{Parent: session.ParentCall{Session: "ses", Run: run, Call: "call_x"}, Depth: 1},
	}).Decide)
	w.do("ses", session.Reconcile{Run: run, Fence: 1, Cause: session.CauseLeaseExpired, At: time.Now()}.Decide)
	w.script.Add(modeltest.Reply(modeltest.Text("done")))
	w.helper.Add(modeltest.Reply(modeltest.Text("did it")))
	w.worker()
	w.untilStatus("ses", run, session.Completed)
	w.untilStatus(child.Session, child.Run, session.Completed)
	if got := w.result("ses", run, "call_x"); got.Child == nil || *got.Child != child || string(got.Result) != `"did it"` {
		t.Errorf("the call is %s with %s, the work of %+v", got.Status, got.Result, got.Child)
	}
	if n := len(w.helper.Requests()); n != 1 {
		t.Errorf("the task was done %d times", n)
	}
}
