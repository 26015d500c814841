package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/holdfast-run/holdfast/feed"
)

const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 32 << 10 // bytes
	// writeTimeout is how long an answer may take from the request's head to its
	// end. Streams set a deadline for each write instead.
	writeTimeout = time.Minute
)

// Serve answers on the listener until ctx ends. Then it drains, closes the
// listener and waits for the requests and streams under way, at most
// Options.ShutdownTimeout. What is left then is cut off, but for streams whose
// client takes nothing: those end with the deadline of their write. It returns
// nil after that, or what broke the listener.
//
// To let commands go on while the engine drains, call [Server.Drain] first and
// end ctx when the engine is done.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	srv := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		WriteTimeout:      writeTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       markOwn,
		ErrorLog:          slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelDebug),
	}
	broken := make(chan error, 1)
	go func() { broken <- srv.Serve(listener) }()
	select {
	case <-ctx.Done():
	case err := <-broken:
		broken <- err // to be told below, when what was accepted has ended
	}
	s.Drain()
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.ShutdownTimeout)
	defer cancel()
	if late := errors.Join(srv.Shutdown(within), s.streams.await(within, 0)); late != nil {
		s.opts.Log.Warn("cut off what did not end in time", slog.Any("error", late))
		_ = srv.Close()
	}
	if served := <-broken; !errors.Is(served, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", listener.Addr(), served)
	}
	return nil
}

// Drain makes /readyz say no, refuses new streams and long polls, and ends
// those that are open with a goodbye: it closes the runtime's feed. Commands and
// other reads go on. Draining again is fine.
func (s *Server) Drain() {
	s.streams.drain()
	s.rt.Feed().Close(feed.ErrClosing)
}

// Streams is how many event streams, WebSockets and long polls are open.
func (s *Server) Streams() int { return s.streams.count() }
