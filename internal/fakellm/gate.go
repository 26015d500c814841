package fakellm

import "context"

// gate returns the channel that is closed when the named gate is open.
func (s *Server) gate(name string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gateLocked(name)
}

func (s *Server) gateLocked(name string) chan struct{} {
	g, ok := s.gates[name]
	if !ok {
		g = make(chan struct{})
		s.gates[name] = g
	}
	return g
}

// OpenGate opens the named gate for good. To open it twice does nothing more.
func (s *Server) OpenGate(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.gateLocked(name)
	select {
	case <-g:
	default:
		close(g)
	}
}

// WaitGate waits until the named gate is open, by OpenGate or by a step.
func (s *Server) WaitGate(ctx context.Context, name string) error {
	select {
	case <-s.gate(name):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
