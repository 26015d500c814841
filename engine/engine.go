// Package engine is who carries a run: it claims due runs, keeps their leases,
// does what agent says comes next, and sees to it that no run is running for ever.
//
// An [Engine] decides when and where a run is carried. A [Carrier] does the
// carrying, the same for every engine: it folds the log, asks agent what comes
// next, does that, and appends what happened. There is no other state of an
// execution than the log.
package engine

import (
	"context"
	"errors"

	"github.com/holdfast-run/holdfast/store"
)

// Engine carries runs.
type Engine interface {
	// Run carries runs until ctx ends, then drains: it claims nothing more,
	// finishes or hands over what it carries within its drain time, and returns
	// when none of its goroutines is left. It returns nil after a drain.
	Run(ctx context.Context) error
	// Notify tells of what a commit made due, cancelled or decided. It is a hint:
	// a lost one costs time, never a run. It does not block.
	Notify(commit store.Commit)
	// Carrying is how many runs are carried at this moment.
	Carrying() int
	// Carries says whether a run is carried here at this moment.
	Carries(run string) bool
}

// Why a carried run's context ends, as its cause.
var (
	ErrCancelled = errors.New("engine: the run was cancelled")
	ErrLeaseLost = errors.New("engine: the lease was lost")
	ErrDraining  = errors.New("engine: the worker is shutting down")
	ErrTimeLimit = errors.New("engine: the run is over its time limit")
)
