package models

import (
	"fmt"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store/internal/lines"
)

// SnapshotVersion names what a session.State holds and what folding means. Raise
// it when either changes: older snapshots are then made anew from the logs.
const SnapshotVersion = 1

const (
	// A snapshot is written when the log has grown by snapshotEvents or
	// snapshotBytes since the last, and by twice the size of that one, so that
	// snapshots never cost more than half of what the log does.
	snapshotEvents = 4096
	snapshotBytes  = 2 << 20
	// KeepEvents is how many events a state may lead its snapshot when it is
	// forgotten: folding them again is cheaper than a snapshot.
	KeepEvents = 256
)

// Progress is how far a log is past the session's snapshot.
type Progress struct {
	Events, Bytes int64
	Snapshot      int64 // bytes of the snapshot
}

// WantsSnapshot says that a snapshot is worth what it costs.
func (p Progress) WantsSnapshot() bool {
	return (p.Events >= snapshotEvents || p.Bytes >= snapshotBytes) && p.Bytes >= 2*p.Snapshot
}

// Replay folds what is left of a log into a state. read gives the next frames
// after a seq, none at the end; told, if it is not nil, is called for each event.
func (p *Progress) Replay(state *session.State, read func(after int64) ([]session.Frame, error), told func(session.Frame, session.Event)) error {
	for {
		frames, err := read(state.Seq)
		if err != nil || len(frames) == 0 {
			return err
		}
		for _, f := range frames {
			e, ok, err := f.Event()
			if err != nil {
				return fmt.Errorf("%w: %w", lines.ErrDamaged, err)
			}
			if ok {
				state.Apply(e)
				if told != nil {
					told(f, e)
				}
			}
			state.Seq = f.To
			p.Events++
			p.Bytes += int64(len(f.JSON))
		}
	}
}

// Load makes a state of a stored snapshot, or none, and the log after it.
func Load(id string, snapshot []byte, read func(after int64) ([]session.Frame, error)) (*session.State, Progress, error) {
	state, since := session.New(id), Progress{Snapshot: int64(len(snapshot))}
	if len(snapshot) > 0 {
		var err error
		if state, err = session.Load(snapshot); err != nil {
			return nil, since, fmt.Errorf("%w: the snapshot: %w", lines.ErrDamaged, err)
		}
	}
	if err := since.Replay(state, read, nil); err != nil {
		return nil, since, err
	}
	state.TakeChanges()
	state.Shed()
	return state, since, nil
}
