package tool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/session"
)

// StopGrace is how long [Run] waits for a tool to return after its context ended.
const StopGrace = 2 * time.Second

// ErrOutcomeUnknown is wrapped by the error of a call that may have had its
// effect or not, and nobody will find out: whoever was to do it died over it, say.
// A person must say what a call with unsafe effects did.
var ErrOutcomeUnknown = errors.New("tool: the outcome of the call is not known")

// ErrAbandoned is wrapped by the error of a call that did not return within
// [StopGrace] of the end of its context. Its code still runs, and nobody waits for
// it any more. It is an [ErrOutcomeUnknown].
var ErrAbandoned = fmt.Errorf("%w: it did not stop when told to", ErrOutcomeUnknown)

// maxErrorText bounds what is told of an error, in bytes.
const maxErrorText = 8 << 10

// Run makes one call and gives a well-formed result or an error, never both and
// never a panic. Arguments must have come from [Validate].
//
// The call has the tool's timeout; after it the error is an *[Error] with
// [CodeTimeout]. If ctx ends first and the tool gives up, the error wraps
// ctx's cause. A tool that finishes in spite of either has its result returned:
// what happened is a fact. A tool that does not return is left behind with an
// error that wraps [ErrAbandoned], so that a deaf tool cannot hold its run.
//
// The result's value is clean JSON of any size: see [Bound]. No progress is
// reported after Run has returned.
func Run(ctx context.Context, t Tool, call Call) (Result, error) {
	spec := t.Spec()
	timeout := cmp.Or(spec.Timeout, DefaultTimeout)
	late := Errorf(CodeTimeout, "The tool %s was stopped: it did not finish within %s.%s", spec.Name, timeout, afterStop(spec))
	callCtx, cancel := context.WithTimeoutCause(ctx, timeout, late)
	defer cancel()

	progress := &reporter{report: call.Progress}
	defer progress.close()
	call.Progress = progress.send
	call.Name = cmp.Or(call.Name, spec.Name)

	done := make(chan outcome, 1)
	go protect(callCtx, t, call, done)

	var got outcome
	select {
	case got = <-done:
	case <-callCtx.Done():
		grace := time.NewTimer(StopGrace)
		defer grace.Stop()
		select {
		case got = <-done:
		case <-grace.C:
			return Result{}, fmt.Errorf("tool %s: %w: %w", spec.Name, ErrAbandoned, context.Cause(callCtx))
		}
	}
	if got.err == nil && got.result.Deferred != nil {
		return got.result, nil
	}
	if got.err == nil {
		value, err := session.CleanJSON(orNull(got.result.Value))
		if err != nil {
			return Result{}, refuseResult(got.result.Value, err)
		}
		return Result{Value: value, Files: got.result.Files}, nil
	}
	if !gaveUp(callCtx, got.err) {
		return Result{}, got.err
	}
	if cause := context.Cause(callCtx); !errors.Is(cause, late) {
		return Result{}, fmt.Errorf("tool %s: %w", spec.Name, cause)
	}
	return Result{}, late
}

func afterStop(spec Spec) string {
	if spec.Effects == session.ReadOnly {
		return ""
	}
	return " It may have acted before that: check before you try again."
}

// gaveUp says that err is only the echo of the context's end.
func gaveUp(ctx context.Context, err error) bool {
	if ctx.Err() == nil {
		return false
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Cause(ctx))
}

func orNull(value []byte) []byte {
	if len(value) == 0 {
		return []byte("null")
	}
	return value
}

type outcome struct {
	result Result
	err    error
}

// protect makes the call and tells done how it went, once: also of a panic, and
// of the end of its goroutine.
func protect(ctx context.Context, t Tool, call Call, done chan<- outcome) {
	var got outcome
	returned := false
	defer func() {
		if !returned {
			reason := "its goroutine was ended"
			if r := recover(); r != nil {
				reason = trim(fmt.Sprint(r), 500)
			}
			slog.ErrorContext(ctx, "a tool crashed", slog.String("tool", call.Name), slog.String("session", call.Session),
				slog.String("run", call.Run), slog.String("call", call.ID), slog.String("reason", reason), slog.String("stack", string(debug.Stack())))
			got = outcome{err: Errorf(CodeCrash, "The tool %s crashed: %s.", call.Name, reason)}
		}
		done <- got
	}()
	got.result, got.err = t.Call(ctx, call)
	returned = true
}

// FailureOf is how a tool's error is told to people and to the model: valid
// UTF-8 of bounded length, with the code of the *[Error] inside, if there is one.
func FailureOf(err error) session.Failure {
	failure := session.Failure{Code: CodeFailed, Message: err.Error()}
	var told *Error
	if errors.As(err, &told) {
		failure.Code = cmp.Or(trim(told.Code, 100), CodeFailed)
	}
	failure.Message = cmp.Or(trim(failure.Message, maxErrorText), "The tool failed and did not say why.")
	return failure
}

// reporter passes progress on, made well-formed, until it is closed.
type reporter struct {
	mu     sync.Mutex
	report func(session.Progress) // guarded by mu; nil: nobody listens (any more)
}

const (
	maxProgressText = 1 << 10
	maxProgressData = 16 << 10
)

func (r *reporter) send(p session.Progress) {
	p.Message = trim(p.Message, maxProgressText)
	if math.IsNaN(p.Fraction) {
		p.Fraction = 0
	}
	p.Fraction = min(max(p.Fraction, 0), 1)
	if len(p.Data) > 0 {
		clean, err := session.CleanJSON(p.Data)
		if err != nil || len(clean) > maxProgressData {
			clean = nil
		}
		p.Data = clean
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.report != nil {
		r.report(p)
	}
}

func (r *reporter) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report = nil
}
