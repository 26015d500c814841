package storetest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// told is what OnCommit was told, and what was wrong with it. Every test
// listens with it, so the order of commits is checked everywhere.
type told struct {
	mu       sync.Mutex // guards everything below
	commits  []store.Commit
	last     map[string]int64
	rows     map[string]store.SessionRow
	work     map[work]store.RunWork // the last that was told
	mistakes []string
}

type work struct{ session, run string }

func newTold() *told {
	t := &told{}
	t.reset()
	return t
}

func (t *told) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.commits, t.mistakes = nil, nil
	t.last, t.rows = map[string]int64{}, map[string]store.SessionRow{}
	t.work = map[work]store.RunWork{}
}

func (t *told) hear(c store.Commit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.commits = append(t.commits, c)
	if c.Deleted {
		delete(t.last, c.Session)
		delete(t.rows, c.Session)
		maps.DeleteFunc(t.work, func(k work, _ store.RunWork) bool { return k.session == c.Session })
		return
	}
	if len(c.Frames) != len(c.Events) {
		t.mistake("session %s: %d frames and %d events", c.Session, len(c.Frames), len(c.Events))
	}
	fact := false
	for i, e := range c.Events {
		next := t.last[c.Session] + 1
		if e.Seq != next || e.Session != c.Session {
			t.mistake("event %d of session %s came where %d of %s should", e.Seq, e.Session, next, c.Session)
		}
		t.last[c.Session] = e.Seq
		fact = fact || !session.IsDelta(e.Data)
		if i < len(c.Frames) {
			f := c.Frames[i]
			raw, err := e.AppendJSON(nil)
			if err != nil || f.From != e.Seq || f.To != e.Seq || !bytes.Equal(raw, f.JSON) {
				t.mistake("frame %d..%d says %s, its event %s (%v)", f.From, f.To, f.JSON, raw, err)
			}
		}
	}
	if fact != (c.Row != nil) {
		t.mistake("session %s at %d: a fact is among the events: %v, a row is given: %v", c.Session, t.last[c.Session], fact, c.Row != nil)
	}
	if c.Row != nil {
		t.rows[c.Session] = *c.Row
	}
	for _, w := range c.Work {
		t.work[work{c.Session, w.Run}] = w
	}
}

func (t *told) mistake(format string, args ...any) {
	t.mistakes = append(t.mistakes, fmt.Sprintf(format, args...))
}

func (t *told) faults() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.mistakes)
}

// count is how many commits were told.
func (t *told) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.commits)
}

// since gives the commits after the first n.
func (t *told) since(n int) []store.Commit {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.commits[n:])
}

// head is the last seq told of a session.
func (t *told) head(id string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last[id]
}

func (t *told) row(id string) store.SessionRow {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rows[id]
}

// workOf is the last that was told of a run: what it asks, and whether it is to be cancelled.
func (t *told) workOf(id, run string) (session.Work, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.work[work{id, run}]
	return w.Work, w.Cancel
}
