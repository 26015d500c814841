package feed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/store"
)

const ringsKept = 1024 // sessions whose rows are asked for; with more all lists are reread

// lists are the lists of sessions that are followed, one an owner.
type lists struct {
	hub *Hub

	mu   sync.RWMutex
	all  map[owner]*list     // guarded by mu
	rung map[string]struct{} // sessions that may have changed elsewhere; guarded by mu
}

func (ls *lists) hold(key owner) (*list, error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if err := ls.hub.closing.Load(); err != nil {
		return nil, *err
	}
	l := ls.all[key]
	if l == nil {
		l = &list{all: ls, key: key, entries: map[string]entry{}}
		ls.all[key] = l
	}
	l.holders++
	return l, nil
}

func (ls *lists) release(l *list) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l.holders--; l.holders == 0 {
		l.leftAt = time.Now()
	}
}

// publish tells the owner's list of a commit.
func (ls *lists) publish(c store.Commit) {
	if c.Row == nil && !c.Deleted {
		return
	}
	ls.mu.RLock()
	defer ls.mu.RUnlock()
	if c.Row != nil {
		if l := ls.all[owner{c.Row.Tenant, c.Row.Owner}]; l != nil {
			l.mu.Lock()
			l.noteLocked(c.Session, c.Row, c.Deleted)
			l.mu.Unlock()
		}
		return
	}
	ls.goneLocked(c.Session)
}

// goneLocked tells of a deleted session whose owner is not said. Only a list
// that knew it is told: an id is nobody else's business.
func (ls *lists) goneLocked(id string) {
	for _, l := range ls.all {
		l.mu.Lock()
		if _, known := l.entries[id]; known {
			l.noteLocked(id, nil, true)
		}
		l.mu.Unlock()
	}
}

// ring says that a session's row may have changed on another node.
func (ls *lists) ring(id string) {
	ls.mu.RLock()
	followed := len(ls.all) > 0
	ls.mu.RUnlock()
	if !followed {
		return
	}
	ls.mu.Lock()
	if ls.rung == nil {
		ls.rung = map[string]struct{}{}
	}
	first := len(ls.rung) == 0
	if len(ls.rung) <= ringsKept {
		ls.rung[id] = struct{}{}
	}
	ls.mu.Unlock()
	if first {
		ls.hub.rung.push(ls)
	}
}

// refresh asks the store for the rows that were rung.
func (ls *lists) refresh(ctx context.Context) error {
	ls.mu.Lock()
	rung := ls.rung
	ls.rung = nil
	ls.mu.Unlock()
	if len(rung) > ringsKept {
		ls.each(func(l *list) { ls.hub.rung.push(l) })
		return nil
	}
	for id := range rung {
		row, err := ls.hub.src.Session(ctx, id)
		switch {
		case errors.Is(err, store.ErrNotFound):
			ls.mu.RLock()
			ls.goneLocked(id)
			ls.mu.RUnlock()
		case err != nil:
			return fmt.Errorf("look for session %s: %w", id, err) // the sweep finds the rest
		default:
			ls.publish(store.Commit{Session: id, Row: &row})
		}
	}
	return nil
}

// The first ring of an empty set queues, so the set itself is the claim.
func (ls *lists) claim() bool { return true }
func (ls *lists) begin()      {}

// sweep rereads the lists that are followed and lets go of those that are not.
func (ls *lists) sweep(now time.Time) {
	ls.mu.Lock()
	for key, l := range ls.all {
		if l.holders == 0 && now.Sub(l.leftAt) > ls.hub.opts.Linger {
			delete(ls.all, key)
		}
	}
	ls.mu.Unlock()
	ls.each(func(l *list) { ls.hub.rung.push(l) })
}

func (ls *lists) each(do func(*list)) {
	ls.mu.RLock()
	defer ls.mu.RUnlock()
	for _, l := range ls.all {
		do(l)
	}
}

// end tells all readers of lists why there will never be more.
func (ls *lists) end(err error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.all {
		l.mu.Lock()
		l.err = err
		if l.wake != nil {
			close(l.wake)
			l.wake = nil
		}
		l.mu.Unlock()
	}
	clear(ls.all)
}
