package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/session"
)

// mirror is the session as far as this client has seen it: a snapshot, and the
// events since folded into it.
type mirror struct {
	*session.State
}

// mirrorOf begins with a snapshot.
func mirrorOf(snap holdfast.Snapshot) (mirror, error) {
	var raw bytes.Buffer
	enc := json.NewEncoder(&raw)
	enc.SetEscapeHTML(false) // arguments stay as they are
	err := enc.Encode(map[string]any{
		"id": snap.Session.ID, "seq": snap.Seq, "head": snap.Head, "title": snap.Session.Title, "agent": snap.Session.Agent,
		"createdAt": snap.Session.CreatedAt, "messages": snap.Messages, "runs": snap.Runs,
		"approvals": snap.Approvals, "inbox": snap.Inbox,
	})
	if err != nil {
		return mirror{}, fmt.Errorf("read the snapshot: %w", err)
	}
	state, err := session.Load(raw.Bytes())
	if err != nil {
		return mirror{}, fmt.Errorf("read the snapshot: %w", err)
	}
	return mirror{state}, nil
}

// Call finds a call of a run's message, or gives nil.
func (m mirror) Call(message, call string) *session.ToolCall {
	if msg := m.Message(message); msg != nil {
		return msg.Call(call)
	}
	return nil
}

// calls are the tool calls of what a run writes now, with the given status.
func (m mirror) calls(run *session.Run, status session.CallStatus) []*session.ToolCall {
	msg := m.Message(run.Message)
	if msg == nil {
		return nil
	}
	var calls []*session.ToolCall
	for i := range msg.Parts {
		if t := msg.Parts[i].Tool; t != nil && t.Status == status {
			calls = append(calls, t)
		}
	}
	return calls
}

// foreground says whether a run belongs to the conversation.
func (m mirror) foreground(runID string) bool {
	run := m.Run(runID)
	return run != nil && !run.Background
}

// next is the foreground run that is active or will be: nil when nothing is under way.
func (m mirror) next() *session.Run {
	if run := m.Active(); run != nil {
		return run
	}
	for _, run := range m.Runs {
		if !run.Background && !run.Status.Terminal() {
			return run
		}
	}
	return nil
}

// lastAnswer is the last message of the assistant on the active branch, or nil. What a background run said is no answer here.
func (m mirror) lastAnswer() *session.Message {
	path := m.Path(m.Head)
	for _, id := range slices.Backward(path) {
		if msg := m.Message(id); msg != nil && msg.Role == session.RoleAssistant && msg.Background == nil {
			return msg
		}
	}
	return nil
}

// needsPerson says whether a run waits for somebody to decide.
func needsPerson(run *session.Run) bool {
	return run.Status == session.Waiting &&
		(run.WaitingReason == session.WaitApproval || run.WaitingReason == session.WaitToolOutcome)
}
