package models

import (
	"fmt"

	"github.com/holdfast-run/holdfast/session"
)

// Decide runs a rule on a state. A rule that panics gives an error.
func Decide(decide session.Decide, s *session.State) (events []session.Event, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("session %s: a decision panicked: %v", s.ID, p)
		}
	}()
	return decide(s)
}
