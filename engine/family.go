package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/tool"
)

// A subagent's run is the work of a call of its parent's run, in a session of its
// own. Two logs are never written in one transaction, so each step between them
// is one that can be made again without harm:
//
//	parent: tool.started {child}   the child's ids follow from the call's
//	child:  run.queued {parent}    the same message again is the same run
//	parent: tool.deferred          it waits, and holds nothing
//	child:  … works …
//	parent: tool.completed         the first end wins, the same again is fine
//	child:  run.completed          only now: who dies before it says it all again
//
// And down: before a run ends, the children that it still has are cancelled.

// delegate is the subagent that a tool of this name is, or nil.
func (k *carry) delegate(name string) *agent.Delegate {
	t, _, err := k.agent.Tools.Lookup(name)
	if d, ok := t.(agent.Delegate); ok && err == nil {
		return &d
	}
	return nil
}

// childOf gives the ids of the child that a call has.
func childOf(c *session.ToolCall) *session.Child {
	own := strings.TrimPrefix(c.ID, session.CallPrefix)
	return &session.Child{Session: session.SessionPrefix + own, Run: session.RunPrefix + own, Agent: c.Name}
}

// refuseChild is the end of a call that may have no child, or nil.
func (k *carry) refuseChild(s *session.State, run *session.Run, c *session.ToolCall) session.Data {
	if c.Child != nil || k.delegate(c.Name) == nil {
		return nil
	}
	refuse := func(code, format string, args ...any) session.Data {
		return session.ToolFailed{Message: run.Message, Call: c.ID, Error: session.Failure{Code: code, Message: fmt.Sprintf(format, args...)}}
	}
	limits := k.agent.Limits.WithDefaults()
	before := 0
	for _, other := range s.Calls(run) {
		if other.ID == c.ID {
			break
		}
		if k.delegate(other.Name) != nil {
			before++
		}
	}
	switch {
	case run.Depth >= limits.Depth:
		return refuse("depth_limit", "Subagents call subagents at most %d deep here: do the work yourself.", limits.Depth)
	case before >= limits.Children:
		return refuse("children_limit", "At most %d subagents work in one step: call the others in the next.", limits.Children)
	case k.left(run) <= 0:
		return refuse("token_limit", "The run has no tokens left to give to a subagent.")
	}
	return nil
}

// left are the tokens that the run may still use.
func (k *carry) left(run *session.Run) int {
	return k.agent.TokenLimit(run) - run.Usage.InputTokens - run.Usage.OutputTokens
}

// begin begins the run that does a call's work, or finds it begun.
func (k *carry) begin(ctx context.Context, c session.ToolCall, started session.ToolStarted) session.Data {
	failed := func(code string, err error) session.Data {
		return session.ToolFailed{Message: started.Message, Call: c.ID, Error: session.Failure{
			Code: code, Message: "the subagent could not begin: " + err.Error(),
		}}
	}
	d := k.delegate(c.Name)
	if d == nil {
		return failed("agent_unknown", fmt.Errorf("the agent %q is no subagent of this one any more", c.Name))
	}
	task, err := d.Task(c.Arguments)
	if err != nil {
		return failed(tool.CodeInvalidArguments, err)
	}
	child := started.Child
	own := strings.TrimPrefix(child.Run, session.RunPrefix)
	submit := &session.Submit{
		ID: session.MessagePrefix + own, Run: child.Run, Output: session.MessagePrefix + own + "a",
		Agent: d.Agent(), Parts: []session.Part{{Type: session.PartText, Text: session.CleanText(task)}},
		Child: &session.ChildOf{Parent: session.ParentCall{Session: k.lease.Session, Run: k.lease.Run, Call: c.ID}},
	}
	if err = k.look(ctx, func(s *session.State, run *session.Run) error {
		submit.Tenant, submit.Owner = s.Tenant, s.Owner
		siblings := max(1, len(s.Children(run)))
		submit.Child.Depth, submit.Child.TokenLimit = run.Depth+1, max(1, k.left(run)/siblings)
		return nil
	}); err == nil {
		_, err = k.Store.Append(ctx, child.Session, func(s *session.State) ([]session.Event, error) {
			if run := s.Run(child.Run); run != nil {
				return nil, nil
			}
			return submit.Decide(s)
		})
	}
	switch {
	case ctx.Err() != nil || errors.Is(err, store.ErrUnavailable) || errors.Is(err, &session.Error{Code: session.Fenced}):
		return nil // the log has it as started: it is started again
	case err != nil:
		return failed("child_refused", err)
	}
	return session.ToolDeferred{Message: started.Message, Call: c.ID}
}

// orphaned says that nobody waits for what the run finds out: its parent has
// ended, or its call has, while it waited to begin.
func (k *carry) orphaned(ctx context.Context, parent *session.ParentCall) (bool, error) {
	waits := false
	err := k.Store.View(ctx, parent.Session, func(s *session.State) {
		run := s.Run(parent.Run)
		if run == nil || run.Status.Terminal() || run.CancelRequestedAt != nil {
			return
		}
		for _, c := range s.Calls(run) {
			waits = waits || c.ID == parent.Call && !c.Status.Settled()
		}
	})
	if errors.Is(err, store.ErrNotFound) {
		return true, nil
	}
	return !waits, err
}

