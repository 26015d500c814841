package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

// toolResult is how one call ended: nil data means that it was told to stop
// and did, or was lost and may be made again, so that nobody knows what it had done.
type toolResult struct {
	call string
	data session.Data
}

// useTools records what is settled already and that the others start, and
// then, when that is durable, starts them side by side.
func (k *carry) useTools(ctx context.Context) error {
	var start []session.ToolCall
	tries := map[string]session.ToolStarted{}
	err := k.settle(ctx, func(s *session.State, run *session.Run) ([]session.Event, error) {
		// A person may have decided since what has come next was looked at.
		n, ok := k.agent.Decide(s, run, k.now(), k.busy).(agent.UseTools)
		if !ok {
			return nil, errLookAgain
		}
		start = n.Start
		var events []session.Event
		for _, d := range n.Settled {
			events = append(events, at(run, d))
		}
		start = start[:0:0]
		for _, c := range n.Start {
			if refused := k.refuseChild(s, run, &c); refused != nil {
				events = append(events, at(run, refused))
				continue
			}
			start = append(start, c)
			started := session.ToolStarted{Message: run.Message, Call: c.ID, Try: c.Try + 1, Key: c.Key}
			if started.Key == "" {
				started.Key = run.ID + "." + c.ID
			}
			if k.delegate(c.Name) != nil {
				started.Child = childOf(&c)
			}
			tries[c.ID] = started
			events = append(events, at(run, started))
		}
		return events, nil
	})
	if errors.Is(err, errLookAgain) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, c := range start {
		k.busy[c.ID] = true
		go k.runTool(c, tries[c.ID])
	}
	return nil
}

// maxTries bounds the starts of a call that may be repeated and is lost each time.
const maxTries = 3

// runTool runs one call and sends its result.
func (k *carry) runTool(c session.ToolCall, started session.ToolStarted) {
	k.results <- toolResult{call: c.ID, data: k.callTool(c, started)}
}

