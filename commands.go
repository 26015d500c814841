package holdfast

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/tool"
)

// Done is what a command answers.
type Done[T any] struct {
	// Is the thing that the command was about, as it is now.
	Is T
	// Seq is the session's last event that the command wrote, or the last there
	// is if nothing was left to do. A mirror that has reached it shows the effect.
	Seq int64
	// Repeated says that nothing was left to do.
	Repeated bool
}

// Submission is a message that asks for a run.
type Submission struct {
	// ID is the message's id, chosen by the client: the idempotency key.
	ID         string
	Parts      []session.Part
	OnBusy     session.OnBusy // default: session.Enqueue
	Agent      string         // default: the session's, then the runtime's
	Background bool
	// Parent places the message; nil means after the head, "" begins a new root.
	Parent *string
}

// Submitted is what a submission became.
type Submitted struct {
	Message session.Message
	Run     session.Run
	// Inbox is the message's place in the inbox, if it waits there.
	Inbox *session.InboxItem
	// Seq is the session's last event that the submission needed.
	Seq int64
	// Repeated says that the same message had been accepted before.
	Repeated bool
}

// Submit accepts a message, once: it creates the session if it is new, and
// gives the run that answers. Errors: *session.Error (message_conflict,
// run_active, inbox_full, not_found, invalid), and those of store.Store.
func (r *Runtime) Submit(ctx context.Context, p Principal, id string, m Submission) (Submitted, error) {
	err := r.checkSubmission(id, m)
	if err != nil {
		return Submitted{}, err
	}
	if m.Parts, err = r.shelve(ctx, p, id, m.Parts); err != nil {
		return Submitted{}, err
	}
	def, _ := r.agents.Find("")
	c := &session.Submit{
		ID: m.ID, Parts: m.Parts, OnBusy: m.OnBusy, Agent: m.Agent, Background: m.Background, Parent: m.Parent,
		Tenant: p.Tenant, Owner: p.Owner, DefaultAgent: def.Name,
		Run: session.NewID(session.RunPrefix), Output: session.NewID(session.MessagePrefix),
		At: r.opts.Now(), Grace: r.opts.CancelGrace,
	}
	done, err := r.store.Append(ctx, id, c.Decide)
	if err != nil {
		return Submitted{}, err
	}
	out, delivered := Submitted{Seq: done.Last, Repeated: c.Repeated}, false
	err = r.view(ctx, p, id, func(s *session.State) error {
		if run := s.Run(c.Accepted); run != nil {
			out.Run = cloneRun(run)
		}
		if item := s.InboxItem(m.ID); item != nil {
			copied := *item
			out.Message, out.Inbox = copied.Message, &copied
		} else if msg := s.Message(m.ID); msg != nil {
			out.Message, delivered = *msg, true
			out.Message.Parts = m.Parts
		} else { // taken back since
			out.Message = session.Message{ID: m.ID, Role: session.RoleUser, Parts: m.Parts, Status: session.MessageWhole, Run: c.Accepted}
		}
		return nil
	})
	if err == nil && out.Repeated && delivered { // it may have been edited before its turn
		var said []session.Message
		if said, err = r.store.Messages(ctx, id, []string{m.ID}); len(said) == 1 {
			out.Message = said[0]
		}
	}
	return out, err
}

func (r *Runtime) checkSubmission(id string, m Submission) error {
	switch {
	case !session.ValidID(id):
		return invalid("session", "a session id has 1 to 128 letters, digits, \"_\" or \"-\"")
	case !session.ValidID(m.ID):
		return invalid("id", "a message id has 1 to 128 letters, digits, \"_\" or \"-\"")
	}
	if _, ok := r.agents.Find(m.Agent); !ok {
		return invalid("agent", fmt.Sprintf("there is no agent %q", m.Agent))
	}
	switch m.OnBusy {
	case "", session.Enqueue, session.Reject, session.Interrupt, session.Rollback, session.Steer:
	default:
		return invalid("onBusy", "onBusy is enqueue, reject, interrupt, rollback or steer")
	}
	return checkParts(m.Parts)
}

func invalid(field, message string) error {
	return &session.Error{Code: session.Invalid, Field: field, Message: message}
}

