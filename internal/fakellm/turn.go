package fakellm

import (
	"encoding/json"
	"errors"
	"strings"
)

// A Turn is what the model does with one request.
type Turn struct {
	// When chooses the requests that the turn answers. Zero: any.
	When Match `json:"when,omitzero"`
	// Repeat is how many requests the turn answers; Forever keeps it. Default: 1.
	Repeat int `json:"times,omitempty"`
	// Steps are played in order. A turn that neither finishes nor breaks off by
	// itself is finished properly after the last step.
	Steps Steps `json:"steps"`
}

// Forever as Turn.Repeat keeps a turn in the queue for good.
const Forever = -1

// Reply is a turn of these steps that answers any one request.
func Reply(steps ...Step) Turn { return Turn{Steps: steps} }

// To returns a copy of the turn for requests whose last user text contains part.
func (t Turn) To(part string) Turn {
	t.When.LastUser = part
	return t
}

// On returns a copy of the turn for requests that match m.
func (t Turn) On(m Match) Turn {
	t.When = m
	return t
}

// Times returns a copy of the turn that answers n requests (or Forever).
func (t Turn) Times(n int) Turn {
	t.Repeat = n
	return t
}

// A Match chooses requests. Each field that is set must hold.
type Match struct {
	LastUser string `json:"last_user,omitempty"` // part of the last user text
	Body     string `json:"body,omitempty"`      // part of the raw body
	Model    string `json:"model,omitempty"`     // the whole model name
	Wire     Wire   `json:"wire,omitempty"`
	// Func is asked while the script is locked: it must not change the script.
	Func func(Request) bool `json:"-"`
}

// MarshalJSON fails if there is a Func, which cannot leave the process.
func (m Match) MarshalJSON() ([]byte, error) {
	if m.Func != nil {
		return nil, errors.New("a Match with a Func has no JSON form")
	}
	type plain Match
	return json.Marshal(plain(m))
}

// IsZero reports whether m matches every request because it asks for nothing.
func (m Match) IsZero() bool {
	return m.LastUser == "" && m.Body == "" && m.Model == "" && m.Wire == "" && m.Func == nil
}

func (m Match) matches(r Request) bool {
	return strings.Contains(r.LastUser(), m.LastUser) &&
		strings.Contains(string(r.Body), m.Body) &&
		(m.Model == "" || m.Model == r.Model) &&
		(m.Wire == "" || m.Wire == r.Wire) &&
		(m.Func == nil || m.Func(r))
}

// takeTurn returns the first queued turn that matches r, or what the default
// responder says.
func (s *Server) takeTurn(r Request) Turn {
	if turn, ok := s.dequeue(r); ok {
		return turn
	}
	s.mu.Lock()
	respond := s.respond
	s.mu.Unlock()
	return respond(r)
}

func (s *Server) dequeue(r Request) (Turn, bool) {
	s.mu.Lock()
	defer s.mu.Unlock() // A Match.Func may panic.
	for i, t := range s.queue {
		if !t.When.matches(r) {
			continue
		}
		switch {
		case t.Repeat == Forever:
		case t.Repeat > 1:
			s.queue[i].Repeat--
		default:
			s.queue = append(s.queue[:i:i], s.queue[i+1:]...)
		}
		return t, true
	}
	return Turn{}, false
}

// Script appends turns to the queue.
func (s *Server) Script(turns ...Turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, turns...)
}

// Unplayed returns how many queued turns have not answered all their requests.
func (s *Server) Unplayed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue)
}

// DropScript empties the queue. Turns that are being played go on.
func (s *Server) DropScript() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = nil
}

// SetDefault replaces the responder for requests that no queued turn matches.
func (s *Server) SetDefault(respond func(Request) Turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.respond = respond
}
