package holdfast_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/engine/local"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/memory"
)

// backlog is a store with so much to fold that one call does not do it.
type backlog struct {
	*memory.Store
	left atomic.Int64
}

func (b *backlog) Fold(context.Context, time.Time) (int64, error) {
	if b.left.Load() == 0 {
		return 0, nil
	}
	b.left.Add(-1)
	return 100, nil
}

func TestRetentionCatchesUpHoweverMuchThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backlog{}
		b.left.Store(50)
		rt, err := holdfast.Open(t.Context(), holdfast.Options{
			Store: func(_ context.Context, o store.Options) (store.Store, error) {
				b.Store = memory.New(o)
				return b, nil
			},
			Engine: local.New(local.Options{}),
			Agents: []agent.Agent{{Name: "a", Model: "script"}},
			Models: func(string) (model.Model, error) { return nil, nil },
			Log:    slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- rt.Run(ctx) }()
		time.Sleep(11 * time.Minute)
		if left := b.left.Load(); left > 0 {
			t.Errorf("after two looks %d parts of 50 are not folded yet", left)
		}
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		if err := rt.Close(); err != nil {
			t.Error(err)
		}
	})
}
