package session

import (
	"bytes"
	"encoding/json"
	"time"
)

// Decide is a command's rule: given what is true, the events that make it so.
// It is pure. No events and no error means that nothing needs to change.
// The events' Session, Seq and At are the store's to fill.
type Decide func(s *State) ([]Event, error)

// DecideApproval is a person's decision on an approval.
type DecideApproval struct {
	ID       string
	Decision Decision
	By       string
	Note     string
	// Arguments replaces the call's arguments; only with Approve. Validated by the caller.
	Arguments json.RawMessage
	// At is when it is made: at or after the approval's ExpiresAt is too late. The zero time is never too late.
	At time.Time
}

// Decide records the first decision. The same decision again is fine. Errors:
// NotFound, ApprovalDone (with the winner), ApprovalGone, also when the time is
// over and no worker has recorded that yet.
func (c DecideApproval) Decide(s *State) ([]Event, error) {
	a := s.Approval(c.ID)
	if a == nil {
		return nil, notFound("approval", c.ID)
	}
	if a.Status != StatusPending {
		return nil, c.Against(a)
	}
	if a.ExpiresAt != nil && !c.At.Before(*a.ExpiresAt) {
		late := *a
		late.Status = StatusExpired
		return nil, c.Against(&late)
	}
	return []Event{{Run: a.Run, Data: ApprovalDecided{
		ID: c.ID, Decision: c.Decision, By: c.By, Note: c.Note, Arguments: c.Arguments,
	}}}, nil
}

// Against says what this decision means for an approval that is no longer
// pending: nil if it is the decision that was made, else ApprovalDone or ApprovalGone.
func (c DecideApproval) Against(a *Approval) error {
	decided := *a
	if a.Status == StatusExpired || a.Status == StatusVoided {
		err := refuse(ApprovalGone, "the approval %s is %s: it can no longer be decided", a.ID, a.Status)
		err.Approval = &decided
		return err
	}
	same := (a.Status == StatusApproved) == (c.Decision == Approve) && bytes.Equal(a.Edited, c.Arguments)
	if same {
		return nil
	}
	err := refuse(ApprovalDone, "the approval %s was already %s by %s", a.ID, a.Status, a.By)
	err.Approval = &decided
	return err
}

// ResolveTool is a person's word on a call whose outcome is unknown.
type ResolveTool struct {
	Run, Call string
	Outcome   Outcome
	Result    json.RawMessage // for Happened; default null
	Note      string
	By        string
}

// Decide records it. Errors: NotFound, RunTerminal, OutcomeKnown.
func (c ResolveTool) Decide(s *State) ([]Event, error) {
	run := s.Run(c.Run)
	if run == nil {
		return nil, notFound("run", c.Run)
	}
	if run.Status.Terminal() {
		return nil, terminal(run)
	}
	var call *ToolCall
	for _, t := range s.Calls(run) {
		if t.ID == c.Call {
			call = t
		}
	}
	if call == nil {
		return nil, notFound("tool call", c.Call)
	}
	if call.Status != CallUnknown {
		return nil, refuse(OutcomeKnown, "the outcome of the call %s is not in question: it is %s", c.Call, call.Status)
	}
	emit := func(d Data) Event { return Event{Run: run.ID, Step: run.CurrentStep, Attempt: run.Attempt, Data: d} }
	events := []Event{emit(ToolResolved{Message: run.Message, Call: c.Call, Outcome: c.Outcome, By: c.By, Note: c.Note})}
	switch c.Outcome {
	case Happened:
		result := c.Result
		if result == nil {
			result = json.RawMessage("null")
		}
		events = append(events, emit(ToolCompleted{Message: run.Message, Call: c.Call, Result: result, By: c.By}))
	case OutcomeFail:
		text := "The outcome of this call is unknown; a person said to treat it as failed."
		if c.Note != "" {
			text += " They said: " + c.Note
		}
		events = append(events, emit(ToolFailed{
			Message: run.Message, Call: c.Call, By: c.By,
			Error: Failure{Code: "outcome_unknown", Message: text},
		}))
	}
	return events, nil
}

// EditInbox replaces the parts of a waiting message.
type EditInbox struct {
	ID    string
	Parts []Part
	By    string
}

// Decide edits it. Errors: NotInInbox.
func (c EditInbox) Decide(s *State) ([]Event, error) {
	if s.InboxItem(c.ID) == nil {
		return nil, c.gone(s, c.ID)
	}
	return []Event{{Data: InboxEdited(c)}}, nil
}

func (EditInbox) gone(s *State, id string) error {
	if _, known := s.Submissions[id]; known {
		return refuse(NotInInbox, "the message %s is no longer in the inbox: it was delivered or removed", id)
	}
	return notFound("inbox message", id)
}

// RemoveInbox takes a waiting message back, and cancels the run that would have answered it.
type RemoveInbox struct {
	ID string
	By string
	At time.Time
}

// Decide removes it. Removing a message that was removed before is an error, as is one that was delivered: NotInInbox.
func (c RemoveInbox) Decide(s *State) ([]Event, error) {
	item := s.InboxItem(c.ID)
	if item == nil {
		return nil, EditInbox{}.gone(s, c.ID)
	}
	if item.Mode == Steer {
		return []Event{{Data: InboxRemoved{ID: c.ID, By: c.By}}}, nil
	}
	return Cancel{Run: item.Run, By: c.By, Reason: "removed from the inbox", At: c.At}.Decide(s)
}

// Update changes a session's title, metadata or head.
type Update struct {
	Title    *string
	Metadata json.RawMessage
	Head     *string
}

// Decide records what differs. Errors: NotFound for a head that is no message, RunActive for a head while a run is active.
func (c Update) Decide(s *State) ([]Event, error) {
	if !s.Exists() {
		return nil, notFound("session", s.ID)
	}
	var u Updated
	if !bytes.Equal(c.Metadata, s.Metadata) {
		u.Metadata = c.Metadata
	}
	if c.Title != nil && *c.Title != s.Title {
		u.Title = c.Title
	}
	if c.Head != nil && *c.Head != s.Head {
		if s.Message(*c.Head) == nil {
			err := notFound("message", *c.Head)
			err.Field = "head"
			return nil, err
		}
		if active := s.Active(); active != nil {
			run := *active
			err := refuse(RunActive, "the run %s is %s: the branch can change when it has ended", active.ID, active.Status)
			err.Run, err.Field = &run, "head"
			return nil, err
		}
		u.Head = c.Head
	}
	if u.Title == nil && u.Metadata == nil && u.Head == nil {
		return nil, nil
	}
	return []Event{{Data: u}}, nil
}

// Create begins a session without a message. Creating it again is fine.
type Create struct {
	Tenant, Owner, Title, Agent string
	Metadata                    json.RawMessage
}

// Decide begins it. Errors: NotFound when the id is another owner's.
func (c Create) Decide(s *State) ([]Event, error) {
	if s.Exists() {
		if s.Tenant != c.Tenant || s.Owner != c.Owner {
			return nil, notFound("session", s.ID)
		}
		return nil, nil
	}
	return []Event{{Data: Created{
		Tenant: c.Tenant, Owner: c.Owner, Title: c.Title, Agent: c.Agent, Metadata: c.Metadata,
	}}}, nil
}
