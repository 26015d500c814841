package feed

import (
	"context"
	"sync"
)

// served counts the streams that are being served.
type served struct {
	mu    sync.Mutex
	count int           // guarded by mu
	none  chan struct{} // closed when count is 0 again; nil while nobody waits; guarded by mu
}

func (s *served) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
}

func (s *served) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count--
	if s.count == 0 && s.none != nil {
		close(s.none)
		s.none = nil
	}
}

// Served waits until no stream is served any more, or ctx ends. After Close
// that is within the write timeout: http.Server.Shutdown does not wait for WebSockets.
func (h *Hub) Served(ctx context.Context) error {
	s := &h.served
	s.mu.Lock()
	if s.count == 0 {
		s.mu.Unlock()
		return nil
	}
	if s.none == nil {
		s.none = make(chan struct{})
	}
	none := s.none
	s.mu.Unlock()
	select {
	case <-none:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
