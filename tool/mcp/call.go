package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-run/holdfast/tool"
)

// KeyMeta is where a server finds the idempotency key of a call: in its _meta.
// It is the same each time the call is tried.
const KeyMeta = "run.holdfast/idempotencyKey"

// maxTries bounds how often a call is made that does not reach its server.
const maxTries = 3

// remote is a tool of a server.
type remote struct {
	server *Server
	name   string // as the server knows it
	spec   tool.Spec
	output *jsonschema.Resolved // nil: any
}

// Spec describes the tool.
func (r *remote) Spec() tool.Spec { return r.spec }

// Call makes the call. One that did not reach its server is made again. If the
// server is lost over it, what it did is not known: the error wraps [tool.ErrOutcomeUnknown].
func (r *remote) Call(ctx context.Context, call tool.Call) (tool.Result, error) {
	for try := 1; ; try++ {
		c, err := r.server.connected(ctx)
		if err != nil {
			return tool.Result{}, err
		}
		res, err := c.call(ctx, &sdk.CallToolParams{
			Meta: sdk.Meta{KeyMeta: call.IdempotencyKey}, Name: r.name, Arguments: call.Arguments,
		}, call.Progress)
		if err == nil {
			return r.result(res)
		}
		if ctx.Err() != nil {
			if errors.Is(context.Cause(ctx), context.DeadlineExceeded) || errors.As(context.Cause(ctx), new(*tool.Error)) {
				ring(c.doubt) // it was late: does it live?
			}
			return tool.Result{}, context.Cause(ctx)
		}
		if again, err := r.failed(c, err, try); !again {
			return tool.Result{}, err
		}
	}
}

// failed says what follows a call that gave no result: another try, or what to tell.
func (r *remote) failed(c *connection, err error, try int) (again bool, told error) {
	if answered(err) {
		var wire *jsonrpc.Error
		errors.As(err, &wire)
		return false, tool.Errorf(tool.CodeFailed, "The MCP server %s refused the call: %s (%d)", r.server.name, bounded(wire.Message, 4<<10), wire.Code)
	}
	seen := c.link.lost(err)
	if errors.Is(seen, errTooLong) {
		return false, tool.Errorf(tool.CodeInvalidResult, "The tool was run, but its result cannot be used: %s.", seen)
	}
	r.server.drop(c)
	ring(c.doubt)
	r.server.log.Warn("an MCP server was lost over a call", slog.String("tool", r.spec.Name), slog.Int("try", try), slog.Any("error", seen))
	var refused *refusedError
	switch {
	case errors.As(err, &refused):
		return false, tool.Errorf(CodeUnavailable, "The MCP server %s did not take the call: %s. Nothing was done.", r.server.name, refused)
	case !notSent(err):
		return false, fmt.Errorf("the MCP server %s was lost over the call: %w: %s", r.server.name, tool.ErrOutcomeUnknown, brief(seen))
	case try < maxTries:
		return true, nil
	}
	return false, tool.Errorf(CodeUnavailable, "The MCP server %s cannot be reached: %s. Nothing was done.", r.server.name, brief(seen))
}
