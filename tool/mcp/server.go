package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/tool"
)

// Server is one server, through all its starts. It is a [tool.Source]: while it
// is away it still has the tools that it named last, and a call waits for it.
type Server struct {
	name   string
	config Config
	opts   Options
	log    *slog.Logger

	settled chan struct{} // closed when the first start has come to something

	mu      sync.Mutex
	conn    *connection   // nil: away
	why     error         // why it is away
	tools   []tool.Tool   // as it named them last
	listed  bool          // it has named its tools once
	changed chan struct{} // closed, and made anew, when conn or why changes
}

var _ tool.Source = (*Server)(nil)

func newServer(name string, c Config, opts Options) *Server {
	return &Server{
		name: name, config: c, opts: opts, log: opts.Log.With(slog.String("server", name)),
		settled: make(chan struct{}), why: errors.New("it is being started"), changed: make(chan struct{}),
	}
}

// Tools are the tools that the server named last.
func (s *Server) Tools() []tool.Tool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tools
}

// Absent says why a tool is not there: until the server has named its tools once
// nobody knows what it has.
func (s *Server) Absent(name string) *tool.Error {
	if !strings.HasPrefix(name, s.name+"_") {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listed {
		return nil
	}
	return s.unavailableLocked()
}

// CodeUnavailable is the code of a call that was not made because its server is away.
const CodeUnavailable = "unavailable"

func (s *Server) unavailableLocked() *tool.Error {
	return tool.Errorf(CodeUnavailable, "The MCP server %s cannot be reached: %s. Nothing was done.", s.name, brief(s.why))
}

// run keeps the server running until ctx ends.
func (s *Server) run(ctx context.Context) {
	defer s.settle()
	older := false
	for failures := 0; ctx.Err() == nil; {
		began := time.Now()
		c, err := s.connect(ctx, older)
		if err == nil {
			s.settle()
			err = c.watch(ctx)
			s.away(err)
			c.close()
		} else {
			// Some servers of before never answer the newest handshake.
			older = errors.Is(err, context.DeadlineExceeded) && !older
			s.away(err)
		}
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) >= s.opts.stable {
			failures = 0
		}
		pause := min(s.opts.retryFirst<<min(failures, 16), s.opts.retryMax)
		failures++
		s.log.Warn("an MCP server is away", slog.Any("error", err), slog.Int("failures", failures), slog.Duration("next_start_in", pause))
		s.settle()
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

func (s *Server) settle() {
	select {
	case <-s.settled: // only run closes it
	default:
		close(s.settled)
	}
}

// connect starts the server once and reads its tools.
func (s *Server) connect(ctx context.Context, older bool) (*connection, error) {
	began := time.Now()
	timeout := s.config.StartTimeout
	if timeout == 0 {
		timeout = 30 * time.Second
	}
	starting, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it was not ready within %s: %w", timeout, context.DeadlineExceeded))
	defer cancel()
	c, err := dial(starting, s, older)
	if err != nil {
		return nil, err
	}
	tools, left, err := c.list(starting)
	if err != nil {
		c.close()
		return nil, fmt.Errorf("list its tools: %w", err)
	}
	s.mu.Lock()
	before := s.tools
	s.tools, s.listed = tools, true
	s.conn, s.why = c, nil
	s.tellLocked()
	s.mu.Unlock()
	is, protocol := c.serverIs()
	s.tellMissing(tools)
	s.log.Info("an MCP server is ready", slog.String("at", s.config.where()), slog.String("is", is), slog.String("protocol", protocol),
		slog.Int("tools", len(tools)), slog.Int("left_out", left), slog.Duration("took", time.Since(began).Round(time.Millisecond)))
	if before != nil {
		s.tellChange(before, tools)
	}
	return c, nil
}

// relist reads the tools again. Runs that have begun keep the list they began with.
func (s *Server) relist(ctx context.Context, c *connection) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.wait, fmt.Errorf("no answer within %s", s.opts.wait))
	defer cancel()
	tools, _, err := c.list(ctx)
	if err != nil {
		return fmt.Errorf("list its tools anew: %w", err)
	}
	s.mu.Lock()
	before := s.tools
	s.tools = tools
	s.mu.Unlock()
	s.tellChange(before, tools)
	return nil
}

// tellMissing says which tools the configuration names that the server has not:
// what was meant to hold for them holds for nothing.
func (s *Server) tellMissing(tools []tool.Tool) {
	missing := map[string]bool{}
	for _, name := range s.config.Only {
		missing[name] = true
	}
	for name := range s.config.Tools {
		missing[name] = true
	}
	for _, t := range tools {
		if r, ok := t.(*remote); ok {
			delete(missing, r.name)
		}
	}
	if len(missing) > 0 {
		s.log.Warn("the configuration names tools that an MCP server does not have", slog.String("tools", names(slices.Sorted(maps.Keys(missing)))))
	}
}

// tellChange says what is different for new runs.
func (s *Server) tellChange(before, after []tool.Tool) {
	added, removed, changed := compare(before, after)
	if len(added)+len(removed)+len(changed) == 0 {
		return
	}
	s.log.Info("an MCP server changed its tools; new runs have them so", slog.Int("tools", len(after)),
		slog.String("added", names(added)), slog.String("removed", names(removed)), slog.String("changed", names(changed)))
}

// away notes that there is no connection, and why.
func (s *Server) away(err error) {
	if err == nil {
		err = errors.New("it is being stopped")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn, s.why = nil, err
	s.tellLocked()
}

func (s *Server) tellLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// connected gives the connection. While the server is away it waits, for a
// bounded time: the error is then for the model.
func (s *Server) connected(ctx context.Context) (*connection, error) {
	patience := time.NewTimer(s.opts.wait)
	defer patience.Stop()
	for {
		s.mu.Lock()
		c, changed, told := s.conn, s.changed, (*tool.Error)(nil)
		if c == nil {
			told = s.unavailableLocked()
		}
		s.mu.Unlock()
		if c != nil {
			return c, nil
		}
		select {
		case <-changed:
		case <-patience.C:
			return nil, told
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// drop makes callers wait, since a call was lost on the connection: until it is
// seen to stand in spite of that, or there is another.
func (s *Server) drop(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == c {
		s.conn, s.why = nil, errors.New("it was lost over a call")
		s.tellLocked()
	}
}

// stands takes a drop back.
func (s *Server) stands(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		s.conn, s.why = c, nil
		s.tellLocked()
	}
}