// CreateSession begins a session without a message. Creating it again is fine
// and changes nothing.
func (r *Runtime) CreateSession(ctx context.Context, p Principal, id string, c session.Create) (Done[Session], error) {
	if !session.ValidID(id) {
		return Done[Session]{}, invalid("id", "a session id has 1 to 128 letters, digits, \"_\" or \"-\"")
	}
	if _, ok := r.agents.Find(c.Agent); !ok {
		return Done[Session]{}, invalid("agent", fmt.Sprintf("there is no agent %q", c.Agent))
	}
	c.Tenant, c.Owner = p.Tenant, p.Owner
	done, err := r.store.Append(ctx, id, c.Decide)
	if err != nil {
		return Done[Session]{}, err
	}
	return answer(done, func() (Session, error) { return r.Session(ctx, p, id) })
}

// UpdateSession changes a session's title, metadata or head. A new head is the
// newest message below the one named.
func (r *Runtime) UpdateSession(ctx context.Context, p Principal, id string, u session.Update) (Done[Session], error) {
	done, err := r.command(ctx, p, id, func(s *session.State) ([]session.Event, error) {
		u := u
		if u.Head != nil && s.Message(*u.Head) != nil {
			leaf := newestBelow(s, *u.Head)
			u.Head = &leaf
		}
		return u.Decide(s)
	})
	if err != nil {
		return Done[Session]{}, err
	}
	return answer(done, func() (Session, error) { return r.Session(ctx, p, id) })
}

// newestBelow follows the newest answer from a message down to a leaf.
func newestBelow(s *session.State, id string) string {
	newest := make(map[string]string, len(s.Messages))
	aside := s.Aside(s.Message(id))
	for _, m := range s.Messages { // oldest first: the newest child stays
		if s.Aside(m) == aside {
			newest[m.Parent] = m.ID
		}
	}
	for newest[id] != "" {
		id = newest[id]
	}
	return id
}

// answer reads what a command was about after it was done.
func answer[T any](done store.Appended, read func() (T, error)) (Done[T], error) {
	is, err := read()
	return Done[T]{Is: is, Seq: done.Last, Repeated: len(done.Events) == 0}, err
}

