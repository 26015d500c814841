package session

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// MaxInbox is how many messages may wait in one session.
const MaxInbox = 100

// Submit is a person's message that asks for a run. Its Decide is idempotent in
// ID: the same message again gives the same run, and the same id with another
// body is refused.
type Submit struct {
	ID         string // the message id, chosen by the client
	Parts      []Part
	OnBusy     OnBusy // default Enqueue
	Agent      string // default: the session's, then DefaultAgent
	Background bool
	// Parent places the message in the tree; nil means after the head.
	// A pointer to "" begins a new root.
	Parent *string

	Tenant, Owner string // the principal
	DefaultAgent  string
	Title         string // for a session that this message begins; default: the first words
	// Run and Output are fresh ids: of the run, and of the assistant message it writes.
	Run, Output string
	// Child makes the run a subagent's, in a session that it begins. Default: nobody's.
	Child *ChildOf
	// At and Grace bound the cancel that interrupt and rollback ask for.
	At    time.Time
	Grace time.Duration

	// Accepted is the run that answers the message, set by Decide.
	Accepted string
	// Repeated is set by Decide when the message had been accepted before.
	Repeated bool
}

// ChildOf is whose child a run is.
type ChildOf struct {
	Parent ParentCall
	// Depth and TokenLimit are those of the run: see [Run].
	Depth, TokenLimit int
}

