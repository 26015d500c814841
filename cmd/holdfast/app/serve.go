package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/server"
	"github.com/holdfast-run/holdfast/web"
)

type serveCommand struct {
	Listen   string `default:"127.0.0.1:8787" env:"HOLDFAST_LISTEN" placeholder:"HOST:PORT" help:"The address to listen on (${default}). Port 0 takes a free one."`
	Insecure bool   `name:"insecure-listen" help:"Allow an address that other machines can reach. There is no authentication yet: whoever reaches it may do everything."`
	NoWorker bool   `help:"Carry no runs in this process: workers on the same store do (holdfast worker)."`
	process
}

// Help is the long help.
func (serveCommand) Help() string {
	return `The first line of output is "Holdfast listens on http://HOST:PORT", with the port that was taken. The log goes to the error output.

An interrupt or SIGTERM stops it in order: runs that are under way are finished, or handed over to the next start, within the drain time (engine.drain, 10s). A second one ends it at once; nothing is lost by that.`
}

// Run serves until ctx ends, then drains.
func (c *serveCommand) Run(ctx context.Context, a *App) error {
	spareProcessor()
	if err := server.CheckListen(c.Listen, c.Insecure); err != nil {
		return usagef("%v (--insecure-listen)", err)
	}
	made, err := c.build(a)
	if err != nil {
		return err
	}
	// The port first: what cannot listen should not take over the runs.
	listener, err := c.listen(ctx)
	if err != nil {
		return err
	}
	defer listener.Close()
	rt, closeRuntime, err := c.open(ctx, made, !c.NoWorker, listener.Addr().String())
	if err != nil {
		return err
	}
	defer closeRuntime()
	config := made.config
	srv, err := server.New(rt, server.Options{
		AllowedHosts: config.Server.hosts(), AllowedOrigins: config.Server.AllowedOrigins,
		MaxStreams: config.Server.MaxStreams, UI: web.Files(), Version: a.Version, Log: made.log,
	})
	if err != nil {
		return err
	}
	c.welcome(a, listener.Addr().String(), config)
	return serve(ctx, a, rt, srv, listener)
}

// serve carries runs and answers until ctx ends. Then the worker drains, while
// commands and reads go on; the server ends last.
func serve(ctx context.Context, a *App, rt *holdfast.Runtime, srv *server.Server, listener net.Listener) error {
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var g errgroup.Group
	g.Go(func() error {
		defer stopServing()
		return rt.Run(ctx)
	})
	g.Go(func() error {
		defer stop() // a broken listener: nobody can reach the runs, and the next start goes on with them
		return srv.Serve(serving, listener)
	})
	g.Go(func() error {
		select {
		case <-ctx.Done():
			srv.Drain()
			tellDraining(serving, a, rt)
		case <-serving.Done():
		}
		return nil
	})
	err := g.Wait()
	if err == nil {
		fmt.Fprintln(a.Stderr, "Stopped.")
	}
	return err
}

// tellDraining says what is still under way, until nothing is.
func tellDraining(ctx context.Context, a *App, rt *holdfast.Runtime) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	told := -1
	for {
		if n := rt.Carrying(); n != told {
			told = n
			if n > 0 {
				fmt.Fprintf(a.Stderr, "Stopping: %s to finish or to hand over. Interrupt again to end at once; they go on at the next start.\n", count(n, "run"))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// listen takes the address, or says what to do about it.
func (c *serveCommand) listen(ctx context.Context) (net.Listener, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", c.Listen)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s is in use, perhaps by another holdfast serve: stop that, or choose another address with --listen (port 0 takes a free one)", c.Listen)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%s may not be listened on by this user: choose a port from 1024 on with --listen", c.Listen)
	case err != nil:
		return nil, fmt.Errorf("listen on %s: %w", c.Listen, err)
	}
	return listener, nil
}

// welcome says what to do next. Its first line is for programs as well.
func (c *serveCommand) welcome(a *App, addr string, config Config) {
	fmt.Fprintf(a.Stdout, "Holdfast listens on http://%s\n", addr)
	chat := remote{Server: "http://" + addr}.command("chat")
	var names []string
	for _, ag := range config.Agents {
		names = append(names, ag.Name)
	}
	from := "no holdfast.yaml here, so the demo agent"
	if config.source.path != "" {
		from = config.source.path
	}
	fmt.Fprintf(a.Stdout, `
Agents: %s (%s). Everything is kept in %s.
Open http://%s in a browser, or in another terminal:

  %s "plan a trip to Lisbon"
  %s "count to 500 slowly"     then kill this server, start it again, and look

or with curl:

  curl http://%s/v1/sessions/ses_1/messages -H 'Content-Type: application/json' \
    -d '{"id": "msg_1", "parts": [{"type": "text", "text": "delete the old reports"}]}'
  curl -N http://%s/v1/sessions/ses_1/events?after=0 -H 'Accept: text/event-stream'

The API: http://%s/v1/openapi.json. Ctrl-C stops the server; its runs go on at the next start.
`, strings.Join(names, ", "), from, config.Store.where(c.Data), addr, chat, chat, addr, addr, addr)
}
