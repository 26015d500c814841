package app

import (
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	temporallog "go.temporal.io/sdk/log"

	"github.com/holdfast-run/holdfast/engine"
	"github.com/holdfast-run/holdfast/engine/local"
	"github.com/holdfast-run/holdfast/engine/temporal"
)

// EngineConfig tunes how runs are carried. Zero values mean the engine's defaults.
type EngineConfig struct {
	// Use is the engine: "local", which carries the runs of its store itself, or
	// "temporal", which has a Temporal cluster say who carries what. Default: local.
	Use string `yaml:"use"`
	// Slots bounds the runs carried at once.
	Slots int `yaml:"slots"`
	// Lease is how long a claim lasts without being renewed.
	Lease time.Duration `yaml:"lease"`
	// Poll is how often lost hints and lost workers are looked for.
	Poll time.Duration `yaml:"poll"`
	// Drain is how long runs have to end when the worker stops, before they are handed over.
	Drain      time.Duration  `yaml:"drain"`
	RetryFirst time.Duration  `yaml:"retryFirst"`
	RetryMax   time.Duration  `yaml:"retryMax"`
	CrashFirst time.Duration  `yaml:"crashFirst"`
	Temporal   TemporalConfig `yaml:"temporal"`
}

// TemporalConfig says how a Temporal cluster is used. How it is reached may as
// well be said by Temporal's own environment variables (TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE,
// TEMPORAL_API_KEY, TEMPORAL_TLS_…) and configuration file; secrets only there.
type TemporalConfig struct {
	Address   string `yaml:"address"`
	Namespace string `yaml:"namespace"`
	// TaskQueue is where workers find their work.
	TaskQueue string `yaml:"taskQueue"`
	// Heartbeat is how long a worker may be silent before its runs go to another one.
	Heartbeat time.Duration `yaml:"heartbeat"`
	// Deployment and Build are this worker's version, where Temporal's worker versioning is used.
	Deployment string `yaml:"deployment"`
	Build      string `yaml:"build"`
}

// check says what is wrong with it.
func (e EngineConfig) check(wrong func(path, format string, args ...any)) {
	switch e.Use {
	case "", "local", "temporal":
	default:
		wrong("engine.use", "there is no engine %q: there are local and temporal", e.Use)
	}
	if t := e.Temporal; (t.Deployment == "") != (t.Build == "") {
		wrong("engine.temporal.build", "a version has both a deployment and a build, or there is none")
	}
}

// open makes the engine. carries says that runs are carried in this process. end
// ends what the engine stood on, after it.
func (e EngineConfig) open(carries bool, cancelGrace time.Duration, log *slog.Logger) (make func(*engine.Carrier) engine.Engine, end func(), err error) {
	worker := engine.WorkerOptions{Lease: e.Lease, Poll: e.Poll, Drain: e.Drain, Crash: engine.Backoff{First: e.CrashFirst}}
	tuned := func(make func(*engine.Carrier) engine.Engine) func(*engine.Carrier) engine.Engine {
		return func(c *engine.Carrier) engine.Engine {
			c.Backoff = engine.Backoff{First: e.RetryFirst, Max: e.RetryMax}
			return make(c)
		}
	}
	slots := e.Slots
	if !carries {
		slots = -1
	}
	if e.Use != "temporal" {
		return tuned(local.New(local.Options{WorkerOptions: worker, Slots: slots})), func() {}, nil
	}
	options, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		return nil, nil, fmt.Errorf("read Temporal's own configuration: %w", err)
	}
	if e.Temporal.Address != "" {
		options.HostPort = e.Temporal.Address
	}
	if e.Temporal.Namespace != "" {
		options.Namespace = e.Temporal.Namespace
	}
	options.Logger = temporallog.NewStructuredLogger(log)
	c, err := client.NewLazyClient(options) // the cluster may come later
	if err != nil {
		return nil, nil, fmt.Errorf("reach Temporal: %w", err)
	}
	t := e.Temporal
	return tuned(temporal.New(temporal.Options{
		WorkerOptions: worker, Client: c, Namespace: options.Namespace, TaskQueue: t.TaskQueue, Slots: slots,
		Heartbeat: t.Heartbeat, CancelGrace: cancelGrace, Deployment: t.Deployment, Build: t.Build,
	})), c.Close, nil
}
