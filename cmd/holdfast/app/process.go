package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/feed"
)

// process are the flags of the commands that open the store and carry runs.
type process struct {
	Data     string `default:"data" env:"HOLDFAST_DATA" type:"path" placeholder:"DIR" help:"The folder that holds everything: sessions, runs, blobs, notes (${default})."`
	Store    string `env:"HOLDFAST_STORE" placeholder:"URL" help:"A PostgreSQL database that many processes share, as postgres://user@host/database, instead of SQLite in the data folder."`
	Redis    string `env:"HOLDFAST_REDIS" placeholder:"URL" help:"A Redis that carries what one process commits to the others, as redis://host:6379, beside a shared store. Nothing is lost with it."`
	Config   string `env:"HOLDFAST_CONFIG" type:"path" placeholder:"FILE" help:"The configuration. Default: holdfast.yaml, if there is one; else the demo agent."`
	Engine   string `env:"HOLDFAST_ENGINE" placeholder:"local|temporal" help:"Who says what runs where, instead of engine.use in the configuration: local, or a Temporal cluster."`
	LogLevel string `default:"info" enum:"debug,info,warn,error" help:"What to log: ${enum}."`
	LogJSON  bool   `name:"log-json" help:"Log JSON lines."`
}

// parts are what a process is made of, before it opens anything.
type parts struct {
	built
	config Config
	log    *slog.Logger
}

// build reads the configuration and makes what it describes.
func (p *process) build(a *App) (parts, error) {
	config, err := readConfig(p.configPath())
	if err != nil {
		return parts{}, err
	}
	if p.Engine != "" {
		config.Engine.Use = p.Engine
	}
	if p.Store != "" {
		config.Store.URL = p.Store
	}
	if p.Redis != "" {
		config.Store.Redis = p.Redis
	}
	if err := os.MkdirAll(p.Data, 0o700); err != nil {
		return parts{}, fmt.Errorf("make the data folder: %w; choose another with --data", err)
	}
	made, err := config.build(p.Data, a.Tools)
	if err != nil {
		return parts{}, err
	}
	return parts{built: made, config: config, log: p.logger(a)}, nil
}

func (p *process) configPath() (path string, required bool) {
	if p.Config != "" {
		return p.Config, true
	}
	return "holdfast.yaml", false
}

func (p *process) logger(a *App) *slog.Logger {
	level := map[string]slog.Level{"debug": slog.LevelDebug, "warn": slog.LevelWarn, "error": slog.LevelError}[p.LogLevel]
	opts := &slog.HandlerOptions{Level: level}
	if p.LogJSON {
		return slog.New(slog.NewJSONHandler(a.Stderr, opts))
	}
	return slog.New(slog.NewTextHandler(a.Stderr, opts))
}

// open joins the runtime: the store, the engine, the configured models and agents.
// The function ends what was opened.
//
// listens is the address of this process's server, or empty.
func (p *process) open(ctx context.Context, made parts, carries bool, listens string) (rt *holdfast.Runtime, end func(), err error) {
	config, log := made.config, made.log
	if err := made.callbacks.open(config, p.Data, listens); err != nil {
		return nil, nil, err
	}
	makeEngine, endEngine, err := config.Engine.open(carries, config.CancelGrace, log)
	if err != nil {
		return nil, nil, err
	}
	openStore, bell, err := config.Store.parts(p.Data, log)
	if err != nil {
		endEngine()
		return nil, nil, err
	}
	agents, endServers := made.agents, func() {}
	servers, err := config.openMCP(agents, log)
	if err != nil {
		endEngine()
		return nil, nil, err
	}
	if carries {
		agents, makeEngine = servers.agents, servers.before(makeEngine)
	}
	rt, err = holdfast.Open(ctx, holdfast.Options{
		Store: openStore, Doorbell: bell, Engine: makeEngine,
		Agents: agents, Models: made.models.Model, Feed: feed.Options{Heartbeat: config.Server.Heartbeat, Log: log},
		CallbackKey: made.callbacks.key,
		CancelGrace: config.CancelGrace, Retention: config.Retention, Log: log,
	})
	if err != nil {
		endEngine()
		return nil, nil, config.Store.explain(p.Data, err)
	}
	if carries {
		endServers = servers.run(ctx)
	}
	return rt, func() {
		if err := rt.Close(); err != nil {
			log.Error("close the store", slog.Any("error", err))
		}
		endServers()
		endEngine()
	}, nil
}