func (k *carry) callTool(c session.ToolCall, started session.ToolStarted) session.Data {
	ctx := k.tools
	if ctx.Err() != nil { // the run was told to stop after the start was recorded
		return nil
	}
	failed := func(f session.Failure) session.Data {
		return session.ToolFailed{Message: started.Message, Call: c.ID, Error: f}
	}
	t, _, err := k.agent.Tools.Lookup(c.Name)
	if err != nil {
		return failed(tool.FailureOf(err))
	}
	if c.Arguments == nil && c.ArgumentsBlob != nil {
		if c.Arguments, err = readBlob(ctx, k.Store, k.lease.Session, c.ArgumentsBlob); err != nil {
			return failed(session.Failure{Code: "arguments_lost", Message: "the call's arguments could not be read: " + err.Error()})
		}
	}
	if started.Child != nil {
		return k.begin(ctx, c, started)
	}
	result, err := tool.Run(ctx, t, tool.Call{
		ID: c.ID, Name: c.Name, Arguments: c.Arguments, IdempotencyKey: started.Key,
		Session: k.lease.Session, Run: k.lease.Run, Attempt: started.Try,
		Progress: k.progress(started),
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return nil
	case !errors.Is(err, tool.ErrOutcomeUnknown):
	case c.Effects != session.ReadOnly && c.Effects != session.Idempotent:
		return session.ToolUnknown{Message: started.Message, Call: c.ID, Evidence: err.Error()}
	case started.Try < maxTries && !errors.Is(err, tool.ErrAbandoned):
		return nil // the log has it as started: it is started again
	}
	if err != nil {
		return failed(tool.FailureOf(err))
	}
	if d := result.Deferred; d != nil {
		deferred := session.ToolDeferred{Message: started.Message, Call: c.ID}
		if !d.Until.IsZero() {
			until := d.Until.UTC().Truncate(time.Millisecond)
			deferred.Until = &until
		}
		return deferred
	}
	return k.keep(ctx, started, result)
}

// progressEvery spaces the progress reports of one call.
const progressEvery = 100 * time.Millisecond

// progress notes reports of a call, at most one in progressEvery and the last.
func (k *carry) progress(started session.ToolStarted) func(session.Progress) {
	var mu sync.Mutex
	var last time.Time
	return func(p session.Progress) {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		if k.tools.Err() != nil || p.Fraction < 1 && now.Sub(last) < progressEvery {
			return
		}
		last = now
		k.notes.add(session.Event{Run: k.lease.Run, Data: session.ToolProgress{Message: started.Message, Call: started.Call, Progress: p}})
	}
}

// keep is the result of a call as the log holds it: large values beside it.
func (k *carry) keep(ctx context.Context, started session.ToolStarted, result tool.Result) session.Data {
	// The call happened whether or not its run was told to stop meanwhile.
	completed, failure := k.Keep(context.WithoutCancel(ctx), k.lease.Session, result)
	if failure != nil {
		return session.ToolFailed{Message: started.Message, Call: started.Call, Error: *failure}
	}
	completed.Message, completed.Call = started.Message, started.Call
	return *completed
}

// Keep is the result of a call of a session as its log holds it, large values
// beside it, or why it cannot be kept.
func (c *Carrier) Keep(ctx context.Context, id string, result tool.Result) (*session.ToolCompleted, *session.Failure) {
	value, cut, err := tool.Bound(result.Value, 0)
	if err != nil {
		failure := tool.FailureOf(err)
		return nil, &failure
	}
	lost := func(err error) (*session.ToolCompleted, *session.Failure) {
		return nil, &session.Failure{
			Code: "result_lost", Message: "the call was made, but its result could not be kept: " + err.Error(),
		}
	}
	put := func(mediaType string, content []byte) (*session.Blob, error) {
		blob, err := c.Store.PutBlob(ctx, id, mediaType, bytes.NewReader(content))
		return &blob, err
	}
	completed := &session.ToolCompleted{Cut: cut}
	var whole json.RawMessage
	if completed.Result, whole = tool.Inline(value); whole != nil {
		if completed.Blob, err = put("application/json", whole); err != nil {
			return lost(err)
		}
	}
	for _, f := range result.Files {
		blob, err := put(f.MediaType, f.Content)
		if err != nil {
			return lost(err)
		}
		completed.Files = append(completed.Files, session.File{Name: f.Name, MediaType: f.MediaType, Blob: blob})
	}
	return completed, nil
}

// stay waits for a call to end, for news of the session, or for ctx.
func (k *carry) stay(ctx context.Context) error {
	select {
	case r := <-k.results:
		return k.record(ctx, r)
	case <-k.signals.Wake:
	case <-ctx.Done():
	}
	return nil
}

// record writes how calls ended: this one and all that ended meanwhile.
func (k *carry) record(ctx context.Context, first toolResult) error {
	ended := []toolResult{first}
	for more := true; more; {
		select {
		case r := <-k.results:
			ended = append(ended, r)
		default:
			more = false
		}
	}
	return k.settle(ctx, func(s *session.State, run *session.Run) ([]session.Event, error) {
		told := map[string]bool{} // others have told already how the call ended
		for _, c := range s.Calls(run) {
			told[c.ID] = c.Status.Settled()
		}
		var events []session.Event
		for _, r := range ended {
			delete(k.busy, r.call)
			if r.data != nil && !told[r.call] {
				events = append(events, at(run, r.data))
			}
		}
		return events, nil
	})
}

// awaitTools tells the running calls to stop and records the results of those
// that end in time. A call that is deaf to that is left behind: its result goes nowhere.
func (k *carry) awaitTools(ctx context.Context) {
	k.stopTools(ErrCancelled)
	deadline := time.NewTimer(settleTime / 2)
	defer deadline.Stop()
	for len(k.busy) > 0 {
		select {
		case r := <-k.results:
			if err := k.record(ctx, r); err != nil {
				k.log().Warn("record a tool result", slog.Any("error", err))
				return
			}
		case <-deadline.C:
			return
		}
	}
}
