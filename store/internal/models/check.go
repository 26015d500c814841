package models

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/internal/lines"
)

// Stored is everything that is stored of one session, at one moment.
type Stored struct {
	ID   string
	Rows []lines.Chunk // of the log, in order; their bodies do not matter
	Read func(after int64) ([]session.Frame, error)

	SnapshotSeq int64
	Snapshot    []byte // nil: there is none
	Cached      []byte // the JSON of the state that decisions see, if it is cached

	Row                       *store.SessionRow // nil: it is in no list
	Messages, Runs, Approvals map[string][]byte // the bodies, by id
	Work                      map[string]WorkRow
}

// WorkRow is what is stored of the work of a run. Times are milliseconds; nil: none.
type WorkRow struct {
	Due, Lease, CancelBy *int64
	Worker               string
	Fence                int64
}

// Check compares what is stored of a session with the fold of its log, and says
// what contradicts itself.
func Check(s Stored) ([]string, error) {
	c := &checker{Stored: s, whole: session.New(s.ID), approvals: map[string]session.Approval{}}
	c.checkRows()
	err := c.fold()
	if errors.Is(err, lines.ErrDamaged) { // there is nothing to compare with
		return append(c.findings, err.Error()), nil
	}
	if err != nil {
		return nil, err
	}
	if c.Row == nil {
		c.find("the session is in no list")
	} else if *c.Row != store.RowOf(c.whole) {
		c.find("the session's row differs from the fold of the log")
	}
	c.checkWork()
	return c.findings, errors.Join(c.checkBodies(), c.checkState())
}

// checker compares what is stored of one session with the fold of its log.
type checker struct {
	Stored
	whole     *session.State // the fold, with all parts
	folded    bool           // some deltas are gone
	approvals map[string]session.Approval
	findings  []string
}

func (c *checker) find(format string, args ...any) {
	c.findings = append(c.findings, fmt.Sprintf(format, args...))
}

// checkRows looks for rows of the log that overlap or leave holes.
func (c *checker) checkRows() {
	next := int64(1)
	for _, r := range c.Rows {
		if r.First != next || r.Last < r.First {
			c.find("the log has a row %d..%d where %d should follow", r.First, r.Last, next)
		}
		next = r.Last + 1
	}
}

// fold folds the whole log, and compares the stored snapshot on the way.
func (c *checker) fold() error {
	for {
		frames, err := c.Read(c.whole.Seq)
		if err != nil {
			return err
		}
		if len(frames) == 0 {
			break
		}
		for _, f := range frames {
			if err := c.apply(f); err != nil {
				return err
			}
			if c.Snapshot != nil && c.whole.Seq == c.SnapshotSeq {
				if err := c.checkSnapshot(); err != nil {
					return err
				}
			}
		}
	}
	if c.Snapshot != nil && c.SnapshotSeq > c.whole.Seq {
		c.find("the snapshot is of seq %d and the log ends at %d", c.SnapshotSeq, c.whole.Seq)
	}
	return nil
}

func (c *checker) apply(f session.Frame) error {
	e, ok, err := f.Event()
	if err != nil {
		return fmt.Errorf("%w: %w", lines.ErrDamaged, err)
	}
	if !ok {
		c.folded = true
		c.whole.Seq = f.To
		return nil
	}
	if e.Session != c.ID || e.Seq != f.From {
		c.find("the event at seq %d says that it is %d of session %s", f.From, e.Seq, e.Session)
	}
	c.whole.Apply(e)
	for _, a := range c.whole.TakeChanges().Decided {
		c.approvals[a.ID] = a
	}
	return nil
}

func (c *checker) checkSnapshot() error {
	stored, err := session.Load(c.Snapshot)
	if err != nil {
		c.find("the snapshot cannot be read: %v", err)
		return nil
	}
	fold := c.whole.Clone()
	for _, s := range []*session.State{stored, fold} {
		if c.folded { // what was streaming then has been folded since
			for _, m := range s.Messages {
				m.Parts = nil
			}
		}
	}
	return c.compareStates("the snapshot", stored, fold)
}

func (c *checker) compareStates(what string, a, b *session.State) error {
	rawA, err := ShedJSON(a)
	if err != nil {
		return err
	}
	rawB, err := ShedJSON(b)
	if err != nil {
		return err
	}
	if !bytes.Equal(rawA, rawB) {
		c.find("%s differs from the fold of the log", what)
	}
	return nil
}

// ShedJSON is the JSON of a state as decisions see it. It changes the state.
func ShedJSON(s *session.State) ([]byte, error) {
	s.Shed()
	return Marshal(s)
}

// checkState compares what decisions see: the cached state, and the one that would be loaded.
func (c *checker) checkState() error {
	loaded, _, err := Load(c.ID, c.Snapshot, c.Read)
	if err != nil {
		return err
	}
	if err := c.compareStates("the state that would be loaded", loaded, c.whole.Clone()); err != nil {
		return err
	}
	fold, err := ShedJSON(c.whole.Clone())
	if err == nil && c.Cached != nil && !bytes.Equal(fold, c.Cached) {
		c.find("the cached state differs from the fold of the log")
	}
	return err
}

// checkBodies compares the stored bodies of each kind.
func (c *checker) checkBodies() error {
	var failed error
	encode := func(v any) []byte {
		raw, err := Marshal(v)
		failed = errors.Join(failed, err)
		return raw
	}
	messages, runs, approvals := map[string][]byte{}, map[string][]byte{}, map[string][]byte{}
	for _, m := range c.whole.Messages {
		if m.Status != session.MessageStreaming {
			messages[m.ID] = encode(m)
		}
	}
	for _, run := range c.whole.Runs {
		runs[run.ID] = encode(run)
	}
	for id, a := range c.approvals {
		approvals[id] = encode(a)
	}
	c.compareBodies("message", c.Messages, messages)
	c.compareBodies("run", c.Runs, runs)
	c.compareBodies("approval", c.Approvals, approvals)
	return failed
}

// compareBodies compares what is stored of a kind with what the fold gives.
func (c *checker) compareBodies(kind string, stored, want map[string][]byte) {
	for _, id := range slices.Sorted(maps.Keys(want)) {
		body, ok := stored[id]
		switch {
		case !ok:
			c.find("the %s %s is not stored", kind, id)
		case !bytes.Equal(body, want[id]):
			c.find("the stored %s %s differs from the fold of the log", kind, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(stored)) {
		if _, ok := want[id]; !ok {
			c.find("the stored %s %s is not in the log", kind, id)
		}
	}
}

func (c *checker) checkWork() {
	left := maps.Clone(c.Work)
	for _, run := range c.whole.Runs {
		is := WorkOf(c.whole, run)
		has, there := left[run.ID]
		delete(left, run.ID)
		asks := is.Work
		switch {
		case asks.Due != (has.Due != nil), !asks.At.IsZero() && asks.Due && *has.Due != asks.At.UnixMilli():
			c.find("the run %s is due otherwise than the fold of the log says", run.ID)
		case is.Worker != has.Worker, there && has.Fence != run.Fence:
			c.find("the run %s is held otherwise than the fold of the log says", run.ID)
		case asks.CancelBy.IsZero() != (has.CancelBy == nil), has.CancelBy != nil && *has.CancelBy != asks.CancelBy.UnixMilli():
			c.find("the cancel of the run %s is due otherwise than the fold of the log says", run.ID)
		case has.Lease != nil && !asks.Held:
			c.find("the run %s has a lease and nobody carries it", run.ID)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(left)) {
		c.find("there is work for the run %s, which is not in the log", id)
	}
}
