package memory

import (
	"slices"

	"github.com/holdfast-run/holdfast/session"
)

// The ways to make a store contradict itself, for the tests outside.

func (s *Store) LoseEvent(id string) {
	l := s.logs[id]
	l.frames = slices.Delete(l.frames, 2, 3)
}

func (s *Store) ChangeSession(id string) { s.logs[id].whole.Title = "another" }

func (s *Store) ChangeRun(id string) { s.logs[id].whole.Runs[0].Status = session.Failed }

func (s *Store) ChangeApproval(id string) {
	l := s.logs[id]
	for name, a := range l.approvals {
		a.Status = session.StatusVoided
		l.approvals[name] = a
	}
}

func (s *Store) ChangeMessage(id string) { s.logs[id].whole.Messages[0].Parts[0].Text = "another" }
