package session

import "slices"

// Background is what a result says of the background run that it is from.
type Background struct {
	Run   string `json:"run"`
	Input string `json:"input"` // the message it answered
	// Title is the beginning of what was asked.
	Title string `json:"title,omitempty"`
	// Error is why it failed, if it did.
	Error *Failure `json:"error,omitempty"`
}

// ResultID is the id of the message that tells the conversation how a
// background run ended, made from the id of the message that the run writes.
func ResultID(message string) string { return message + "_result" }

// Aside says that a message is not part of the conversation, but what a
// background run was asked or writes: it has no siblings, and no head leads
// to it unless somebody chooses it.
func (s *State) Aside(m *Message) bool {
	run := s.runs[m.Run]
	return run != nil && run.Background
}

// asideParent is what a background run's message follows: the head, or what was
// said before the active run if there is one. Nobody knows yet what that will have said.
func (s *State) asideParent() string {
	active := s.Active()
	m := s.messages[s.Head]
	for active != nil && m != nil && m.Run == active.ID {
		m = s.messages[m.Parent]
	}
	if m == nil {
		return ""
	}
	return m.ID
}

// result is what the conversation is told of a background run that ends: its
// last words, or why it failed. Nil for one that was cancelled.
func (s *State) result(run *Run, terminal Data) *Message {
	told := &Message{
		ID: ResultID(run.Message), Role: RoleAssistant, Parts: []Part{}, Status: MessageWhole,
		Background: &Background{Run: run.ID, Input: run.Input, Title: run.Title},
	}
	switch d := terminal.(type) {
	case RunCompleted:
		told.Parts = lastWords(s.messages[run.Message])
	case RunFailed:
		cause := d.Error
		told.Status, told.Reason, told.Background.Error = MessageCut, "failed", &cause
	default:
		return nil
	}
	return told
}

// lastWords are the parts of a message's last step that are for people.
func lastWords(m *Message) []Part {
	words := []Part{}
	if m == nil {
		return words
	}
	last := 0
	for _, p := range m.Parts {
		if p.Type != PartStep {
			last = max(last, p.Step)
		}
	}
	for _, p := range m.Parts {
		switch p.Type {
		case PartText, PartFile, PartSource, PartData:
			if p.Step == last && p.State != PartFailed {
				words = append(words, Part{Type: p.Type, Text: p.Text, Blob: p.Blob, File: p.File, Data: p.Data, Part: len(words)})
			}
		}
	}
	return words
}

// endAside ends a background run. What it has to say is told at once, or waits
// in the state until the active run has ended.
func (s *State) endAside(run *Run, terminal Data) []Event {
	told := s.result(run, terminal)
	if told != nil && s.Active() != nil {
		switch d := terminal.(type) {
		case RunCompleted:
			d.Result = told
			terminal = d
		case RunFailed:
			d.Result = told
			terminal = d
		}
		return []Event{{Run: run.ID, Data: terminal}}
	}
	events := []Event{{Run: run.ID, Data: terminal}}
	if told == nil {
		return events
	}
	more, _ := tell(append(slices.Clone(s.Results), told), s.Head)
	return append(events, more...)
}

// tell are the events that tell the conversation results, behind head, and what is the head then.
func tell(results []*Message, head string) ([]Event, string) {
	var events []Event
	for _, result := range results {
		m := *result
		m.Parent = head
		events = append(events, Event{Data: MessageCreated{Message: m}})
		head = m.ID
	}
	return events, head
}

// hold keeps what a background run has to say until it is told.
func (s *State) hold(result *Message) {
	if result == nil || s.messages[result.ID] != nil {
		return
	}
	m := *result
	m.Parts = cloneParts(m.Parts)
	s.Results = append(s.Results, &m)
}
