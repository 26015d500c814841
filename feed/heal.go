package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/store"
)

// sweep goes through the hot sessions, a shard at a time, all within about one
// heal interval: those that are followed are reread, those that nobody has
// followed for a while are let go.
func (h *Hub) sweep(ctx context.Context) {
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(jitter(h.opts.Heal/shards, 0.2)):
		}
		s := &h.shards[i%shards]
		now := time.Now()
		s.mu.Lock()
		for _, t := range s.topics {
			if t.holders == 0 && now.Sub(t.leftAt) > h.opts.Linger {
				h.dropLocked(s, t)
				continue
			}
			t.chill(now)
			if t.holders > 0 {
				h.rung.push(t)
			}
		}
		s.mu.Unlock()
		if i%(listSweeps*shards) == 0 {
			h.lists.sweep(now)
		}
	}
}

// chill lets go of a tail that has not grown for long, or that is more than its
// share while memory is short.
func (t *topic) chill(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tail.bytes == 0 {
		return
	}
	if now.Sub(t.fedAt) > t.hub.opts.Linger {
		t.coolLocked()
		return
	}
	before := t.tail.bytes
	t.tail.trim(t.hub.share(), t.hub.opts.TailFrames)
	t.hub.tailBytes.Add(int64(t.tail.bytes - before))
}

// heal rereads sessions that were rung or swept until the queue is closed.
func (h *Hub) heal(ctx context.Context) {
	for {
		job, ok := h.rung.pop()
		if !ok {
			return
		}
		err := job.refresh(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil && !h.failing.Swap(true): // said once, not for each session
			h.opts.Log.Warn("feed cannot reread the store", slog.Any("error", err))
		case err == nil && h.failing.Swap(false):
			h.opts.Log.Info("feed can reread the store again")
		}
	}
}

// refresh compares what is known of a session with its log.
func (t *topic) refresh(ctx context.Context) error {
	t.mu.Lock()
	known := t.head
	t.mu.Unlock()
	h := t.hub
	head, err := h.src.Head(ctx, t.id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		_ = h.end(t, fmt.Errorf("session %s: %w", t.id, err))
		return nil
	case err != nil:
		return fmt.Errorf("head of session %s: %w", t.id, err)
	case head < known:
		_ = h.end(t, &AheadError{Session: t.id, After: known, Head: head})
		return nil
	}
	t.mu.Lock()
	known = t.head
	t.mu.Unlock()
	if head <= known {
		return nil // as mostly, or it was told meanwhile
	}
	h.reads.Add(1)
	frames, err := h.src.Read(ctx, t.id, known, batchBytes/deltaBytes)
	if err != nil {
		t.learn(head) // the readers will meet the error themselves
		return fmt.Errorf("read session %s after %d: %w", t.id, known, err)
	}
	t.mu.Lock()
	if t.head < head {
		h.lost.Add(1)
	}
	if n := len(frames); n > 0 && frames[0].From == known+1 && joined(frames) && frames[n-1].To >= t.head && t.err == nil {
		t.feedLocked(frames)
		t.learnLocked(frames[n-1].To)
	}
	t.learnLocked(head)
	t.mu.Unlock()
	return nil
}

// job is a reread of the store that is due.
type job interface {
	refresh(ctx context.Context) error
	// claim says whether the job is to be queued; begin notes that it leaves the queue.
	claim() bool
	begin()
}

func (t *topic) claim() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.queued || t.err != nil {
		return false
	}
	t.queued = true
	return true
}

func (t *topic) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queued = false
}

// queue holds each job at most once, so it is bounded by what is followed.
type queue struct {
	mu     sync.Mutex
	filled sync.Cond
	jobs   []job // guarded by mu
	closed bool  // guarded by mu
}

func (q *queue) init() { q.filled.L = &q.mu }

func (q *queue) push(j job) {
	if !j.claim() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.jobs = append(q.jobs, j)
	q.filled.Signal()
}

func (q *queue) pop() (job, bool) {
	q.mu.Lock()
	for len(q.jobs) == 0 && !q.closed {
		q.filled.Wait()
	}
	if q.closed {
		q.mu.Unlock()
		return nil, false
	}
	j := q.jobs[0]
	q.jobs[0] = nil
	q.jobs = q.jobs[1:]
	q.mu.Unlock()
	// It leaves the queue before it runs: a ring that comes while it runs queues it again.
	j.begin()
	return j, true
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.filled.Broadcast()
}

// jitter is d give or take a fraction of it.
func jitter(d time.Duration, fraction float64) time.Duration {
	return d + time.Duration((rand.Float64()*2-1)*fraction*float64(d))
}
