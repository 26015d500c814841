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
	"github.com/holdfast-run/holdfast/engine"
	"github.com/holdfast-run/holdfast/engine/local"
	"github.com/holdfast-run/holdfast/feed"
	"github.com/holdfast-run/holdfast/feed/doorbell"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/session"
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

// bell is a doorbell that a test rings and hears.
type bell struct {
	rung  chan store.Commit
	heard chan func(doorbell.Ring)
}

func (b *bell) Ring(c store.Commit) { b.rung <- c }

func (b *bell) Run(ctx context.Context, heard func(doorbell.Ring)) error {
	b.heard <- heard
	<-ctx.Done()
	return nil
}

// elsewhere is a store whose log grows by what another process writes.
type elsewhere struct {
	*memory.Store
	told func(store.Commit)
	time time.Time
}

func (e *elsewhere) Now() time.Time { return e.time }

func TestWhatOneProcessCommitsReachesTheReadersOfAnother(t *testing.T) {
	b := &bell{rung: make(chan store.Commit, 10), heard: make(chan func(doorbell.Ring), 1)}
	e := &elsewhere{time: time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)}
	var quiet atomic.Bool // commits are another process's
	rt, err := holdfast.Open(t.Context(), holdfast.Options{
		Store: func(_ context.Context, o store.Options) (store.Store, error) {
			e.told = o.OnCommit
			o.OnCommit = func(c store.Commit) {
				if !quiet.Load() {
					e.told(c)
				}
			}
			o.Now = e.Now
			e.Store = memory.New(o)
			return e, nil
		},
		Engine: func(c *engine.Carrier) engine.Engine {
			if !c.Now().Equal(e.time) {
				t.Errorf("the engine's clock says %v, the store's %v", c.Now(), e.time)
			}
			return local.Make(c, local.Options{})
		},
		Agents:   []agent.Agent{{Name: "a", Model: "script"}},
		Models:   func(string) (model.Model, error) { return nil, nil },
		Feed:     feed.Options{Heal: time.Hour},
		Doorbell: b,
		Log:      slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	heard := <-b.heard
	note := func(title string) store.Appended {
		t.Helper()
		a, err := e.Append(t.Context(), "ses_1", func(*session.State) ([]session.Event, error) {
			return []session.Event{{Data: session.Updated{Title: &title}}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	note("ours")
	if c := <-b.rung; c.Session != "ses_1" {
		t.Errorf("the others were told %+v", c)
	}
	reader, err := rt.Feed().Follow(t.Context(), "ses_1", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	quiet.Store(true)
	for _, ring := range []doorbell.Ring{{Session: "ses_1", Facts: true}, {Session: "ses_1"}} {
		a := note("theirs")
		heard(ring)
		frames, err := reader.Next(t.Context())
		if err != nil || len(frames) != 1 || frames[0].To != a.Last {
			t.Errorf("after %+v the reader got %v, %v", ring, frames, err)
		}
	}
	heard(doorbell.Ring{}) // which asks for nothing but a look
	e.told(store.Commit{Session: "ses_1", Elsewhere: true})
	select {
	case c := <-b.rung:
		t.Errorf("what another has committed was rung again: %+v", c)
	default:
	}
	if err := rt.Close(); err != nil {
		t.Error(err)
	}
}
