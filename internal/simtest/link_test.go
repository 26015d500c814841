package simtest

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// link is the way from one process to the store. It takes time, and it can be
// cut (calls fail), mute (calls hang until their caller gives up), hold (calls
// hang, and are carried out when it lets go, however long ago their caller gave
// up: a process that was frozen in them) or die with its process. Faults at commits are in [world.beforeCommit] and
// [world.afterCommit], which ask the link that writes.
type link struct {
	store.Store
	world *world
	name  string

	mu      sync.Mutex    // guards what follows; nothing is called while it is held
	state   linkState     // what happens to calls now
	turned  chan struct{} // closed when state changes
	writes  int           // commits so far that count
	crashAt int           // the write at which the process dies; 0: none
	crashOn string        // only writes with an event of this type count; empty: all
	late    bool          // it dies after that write, not before it
	crashed func()        // told when it dies
}

type linkState int

const (
	open linkState = iota
	cut
	mute
	held
	dead
)

func (s linkState) String() string { return [...]string{"open", "cut", "mute", "held", "dead"}[s] }

var (
	errCut   = fmt.Errorf("%w: the link is cut", store.ErrUnavailable)
	errDead  = fmt.Errorf("%w: this process is dead", store.ErrUnavailable)
	errFlaky = fmt.Errorf("%w: the connection broke", store.ErrUnavailable)
	errAway  = fmt.Errorf("%w: the database is away", store.ErrUnavailable)
)

func newLink(w *world, name string) *link {
	return &link{Store: w.store, world: w, name: name, turned: make(chan struct{})}
}

// turn changes the state, unless the process is dead.
func (l *link) turn(to linkState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == dead || l.state == to {
		return
	}
	l.state = to
	close(l.turned)
	l.turned = make(chan struct{})
}

func (l *link) now() linkState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// heal makes a link that is not dead work for ever.
func (l *link) heal() {
	l.turn(open)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.crashAt = 0
}

// die ends the process, once.
func (l *link) die() {
	l.turn(dead)
	if l.crashed != nil {
		l.crashed()
	}
}

// write counts a commit and says whether the process dies before it.
func (l *link) write(list []session.Event) (dies bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.countsLocked(list) {
		return false
	}
	l.writes++
	return l.writes == l.crashAt && !l.late
}

// dies says whether the process dies after this commit, which was counted.
func (l *link) dies(list []session.Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.countsLocked(list) && l.writes == l.crashAt && l.late && l.state != dead
}

func (l *link) countsLocked(list []session.Event) bool {
	return l.crashOn == "" || slices.ContainsFunc(list, func(e session.Event) bool { return e.Type() == l.crashOn })
}

// way is how long a call takes each way: never nothing, so that no two calls
// come at one instant. It hangs on the call and the instant, not on which
// goroutine asks first.
func (l *link) way(method, about, direction string) time.Duration {
	d := roll(l.world.plan.seed, l.name, method, about, direction, time.Since(l.world.start))
	most := l.world.latency()
	if d.chance(0.7) {
		most /= 10
	}
	return time.Microsecond + d.span(0, most)
}

// pass waits until the link lets calls through. frozen says that it held this one.
func (l *link) pass(ctx context.Context) (frozen bool, err error) {
	for {
		l.mu.Lock()
		state, turned := l.state, l.turned
		l.mu.Unlock()
		switch state {
		case open:
			return frozen, nil
		case dead:
			return false, errDead
		case cut:
			return false, errCut
		case mute:
			select {
			case <-turned:
			case <-ctx.Done():
				return false, context.Cause(ctx)
			}
		case held:
			<-turned
			frozen = true
		}
	}
}

// call takes a call to the store and its answer back.
func (l *link) call(ctx context.Context, method, about string, do func(context.Context) error) error {
	time.Sleep(l.way(method, about, "there"))
	frozen, err := l.pass(ctx)
	if err != nil {
		return err
	}
	if frozen {
		ctx = context.WithoutCancel(ctx)
	}
	err = do(ctx)
	time.Sleep(l.way(method, about, "back"))
	if err == nil && l.now() == dead {
		return errDead
	}
	return err
}

func (l *link) Append(ctx context.Context, id string, decide session.Decide) (done store.Appended, err error) {
	err = l.call(ctx, "Append", id, func(ctx context.Context) (err error) {
		done, err = l.Store.Append(ctx, id, func(s *session.State) ([]session.Event, error) {
			l.world.writer = l
			return decide(s)
		})
		return err
	})
	if err != nil {
		return store.Appended{}, err
	}
	return done, nil
}

func (l *link) View(ctx context.Context, id string, look func(*session.State)) error {
	return l.call(ctx, "View", id, func(ctx context.Context) error { return l.Store.View(ctx, id, look) })
}

func (l *link) Messages(ctx context.Context, id string, ids []string) (found []session.Message, err error) {
	err = l.call(ctx, "Messages", id, func(ctx context.Context) (err error) {
		found, err = l.Store.Messages(ctx, id, ids)
		return err
	})
	return found, err
}

func (l *link) Claim(ctx context.Context, worker string, ttl time.Duration, limit int) (leases []store.Lease, err error) {
	err = l.call(ctx, "Claim", "", func(ctx context.Context) (err error) {
		leases, err = l.Store.Claim(ctx, worker, ttl, limit)
		return err
	})
	if err != nil {
		return nil, err
	}
	return leases, nil
}

func (l *link) Renew(ctx context.Context, lease store.Lease, ttl time.Duration) (renewed store.Lease, err error) {
	err = l.call(ctx, "Renew", fmt.Sprint(lease.Session, lease.Fence, lease.Until), func(ctx context.Context) (err error) {
		renewed, err = l.Store.Renew(ctx, lease, ttl)
		return err
	})
	return renewed, err
}

func (l *link) Expired(ctx context.Context, limit int) (leases []store.Lease, err error) {
	err = l.call(ctx, "Expired", "", func(ctx context.Context) (err error) {
		leases, err = l.Store.Expired(ctx, limit)
		return err
	})
	return leases, err
}

func (l *link) Held(ctx context.Context, except string, limit int) (leases []store.Lease, err error) {
	err = l.call(ctx, "Held", "", func(ctx context.Context) (err error) {
		leases, err = l.Store.Held(ctx, except, limit)
		return err
	})
	return leases, err
}

func (l *link) Overdue(ctx context.Context, limit int) (due []store.Due, err error) {
	err = l.call(ctx, "Overdue", "", func(ctx context.Context) (err error) {
		due, err = l.Store.Overdue(ctx, limit)
		return err
	})
	return due, err
}

func (l *link) NextDue(ctx context.Context) (at time.Time, err error) {
	err = l.call(ctx, "NextDue", "", func(ctx context.Context) (err error) {
		at, err = l.Store.NextDue(ctx)
		return err
	})
	return at, err
}

func (l *link) PutBlob(ctx context.Context, id, mediaType string, content io.Reader) (b session.Blob, err error) {
	err = l.call(ctx, "PutBlob", id, func(ctx context.Context) (err error) {
		b, err = l.Store.PutBlob(ctx, id, mediaType, content)
		return err
	})
	return b, err
}

func (l *link) Blob(ctx context.Context, id, hash string) (b session.Blob, r io.ReadCloser, err error) {
	err = l.call(ctx, "Blob", id, func(ctx context.Context) (err error) {
		b, r, err = l.Store.Blob(ctx, id, hash)
		return err
	})
	return b, r, err
}

// owner is a link of the only process that may use the store.
type owner struct{ store.Store }

func (owner) Exclusive() bool { return true }
