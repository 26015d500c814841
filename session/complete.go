package session

import (
	"bytes"
	"encoding/json"
)

// CompleteCall is the end of a started call, told by whoever did its work: a
// service that answers later, or the run of a subagent. The first end wins.
type CompleteCall struct {
	Run, Call string
	// Completed is the result, if Error is nil. Its Message and Call are Decide's to fill.
	Completed ToolCompleted
	// Error is why the call failed.
	Error *Failure
	// Usage is what a subagent's run used.
	Usage *Usage
}

// Decide records it. The same end again is fine. Errors: NotFound, RunTerminal,
// CallNotOpen when the call has ended otherwise or was not started.
func (c CompleteCall) Decide(s *State) ([]Event, error) {
	run := s.Run(c.Run)
	if run == nil {
		return nil, notFound("run", c.Run)
	}
	if run.Status.Terminal() {
		return nil, terminal(run)
	}
	call := s.call(run.Message, c.Call)
	if call == nil {
		return nil, notFound("tool call", c.Call)
	}
	switch call.Status {
	case CallStarted, CallDeferred, CallUnknown:
	default:
		if c.same(call) {
			return nil, nil
		}
		return nil, refuse(CallNotOpen, "the call %s takes no result: it is %s", c.Call, call.Status)
	}
	event := Event{Run: run.ID, Step: run.CurrentStep, Attempt: run.Attempt}
	if c.Error != nil {
		event.Data = ToolFailed{Message: run.Message, Call: c.Call, Error: *c.Error, Usage: c.Usage}
		return []Event{event}, nil
	}
	completed := c.Completed
	completed.Message, completed.Call, completed.Usage = run.Message, c.Call, c.Usage
	event.Data = completed
	return []Event{event}, nil
}

// same says that the call ended as c would end it.
func (c CompleteCall) same(call *ToolCall) bool {
	if c.Error != nil {
		return call.Status == CallFailed && call.Error != nil && *call.Error == *c.Error
	}
	result := c.Completed.Result
	if result == nil {
		result = json.RawMessage("null")
	}
	return call.Status == CallCompleted && bytes.Equal(call.Result, result) && hashOf(call.Blob) == hashOf(c.Completed.Blob)
}

func hashOf(b *Blob) string {
	if b == nil {
		return ""
	}
	return b.Hash
}
