// Package tool is who acts: one small interface for everything an agent can do
// to the world, with what the runtime must know to do it safely: the effects of
// a call, who must approve it, and an idempotency key that stays the same when
// the call is made again.
//
// A call passes four doors on its way, each a function of this package:
//
//	the model's text ── Validate ──> arguments ── Policy.Needs ──> a person, perhaps
//	                                     │
//	     the log <── Bound, Inline ── Run (timeout, panics, one well-formed result)
//
// A program makes its own tools with [New], from a Go function, or by
// implementing [Tool]. An agent holds its tools in a [Set].
package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast/session"
)

// Tool is one thing an agent can do. Implementations are safe for concurrent use.
type Tool interface {
	// Spec describes the tool. It does not change while the process lives.
	Spec() Spec
	// Call does it, once. Arguments were validated against Spec().Parameters.
	//
	// Call returns when the work is done or soon after ctx ends; the cause of ctx
	// says why (cancelled, timed out, worker stopping). An error is told to the
	// model as the call's result: an *Error says what the model may do about it,
	// any other error is told by its text.
	Call(ctx context.Context, call Call) (Result, error)
}

// Spec is what the model, the person who approves and the engine are told of a tool.
type Spec struct {
	// Name is unique in an agent and matches ^[a-zA-Z0-9_-]{1,64}$.
	Name string
	// Description is for the model.
	Description string
	// Parameters is a JSON Schema whose type is object.
	Parameters json.RawMessage
	// Effects says whether a call may be made again after a crash.
	// Default: session.Unsafe.
	Effects session.Effects
	// Approval says when a person must agree first. Default: Never.
	Approval Policy
	// Timeout bounds one call. Default: [DefaultTimeout].
	Timeout time.Duration
}

// DefaultTimeout bounds a call whose [Spec] names no Timeout.
const DefaultTimeout = 2 * time.Minute

// Call is one request to act.
type Call struct {
	ID        string // unique in the session
	Name      string
	Arguments json.RawMessage // the JSON object that was validated and, if asked for, approved
	// IdempotencyKey is the same each time this call is tried. Hand it to
	// whatever the tool talks to.
	IdempotencyKey string
	Session        string
	Run            string
	// Attempt counts the tries of this call from 1.
	Attempt int
	// Progress tells watchers how far the call is. It never blocks for long, may
	// drop all but the newest report, and may be called by several goroutines. It
	// is never nil for a call that came through [Run].
	Progress func(session.Progress)
}

// Result is what a call gave.
type Result struct {
	// Value is any JSON value: plain text is a JSON string.
	Value json.RawMessage
	// Files are images and whatever else is no text, in order. A model that can,
	// sees them; a person can open them.
	Files []File
	// Deferred says that the work goes on without the worker, and that its result
	// will be told later: Value and Files are not looked at. The run waits, and holds nothing.
	Deferred *Deferred
}

// Deferred is a call that others work on.
type Deferred struct {
	// Until is when no result is waited for any more. The zero time: never.
	Until time.Time
}

// File is a file that a call gave.
type File struct {
	Name      string // may be empty
	MediaType string // such as image/png
	Content   []byte
}

// Text is a result of plain text. Broken UTF-8 becomes U+FFFD.
func Text(s string) Result { return Result{Value: session.JSONString(s)} }

// Error is a failure the model can act on.
type Error struct {
	// Code is a short stable name such as "not_found" or one of the Code constants.
	Code string
	// Message tells the model what happened and what to do instead.
	Message string
}

// The codes this package gives. A tool may use them and any other.
const (
	CodeInvalidArguments = "invalid_arguments" // the model's arguments cannot be used; nothing was done
	CodeUnknownTool      = "unknown_tool"      // the agent has no tool of that name
	CodeTimeout          = "timeout"           // the call took longer than it may
	CodeInvalidResult    = "invalid_result"    // the tool acted, but its result cannot be used
	CodeCrash            = "tool_crash"        // the tool's code panicked
	CodeFailed           = "tool_failed"       // any error of a tool that gives no code
)

// Error gives the message.
func (e *Error) Error() string { return e.Message }

// Errorf makes an *Error from a code and a formatted message.
func Errorf(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// ErrUnknownTool is wrapped by lookups of names that a [Set] does not hold.
var ErrUnknownTool = errors.New("tool: unknown tool")
