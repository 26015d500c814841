package holdfast

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/tool"
	"github.com/holdfast-run/holdfast/tool/callback"
)

// CallOf gives the call that a callback's token names. Whoever has the token may
// end the call, and nothing else. The error is store.ErrNotFound.
func (r *Runtime) CallOf(token string) (callback.Call, error) {
	c, ok := r.opts.CallbackKey.Read(token)
	if !ok {
		return c, fmt.Errorf("the callback's token: %w", store.ErrNotFound)
	}
	return c, nil
}

// CompleteCall ends a call that a service worked on: with its result, any JSON
// value, or as failed if failure is not nil. It need not be deferred yet: its
// worker may have had no time to say so, or be lost. It gives the session's last event.
//
// The first end stands. The same again is fine while the run goes on. Errors: store.ErrNotFound,
// *session.Error (call_not_open, run_terminal, not_found), and those of store.Store.
func (r *Runtime) CompleteCall(ctx context.Context, c callback.Call, result json.RawMessage, failure *session.Failure) (int64, error) {
	end := session.CompleteCall{Run: c.Run, Call: c.ID}
	if failure != nil {
		told := tool.FailureOf(&tool.Error{Code: failure.Code, Message: failure.Message})
		end.Error = &told
	} else {
		// What nobody takes any more is not kept.
		var refused error
		err := r.store.View(ctx, c.Session, func(s *session.State) { _, refused = end.Decide(s) })
		if err == nil && !errors.Is(refused, &session.Error{Code: session.CallNotOpen}) { // it may be the same end
			err = refused
		}
		if err != nil {
			return 0, err
		}
		completed, lost := r.carrier.Keep(ctx, c.Session, tool.Result{Value: result})
		if lost != nil {
			return 0, fmt.Errorf("%w: %s", store.ErrUnavailable, lost.Message)
		}
		end.Completed = *completed
	}
	done, err := r.store.Append(ctx, c.Session, end.Decide)
	return done.Last, err
}
