package server

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast/server/api"
)

// Statuses shows the table from codes to statuses to the tests.
var Statuses map[api.Code]int = statuses

// SetBodyTimeout makes a slow body late sooner.
func (s *Server) SetBodyTimeout(d time.Duration) { s.bodyTimeout = d }

// AwaitStreams waits until n streams are open.
func (s *Server) AwaitStreams(ctx context.Context, n int) error { return s.streams.await(ctx, n) }
