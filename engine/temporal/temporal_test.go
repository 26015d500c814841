package temporal_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/engine"
	"github.com/holdfast-run/holdfast/engine/enginetest"
	"github.com/holdfast-run/holdfast/engine/temporal"
	"github.com/holdfast-run/holdfast/internal/temporaltest"
)

// onTemporal makes engines on the test binary's server.
func onTemporal(t *testing.T) enginetest.Make {
	c := temporaltest.Dial(t, temporaltest.Address(t))
	return func(carrier *engine.Carrier, lease time.Duration) engine.Engine {
		return temporal.Make(carrier, temporal.Options{
			WorkerOptions: engine.WorkerOptions{
				Lease: lease, Poll: 50 * time.Millisecond, Drain: 100 * time.Millisecond,
				Crash: engine.Backoff{First: 20 * time.Millisecond},
			},
			// The workers of one world share their agents, and nothing else that tells it from others.
			Client: c, TaskQueue: fmt.Sprintf("%s %p", t.Name(), carrier.Agents),
			Slots: 64, Heartbeat: 2 * time.Second, Heal: 200 * time.Millisecond,
		})
	}
}

func TestTheTemporalEngineKeepsItsPromises(t *testing.T) { enginetest.Exercise(t, onTemporal(t)) }

func TestTheTemporalEngineKeepsItsPromisesOnPostgreSQL(t *testing.T) {
	enginetest.ExerciseOn(t, enginetest.OnPostgreSQL, onTemporal(t))
}
