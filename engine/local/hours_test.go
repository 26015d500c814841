package local_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/engine"
	"github.com/holdfast-run/holdfast/engine/local"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/model/modeltest"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/memory"
	"github.com/holdfast-run/holdfast/tool"
)

// A person goes home, the process is replaced, and the call is made once, hours later.
func TestAnApprovalIsDecidedAnHourAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		pay := tool.New("pay", "", func(context.Context, struct{}, tool.Call) (string, error) {
			calls.Add(1)
			return "paid", nil
		}, tool.WithApproval(tool.Always))
		set, err := tool.NewSet(pay)
		if err != nil {
			t.Fatal(err)
		}
		book, err := agent.NewBook(agent.Agent{Name: "a", Model: "m", Tools: set})
		if err != nil {
			t.Fatal(err)
		}
		script := modeltest.NewScript(
			modeltest.Reply(modeltest.Call("c", "pay", `{}`)),
			modeltest.Reply(modeltest.Text("paid")),
		)
		var current atomic.Pointer[local.Engine]
		st := memory.New(store.Options{OnCommit: func(c store.Commit) {
			if e := current.Load(); e != nil {
				e.Notify(c)
			}
		}})
		start := func() (stop func()) {
			e := local.Make(&engine.Carrier{
				Store: st, Agents: book, Log: slog.New(slog.DiscardHandler),
				Models: func(string) (model.Model, error) { return script, nil },
			}, local.Options{})
			current.Store(e)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- e.Run(ctx) }()
			return func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		}
		stop := start()
		submit := &session.Submit{
			ID: "msg", Parts: []session.Part{{Type: session.PartText, Text: "pay"}},
			Tenant: "t", Owner: "o", DefaultAgent: "a", Run: "run", Output: "out", At: time.Now(),
		}
		if _, err := st.Append(t.Context(), "ses", submit.Decide); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		stop()
		time.Sleep(time.Hour) // of the bubble
		stop = start()
		defer stop()
		time.Sleep(time.Hour)
		var asked string
		err = st.View(t.Context(), "ses", func(s *session.State) {
			run := s.Run("run")
			if run.Status != session.Waiting || run.Crashes != 0 || len(s.Approvals) != 1 {
				t.Errorf("after two hours the run is %s, with %d crashes and %d approvals", run.Status, run.Crashes, len(s.Approvals))
				return
			}
			asked = s.Approvals[0].ID
		})
		if err != nil || asked == "" {
			t.Fatal("nobody is asked", err)
		}
		decide := session.DecideApproval{ID: asked, Decision: session.Approve, By: "o"}
		if _, err := st.Append(t.Context(), "ses", decide.Decide); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		err = st.View(t.Context(), "ses", func(s *session.State) {
			if run := s.Run("run"); run.Status != session.Completed || calls.Load() != 1 {
				t.Errorf("the run is %s, and the tool ran %d times", run.Status, calls.Load())
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// The machine was off for a night: that is no time in which the run worked.
func TestARunWhoseProcessWasAwayForHoursGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book, err := agent.NewBook(agent.Agent{Name: "a", Model: "m"}) // may work for an hour
		if err != nil {
			t.Fatal(err)
		}
		st := memory.New(store.Options{})
		submit := &session.Submit{
			ID: "msg", Parts: []session.Part{{Type: session.PartText, Text: "go"}},
			Tenant: "t", Owner: "o", DefaultAgent: "a", Run: "run", Output: "out", At: time.Now(),
		}
		if _, err := st.Append(t.Context(), "ses", submit.Decide); err != nil {
			t.Fatal(err)
		}
		if leases, err := st.Claim(t.Context(), "a process that dies", time.Minute, 1); err != nil || len(leases) != 1 {
			t.Fatalf("%v, %v", leases, err)
		}
		time.Sleep(8 * time.Hour)
		script := modeltest.NewScript(modeltest.Reply(modeltest.Text("good morning")))
		e := local.Make(&engine.Carrier{
			Store: st, Agents: book, Log: slog.New(slog.DiscardHandler),
			Models: func(string) (model.Model, error) { return script, nil },
		}, local.Options{})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		time.Sleep(10 * time.Second)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		run, err := st.Run(t.Context(), "run")
		if err != nil || run.Status != session.Completed {
			t.Errorf("the run is %s: %+v, %v", run.Status, run.Error, err)
		}
	})
}
