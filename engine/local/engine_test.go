package local_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast/engine"
	"github.com/holdfast-run/holdfast/engine/enginetest"
	"github.com/holdfast-run/holdfast/engine/local"
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
	enginetest.ExerciseOn(t, enginetest.OnPostgreSQL, makeLocal)
}
