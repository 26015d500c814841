package postgres

import (
	"sync/atomic"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store/internal/cache"
	"github.com/holdfast-run/holdfast/store/internal/gate"
	"github.com/holdfast-run/holdfast/store/internal/models"
)

// entry is what is cached of one session. The state is of a moment: another
// process may have written since.
type entry struct {
	cache.Slot
	gate gate.Gate
	// loaded says that state is there. It is a hint for those who do not hold the gate.
	loaded atomic.Bool

	// Guarded by gate.
	state *session.State         // nil: not loaded
	born  int64                  // which life of the id state is of; 0: the session does not exist
	work  map[string]models.Work // of the runs that have not ended
	since models.Progress        // since the snapshot in the database

	// Only the writer looks at these.
	change *change // what the batch under way does to the session
	unsure bool    // its row was not free, or it is gone
}

func newCache(mostEntries int, mostBytes int64) *cache.Cache[*entry] {
	return cache.New(mostEntries, mostBytes, func(id string) *entry { return &entry{Slot: cache.Slot{ID: id}} })
}

// forget drops what was cached of the session. The caller holds the gate.
func (e *entry) forget() {
	e.state, e.work, e.born = nil, nil, 0
	e.loaded.Store(false)
}
