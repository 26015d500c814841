package session

import (
	"encoding/json"
	"slices"
	"time"
)

// State is the fold of a session's log: what is true at Seq. It is what
// [State.Apply] makes of the events and nothing else, so two folds of one log
// are equal wherever they run.
//
// A State is not safe for concurrent use. Messages that can no longer change
// may have shed their parts (see [State.Shed]): the store keeps those.
type State struct {
	ID       string          `json:"id"`
	Seq      int64           `json:"seq"`
	FactSeq  int64           `json:"factSeq,omitempty"` // the last fact: what folding deltas away does not change
	Tenant   string          `json:"tenant"`
	Owner    string          `json:"owner"`
	Title    string          `json:"title,omitempty"`
	Agent    string          `json:"agent,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Parent   *ParentCall     `json:"parent,omitempty"` // the tool call that a subagent's session is for
	// ForkedFrom is where it was copied from, if it is a fork.
	ForkedFrom *Origin   `json:"forkedFrom,omitempty"`
	Head       string    `json:"head,omitempty"` // the last message of the active branch
	CreatedAt  time.Time `json:"createdAt,omitzero"`
	UpdatedAt  time.Time `json:"updatedAt,omitzero"` // the last fact

	// Messages are all messages, oldest first.
	Messages []*Message `json:"messages"`
	// Runs are all runs, oldest first.
	Runs []*Run `json:"runs"`
	// Approvals are the pending approvals, oldest first, and those of runs that are not terminal.
	Approvals []*Approval `json:"approvals,omitempty"`
	// Inbox are the waiting messages in the order in which they will be delivered.
	Inbox []*InboxItem `json:"inbox,omitempty"`
	// Results are what background runs have to say when the active run has ended, in that order.
	Results []*Message `json:"results,omitempty"`
	// Submissions remember each accepted message id.
	Submissions map[string]Submission `json:"submissions,omitempty"`
	// Compactions are all compactions of the context, oldest first.
	Compactions []Compaction `json:"compactions,omitempty"`
	// Measures are the newest for each agent.
	Measures map[string]Measure `json:"measures,omitempty"`

	messages map[string]*Message
	runs     map[string]*Run
	changes  Changes
}

// Submission is what an accepted message id stands for.
type Submission struct {
	Digest string `json:"digest"`
	Run    string `json:"run"`
}

// Changes names what events changed since [State.TakeChanges] was last called:
// the rows that read models have to write.
type Changes struct {
	Session   bool
	Messages  []string // messages that became final, or whose parts were edited
	Runs      []string
	Approvals []string
	// Decided are the approvals of Approvals as they are now. A terminal run's
	// approvals leave the state; here they are still whole.
	Decided []Approval
}

// New is the state of a session without events.
func New(id string) *State {
	s := &State{ID: id}
	s.index()
	return s
}

// Load reads a state from its JSON.
func Load(raw []byte) (*State, error) {
	s := &State{}
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, err
	}
	s.index()
	return s, nil
}

// Fold is the state that events make, starting from nothing.
func Fold(id string, events []Event) *State {
	s := New(id)
	for _, e := range events {
		s.Apply(e)
	}
	return s
}

func (s *State) index() {
	s.messages = make(map[string]*Message, len(s.Messages))
	for _, m := range s.Messages {
		s.messages[m.ID] = m
	}
	s.runs = make(map[string]*Run, len(s.Runs))
	for _, r := range s.Runs {
		s.runs[r.ID] = r
	}
	if s.Submissions == nil {
		s.Submissions = map[string]Submission{}
	}
	if s.Messages == nil {
		s.Messages = []*Message{}
	}
	if s.Runs == nil {
		s.Runs = []*Run{}
	}
}

// Clone is a deep copy.
func (s *State) Clone() *State {
	raw, err := marshal(s)
	if err != nil {
		panic(err) // every field came from JSON or marshals
	}
	c, err := Load(raw)
	if err != nil {
		panic(err)
	}
	return c
}

// Exists says whether the session has begun.
func (s *State) Exists() bool { return s.Seq > 0 }

// Message finds a message, or gives nil.
func (s *State) Message(id string) *Message { return s.messages[id] }

// Run finds a run, or gives nil.
func (s *State) Run(id string) *Run { return s.runs[id] }

// Approval finds an approval of a run that is not terminal, or gives nil.
func (s *State) Approval(id string) *Approval {
	for _, a := range s.Approvals {
		if a.ID == id {
			return a
		}
	}
	return nil
}

// InboxItem finds a waiting message by its message id, or gives nil.
func (s *State) InboxItem(id string) *InboxItem {
	for _, item := range s.Inbox {
		if item.Message.ID == id {
			return item
		}
	}
	return nil
}

// Active is the foreground run whose turn it is: not terminal, and not waiting
// in the inbox. It is nil when the session is idle.
func (s *State) Active() *Run {
	for i := len(s.Runs) - 1; i >= 0; i-- {
		r := s.Runs[i]
		if !r.Status.Terminal() && !r.Background && !s.inInbox(r.ID) {
			return r
		}
	}
	return nil
}

// Open are the runs that are not terminal, oldest first.
func (s *State) Open() []*Run {
	var open []*Run
	for _, r := range s.Runs {
		if !r.Status.Terminal() {
			open = append(open, r)
		}
	}
	return open
}

// inInbox says whether run is the queued run of a message still in the inbox.
func (s *State) inInbox(run string) bool {
	return slices.ContainsFunc(s.Inbox, func(item *InboxItem) bool { return item.Mode != Steer && item.Run == run })
}

// Path is the branch that ends in the message leaf: its ids from the root.
func (s *State) Path(leaf string) []string {
	var path []string
	for m := s.messages[leaf]; m != nil; m = s.messages[m.Parent] {
		path = append(path, m.ID)
	}
	slices.Reverse(path)
	return path
}

// Place is where a message hangs in the tree. Messages in one place are siblings.
type Place struct {
	Parent string
	Role   Role
}

// SiblingIndex gives the ids of the messages in each place, oldest first. What is [State.Aside] is in none.
func (s *State) SiblingIndex() map[Place][]string {
	index := make(map[Place][]string, len(s.Messages))
	for _, m := range s.Messages {
		if s.Aside(m) {
			continue
		}
		place := Place{Parent: m.Parent, Role: m.Role}
		index[place] = append(index[place], m.ID)
	}
	return index
}

// Work is what a run asks of the engine.
type Work struct {
	// Held: a worker carries it, under a lease that the store keeps.
	Held bool
	// Due: a worker may claim it from At on (the zero time: at once).
	Due bool
	At  time.Time
	// CancelBy is when a cancelled run that a worker still holds must be ended for it. Zero: no cancel is open.
	CancelBy time.Time
}

// WorkOf says what run asks of the engine. A run that is terminal, or that
// waits for a person with no time limit, asks nothing.
func (s *State) WorkOf(run *Run) Work {
	var w Work
	if run.CancelDeadline != nil {
		w.CancelBy = *run.CancelDeadline
	}
	switch run.Status {
	case Running:
		w.Held = true
	case Queued:
		w.Due = !s.inInbox(run.ID)
	case Waiting:
		if run.CancelRequestedAt != nil { // a worker tells its family, and ends it
			w.Due = true
			return w
		}
		switch run.WaitingReason {
		case WaitApproval, WaitToolOutcome, WaitChildRun, WaitCallback:
			w.Due = s.canGoOn(run)
			if !w.Due && run.WaitingUntil != nil {
				w.Due, w.At = true, *run.WaitingUntil
			}
		default:
			w.Due = true
			if run.WaitingUntil != nil {
				w.At = *run.WaitingUntil
			}
		}
	default:
		return Work{}
	}
	return w
}

// canGoOn says that enough was said for a run that waits for people or for
// others' work to do something: one of its calls may start or was refused, or none needs a word.
func (s *State) canGoOn(run *Run) bool {
	needed := false
	for _, c := range s.Calls(run) {
		switch {
		case c.Status == CallUnknown, c.Status == CallDeferred:
			needed = true
		case c.Status != CallCalled:
		case s.pending(c):
			needed = true
		default:
			return true
		}
	}
	return !needed
}

// pending says that a call waits for an approval that nobody decided.
func (s *State) pending(c *ToolCall) bool {
	a := s.Approval(c.Approval)
	return a != nil && a.Status == StatusPending
}

// Calls are the tool calls of the run's current step, in the order the model made them.
func (s *State) Calls(run *Run) []*ToolCall {
	m := s.messages[run.Message]
	if m == nil {
		return nil
	}
	var calls []*ToolCall
	for i := range m.Parts {
		if p := &m.Parts[i]; p.Tool != nil && p.Step == run.CurrentStep && p.Tool.Status != CallWriting {
			calls = append(calls, p.Tool)
		}
	}
	return calls
}

// Shed drops the parts of messages that can no longer change, and the steps of
// terminal runs. No decision looks at them; the store keeps them.
func (s *State) Shed() {
	for _, m := range s.Messages {
		if m.Status != MessageStreaming {
			m.Parts = nil
		}
	}
	for _, r := range s.Runs {
		if r.Status.Terminal() {
			r.Steps = nil
		}
	}
}

// TakeChanges gives what changed since it was last called.
func (s *State) TakeChanges() Changes {
	c := s.changes
	s.changes = Changes{}
	return c
}
