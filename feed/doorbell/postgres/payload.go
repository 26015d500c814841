package postgres

import (
	"strings"
	"sync"

	"github.com/holdfast-run/holdfast/feed/doorbell"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// outbox gathers rings, one a session, in the order in which they first came.
type outbox struct {
	some chan struct{} // of capacity 1: there are some

	mu    sync.Mutex
	rings map[string]doorbell.Ring
	order []string
}

// mostRings bounds the sessions that are told of by name. With more, others are told to look at everything.
const mostRings = 10_000

func newOutbox() outbox {
	return outbox{some: make(chan struct{}, 1), rings: map[string]doorbell.Ring{}}
}

func (o *outbox) put(r doorbell.Ring) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !nameable(r.Session) || len(o.order) >= mostRings {
		r = doorbell.Ring{}
	}
	was, known := o.rings[r.Session]
	if !known {
		o.order = append(o.order, r.Session)
		o.rings[r.Session] = r
	} else {
		o.rings[r.Session] = doorbell.Join(was, r)
	}
	select {
	case o.some <- struct{}{}:
	default:
	}
}

func (o *outbox) take() []doorbell.Ring {
	o.mu.Lock()
	defer o.mu.Unlock()
	rings := make([]doorbell.Ring, 0, len(o.order))
	for _, id := range o.order {
		rings = append(rings, o.rings[id])
	}
	o.order = o.order[:0]
	clear(o.rings)
	return rings
}

// mostPayload is what a notification may have, in bytes; PostgreSQL takes less than 8000.
const mostPayload = 7900

// payloads gives rings as texts: a line with who rings, and a line for each
// session, empty for all of them:
//
//	ses_1 + d:run_1 c:run_2 -:run_3
//
// "+" says that there are facts. A run is due (d), has a cancel that waits (c), both (b), or neither (-).
func payloads(self string, rings []doorbell.Ring) []string {
	var all []string
	var text strings.Builder
	for _, r := range rings {
		l := line(r)
		if text.Len()+len(l) > mostPayload {
			all = append(all, text.String())
			text.Reset()
		}
		if text.Len() == 0 {
			text.WriteString(self)
		}
		text.WriteString(l)
	}
	return append(all, text.String())
}

func line(r doorbell.Ring) string {
	words := []string{"\n" + r.Session}
	if r.Facts {
		words = append(words, "+")
	}
	size := len(r.Session)
	for _, w := range r.Work {
		if size += len(w.Run) + 3; size > mostPayload/2 || !nameable(w.Run) {
			return "\n" // too much to tell: look at everything
		}
		flag := "-:"
		switch {
		case w.Cancel && w.Work.Due:
			flag = "b:"
		case w.Cancel:
			flag = "c:"
		case w.Work.Due:
			flag = "d:"
		}
		words = append(words, flag+w.Run)
	}
	return strings.Join(words, " ")
}

// parse reads a payload. What it does not know it leaves out.
func parse(payload string) (from string, rings []doorbell.Ring) {
	from, rest, _ := strings.Cut(payload, "\n")
	for l := range strings.SplitSeq(rest, "\n") {
		words := strings.Split(l, " ")
		r := doorbell.Ring{Session: words[0]}
		for _, word := range words[1:] {
			flag, run, ok := strings.Cut(word, ":")
			switch {
			case word == "+":
				r.Facts = true
			case ok:
				r.Work = append(r.Work, store.RunWork{
					Run: run, Cancel: flag == "c" || flag == "b", Work: session.Work{Due: flag == "d" || flag == "b"},
				})
			}
		}
		rings = append(rings, r)
	}
	return from, rings
}

// nameable says whether an id can be told as it is, as every id that a client may choose can.
func nameable(id string) bool { return session.ValidID(id) }