// Digest is the fingerprint of what was submitted.
func (c *Submit) Digest() string {
	h := sha256.New()
	enc := json.NewEncoder(h)
	_ = enc.Encode([]any{c.OnBusy, c.Agent, c.Background, c.Parent, MarshalParts(c.Parts)})
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Decide turns the submission into events. Errors: NotFound (another tenant's or owner's
// session, an unknown parent), Conflict, RunActive, InboxFull.
func (c *Submit) Decide(s *State) ([]Event, error) {
	c.Accepted, c.Repeated = "", false
	if s.Exists() && (s.Tenant != c.Tenant || s.Owner != c.Owner) {
		return nil, notFound("session", s.ID)
	}
	if c.OnBusy == "" {
		c.OnBusy = Enqueue
	}
	digest := c.Digest()
	if prior, ok := s.Submissions[c.ID]; ok {
		if prior.Digest != digest {
			err := refuse(Conflict, "the message id %q was used with another body: choose a new id", c.ID)
			err.Field = "id"
			return nil, err
		}
		c.Accepted, c.Repeated = prior.Run, true
		return nil, nil
	}
	if s.Message(c.ID) != nil || s.reserved(c.ID) {
		err := refuse(Conflict, "the id %q is taken by another message: choose a new id", c.ID)
		err.Field = "id"
		return nil, err
	}
	if c.Parent != nil && *c.Parent != "" && s.Message(*c.Parent) == nil {
		err := notFound("message", *c.Parent)
		err.Field = "parent"
		return nil, err
	}
	var events []Event
	agent := firstOf(c.Agent, firstOf(s.Agent, c.DefaultAgent))
	if !s.Exists() {
		events = append(events, Event{Data: Created{
			Tenant: c.Tenant, Owner: c.Owner, Title: firstOf(c.Title, titleOf(c.Parts)), Agent: agent,
			Parent: c.parentCall(),
		}})
	}
	c.Accepted = c.Run
	accepted := RunQueued{Agent: agent, Input: c.ID, Message: c.Output, Background: c.Background}
	if c.Background {
		accepted.Title = titleOf(c.Parts)
	}
	if c.Child != nil {
		accepted.ParentRunID, accepted.Parent = c.Child.Parent.Run, c.parentCall()
		accepted.Depth, accepted.TokenLimit = c.Child.Depth, c.Child.TokenLimit
	}
	queued := Event{Run: c.Run, Data: accepted}
	active := s.Active()
	if c.Background {
		parent := s.asideParent()
		if c.Parent != nil {
			parent = *c.Parent
		}
		return append(events, queued, s.deliver(c.message(parent), digest)), nil
	}
	if active == nil {
		return append(events, queued, s.deliver(c.message(s.parent(c.Parent)), digest)), nil
	}
	return c.queue(s, active, queued, digest, events)
}

func (c *Submit) parentCall() *ParentCall {
	if c.Child == nil {
		return nil
	}
	parent := c.Child.Parent
	return &parent
}

// reserved says that an answer that is still to come has this id.
func (s *State) reserved(message string) bool {
	return slices.ContainsFunc(s.Runs, func(r *Run) bool {
		return r.Message == message || r.Background && ResultID(r.Message) == message
	}) ||
		slices.ContainsFunc(s.Inbox, func(item *InboxItem) bool { return item.Output == message })
}

// queue decides what a message does while a run is active.
func (c *Submit) queue(s *State, active *Run, queued Event, digest string, events []Event) ([]Event, error) {
	if c.OnBusy == Reject {
		run := *active
		err := refuse(RunActive, "the run %s is %s: wait for it, cancel it, or send with another onBusy", active.ID, active.Status)
		err.Run, err.Field = &run, "onBusy"
		return nil, err
	}
	if len(s.Inbox) >= MaxInbox {
		return nil, refuse(InboxFull, "%d messages wait in this session already: remove one or wait", MaxInbox)
	}
	m := c.message("")
	if c.Parent != nil {
		m.Parent = firstOf(*c.Parent, rootParent)
	}
	item := InboxItem{Message: m, Mode: c.OnBusy, Run: c.Run, Output: c.Output, Digest: digest}
	switch c.OnBusy {
	case Steer:
		item.Run, item.SpareRun = active.ID, c.Run
		item.Agent = queued.Data.(RunQueued).Agent
		item.Message.Run = active.ID
		c.Accepted = active.ID
		return append(events, Event{Data: InboxQueued{Item: item}}), nil
	case Rollback:
		if input := s.Message(active.Input); input != nil && c.Parent == nil {
			item.Message.Parent = firstOf(input.Parent, rootParent)
		}
	}
	events = append(events, queued, Event{Data: InboxQueued{Item: item}})
	if c.OnBusy == Interrupt || c.OnBusy == Rollback {
		cancel := Cancel{Run: active.ID, By: c.Owner, Reason: string(c.OnBusy), At: c.At, Grace: c.Grace}
		more, err := cancel.decide(s, active, insertInbox(slices.Clone(s.Inbox), &item))
		if err != nil {
			return nil, err
		}
		events = append(events, more...)
	}
	return events, nil
}

// insertInbox puts an item where it will be delivered: what interrupts goes
// before what waits, in the order it came.
func insertInbox(inbox []*InboxItem, item *InboxItem) []*InboxItem {
	urgent := func(it *InboxItem) bool { return it.Mode == Interrupt || it.Mode == Rollback }
	at := len(inbox)
	if urgent(item) {
		at = 0
		for at < len(inbox) && urgent(inbox[at]) {
			at++
		}
	}
	return slices.Insert(inbox, at, item)
}

// rootParent stands in an inbox item for "begin a new root". It is no valid id.
const rootParent = "/"

func (c *Submit) message(parent string) Message {
	return Message{ID: c.ID, Role: RoleUser, Parent: parent, Parts: c.Parts, Status: MessageWhole, Run: c.Run}
}

func (s *State) parent(wanted *string) string {
	if wanted != nil {
		return *wanted
	}
	return s.Head
}

func (s *State) deliver(m Message, digest string) Event {
	return Event{Run: m.Run, Data: MessageCreated{Message: m, Digest: digest}}
}

// titleOf is the beginning of the first text, cut at a word.
func titleOf(parts []Part) string {
	const most = 80
	for _, p := range parts {
		if p.Type != PartText {
			continue
		}
		title := strings.Join(strings.Fields(TrimText(p.Text, 4*most)), " ")
		if len(title) > most {
			title = TrimText(title, most)
			if i := strings.LastIndexByte(title, ' '); i > most/2 {
				title = title[:i]
			}
			title += "…"
		}
		if title != "" {
			return title
		}
	}
	return ""
}

// next are the events that follow the end of a run: steers that it never heard
// become runs of their own, what background runs have to say is told, and the first waiting message is delivered.
// inbox is the inbox as it will be when the run has ended.
func (s *State) next(ended *Run, inbox []*InboxItem) []Event {
	var events []Event
	for _, item := range inbox {
		if item.Mode == Steer && item.Run == ended.ID {
			events = append(events, Event{Run: item.SpareRun, Data: RunQueued{
				Agent: firstOf(item.Agent, s.Agent), Input: item.Message.ID, Message: item.Output,
			}})
		}
	}
	// An ended run that never had its turn leaves the turn with whoever has it.
	if active := s.Active(); active != nil && active.ID != ended.ID {
		return events
	}
	more, head := tell(s.Results, s.Head)
	events = append(events, more...)
	if len(inbox) == 0 {
		return events
	}
	item := inbox[0]
	m := item.Message
	m.Run = item.Run
	if item.Mode == Steer {
		m.Run = item.SpareRun
	}
	switch m.Parent {
	case rootParent:
		m.Parent = ""
	case "":
		m.Parent = head
	}
	return append(events,
		Event{Run: m.Run, Data: InboxDelivered{ID: m.ID, Run: m.Run}},
		s.deliver(m, item.Digest))
}
