package app

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/engine"
	"github.com/holdfast-run/holdfast/engine/local"
	"github.com/holdfast-run/holdfast/feed"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/model/anthropic"
	"github.com/holdfast-run/holdfast/model/demo"
	"github.com/holdfast-run/holdfast/model/openai"
	"github.com/holdfast-run/holdfast/server"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/sqlite"
)

type serveCommand struct {
	Listen   string `default:"127.0.0.1:8787" help:"Address to listen on. Port 0 takes a free port and prints it." placeholder:"HOST:PORT"`
	Data     string `default:"data" help:"Folder that holds everything: sessions, runs, blobs, notes." type:"path"`
	Config   string `help:"Configuration file (default: holdfast.yaml, if there is one)." type:"path"`
	Insecure bool   `name:"insecure-listen" help:"Allow an address that other machines can reach, although there is no authentication yet."`
	LogLevel string `default:"info" enum:"debug,info,warn,error" help:"What to log: ${enum}."`
	LogJSON  bool   `name:"log-json" help:"Log JSON lines."`
}

// Run serves until a signal comes, then drains.
func (c *serveCommand) Run(ctx context.Context, a *App) error {
	log, err := c.logger(a)
	if err != nil {
		return err
	}
	if err := server.CheckListen(c.Listen, c.Insecure); err != nil {
		return err
	}
	config, err := readConfig(c.configPath())
	if err != nil {
		return err
	}
	rt, err := c.open(ctx, a, config, log)
	if err != nil {
		return err
	}
	defer func() {
		if err := rt.Close(); err != nil {
			log.Error("close the store", slog.Any("error", err))
		}
	}()
	srv, err := server.New(rt, server.Options{
		AllowedHosts: config.Server.AllowedHosts, AllowedOrigins: config.Server.AllowedOrigins,
		MaxStreams: config.Server.MaxStreams, Version: a.Version, Log: log,
	})
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", c.Listen, err)
	}
	c.welcome(a, listener.Addr().String(), config)

	// The worker drains first, while clients still watch; then the server says goodbye.
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	var g errgroup.Group
	g.Go(func() error {
		defer stopServing()
		return rt.Run(ctx)
	})
	g.Go(func() error { return srv.Serve(serving, listener) })
	go func() {
		<-ctx.Done()
		log.Info("shutting down: finishing or handing over runs", slog.Int("runs", rt.Carrying()))
		srv.Drain()
	}()
	return g.Wait()
}

func (c *serveCommand) configPath() (path string, required bool) {
	if c.Config != "" {
		return c.Config, true
	}
	return "holdfast.yaml", false
}

func (c *serveCommand) logger(a *App) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return nil, err
	}
	opts := &slog.HandlerOptions{Level: level}
	if c.LogJSON {
		return slog.New(slog.NewJSONHandler(a.Stderr, opts)), nil
	}
	return slog.New(slog.NewTextHandler(a.Stderr, opts)), nil
}

// open joins the runtime: SQLite, the local engine, the configured models and agents.
func (c *serveCommand) open(ctx context.Context, a *App, config Config, log *slog.Logger) (*holdfast.Runtime, error) {
	if err := os.MkdirAll(c.Data, 0o700); err != nil {
		return nil, fmt.Errorf("make the data folder: %w", err)
	}
	models, err := config.models()
	if err != nil {
		return nil, err
	}
	agents, err := config.agents(filepath.Clean(c.Data), a.Tools)
	if err != nil {
		return nil, err
	}
	for _, ag := range agents {
		if _, err := models.Model(ag.Model); err != nil {
			return nil, fmt.Errorf("agent %s: %w", ag.Name, err)
		}
	}
	e := config.Engine
	return holdfast.Open(ctx, holdfast.Options{
		Store: func(ctx context.Context, opts store.Options) (store.Store, error) {
			return sqlite.Open(ctx, c.Data, sqlite.Options{Options: opts, Log: log})
		},
		Engine: func(carrier *engine.Carrier) engine.Engine {
			carrier.Backoff = engine.Backoff{First: e.RetryFirst, Max: e.RetryMax}
			return local.Make(carrier, local.Options{
				Slots: e.Slots, Lease: e.Lease, Poll: e.Poll, Drain: e.Drain, Crash: engine.Backoff{First: e.CrashFirst},
			})
		},
		Agents: agents, Models: models.Model, Feed: feed.Options{Heartbeat: config.Server.Heartbeat, Log: log},
		CancelGrace: config.CancelGrace, Retention: config.Retention, Log: log,
	})
}

// models builds the configured providers, and the demo model.
func (c Config) models() (*model.Registry, error) {
	models, err := model.NewRegistry(c.Providers, map[string]model.Constructor{
		model.TypeOpenAI:           openai.New,
		model.TypeOpenAICompatible: openai.New,
		model.TypeAnthropic:        anthropic.New,
		model.TypeDemo:             func(model.ProviderConfig) (model.Provider, error) { return demo.New(), nil },
	})
	if err != nil {
		return nil, err
	}
	if _, named := c.Providers["demo"]; !named {
		err = models.Add("demo", demo.New())
	}
	return models, err
}

// welcome says what to do next.
func (c *serveCommand) welcome(a *App, addr string, config Config) {
	fmt.Fprintf(a.Stdout, "Holdfast listens on http://%s\n", addr)
	at := ""
	if addr != "127.0.0.1:8787" {
		at = " --server http://" + addr
	}
	var names []string
	for _, ag := range config.Agents {
		names = append(names, ag.Name)
	}
	fmt.Fprintf(a.Stdout, `
Agents: %s. Everything is kept in %s.
In another terminal:

  holdfast chat%s "plan a trip to Lisbon"
  holdfast chat%s "count to 500 slowly"     then kill this server, start it again, and look

or with curl:

  curl -N http://%s/v1/sessions/ses_1/events?after=0 -H 'Accept: text/event-stream' &
  curl http://%s/v1/sessions/ses_1/messages -H 'Content-Type: application/json' \
    -d '{"id": "msg_1", "parts": [{"type": "text", "text": "delete the old reports"}]}'

The API: http://%s/v1/openapi.json. Stop with Ctrl-C: runs go on at the next start.
`, strings.Join(names, ", "), c.Data, at, at, addr, addr, addr)
}