// DeleteSession removes a session and everything in it, the sessions of its
// subagents included. Its runs are cancelled first.
func (r *Runtime) DeleteSession(ctx context.Context, p Principal, id string) error {
	var open []string
	err := r.view(ctx, p, id, func(s *session.State) error {
		for _, run := range s.Open() {
			open = append(open, run.ID)
		}
		return nil
	})
	if err != nil {
		return err
	}
	children, err := r.childSessions(ctx, p, id)
	if err != nil {
		return err
	}
	for _, run := range open {
		c := session.Cancel{Run: run, By: p.Owner, Reason: "session deleted", At: r.opts.Now(), Grace: r.opts.CancelGrace}
		if _, err := r.command(ctx, p, id, c.Decide); err != nil && !errors.Is(err, &session.Error{Code: session.RunTerminal}) {
			return err
		}
		// A run that waits for its worker to end it would go unheard with its session.
		err := r.carrier.TellFamily(ctx, id, run, session.RunCancelled{By: p.Owner, Reason: "Its session was deleted."})
		if err != nil {
			return err
		}
	}
	for _, child := range children {
		// A fork shows the same calls, and their subagents worked for another session.
		own := false
		err := r.view(ctx, p, child, func(s *session.State) error {
			own = s.Parent != nil && s.Parent.Session == id
			return nil
		})
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if !own {
			continue
		}
		if err := r.DeleteSession(ctx, p, child); err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	return r.store.Delete(ctx, id)
}

// childSessions are the sessions in which subagents work for runs of a session.
func (r *Runtime) childSessions(ctx context.Context, p Principal, id string) ([]string, error) {
	var answers, children []string
	err := r.view(ctx, p, id, func(s *session.State) error {
		for _, m := range s.Messages {
			if m.Role == session.RoleAssistant {
				answers = append(answers, m.ID)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for some := range slices.Chunk(answers, 100) {
		messages, err := r.store.Messages(ctx, id, some)
		if err != nil {
			return nil, err
		}
		for i := range messages {
			for _, part := range messages[i].Parts {
				if part.Tool != nil && part.Tool.Child != nil && !slices.Contains(children, part.Tool.Child.Session) {
					children = append(children, part.Tool.Child.Session)
				}
			}
		}
	}
	return children, nil
}

// Cancel asks for the end of a run and gives the run as it is then: cancelled,
// or with CancelRequestedAt and a CancelDeadline. A run that was cancelled before is
// fine. Errors: store.ErrNotFound, *session.Error with run_terminal, which carries the run.
func (r *Runtime) Cancel(ctx context.Context, p Principal, runID, reason string) (Done[session.Run], error) {
	run, err := r.FindRun(ctx, p, runID)
	if err != nil {
		return Done[session.Run]{}, err
	}
	c := session.Cancel{Run: runID, By: p.Owner, Reason: session.CleanText(reason), At: r.opts.Now(), Grace: r.opts.CancelGrace}
	done, err := r.command(ctx, p, run.Session, func(s *session.State) ([]session.Event, error) {
		if run := s.Run(runID); run != nil && run.Status == session.Cancelled {
			return nil, nil
		}
		return c.Decide(s)
	})
	if err != nil {
		return Done[session.Run]{}, err
	}
	return answer(done, func() (session.Run, error) { return r.FindRun(ctx, p, runID) })
}

// Retrying says how a run is retried.
type Retrying struct {
	// ID of the new run may be chosen by the client; the same again gives the same run. Empty: a fresh id.
	ID string
	// Fresh begins anew. Otherwise a run that failed or was cancelled is gone on
	// with: no step whose model call was answered is repeated, and no tool call.
	Fresh bool
}

// Retry asks for a new run on the input of one that has ended: its answer is a
// sibling of the old one. Errors: store.ErrNotFound, *session.Error
// (run_not_terminal, run_active, message_conflict, not_found, invalid).
func (r *Runtime) Retry(ctx context.Context, p Principal, runID string, how Retrying) (Done[session.Run], error) {
	old, err := r.FindRun(ctx, p, runID)
	if err != nil {
		return Done[session.Run]{}, err
	}
	c := session.Retry{Run: runID, ID: how.ID, Output: session.NewID(session.MessagePrefix)}
	switch {
	case how.ID == "":
		c.ID = session.NewID(session.RunPrefix)
	case !session.ValidID(how.ID):
		return Done[session.Run]{}, invalid("id", "a run id has 1 to 128 letters, digits, \"_\" or \"-\"")
	}
	if old.Status.Terminal() && !how.Fresh {
		// Nothing changes them any more.
		wrote, err := r.store.Messages(ctx, old.Session, []string{old.Message})
		if err != nil {
			return Done[session.Run]{}, err
		}
		if len(wrote) == 1 {
			c.Done = session.FinishedOf(&old, &wrote[0])
		}
	}
	done, err := r.command(ctx, p, old.Session, func(s *session.State) ([]session.Event, error) {
		events, err := c.Decide(s)
		if err == nil && len(events) > 0 && !old.Status.Terminal() { // it ended since: what it did was not read
			return nil, session.NotTerminal(&old)
		}
		return events, err
	})
	if err != nil {
		return Done[session.Run]{}, err
	}
	return answer(done, func() (session.Run, error) { return r.FindRun(ctx, p, c.ID) })
}

// Deciding is a person's decision on an approval.
type Deciding struct {
	Decision session.Decision
	Note     string
	// Arguments replaces the call's arguments; only with session.Approve.
	Arguments json.RawMessage
}

// DecideApproval decides an approval, once. The same decision again is fine;
// another is refused with approval_decided, which carries the winner.
func (r *Runtime) DecideApproval(ctx context.Context, p Principal, id string, d Deciding) (Done[session.Approval], error) {
	a, err := r.Approval(ctx, p, id)
	if err != nil {
		return Done[session.Approval]{}, err
	}
	if d.Arguments != nil {
		if d.Arguments, err = r.checkEdited(ctx, p, a, d); err != nil {
			return Done[session.Approval]{}, err
		}
	}
	c := session.DecideApproval{ID: id, Decision: d.Decision, By: p.Owner, Note: session.CleanText(d.Note), Arguments: d.Arguments, At: r.opts.Now()}
	done, err := r.command(ctx, p, a.Session, func(s *session.State) ([]session.Event, error) {
		if a.Status != session.StatusPending {
			return nil, c.Against(&a)
		}
		return c.Decide(s)
	})
	if errors.Is(err, &session.Error{Code: session.NotFound}) {
		// Its run ended since: the read model remembers how.
		if a, err = r.Approval(ctx, p, id); err == nil {
			done, err = r.command(ctx, p, a.Session, func(*session.State) ([]session.Event, error) { return nil, c.Against(&a) })
		}
	}
	if err != nil {
		return Done[session.Approval]{}, err
	}
	return answer(done, func() (session.Approval, error) { return r.Approval(ctx, p, id) })
}

// DecideApprovals decides several approvals of one session at once, so that
// its run goes on with all of them. Those that are not pending any more are left as they are.
// It gives the ids of those that it decided.
func (r *Runtime) DecideApprovals(ctx context.Context, p Principal, id string, decisions map[string]Deciding) (Done[[]string], error) {
	var decided []string
	done, err := r.command(ctx, p, id, func(s *session.State) ([]session.Event, error) {
		var events []session.Event
		decided = nil
		for _, a := range s.Approvals {
			d, wanted := decisions[a.ID]
			if !wanted || a.Status != session.StatusPending {
				continue
			}
			c := session.DecideApproval{ID: a.ID, Decision: d.Decision, By: p.Owner, Note: session.CleanText(d.Note), At: r.opts.Now()}
			one, err := c.Decide(s)
			if errors.Is(err, &session.Error{Code: session.ApprovalGone}) { // its time was over
				continue
			}
			if err != nil {
				return nil, err
			}
			events, decided = append(events, one...), append(decided, a.ID)
		}
		return events, nil
	})
	if err != nil {
		return Done[[]string]{}, err
	}
	return Done[[]string]{Is: decided, Seq: done.Last, Repeated: len(done.Events) == 0}, nil
}

// checkEdited validates edited arguments against the tool's schema.
func (r *Runtime) checkEdited(ctx context.Context, p Principal, a session.Approval, d Deciding) (json.RawMessage, error) {
	if d.Decision != session.Approve {
		return nil, invalid("arguments", "arguments can be edited only with approve")
	}
	run, err := r.FindRun(ctx, p, a.Run)
	if err != nil {
		return nil, err
	}
	ag, ok := r.agents.Find(run.Agent)
	if !ok || ag.Tools == nil {
		return nil, invalid("arguments", fmt.Sprintf("the agent %q or its tool %q is gone: decide without editing", run.Agent, a.Name))
	}
	_, spec, err := ag.Tools.Lookup(a.Name)
	if err != nil {
		return nil, invalid("arguments", fmt.Sprintf("the tool %q is gone: decide without editing", a.Name))
	}
	clean, err := tool.Validate(spec, d.Arguments)
	if err != nil {
		return nil, invalid("arguments", err.Error())
	}
	return clean, nil
}

// ResolveTool takes a person's word on a call whose outcome is unknown.
func (r *Runtime) ResolveTool(ctx context.Context, p Principal, c session.ResolveTool) (Done[session.Run], error) {
	run, err := r.FindRun(ctx, p, c.Run)
	if err != nil {
		return Done[session.Run]{}, err
	}
	switch c.Outcome {
	case session.Happened, session.DidNot, session.OutcomeFail:
	default:
		return Done[session.Run]{}, invalid("outcome", "outcome is happened, did_not or failed")
	}
	if c.Result != nil {
		if c.Outcome != session.Happened {
			return Done[session.Run]{}, invalid("result", "result goes with the outcome happened only")
		}
		if c.Result, err = session.CleanJSON(c.Result); err != nil {
			return Done[session.Run]{}, invalid("result", err.Error())
		}
	}
	c.By, c.Note = p.Owner, session.CleanText(c.Note)
	done, err := r.command(ctx, p, run.Session, c.Decide)
	if err != nil {
		return Done[session.Run]{}, err
	}
	return answer(done, func() (session.Run, error) { return r.FindRun(ctx, p, c.Run) })
}

// EditInbox replaces the parts of a waiting message.
func (r *Runtime) EditInbox(ctx context.Context, p Principal, id, message string, parts []session.Part) (Done[session.InboxItem], error) {
	err := checkParts(parts)
	if err != nil {
		return Done[session.InboxItem]{}, err
	}
	if parts, err = r.shelve(ctx, p, id, parts); err != nil {
		return Done[session.InboxItem]{}, err
	}
	c := session.EditInbox{ID: message, Parts: parts, By: p.Owner}
	var item session.InboxItem
	done, err := r.command(ctx, p, id, func(s *session.State) ([]session.Event, error) {
		if it := s.InboxItem(message); it != nil {
			item = *it
			item.Message.Parts = parts
		}
		return c.Decide(s)
	})
	if err != nil {
		return Done[session.InboxItem]{}, err
	}
	return Done[session.InboxItem]{Is: item, Seq: done.Last}, nil
}

// RemoveInbox takes a waiting message back.
func (r *Runtime) RemoveInbox(ctx context.Context, p Principal, id, message string) error {
	c := session.RemoveInbox{ID: message, By: p.Owner, At: r.opts.Now()}
	_, err := r.command(ctx, p, id, c.Decide)
	return err
}
