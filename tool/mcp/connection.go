package mcp

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-run/holdfast/session"
)

// olderProtocol is the newest version that begins with the handshake of before.
const olderProtocol = "2025-11-25"

// link is how a server is reached, for one connection.
type link interface {
	sdk.Transport
	// gone is closed when nothing can come from the server any more. It may be nil.
	gone() <-chan struct{}
	// cut breaks the link at once. It is safe at any time, more than once.
	cut()
	// close ends the link in order, within a bounded time. Nothing of it is left.
	close()
	// lost explains an error of the link by what was seen of it.
	lost(err error) error
}

var errClosing = errors.New("the connection is being closed")

// connection is one connection to a server.
type connection struct {
	server  *Server
	link    link
	session *sdk.ClientSession
	ended   chan struct{} // closed when the session is over
	err     error         // why; read after ended

	calls  context.Context // of all calls; ends before the session does
	end    context.CancelFunc
	listed chan struct{} // the server says that its list changed
	doubt  chan struct{} // a call makes one doubt that the server lives
	probes sync.WaitGroup

	reports atomic.Int64 // numbers progress tokens
	mu      sync.Mutex
	waiting map[string]func(session.Progress) // by progress token; guarded by mu
}

// dial reaches the server, once, within ctx.
func dial(ctx context.Context, s *Server, older bool) (*connection, error) {
	c := &connection{
		server: s, ended: make(chan struct{}), listed: make(chan struct{}, 1), doubt: make(chan struct{}, 1),
		waiting: map[string]func(session.Progress){},
	}
	if s.opts.link != nil {
		c.link = s.opts.link(s.name, s.config)
	} else if s.config.URL != "" {
		c.link = newHTTPLink(s.config)
	} else {
		c.link = newStdioLink(s.config, s.opts.stopGrace, s.log)
	}
	c.calls, c.end = context.WithCancel(context.WithoutCancel(ctx))
	// Without capabilities, a server asks for nothing that would need a person or
	// a model on a live connection: see docs/decisions/mcp.md.
	client := sdk.NewClient(&sdk.Implementation{Name: "holdfast", Version: s.opts.Version}, &sdk.ClientOptions{
		Capabilities:                &sdk.ClientCapabilities{},
		MultiRoundTrip:              &sdk.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler:      func(context.Context, *sdk.ToolListChangedRequest) { ring(c.listed) },
		ProgressNotificationHandler: c.progressed,
	})
	options := &sdk.ClientSessionOptions{}
	if older {
		options.ProtocolVersion = olderProtocol
	}
	stop := context.AfterFunc(ctx, c.link.cut) // the SDK does not mind ctx everywhere
	via := &remembered{Transport: c.link}
	opened, err := client.Connect(ctx, via, options)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.end()
		if ctx.Err() == nil {
			err = c.link.lost(err)
		}
		c.link.close()
		if via.conn != nil {
			_ = via.conn.Close() // the SDK does so only for most failures
		}
		return nil, err
	}
	c.session = opened
	go func() {
		c.err = opened.Wait()
		close(c.ended)
	}()
	return c, nil
}

// remembered is a transport whose connection can be closed by others.
type remembered struct {
	sdk.Transport
	conn sdk.Connection
}

// Connect remembers the connection.
func (r *remembered) Connect(ctx context.Context) (conn sdk.Connection, err error) {
	r.conn, err = r.Transport.Connect(ctx)
	return r.conn, err
}

func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// serverIs is what the server calls itself, and the protocol it speaks.
func (c *connection) serverIs() (name, protocol string) {
	res := c.session.InitializeResult()
	if res == nil {
		return "", ""
	}
	if res.ServerInfo != nil {
		name = bounded(res.ServerInfo.Name+" "+res.ServerInfo.Version, 100)
	}
	return name, res.ProtocolVersion
}

// watch looks after the connection until it ends, or ctx does: then it returns nil.
func (c *connection) watch(ctx context.Context) error {
	opts := c.server.opts
	tick := time.NewTicker(opts.probeEvery)
	defer tick.Stop()
	listed, quiet := c.listed, time.NewTimer(0)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.ended:
			return c.over()
		case <-c.link.gone():
			// What it said last is still being read.
			c.waitEnded(time.Second)
			return c.over()
		case <-listed:
			listed = nil // a server that floods is heard once in a while
			quiet.Reset(opts.relistEvery)
			if err := c.server.relist(ctx, c); err != nil && ctx.Err() == nil {
				return err
			}
		case <-quiet.C:
			listed = c.listed
		case <-c.doubt:
			if err := c.probe(ctx); err != nil && ctx.Err() == nil {
				return err
			}
			c.server.stands(c)
		case <-tick.C:
			// One that is at work may be deaf meanwhile; its calls have a timeout.
			if c.busy() {
				continue
			}
			if err := c.probe(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// over says why the connection has ended.
func (c *connection) over() error {
	err := errors.New("the connection was closed")
	select {
	case <-c.ended:
		if c.err != nil {
			err = c.err
		}
	default:
	}
	return c.link.lost(err)
}

func (c *connection) waitEnded(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c.ended:
	case <-timer.C:
	}
}

func (c *connection) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting) > 0
}

// probe asks for a sign of life. Any answer is one.
func (c *connection) probe(ctx context.Context) error {
	timeout := c.server.opts.probeTimeout
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	pinged := make(chan error, 1)
	c.probes.Go(func() { pinged <- c.session.Ping(ctx, nil) }) // which may wait to be read, whatever ctx says
	var err error
	select {
	case err = <-pinged:
	case <-ctx.Done():
		err = ctx.Err()
	}
	switch {
	case err == nil || answered(err):
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("it does not answer a ping within %s", timeout)
	}
	return c.link.lost(fmt.Errorf("ping: %w", err))
}

// rejected is the code with which the SDK marks what its transport could not
// send; it looks like an answer of the server, but is none.
const rejected = -32005

// answered says that the error is the server's own word.
func answered(err error) bool {
	var told *jsonrpc.Error
	return errors.As(err, &told) && told.Code != rejected
}

// call makes one call of a tool.
func (c *connection) call(ctx context.Context, params *sdk.CallToolParams, report func(session.Progress)) (*sdk.CallToolResult, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(c.calls, func() { cancel(errClosing) })
	defer stop()
	token := "p" + strconv.FormatInt(c.reports.Add(1), 10)
	c.mu.Lock()
	c.waiting[token] = report
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, token)
		c.mu.Unlock()
	}()
	params.SetProgressToken(token)
	return c.session.CallTool(ctx, params)
}

// progressed passes a report on to whoever called.
func (c *connection) progressed(_ context.Context, req *sdk.ProgressNotificationClientRequest) {
	token, _ := req.Params.ProgressToken.(string)
	c.mu.Lock()
	report := c.waiting[token]
	c.mu.Unlock()
	if report == nil {
		return // it came too late, or is made up
	}
	p := session.Progress{Message: visible(req.Params.Message)}
	if req.Params.Total > 0 {
		p.Fraction = req.Params.Progress / req.Params.Total
	}
	report(p)
}

// close ends the connection and everything under way on it.
func (c *connection) close() {
	c.end()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = c.session.Close() // the server may be gone
	}()
	select {
	case <-closed:
	case <-time.After(c.server.opts.stopGrace): // it does not listen
	case <-c.link.gone():
	}
	c.link.close()
	<-closed
	<-c.ended
	c.probes.Wait()
}
