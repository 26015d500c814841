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
)

// asked counts how often a store is asked for due runs.
type asked struct {
	*memory.Store
	claims atomic.Int32
}

func (a *asked) Claim(ctx context.Context, worker string, ttl time.Duration, limit int) ([]store.Lease, error) {
	a.claims.Add(1)
	return a.Store.Claim(ctx, worker, ttl, limit)
}

func TestAWorkerWhoseClockIsAheadDoesNotAskTheStoreWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &asked{Store: memory.New(store.Options{})}
		submit := &session.Submit{
			ID: "m", Run: "r", Output: "o", Tenant: "t", Owner: "o", DefaultAgent: "a",
			Parts: []session.Part{{Type: session.PartText, Text: "go"}},
		}
		if _, err := s.Append(t.Context(), "s", submit.Decide); err != nil {
			t.Fatal(err)
		}
		leases, err := s.Store.Claim(t.Context(), "another", time.Minute, 1)
		if err != nil || len(leases) != 1 {
			t.Fatalf("%v, %v", leases, err)
		}
		until := time.Now().Add(10 * time.Second)
		wait := session.Carry("r", leases[0].Fence, func(*session.State, *session.Run) ([]session.Event, error) {
			return []session.Event{{Data: session.RunWaiting{Reason: session.WaitRetry, Until: &until}}}, nil
		})
		if _, err := s.Append(t.Context(), "s", wait); err != nil {
			t.Fatal(err)
		}
		book, err := agent.NewBook(agent.Agent{Name: "a", Model: "script"})
		if err != nil {
			t.Fatal(err)
		}
		script := modeltest.NewScript(modeltest.Reply(modeltest.Text("done")))
		e := local.Make(&engine.Carrier{
			Store: s, Agents: book, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return time.Now().Add(5 * time.Second) },
			Models: func(string) (model.Model, error) { return script, nil },
		}, local.Options{})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		time.Sleep(10*time.Second + 20*time.Millisecond)
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if run, err := s.Run(t.Context(), "r"); err != nil || run.Status != session.Completed {
			t.Errorf("the run is %s (%v), soon after its time", run.Status, err)
		}
		if n := s.claims.Load(); n > 600 {
			t.Errorf("the store was asked %d times in ten seconds", n)
		}
	})
}
