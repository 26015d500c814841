package server

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/server/api"
)

// readyTimeout is how long the store may take to say that it is ready.
const readyTimeout = 2 * time.Second

func (s *Server) routeHealth() {
	handle(s, route{
		id: "healthz", method: http.MethodGet, path: "/healthz", public: true, summary: "Whether the process answers",
	}, func(context.Context, holdfast.Principal, *struct{}) (*reply[api.Health], error) {
		return ok(api.Health{Status: "ok"}), nil
	})
	handle(s, route{
		id: "readyz", method: http.MethodGet, path: "/readyz", public: true, summary: "Whether runs can be accepted and carried",
	}, s.ready)
}

func (s *Server) ready(ctx context.Context, _ holdfast.Principal, _ *struct{}) (*reply[api.Health], error) {
	if s.streams.isDraining() {
		return nil, s.leaving()
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := s.rt.Ready(ctx); err != nil {
		s.opts.Log.Warn("the store is not ready", slog.Any("error", err))
		p := newProblem(api.Unavailable, "the store cannot be written now")
		p.RetryAfterMs = unavailableMs
		return nil, p
	}
	return ok(api.Health{Status: "ready"}), nil
}
