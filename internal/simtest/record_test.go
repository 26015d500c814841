package simtest

import (
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast/session"
)

// record is the world's own copy of a session's log, kept commit by commit as
// the store told of it, before anything could be folded away or forgotten.
type record struct {
	session string
	frames  []session.Frame
	at      []time.Duration // when each was committed, by the bubble's clock
	deleted bool

	decoded []session.Event // see events
}

func (r *record) add(frames []session.Frame, at time.Duration) {
	for _, f := range frames {
		r.frames = append(r.frames, f)
		r.at = append(r.at, at)
	}
}

// events are the log as a reader decodes it. The event with seq n is at n-1. It
// is for checks, when nothing is added any more.
func (r *record) events() ([]session.Event, error) {
	if len(r.decoded) == len(r.frames) {
		return r.decoded, nil
	}
	for i, f := range r.frames {
		e, ok, err := f.Event()
		if err != nil || !ok {
			return nil, fmt.Errorf("frame %d..%d is no event: %w", f.From, f.To, err)
		}
		if e.Seq != int64(i+1) || f.From != e.Seq || f.To != e.Seq || e.Session != r.session {
			return nil, fmt.Errorf("at place %d of %s is event %d of %s in a frame %d..%d", i+1, r.session, e.Seq, e.Session, f.From, f.To)
		}
		r.decoded = append(r.decoded, e)
	}
	return r.decoded, nil
}

// history is what a session's log says, run by run. It is made for the checks.
type history struct {
	*record
	list []session.Event
	// byRun are the places in list of the events of each run, in order.
	byRun map[string][]int
	runs  []string // in the order of their first events
}

func newHistory(r *record) (*history, error) {
	list, err := r.events()
	if err != nil {
		return nil, err
	}
	h := &history{record: r, list: list, byRun: map[string][]int{}}
	for i, e := range list {
		if e.Run == "" {
			continue
		}
		if h.byRun[e.Run] == nil {
			h.runs = append(h.runs, e.Run)
		}
		h.byRun[e.Run] = append(h.byRun[e.Run], i)
	}
	return h, nil
}

// of gives the events of a run.
func (h *history) of(run string) []session.Event {
	list := make([]session.Event, 0, len(h.byRun[run]))
	for _, i := range h.byRun[run] {
		list = append(list, h.list[i])
	}
	return list
}

// when is the time of an event.
func (h *history) when(e session.Event) time.Duration { return h.at[e.Seq-1] }
