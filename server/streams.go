package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/feed"
	"github.com/holdfast-run/holdfast/server/api"
)

// streams counts the connections that are held open: event streams, WebSockets
// and long polls. It refuses those over the limit rather than end an older one,
// which would come back at once and end another.
type streams struct {
	most  int
	retry time.Duration

	mu       sync.Mutex
	changed  sync.Cond // of open, on mu
	open     int       // guarded by mu
	draining bool      // guarded by mu
}

func (st *streams) init(most int, retry time.Duration) {
	st.most, st.retry, st.changed.L = most, retry, &st.mu
}

// enter counts a stream in, until leave. feed.ErrClosing when the server drains,
// a problem when it is full.
func (st *streams) enter() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case st.draining:
		return feed.ErrClosing
	case st.open >= st.most:
		full := newProblem(api.TooManyStreams, "the server holds %d streams and no more: come back later", st.most)
		full.RetryAfterMs = st.later().Milliseconds()
		return full
	}
	st.open++
	st.changed.Broadcast()
	return nil
}

func (st *streams) leave() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.open--
	st.changed.Broadcast()
}

// await waits until n streams are open, or ctx ends.
func (st *streams) await(ctx context.Context, n int) error {
	stop := context.AfterFunc(ctx, func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		st.changed.Broadcast()
	})
	defer stop()
	st.mu.Lock()
	defer st.mu.Unlock()
	for st.open != n {
		if ctx.Err() != nil {
			return fmt.Errorf("%d streams are open: %w", st.open, context.Cause(ctx))
		}
		st.changed.Wait()
	}
	return nil
}

// drain refuses new streams. Draining again is fine.
func (st *streams) drain() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.draining = true
}

func (st *streams) isDraining() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.draining
}

// count is how many are open.
func (st *streams) count() int {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.open
}

// later is how long one client should stay away: not as long as the next one.
func (st *streams) later() time.Duration { return st.retry/2 + rand.N(st.retry) }
