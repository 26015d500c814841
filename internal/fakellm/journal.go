package fakellm

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A journal holds what was asked of the server, and wakes those who wait for
// more of it.
type journal struct {
	mu       sync.Mutex
	requests []Request
	keep     int // how many of the last keep their content; 0: all
	open     int
	maxOpen  int
	changed  chan struct{} // closed at the next change, then replaced
}

// update changes the journal under its lock and wakes the waiting.
func (j *journal) update(change func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change()
	close(j.changed)
	j.changed = make(chan struct{})
}

// arrive numbers a request and counts it as open.
func (j *journal) arrive(r *Request) {
	j.update(func() {
		r.Number = len(j.requests) + 1
		j.requests = append(j.requests, *r)
		if old := len(j.requests) - 1 - j.keep; j.keep > 0 && old >= 0 {
			r := &j.requests[old]
			r.Header, r.Body, r.Messages, r.Tools, r.System = nil, nil, nil, nil, ""
		}
		j.open++
		j.maxOpen = max(j.maxOpen, j.open)
	})
}

// amend changes the record of request number n.
func (j *journal) amend(n int, change func(*Request)) {
	j.update(func() { change(&j.requests[n-1]) })
}

func (j *journal) leave(n int, change func(*Request)) {
	j.update(func() {
		r := &j.requests[n-1]
		change(r)
		r.ClosedAt = time.Now()
		j.open--
	})
}

// await returns once ready says so; ready is called under the lock.
func (j *journal) await(ctx context.Context, ready func() bool) error {
	for {
		j.mu.Lock()
		ok, changed := ready(), j.changed
		j.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Requests returns all requests for model output so far, in order of arrival,
// the refused ones too.
func (s *Server) Requests() []Request {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	return append([]Request(nil), s.journal.requests...)
}

// Refused returns the requests that strict mode refused.
func (s *Server) Refused() []Request {
	var refused []Request
	for _, r := range s.Requests() {
		if r.Rule != "" {
			refused = append(refused, r)
		}
	}
	return refused
}

// OpenStreams returns how many responses are under way now.
func (s *Server) OpenStreams() int {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	return s.journal.open
}

// MaxOpenStreams returns the most responses that were ever under way at once.
func (s *Server) MaxOpenStreams() int {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	return s.journal.maxOpen
}

// WaitRequest waits until request number n (from 1) has arrived and returns it.
func (s *Server) WaitRequest(ctx context.Context, n int) (Request, error) {
	return s.waitFor(ctx, n, "arrive", func(Request) bool { return true })
}

// WaitClosed waits until the exchange of request number n (from 1) is over,
// whoever ended it, and returns it.
func (s *Server) WaitClosed(ctx context.Context, n int) (Request, error) {
	return s.waitFor(ctx, n, "close", Request.Closed)
}

func (s *Server) waitFor(ctx context.Context, n int, what string, ready func(Request) bool) (Request, error) {
	var found Request
	j := &s.journal
	err := j.await(ctx, func() bool {
		if n < 1 || len(j.requests) < n || !ready(j.requests[n-1]) {
			return false
		}
		found = j.requests[n-1]
		return true
	})
	if err != nil {
		return Request{}, fmt.Errorf("wait for request %d to %s (%d have arrived): %w", n, what, len(s.Requests()), err)
	}
	return found, nil
}

// WaitIdle waits until no response is under way.
func (s *Server) WaitIdle(ctx context.Context) error {
	if err := s.journal.await(ctx, func() bool { return s.journal.open == 0 }); err != nil {
		return fmt.Errorf("wait until no stream is open (%d are): %w", s.OpenStreams(), err)
	}
	return nil
}
