package session_test

import (
	"fmt"

	"github.com/holdfast-run/holdfast/session"
)

// audit reads a log as a strict stranger would and says where it breaks a
// promise. It knows the events, not the fold.
type audit struct {
	seq       int64
	runs      map[string]*auditedRun
	calls     map[string]*auditedCall
	approvals map[string]*auditedApproval
	messages  map[string]*auditedMessage
	waiting   map[string]bool // messages in the inbox
	settled   map[string]bool // messages that were removed from it
	held      []string        // results that wait for the active run to end
	due       string          // the message whose message.created has to come next
}

type auditedRun struct {
	ended, cancelRequested bool
	fence                  int64
	step, attempt          int
	input                  string
	background             bool
	told                   bool // its result
}

type auditedCall struct {
	run               string
	settled, started  bool
	unknown, resolved bool
	approval          string
}

type auditedApproval struct {
	run    string
	status session.ApprovalStatus
}

type auditedMessage struct {
	run  string
	role session.Role
	open bool
}

func newAudit() *audit {
	return &audit{
		runs: map[string]*auditedRun{}, calls: map[string]*auditedCall{}, approvals: map[string]*auditedApproval{},
		messages: map[string]*auditedMessage{}, waiting: map[string]bool{}, settled: map[string]bool{},
	}
}

// read takes the next event.
func (a *audit) read(e session.Event) error {
	if err := a.rule(e); err != nil {
		return fmt.Errorf("event %d, %s of run %q: %w", e.Seq, e.Type(), e.Run, err)
	}
	return nil
}

func (a *audit) rule(e session.Event) error {
	if e.Seq != a.seq+1 {
		return fmt.Errorf("it follows %d", a.seq)
	}
	a.seq = e.Seq
	if a.due != "" {
		d, ok := e.Data.(session.MessageCreated)
		if !ok || d.Message.ID != a.due {
			return fmt.Errorf("the message %s was delivered and does not follow", a.due)
		}
		a.due = ""
	}
	run := a.runs[e.Run]
	if e.Run != "" {
		if _, queued := e.Data.(session.RunQueued); run == nil && !queued {
			return fmt.Errorf("the run was not queued")
		}
		if run != nil && run.ended {
			return fmt.Errorf("the run has ended")
		}
	}
	switch d := e.Data.(type) {
	case session.RunQueued:
		if run != nil {
			return fmt.Errorf("it was queued before")
		}
		a.runs[e.Run] = &auditedRun{background: d.Background, input: d.Input, step: max(d.FromStep-1, 0)}
	case session.RunStarted:
		return run.claimed(d.Fence)
	case session.RunResumed:
		return run.claimed(d.Fence)
	case session.RunReconciled:
		run.fence++
	case session.RunCancelRequested:
		if run.cancelRequested {
			return fmt.Errorf("a cancel was requested before")
		}
		run.cancelRequested = true
	case session.RunWaiting:
		if run.cancelRequested {
			return fmt.Errorf("it waits while it is to be cancelled")
		}
	case session.RunCompleted:
		a.hold(d.Result)
		return a.ends(e.Run)
	case session.RunFailed:
		a.hold(d.Result)
		return a.ends(e.Run)
	case session.RunCancelled:
		return a.ends(e.Run)
	case session.StepStarted:
		return run.stepStarted(e)
	case session.AttemptFailed, session.ModelCompleted, session.StepCompleted, session.TextDelta, session.ReasoningDelta, session.ToolInputDelta:
		if e.Step != run.step || e.Attempt != run.attempt {
			return fmt.Errorf("it is of step %d attempt %d while %d attempt %d is made", e.Step, e.Attempt, run.step, run.attempt)
		}
	}
	if err := a.messageRule(e); err != nil {
		return err
	}
	if err := a.approvalRule(e); err != nil {
		return err
	}
	return a.callRule(e)
}

func (r *auditedRun) claimed(fence int64) error {
	if fence <= r.fence {
		return fmt.Errorf("fence %d after %d", fence, r.fence)
	}
	r.fence = fence
	return nil
}

func (r *auditedRun) stepStarted(e session.Event) error {
	switch {
	case r.cancelRequested:
		return fmt.Errorf("it begins while the run is to be cancelled")
	case e.Step == r.step+1 && e.Attempt == 1, e.Step == r.step && e.Attempt == r.attempt+1:
	default:
		return fmt.Errorf("step %d attempt %d after step %d attempt %d", e.Step, e.Attempt, r.step, r.attempt)
	}
	r.step, r.attempt = e.Step, e.Attempt
	return nil
}

func (a *audit) hold(result *session.Message) {
	if result != nil {
		a.held = append(a.held, result.ID)
	}
}

// tells checks that a result is told once, in its turn, when its run has ended.
func (a *audit) tells(e session.Event, m session.Message) error {
	if m.Background == nil {
		return nil
	}
	run := a.runs[m.Background.Run]
	switch {
	case e.Run != "" || m.Run != "":
		return fmt.Errorf("a result is no part of a run")
	case run == nil || !run.background || !run.ended || run.told:
		return fmt.Errorf("it tells of the run %s", m.Background.Run)
	case len(a.held) > 0 && a.held[0] != m.ID:
		return fmt.Errorf("the result %s waits longer", a.held[0])
	}
	run.told = true
	a.held = a.held[min(1, len(a.held)):]
	return nil
}

