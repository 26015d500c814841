package feed

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// wheel tells many streams when they have been silent for long enough, with
// one ticker for all: a slot is a channel that everyone whose time it is waits on.
type wheel struct {
	step  time.Duration
	turns int // slots to a heartbeat

	mu    sync.Mutex
	now   int                       // the slot that is due next; guarded by mu
	slots [wheelSlots]chan struct{} // guarded by mu
}

const wheelSlots = 64

func (w *wheel) init(heartbeat time.Duration) {
	w.turns = wheelSlots - 2
	w.step = max(heartbeat/time.Duration(w.turns), time.Millisecond)
}

// turn closes the slots in their time until ctx ends.
func (w *wheel) turn(ctx context.Context) {
	tick := time.NewTicker(w.step)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		w.mu.Lock()
		due := w.slots[w.now]
		w.slots[w.now] = nil
		w.now = (w.now + 1) % wheelSlots
		w.mu.Unlock()
		if due != nil {
			close(due)
		}
	}
}

// beat is closed when something that has been silent for some time will have
// been so for a heartbeat, or up to an eighth of one earlier.
func (w *wheel) beat(silent time.Duration) <-chan struct{} {
	ahead := max(0, w.turns-1-rand.IntN(w.turns/8)-int((silent+w.step-1)/w.step))
	w.mu.Lock()
	defer w.mu.Unlock()
	i := (w.now + ahead) % wheelSlots
	if w.slots[i] == nil {
		w.slots[i] = make(chan struct{})
	}
	return w.slots[i]
}
