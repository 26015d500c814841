package server

import (
	"time"

	"github.com/holdfast-run/holdfast/server/api"
)

// Statuses shows the table from codes to statuses to the tests.
var Statuses map[api.Code]int = statuses

// SetBodyTimeout makes a slow body late sooner.
func (s *Server) SetBodyTimeout(d time.Duration) { s.bodyTimeout = d }
