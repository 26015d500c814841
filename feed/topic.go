package feed

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/session"
)

// topic is a session that is followed: how far its log is known to go, the hot
// tail, and the bell that its readers wait on.
type topic struct {
	id  string
	hub *Hub

	holders int       // guarded by the shard's mu
	leftAt  time.Time // of the last holder; guarded by the shard's mu

	mu     sync.Mutex
	known  bool          // head was learnt from the store or a commit
	head   int64         // the log goes at least this far
	tail   tail          // recent frames
	fedAt  time.Time     // when the tail last grew
	wake   chan struct{} // closed when there is more; nil while nobody waits
	err    error         // why there will never be more
	queued bool          // waits for a healer
}

// publish takes committed frames, in order or not: what is known already is
// left out, and after a hole the tail begins anew.
func (t *topic) publish(frames []session.Frame) {
	if len(frames) == 0 {
		return
	}
	if !joined(frames) {
		t.hub.opts.Log.Error("committed frames do not join",
			slog.String("session", t.id), slog.Int64("from", frames[0].From), slog.Int64("to", frames[len(frames)-1].To))
		// The readers read the log itself, and say so if it has the hole too.
		t.learn(frames[len(frames)-1].To)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	last := frames[len(frames)-1].To
	if last >= t.head && t.err == nil {
		if t.known && frames[0].From > t.head+1 {
			t.hub.lost.Add(1)
		}
		t.feedLocked(frames)
	}
	t.learnLocked(last)
}

// feedLocked makes frames that reach the head part of the tail.
func (t *topic) feedLocked(frames []session.Frame) {
	before := t.tail.bytes
	t.tail.add(frames)
	t.fedAt = time.Now()
	t.tail.trim(t.hub.share(), t.hub.opts.TailFrames)
	t.hub.tailBytes.Add(int64(t.tail.bytes - before))
}

// learn notes that the log goes at least as far as head.
func (t *topic) learn(head int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.learnLocked(head)
}

func (t *topic) learnLocked(head int64) {
	t.known = true
	if head <= t.head {
		return
	}
	t.head = head
	t.ringLocked()
}

func (t *topic) ringLocked() {
	if t.wake != nil {
		close(t.wake)
		t.wake = nil
	}
}

// meet makes sure that the log reaches the cursor.
func (t *topic) meet(ctx context.Context, after int64) error {
	t.mu.Lock()
	near, err := t.known && after <= t.head, t.err
	t.mu.Unlock()
	if near || err != nil {
		return err
	}
	head, err := t.hub.src.Head(ctx, t.id)
	if err != nil {
		return err
	}
	t.learn(head)
	if after > head {
		return &AheadError{Session: t.id, After: after, Head: head}
	}
	return nil
}

// met says whether anything is known of the session.
func (t *topic) met() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known && t.err == nil
}

// end tells the readers that there will never be more, and why. It gives the
// reason that stands, which is the first one.
func (t *topic) end(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = err
	}
	t.coolLocked()
	t.ringLocked()
	return t.err
}

// cool lets go of the tail.
func (t *topic) cool() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.coolLocked()
}

func (t *topic) coolLocked() {
	t.hub.tailBytes.Add(-int64(t.tail.bytes))
	t.tail = tail{}
}
