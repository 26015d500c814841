package engine

import (
	"context"
	"sync"

	"github.com/holdfast-run/holdfast/session"
)

// notes writes what streams, deltas and progress, in the order in which it
// came. While one append is being made durable the next gathers, and deltas of
// the same part become one: under load there are fewer and bigger events, not later ones.
type notes struct {
	write func([]session.Event) error
	fail  context.CancelCauseFunc

	mu      sync.Mutex
	moved   sync.Cond // pending shrank, writing ended, or closed
	pending []session.Event
	bytes   int
	writing bool
	broken  bool
	closed  bool
	wake    chan struct{}
	done    chan struct{}
}

const (
	// maxNote bounds the text of one delta; maxPending bounds what may wait: the model is then read no further.
	maxNote    = 32 << 10
	maxPending = 1 << 20
)

// newNotes starts the writer. A write that fails ends the claim through fail.
func newNotes(write func([]session.Event) error, fail context.CancelCauseFunc) *notes {
	n := &notes{write: write, fail: fail, wake: make(chan struct{}, 1), done: make(chan struct{})}
	n.moved.L = &n.mu
	go n.run()
	return n
}

func (n *notes) run() {
	defer close(n.done)
	for range n.wake {
		for {
			events := n.next()
			if events == nil {
				break
			}
			err := n.write(events)
			n.mu.Lock()
			n.writing = false
			if err != nil {
				n.broken = true
				n.fail(err)
			}
			n.moved.Broadcast()
			n.mu.Unlock()
		}
	}
}

// next takes what waits and marks it as being written.
func (n *notes) next() []session.Event {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.pending) == 0 || n.broken || n.closed {
		return nil
	}
	events := n.pending
	n.pending, n.bytes, n.writing = nil, 0, true
	return events
}

// add takes an event to be written soon. It blocks while too much waits.
func (n *notes) add(e session.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.bytes > maxPending && !n.broken && !n.closed {
		n.moved.Wait()
	}
	if n.broken || n.closed {
		return
	}
	size := noteSize(e)
	n.bytes += size
	if last := len(n.pending) - 1; last < 0 || !merge(&n.pending[last], e, size) {
		n.pending = append(n.pending, e)
	}
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// take gives what waits, once nothing is being written: whoever takes it writes it.
func (n *notes) take() []session.Event {
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.writing {
		n.moved.Wait()
	}
	if n.broken {
		return nil
	}
	events := n.pending
	n.pending, n.bytes = nil, 0
	n.moved.Broadcast()
	return events
}

// putBack returns what was taken and not written.
func (n *notes) putBack(events []session.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pending = append(events, n.pending...)
}

// close ends the writer. What waits is dropped.
func (n *notes) close() {
	n.mu.Lock()
	n.closed = true
	n.moved.Broadcast()
	close(n.wake)
	n.mu.Unlock()
	<-n.done
}

func noteSize(e session.Event) int {
	switch d := e.Data.(type) {
	case session.TextDelta:
		return len(d.Text)
	case session.ReasoningDelta:
		return len(d.Text)
	case session.ToolInputDelta:
		return len(d.Text)
	case session.ToolProgress:
		return len(d.Progress.Message) + len(d.Progress.Data) + 64
	}
	return 64
}

// merge makes e part of the waiting event last, if they belong together.
func merge(last *session.Event, e session.Event, size int) bool {
	if last.Run != e.Run || last.Step != e.Step || last.Attempt != e.Attempt || noteSize(*last)+size > maxNote {
		return false
	}
	switch d := e.Data.(type) {
	case session.TextDelta:
		l, ok := last.Data.(session.TextDelta)
		if ok = ok && l.Part == d.Part && l.Message == d.Message; ok {
			l.Text += d.Text
			last.Data = l
		}
		return ok
	case session.ReasoningDelta:
		l, ok := last.Data.(session.ReasoningDelta)
		if ok = ok && l.Part == d.Part && l.Message == d.Message; ok {
			l.Text += d.Text
			last.Data = l
		}
		return ok
	case session.ToolInputDelta:
		l, ok := last.Data.(session.ToolInputDelta)
		if ok = ok && l.Part == d.Part && l.Message == d.Message; ok {
			l.Text += d.Text
			last.Data = l
		}
		return ok
	case session.ToolProgress: // the newest report is the one that counts
		l, ok := last.Data.(session.ToolProgress)
		if ok = ok && l.Call == d.Call; ok {
			last.Data = d
		}
		return ok
	}
	return false
}
