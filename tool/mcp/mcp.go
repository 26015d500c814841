// Package mcp gives agents the tools of MCP servers: programs that speak the
// Model Context Protocol on their standard input and output, and endpoints that speak it
// over HTTP. The protocol is the official Go SDK's; this package is what an agent that
// must not lose or double anything needs around it:
//
//	Servers ── one Server each ── a connection at a time ── a link: a process, or HTTP
//	   │            restarts it        lists, calls, probes
//	   └── Source: its tools now, as a tool.Source
//
// A server is never trusted to behave. It may crash, hang, flood, lie about its
// tools or change them: each list, name, text, schema, result and wait is bounded, a
// process that ends or does not answer is started again with growing pauses, and
// the log says so. A call whose server dies ends in [tool.ErrOutcomeUnknown], and
// whoever made it follows its effects: what may be repeated is repeated under the
// same idempotency key, and the rest waits for a person's word.
package mcp

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/tool"
)

// Options tune the servers. The zero value works.
type Options struct {
	// Version is what this program calls itself to servers.
	Version string
	// Log is where it is told what became of a server. Default: slog.Default().
	Log *slog.Logger

	// For tests; each has a default.
	retryFirst, retryMax, stable time.Duration // pauses before a start, and how long up makes the next pause short again
	probeEvery, probeTimeout     time.Duration // how hanging is noticed
	relistEvery                  time.Duration // how often a list that changes is read
	stopGrace                    time.Duration // how long a process has to end: once its input is closed, and once told to
	wait                         time.Duration // how long a call waits for a server that is away
	link                         func(name string, c Config) link
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	for value, is := range map[*time.Duration]time.Duration{
		&o.retryFirst: time.Second, &o.retryMax: time.Minute, &o.stable: time.Minute,
		&o.probeEvery: 30 * time.Second, &o.probeTimeout: 10 * time.Second,
		&o.relistEvery: time.Second, &o.stopGrace: 2 * time.Second, &o.wait: 30 * time.Second,
	} {
		if *value == 0 {
			*value = is
		}
	}
	return o
}

// Servers are the configured servers of a process. Their tools come and go
// while [Servers.Run] runs.
type Servers struct {
	all     map[string]*Server
	settled chan struct{}
}

// New prepares the servers; nothing is started. The configurations passed [Config.Check].
func New(configs map[string]Config, opts Options) *Servers {
	opts = opts.withDefaults()
	s := &Servers{all: map[string]*Server{}, settled: make(chan struct{})}
	for name, c := range configs {
		s.all[name] = newServer(name, c, opts)
	}
	return s
}

// Run starts the servers and keeps them running until ctx ends; then it ends
// them and returns when no process, connection or goroutine of them is left.
// Call it once. Calls that are under way when ctx ends are lost: end who makes calls first.
func (s *Servers) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, server := range s.all {
		running.Go(func() { server.run(ctx) })
	}
	for _, server := range s.all {
		<-server.settled
	}
	close(s.settled)
	running.Wait()
}

// Settled is closed when each server has been tried once: it is reached, or was
// found to be away.
func (s *Servers) Settled() <-chan struct{} { return s.settled }

// Source is the server's tools.
func (s *Servers) Source(name string) (tool.Source, error) {
	server, ok := s.all[name]
	if !ok {
		return nil, fmt.Errorf("there is no MCP server %q: there are %v", name, slices.Sorted(maps.Keys(s.all)))
	}
	return server, nil
}
