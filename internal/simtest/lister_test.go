package simtest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/feed"
	"github.com/holdfast-run/holdfast/store"
)

// lister follows the list of sessions as a page does: it subscribes, reads the
// list, and takes the changes. In the end it must have what the store lists.
type lister struct {
	world *world
	dice  dice
	stop  context.CancelFunc
	done  chan struct{}

	rows map[string]store.SessionRow // for its goroutine, and for the checks when it is done
}

// newLister begins to follow, until end.
func newLister(w *world, n int) *lister {
	ctx, stop := context.WithCancel(context.Background())
	l := &lister{world: w, dice: roll(w.plan.seed, "lister", n), stop: stop, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		for ctx.Err() == nil {
			err := l.connect(ctx)
			if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, feed.ErrBehind) {
				w.find("the list of sessions breaks off: %v", err)
			}
			_ = pause(ctx, l.dice.span(10*time.Millisecond, time.Second))
		}
	}()
	return l
}

func (l *lister) connect(ctx context.Context) error {
	who := holdfast.Local
	changes, err := l.world.runtime.Feed().FollowSessions(ctx, who.Tenant, who.Owner)
	if err != nil {
		return err
	}
	defer changes.Close()
	page, err := l.world.runtime.Sessions(ctx, who, store.SessionQuery{Limit: 200})
	if err != nil {
		return err
	}
	l.rows = map[string]store.SessionRow{}
	for _, row := range page.Items {
		l.rows[row.ID] = row
	}
	for {
		list, err := changes.Next(ctx)
		if err != nil {
			return err
		}
		for _, c := range list {
			if c.Row != nil {
				l.rows[c.Row.ID] = *c.Row
			} else {
				delete(l.rows, c.Deleted)
			}
		}
		if !l.world.calm() && l.dice.chance(0.05) {
			return nil
		}
	}
}

// listToTheEnd ends those that follow the list, when they must know all, and checks what they have.
func (w *world) listToTheEnd() {
	if len(w.lists) == 0 {
		return
	}
	time.Sleep(10 * time.Second) // the list is reread in that time, whatever was lost
	page, err := w.store.Sessions(context.Background(), store.SessionQuery{Tenant: holdfast.Local.Tenant, Owner: holdfast.Local.Owner, Limit: 200})
	if err != nil {
		w.find("list the sessions: %v", err)
	}
	want := map[string]store.SessionRow{}
	for _, row := range page.Items {
		want[row.ID] = row
	}
	for _, l := range w.lists {
		l.stop()
		<-l.done
		w.same("the list that was followed", l.rows, want)
	}
}
