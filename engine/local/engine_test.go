package local_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast/engine"
	"github.com/holdfast-run/holdfast/engine/enginetest"
	"github.com/holdfast-run/holdfast/engine/local"
	"github.com/holdfast-run/holdfast/internal/pgtest"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/postgres"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func makeLocal(c *engine.Carrier, lease time.Duration) engine.Engine {
	return local.Make(c, local.Options{WorkerOptions: engine.WorkerOptions{
		Lease: lease, Poll: 50 * time.Millisecond, Drain: 100 * time.Millisecond,
		Crash: engine.Backoff{First: 20 * time.Millisecond},
	}})
}

func TestTheLocalEngineKeepsItsPromises(t *testing.T) { enginetest.Exercise(t, makeLocal) }

func TestTheLocalEngineKeepsItsPromisesOnPostgreSQL(t *testing.T) {
	enginetest.ExerciseOn(t, func(t *testing.T, opts store.Options) store.Store {
		s, err := postgres.At(pgtest.New(t))(context.Background(), opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}, makeLocal)
}
