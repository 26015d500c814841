package memory

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/holdfast-run/holdfast/session"
)

// Check folds the log anew and compares.
func (s *Store) Check(ctx context.Context, id string) ([]string, error) {
	l, unlock, err := s.enterLog(ctx, "Check", id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var findings []string
	next := int64(1)
	for _, f := range l.frames {
		if f.From != next || f.To < f.From {
			findings = append(findings, fmt.Sprintf("the log has a frame %d..%d where %d should follow", f.From, f.To, next))
		}
		next = f.To + 1
	}
	if l.head() != next-1 {
		findings = append(findings, fmt.Sprintf("the head is %d but the log ends at %d", l.head(), next-1))
	}
	events, err := decode(l.frames)
	if err != nil {
		return append(findings, err.Error()), nil
	}
	fold := session.Fold(id, events)
	fold.Seq = l.head() // a folded range may be the last of the log
	for _, a := range fold.TakeChanges().Decided {
		if !sameJSON(a, l.approvals[a.ID]) {
			findings = append(findings, fmt.Sprintf("the approval %s differs from the fold of the log", a.ID))
		}
	}
	if !sameJSON(fold, l.whole) {
		findings = append(findings, "the state differs from the fold of the log")
	}
	fold.Shed()
	if !sameJSON(fold, l.lean) {
		findings = append(findings, "the state that decisions see differs from the fold of the log")
	}
	return findings, nil
}

func sameJSON(a, b any) bool {
	rawA, errA := json.Marshal(a)
	rawB, errB := json.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(rawA, rawB)
}
