package app

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/engine"
	"github.com/holdfast-run/holdfast/tool"
	"github.com/holdfast-run/holdfast/tool/mcp"
)

// checkMCP says what is wrong with the servers and with who uses them.
func (c Config) checkMCP(wrong func(path, format string, args ...any)) {
	for _, name := range slices.Sorted(maps.Keys(c.MCP)) {
		c.MCP[name].Check(name, func(path, format string, args ...any) {
			wrong(strings.TrimSuffix("mcp."+name+"."+path, "."), format, args...)
		})
	}
	for i, a := range c.Agents {
		for j, name := range a.MCP {
			at := fmt.Sprintf("agents[%d].mcp[%d]", i, j)
			if _, ok := c.MCP[name]; !ok {
				wrong(at, "there is no MCP server %q: there are %s", name, strings.Join(slices.Sorted(maps.Keys(c.MCP)), ", "))
			}
			if slices.Contains(a.MCP[:j], name) {
				wrong(at, "the agent has %s already", name)
			}
			if k := slices.IndexFunc(a.Tools, func(t ToolConfig) bool { return strings.HasPrefix(t.Name, name+"_") }); k >= 0 {
				wrong(at, "the agent's tool %s is named like one of the MCP server %s: give the server another name", a.Tools[k].Name, name)
			}
		}
	}
}

// mcpServers are the servers that agents use.
type mcpServers struct {
	servers *mcp.Servers
	agents  []agent.Agent // with the tools of their servers
}

// openMCP prepares the servers of the agents, which are in the order of c.Agents.
func (c Config) openMCP(agents []agent.Agent, log *slog.Logger) (mcpServers, error) {
	used := map[string]mcp.Config{}
	for _, a := range c.Agents {
		for _, name := range a.MCP {
			used[name] = c.MCP[name]
		}
	}
	s := mcpServers{servers: mcp.New(used, mcp.Options{Version: buildVersion(), Log: log}), agents: slices.Clone(agents)}
	for i, a := range c.Agents {
		var sources []tool.Source
		for _, name := range a.MCP {
			source, err := s.servers.Source(name)
			if err != nil {
				return mcpServers{}, err
			}
			sources = append(sources, source)
		}
		if len(sources) > 0 {
			s.agents[i].Tools = s.agents[i].Tools.With(sources...)
		}
	}
	return s, nil
}

// run starts the servers. They outlive ctx: the function ends them, after
// whoever calls them has ended.
func (s mcpServers) run(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.servers.Run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// before makes an engine that carries nothing until each server was tried: a run
// that goes on after a restart should find its tools.
func (s mcpServers) before(make func(*engine.Carrier) engine.Engine) func(*engine.Carrier) engine.Engine {
	return func(c *engine.Carrier) engine.Engine { return afterServers{make(c), s.servers.Settled()} }
}

type afterServers struct {
	engine.Engine
	settled <-chan struct{}
}

// startPatience is how long runs wait at the start for servers that do not answer.
const startPatience = 10 * time.Second

// Run waits for the servers, for a bounded time, then carries runs.
func (e afterServers) Run(ctx context.Context) error {
	patience := time.NewTimer(startPatience)
	defer patience.Stop()
	select {
	case <-e.settled:
	case <-patience.C:
	case <-ctx.Done():
	}
	return e.Engine.Run(ctx)
}