// ends checks that the run left nothing open.
func (a *audit) ends(id string) error {
	a.runs[id].ended = true
	for call, c := range a.calls {
		if c.run == id && !c.settled {
			return fmt.Errorf("the call %s has no result", call)
		}
	}
	for approval, p := range a.approvals {
		if p.run == id && p.status == session.StatusPending {
			return fmt.Errorf("the approval %s is pending", approval)
		}
	}
	for message, m := range a.messages {
		if m.run == id && m.open {
			return fmt.Errorf("the message %s is open", message)
		}
	}
	return nil
}

func (a *audit) messageRule(e session.Event) error {
	end := func(id string) error {
		m := a.messages[id]
		if m == nil || !m.open {
			return fmt.Errorf("the message %s is not open", id)
		}
		m.open = false
		return nil
	}
	switch d := e.Data.(type) {
	case session.MessageCreated:
		m := d.Message
		if a.messages[m.ID] != nil || a.waiting[m.ID] {
			return fmt.Errorf("the message %s exists or waits", m.ID)
		}
		if m.Parent != "" && a.messages[m.Parent] == nil {
			return fmt.Errorf("its parent %s does not exist", m.Parent)
		}
		a.messages[m.ID] = &auditedMessage{run: m.Run, role: m.Role, open: m.Status == session.MessageStreaming}
		return a.tells(e, m)
	case session.MessageCompleted:
		return end(d.Message)
	case session.MessageInterrupted:
		return end(d.Message)
	case session.InboxQueued:
		id := d.Item.Message.ID
		if a.waiting[id] || a.messages[id] != nil {
			return fmt.Errorf("the message %s waits or exists", id)
		}
		a.waiting[id] = true
	case session.InboxEdited:
		if !a.waiting[d.ID] {
			return fmt.Errorf("the message %s does not wait", d.ID)
		}
	case session.InboxRemoved:
		if !a.waiting[d.ID] {
			return fmt.Errorf("the message %s does not wait", d.ID)
		}
		delete(a.waiting, d.ID)
		a.settled[d.ID] = true
	case session.InboxDelivered:
		if !a.waiting[d.ID] {
			return fmt.Errorf("the message %s does not wait", d.ID)
		}
		delete(a.waiting, d.ID)
		a.due = d.ID
	}
	return nil
}

func (a *audit) approvalRule(e session.Event) error {
	end := func(id string, status session.ApprovalStatus) error {
		p := a.approvals[id]
		if p == nil || p.status != session.StatusPending {
			return fmt.Errorf("the approval %s is not pending", id)
		}
		p.status = status
		return nil
	}
	switch d := e.Data.(type) {
	case session.ApprovalRequested:
		if a.approvals[d.Approval.ID] != nil {
			return fmt.Errorf("it was requested before")
		}
		if a.runs[e.Run].cancelRequested {
			return fmt.Errorf("it is requested while the run is to be cancelled")
		}
		a.approvals[d.Approval.ID] = &auditedApproval{run: e.Run, status: session.StatusPending}
	case session.ApprovalDecided:
		status := session.StatusDenied
		if d.Decision == session.Approve {
			status = session.StatusApproved
		}
		return end(d.ID, status)
	case session.ApprovalExpired:
		return end(d.ID, session.StatusExpired)
	case session.ApprovalVoided:
		return end(d.ID, session.StatusVoided)
	}
	return nil
}

func (a *audit) callRule(e session.Event) error {
	settle := func(id string) error {
		c := a.calls[id]
		if c == nil || c.settled {
			return fmt.Errorf("the call %s does not exist or has a result", id)
		}
		c.settled = true
		return nil
	}
	switch d := e.Data.(type) {
	case session.ToolCalled:
		if a.calls[d.Call] != nil {
			return fmt.Errorf("it was called before")
		}
		a.calls[d.Call] = &auditedCall{run: e.Run, approval: d.Approval}
	case session.ToolStarted:
		c := a.calls[d.Call]
		switch {
		case c == nil || c.settled:
			return fmt.Errorf("the call %s does not exist or has a result", d.Call)
		case c.unknown:
			return fmt.Errorf("the call %s is started while its outcome is unknown", d.Call)
		case a.runs[e.Run].cancelRequested:
			return fmt.Errorf("it starts while the run is to be cancelled")
		case c.approval != "" && a.approvals[c.approval].status != session.StatusApproved:
			return fmt.Errorf("its approval is %s", a.approvals[c.approval].status)
		}
		c.started = true
	case session.ToolDeferred:
		if c := a.calls[d.Call]; c == nil || c.settled || !c.started {
			return fmt.Errorf("the call %s was not under way", d.Call)
		}
	case session.ToolUnknown:
		c := a.calls[d.Call]
		if c == nil || c.settled || !c.started {
			return fmt.Errorf("the call %s was not under way", d.Call)
		}
		c.unknown = true
	case session.ToolResolved:
		c := a.calls[d.Call]
		if c == nil || !c.unknown {
			return fmt.Errorf("the outcome of %s is not in question", d.Call)
		}
		c.unknown, c.resolved = false, true
	case session.ToolCompleted:
		return settle(d.Call)
	case session.ToolFailed:
		return settle(d.Call)
	case session.ToolDenied:
		return settle(d.Call)
	case session.ToolCancelled:
		return settle(d.Call)
	}
	return nil
}
