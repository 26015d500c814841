package feed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/store"
)

const (
	listRows   = 256 // changes that a list remembers
	listPage   = 50  // rows that a reread of the store looks at
	listSweeps = 3   // heal intervals between rereads of a list
)

// SessionChange is what happened to a list of sessions.
type SessionChange struct {
	// Row is the session as it is now, or nil.
	Row *store.SessionRow
	// Deleted is the id of a session that is gone, or empty.
	Deleted string
}

// Sessions follows the list of one owner's sessions. It is for one goroutine at a time.
type Sessions struct {
	list   *list
	seen   int64
	closed bool
}

// FollowSessions subscribes to the sessions of an owner: what changes from now
// on. A list that is read from the store afterwards joins without a gap. The
// reader is to be closed. ErrClosing after Close.
func (h *Hub) FollowSessions(ctx context.Context, tenant, name string) (*Sessions, error) {
	l, err := h.lists.hold(owner{tenant, name})
	if err != nil {
		return nil, fmt.Errorf("follow sessions: %w", err)
	}
	if err := l.prime(ctx); err != nil {
		h.lists.release(l)
		return nil, fmt.Errorf("follow sessions: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return &Sessions{list: l, seen: l.version}, nil
}

// Next gives the sessions that changed since the last call, each once and as it
// is now, the one that changed first at the front. Without any it blocks. ErrBehind
// when more sessions have changed since the last call than are remembered (256).
func (r *Sessions) Next(ctx context.Context) ([]SessionChange, error) {
	for {
		changes, more, err := r.take()
		if err != nil || len(changes) > 0 {
			return changes, err
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Close lets go of the list. It may be called more than once.
func (r *Sessions) Close() {
	if !r.closed {
		r.closed = true
		r.list.all.release(r.list)
	}
}

// take gives the changes that are new, or the channel that is closed when there are some.
func (r *Sessions) take() ([]SessionChange, <-chan struct{}, error) {
	l := r.list
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, nil, l.err
	}
	if r.seen >= l.version {
		if l.wake == nil {
			l.wake = make(chan struct{})
		}
		return nil, l.wake, nil
	}
	if r.seen < l.forgot {
		return nil, nil, ErrBehind
	}
	var changes []SessionChange
	i := sort.Search(len(l.order), func(i int) bool { return l.order[i].version > r.seen })
	for _, at := range l.order[i:] {
		e := l.entries[at.id]
		switch {
		case e.version != at.version: // changed again, and comes later
		case e.deleted:
			changes = append(changes, SessionChange{Deleted: at.id})
		default:
			changes = append(changes, SessionChange{Row: e.row})
		}
	}
	r.seen = l.version
	return changes, nil, nil
}

type owner struct{ tenant, name string }

// list is what has changed lately among the sessions of one owner.
type list struct {
	all *lists
	key owner

	holders int       // guarded by lists.mu
	leftAt  time.Time // of the last holder; guarded by lists.mu

	mu      sync.Mutex
	primed  bool
	version int64 // of the last change
	forgot  int64 // changes up to here may be forgotten
	entries map[string]entry
	order   []change // ascending; one that is no entry's version any more is stale
	wake    chan struct{}
	err     error
	queued  bool
}

// entry is the newest that is known of a session. Version 0 is how it was
// before anything changed.
type entry struct {
	version int64
	row     *store.SessionRow
	deleted bool
}

type change struct {
	version int64
	id      string
}

// noteLocked takes news of a session. A row that is not newer than what is known is none.
func (l *list) noteLocked(id string, row *store.SessionRow, deleted bool) {
	was, known := l.entries[id]
	switch {
	case deleted && known && was.deleted:
		return
	case !deleted && known && !was.deleted && row.Seq <= was.row.Seq && !row.CreatedAt.After(was.row.CreatedAt):
		return
	}
	if row == nil {
		row = &store.SessionRow{ID: id}
		if known {
			row = was.row
		}
	}
	l.version++
	l.entries[id] = entry{version: l.version, row: row, deleted: deleted}
	l.order = append(l.order, change{l.version, id})
	l.boundLocked()
	if l.wake != nil {
		close(l.wake)
		l.wake = nil
	}
}

// boundLocked forgets the oldest changes when there are too many.
func (l *list) boundLocked() {
	if len(l.order) < 2*listRows {
		return
	}
	l.order = slices.DeleteFunc(l.order, func(c change) bool { return l.entries[c.id].version != c.version })
	if over := len(l.order) - listRows; over > 0 {
		for _, c := range l.order[:over] {
			delete(l.entries, c.id)
			l.forgot = c.version
		}
		l.order = slices.Clone(l.order[over:])
	}
}

// prime notes how the newest sessions are, so that a reread can tell what changed.
func (l *list) prime(ctx context.Context) error {
	l.mu.Lock()
	primed, err := l.primed, l.err
	l.mu.Unlock()
	if primed || err != nil {
		return err
	}
	page, err := l.page(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.primed = true
	for _, row := range page {
		if _, known := l.entries[row.ID]; !known {
			l.entries[row.ID] = entry{row: &row}
		}
	}
	return nil
}

func (l *list) page(ctx context.Context) ([]store.SessionRow, error) {
	page, err := l.all.hub.src.Sessions(ctx, store.SessionQuery{Tenant: l.key.tenant, Owner: l.key.name, Limit: listPage})
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	return page.Items, nil
}

// refresh rereads the newest sessions, and asks for those that should be among them and are not.
func (l *list) refresh(ctx context.Context) error {
	l.mu.Lock()
	before := l.version
	l.mu.Unlock()
	page, err := l.page(ctx)
	if err != nil {
		return err
	}
	listed := make(map[string]bool, len(page))
	var oldest time.Time // the page has all that changed after it
	for _, row := range page {
		listed[row.ID] = true
	}
	if len(page) == listPage {
		oldest = page[len(page)-1].UpdatedAt
	}
	var missing []string
	l.mu.Lock()
	for _, row := range page {
		// A row may have been read before its session was deleted.
		if e := l.entries[row.ID]; !e.deleted || row.CreatedAt.After(e.row.CreatedAt) {
			l.noteLocked(row.ID, &row, false)
		}
	}
	for id, e := range l.entries {
		if !e.deleted && !listed[id] && e.version <= before && e.row.UpdatedAt.After(oldest) {
			missing = append(missing, id)
		}
	}
	l.mu.Unlock()
	for _, id := range missing {
		if _, err := l.all.hub.src.Session(ctx, id); errors.Is(err, store.ErrNotFound) {
			l.mu.Lock()
			l.noteLocked(id, nil, true)
			l.mu.Unlock()
		} else if err != nil {
			return fmt.Errorf("look for session %s: %w", id, err)
		}
	}
	return nil
}

func (l *list) claim() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queued || l.err != nil {
		return false
	}
	l.queued = true
	return true
}

func (l *list) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queued = false
}