// lastWords tells the family that the run ends now.
func (k *carry) lastWords(ctx context.Context, terminal func(run *session.Run) session.Data) error {
	var end session.Data
	family := false
	err := k.look(ctx, func(s *session.State, run *session.Run) error {
		end, family = terminal(run), s.HasFamily(run)
		return nil
	})
	if err != nil || !family {
		return err
	}
	return k.TellFamily(context.WithoutCancel(ctx), k.lease.Session, k.lease.Run, end)
}

// childGrace is how long a child has to end when its parent does.
const childGrace = 5 * time.Second

// TellFamily tells the runs in other sessions that a run is about to end, as end
// says: RunCompleted, RunFailed or RunCancelled. The children that still work for
// it are cancelled, and the call whose work it was ends. It is to be told before the end
// is written. Telling again is fine.
func (c *Carrier) TellFamily(ctx context.Context, id, runID string, end session.Data) error {
	var run session.Run
	var children []session.Child
	err := c.Store.View(ctx, id, func(s *session.State) {
		if r := s.Run(runID); r != nil && !r.Status.Terminal() {
			run, children = *r, s.Children(r)
		}
	})
	if err != nil {
		return err
	}
	for _, child := range children {
		cancel := session.Cancel{
			Run: child.Run, By: run.CancelBy, Reason: "the run that gave it its task has ended", At: c.clock(), Grace: childGrace,
		}
		if cancel.By == "" {
			cancel.By = "holdfast"
		}
		if _, err := c.Store.Append(ctx, child.Session, cancel.Decide); err != nil && !over(err) {
			return fmt.Errorf("cancel the subagent's run %s: %w", child.Run, err)
		}
	}
	if run.Parent == nil {
		return nil
	}
	tell := session.CompleteCall{Run: run.Parent.Run, Call: run.Parent.Call, Usage: &run.Usage}
	switch end := end.(type) {
	case session.RunFailed:
		tell.Error = &session.Failure{Code: "child_failed", Message: fmt.Sprintf("The subagent failed: %s (%s)", end.Error.Message, end.Error.Code)}
	case session.RunCancelled:
		tell.Error = &session.Failure{Code: "child_cancelled", Message: strings.TrimSpace("The subagent was stopped by " + end.By + ". " + end.Reason)}
	default:
		text, err := c.said(ctx, id, run.Message)
		if err != nil {
			return err
		}
		completed, failure := c.Keep(ctx, run.Parent.Session, tool.Text(text))
		if tell.Error = failure; failure == nil {
			tell.Completed = *completed
		}
	}
	if _, err := c.Store.Append(ctx, run.Parent.Session, tell.Decide); err != nil && !over(err) {
		return fmt.Errorf("tell the run %s how its subagent ended: %w", run.Parent.Run, err)
	}
	return nil
}

// over says that whoever was told is past caring: it has ended, or it is gone.
func over(err error) bool {
	for _, code := range []session.ErrorCode{session.NotFound, session.RunTerminal, session.CallNotOpen} {
		if errors.Is(err, &session.Error{Code: code}) {
			return true
		}
	}
	return errors.Is(err, store.ErrNotFound)
}

// said is the text of the last step of a message: what a subagent answers.
func (c *Carrier) said(ctx context.Context, id, message string) (string, error) {
	messages, err := c.Store.Messages(ctx, id, []string{message})
	if err != nil || len(messages) == 0 {
		return "", err
	}
	m := &messages[0]
	last := 0
	for _, p := range m.Parts {
		last = max(last, p.Step)
	}
	var text strings.Builder
	for _, p := range m.Parts {
		switch {
		case p.Type != session.PartText || p.Step != last:
		case p.Blob != nil:
			raw, err := readBlob(ctx, c.Store, id, p.Blob)
			if err != nil {
				return "", err
			}
			text.Write(raw)
		default:
			text.WriteString(p.Text)
		}
	}
	if text.Len() == 0 {
		return "The subagent ended without an answer.", nil
	}
	return text.String(), nil
}

// ending appends what decide gives, and tells the family before if that ends the run.
func (c *Carrier) ending(ctx context.Context, id, run string, decide session.Decide) error {
	var end session.Data
	err := c.Store.View(ctx, id, func(s *session.State) {
		events, err := decide(s)
		if err != nil {
			return // the append says so
		}
		for _, e := range events {
			switch e.Data.(type) {
			case session.RunCompleted, session.RunFailed, session.RunCancelled:
				if e.Run == run {
					end = e.Data
				}
			}
		}
	})
	if err != nil {
		return err
	}
	if end != nil {
		if err := c.TellFamily(ctx, id, run, end); err != nil {
			return err // it is tried again: a parent that never hears would wait for ever
		}
	}
	_, err = c.Store.Append(ctx, id, decide)
	return err
}
