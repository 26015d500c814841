// Package doorbell is who tells the other processes on a store that there is
// more, so that their readers and engines look at once and not at their next poll.
//
// The log is the truth: a ring that is lost, doubled or late costs time and nothing else.
package doorbell

import (
	"context"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// Bell carries rings between the processes that share a store. It is safe for concurrent use.
type Bell interface {
	// Ring tells the others of a commit of this process. It does not block: while
	// others cannot be told, rings of the same session are joined, and at last dropped.
	Ring(c store.Commit)
	// Run carries rings until ctx ends, and gives nil then. It calls heard with
	// each ring of another process, one after the other; heard must not block. A
	// connection that is lost is made again, however often.
	Run(ctx context.Context, heard func(Ring)) error
}

// Ring is what one process tells the others of a commit.
type Ring struct {
	// Session has more than it had. Empty: rings may have been missed, look at everything.
	Session string
	// Facts says that it is more than deltas, so that the session's row may have changed.
	Facts bool
	// Work names runs whose claim to attention changed: whether each is due, and
	// whether a cancel waits for its worker. More is not told.
	Work []store.RunWork
	// Frames are what was committed, if the bell carries that.
	Frames []session.Frame
}

// Of is the ring of a commit, without frames.
func Of(c store.Commit) Ring {
	r := Ring{Session: c.Session, Facts: c.Row != nil || c.Deleted}
	for _, w := range c.Work {
		r.Work = append(r.Work, store.RunWork{Run: w.Run, Cancel: w.Cancel, Work: session.Work{Due: w.Work.Due}})
	}
	return r
}

// Join is the ring for two rings of one session, the first one first.
func Join(a, b Ring) Ring {
	joined := Ring{Session: b.Session, Facts: a.Facts || b.Facts, Work: append([]store.RunWork(nil), a.Work...)}
	for _, w := range b.Work {
		known := false
		for i := range joined.Work {
			if known = joined.Work[i].Run == w.Run; known {
				joined.Work[i] = w
				break
			}
		}
		if !known {
			joined.Work = append(joined.Work, w)
		}
	}
	return joined
}
