package feed

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// Reader follows one session from a cursor. It is for one goroutine at a time.
type Reader struct {
	topic  *topic
	after  int64
	closed bool
}

// Cursor is the last seq that Next gave, or the one that Follow began with.
func (r *Reader) Cursor() int64 { return r.after }

// Next gives all frames after the cursor that there are, about 256 KiB at most,
// and moves the cursor past them. Without any it blocks until there are some.
// The frames join from the cursor on; they are shared and must not be changed.
// An error ends the reader unless it is that of ctx or the store's, after which
// the call may be made again and goes on where it was.
func (r *Reader) Next(ctx context.Context) ([]session.Frame, error) {
	for {
		frames, err := r.take(ctx, batchBytes)
		if err != nil || len(frames) > 0 {
			return frames, err
		}
		if err := r.await(ctx); err != nil {
			return nil, err
		}
	}
}

// Close lets go of the session. It may be called more than once.
func (r *Reader) Close() {
	if r.closed {
		return
	}
	r.closed = true
	r.topic.hub.readers.Add(-1)
	r.topic.hub.release(r.topic)
}

// head is the last seq that is known.
func (r *Reader) head() int64 {
	r.topic.mu.Lock()
	defer r.topic.mu.Unlock()
	return r.topic.head
}

// waiting gives the channel that is closed when there is something after the
// cursor, or nil when there is something now.
func (r *Reader) waiting() (<-chan struct{}, error) {
	t := r.topic
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil || r.after < t.head {
		return nil, t.err
	}
	if t.wake == nil {
		t.wake = make(chan struct{})
	}
	return t.wake, nil
}

// await blocks until there is something after the cursor.
func (r *Reader) await(ctx context.Context) error {
	more, err := r.waiting()
	if err != nil || more == nil {
		return err
	}
	select {
	case <-more:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// take gives what there is after the cursor, about limit bytes at most, and
// moves the cursor past it. It waits for nothing but the store.
func (r *Reader) take(ctx context.Context, limit int) ([]session.Frame, error) {
	t := r.topic
	t.mu.Lock()
	if t.err != nil || r.after >= t.head {
		defer t.mu.Unlock()
		return nil, t.err
	}
	frames, head := t.tail.cut(r.after, limit), t.head
	t.mu.Unlock()
	if frames == nil {
		var err error
		if frames, err = r.page(ctx, head, limit); err != nil {
			return nil, err
		}
	}
	if frames[0].From != r.after+1 || !joined(frames) {
		return nil, fmt.Errorf("session %s: after %d come frames from %d to %d: %w",
			t.id, r.after, frames[0].From, frames[len(frames)-1].To, ErrBroken)
	}
	r.after = frames[len(frames)-1].To
	return frames, nil
}

// page reads what comes after the cursor from the store, which is known to reach head.
func (r *Reader) page(ctx context.Context, head int64, limit int) ([]session.Frame, error) {
	t := r.topic
	t.hub.reads.Add(1)
	frames, err := t.hub.src.Read(ctx, t.id, r.after, max(64, limit/deltaBytes))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, t.hub.end(t, fmt.Errorf("session %s: %w", t.id, err))
	case err != nil:
		return nil, fmt.Errorf("read session %s after %d: %w", t.id, r.after, err)
	case len(frames) == 0:
		return nil, t.missing(ctx, r.after, head)
	}
	t.seed(frames)
	return clip(frames, limit), nil
}

// missing finds out why the store has nothing after a cursor below the head.
func (t *topic) missing(ctx context.Context, after, head int64) error {
	now, err := t.hub.src.Head(ctx, t.id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return t.hub.end(t, fmt.Errorf("session %s: %w", t.id, err))
	case err != nil:
		return fmt.Errorf("head of session %s: %w", t.id, err)
	case now < head:
		// A log never shrinks: this is another one under the same id.
		return t.hub.end(t, &AheadError{Session: t.id, After: head, Head: now})
	}
	return fmt.Errorf("session %s ends at %d and has nothing after %d: %w", t.id, now, after, ErrBroken)
}

// seed lets a page that reaches the head be the tail when there is none, so
// that the next reader need not read it again.
func (t *topic) seed(frames []session.Frame) {
	if !joined(frames) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	last := frames[len(frames)-1].To
	if len(t.tail.frames) > 0 || last < t.head || t.err != nil {
		return
	}
	t.feedLocked(frames)
	t.learnLocked(last)
}
