package sqlite

import (
	"sync/atomic"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store/internal/cache"
	"github.com/holdfast-run/holdfast/store/internal/gate"
	"github.com/holdfast-run/holdfast/store/internal/models"
)

// entry is what is cached of one session. The writer throws out what is too
// much, because it may have to write a snapshot first.
type entry struct {
	cache.Slot
	gate gate.Gate
	// loaded says that state is there. It is a hint for those who do not hold the gate.
	loaded atomic.Bool
	// streams says that the last thing written was deltas only: more of them can wait for company.
	streams atomic.Bool

	// Guarded by gate.
	state *session.State         // nil: not loaded
	work  map[string]models.Work // of the runs that have not ended
	since models.Progress        // since the snapshot in the database

	// Only the writer looks at these.
	window int64   // the gatherer's window in which it was written last
	change *change // what the batch under way does to the session; nil or own
	own    change
}

func newCache(mostEntries int, mostBytes int64) *cache.Cache[*entry] {
	return cache.New(mostEntries, mostBytes, func(id string) *entry { return &entry{Slot: cache.Slot{ID: id}} })
}

// forget drops what was cached of the session. The caller holds the gate.
func (e *entry) forget() {
	e.state, e.work = nil, nil
	e.loaded.Store(false)
}
