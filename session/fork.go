package session

// Origin is where a fork came from. The fork does not need it any more.
type Origin struct {
	Session string `json:"session"`
	Message string `json:"message"` // the last one that was copied
}

// Fork begins a session with a copy of the messages that lead to one of another session.
type Fork struct {
	From          Origin
	Tenant, Owner string
	Title, Agent  string
	Messages      []Message // of the other session, oldest first, with their parts; none of them streams
}

// Decide begins the fork. The same again is fine. Errors: NotFound when the id is another
// owner's, Conflict when it is taken by a session that is not this fork.
func (c Fork) Decide(s *State) ([]Event, error) {
	if s.Exists() {
		return nil, c.Taken(s)
	}
	events := []Event{
		{Data: Created{Tenant: c.Tenant, Owner: c.Owner, Title: c.Title, Agent: c.Agent}},
		{Data: Forked(c.From)},
	}
	parent := ""
	for _, m := range c.Messages {
		// Its run, and who else answered, stay where they are.
		m.Parent, m.Run, m.Siblings, m.Seq = parent, "", nil, 0
		if m.Parts == nil {
			m.Parts = []Part{}
		}
		events = append(events, Event{Data: MessageCreated{Message: m}})
		parent = m.ID
	}
	return events, nil
}

// Taken says what it means for the fork that its id is in use: nil if by itself.
func (c Fork) Taken(s *State) error {
	switch {
	case s.Tenant != c.Tenant || s.Owner != c.Owner:
		return notFound("session", s.ID)
	case s.ForkedFrom == nil || *s.ForkedFrom != c.From:
		err := refuse(Conflict, "the session id %q is taken: choose a new id", s.ID)
		err.Field = "id"
		return err
	}
	return nil
}
