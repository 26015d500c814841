// Package enginetest states what every engine promises, as a suite that an
// engine's own test calls in a few lines:
//
//	func TestEngine(t *testing.T) {
//		enginetest.Exercise(t, func(c *engine.Carrier, lease time.Duration) engine.Engine {
//			return local.Make(c, local.Options{WorkerOptions: engine.WorkerOptions{Lease: lease}})
//		})
//	}
//
// Workers are engines over one store. Each sees the store through a link that a
// test can cut, which is what a crash, a freeze or a network split looks like
// from the store's side. Nothing sleeps: tests wait for commits.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/engine"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/model/modeltest"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/tool"
)

// Make makes the engine under test. lease is how long a claim may go without being renewed.
type Make func(c *engine.Carrier, lease time.Duration) engine.Engine

// house is the engine under test and the store that it stands on.
type house struct {
	make Make
	open func(t *testing.T, opts store.Options) store.Store
}

const (
	testLease = 600 * time.Millisecond
	patience  = time.Minute // far more than anything takes
	grace     = time.Second
)

// world is a store with workers.
type world struct {
	t      *testing.T
	make   Make
	store  store.Store
	script *modeltest.Script
	helper *modeltest.Script
	agents *agent.Book
	deaf   atomic.Bool // commits are not told to the engines
	lease  time.Duration

	mu      sync.Mutex
	workers []*worker
	changed chan struct{} // closed and replaced at each commit
	count   int
}

// worker is one engine in its goroutine.
type worker struct {
	engine.Engine
	link *link
	stop context.CancelFunc
	done chan error
}

// link is a store that can be cut off: every call then fails.
type link struct {
	store.Store
	cut atomic.Bool
}

var errCut = fmt.Errorf("%w: the link is cut", store.ErrUnavailable)

func newWorld(t *testing.T, on house, tools ...tool.Tool) *world {
	set, err := tool.NewSet(tools...)
	if err != nil {
		t.Fatal(err)
	}
	return houseOf(t, on, agent.Agent{Name: "a", Model: "script", Tools: set})
}

// houseOf is a world with agents. The model "helper" has a script of its own.
func houseOf(t *testing.T, on house, agents ...agent.Agent) *world {
	book, err := agent.NewBook(agents...)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, make: on.make, script: modeltest.NewScript(), helper: modeltest.NewScript(), agents: book, lease: testLease, changed: newChan()}
	w.store = on.open(t, store.Options{OnCommit: w.told})
	return w
}

func newChan() chan struct{} { return make(chan struct{}) }

func (w *world) told(c store.Commit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.changed)
	w.changed = newChan()
	if w.deaf.Load() {
		return
	}
	for _, k := range w.workers {
		if !k.link.cut.Load() {
			k.Notify(c)
		}
	}
}

// worker starts a worker. It is stopped, and must have stopped cleanly, when the test ends.
func (w *world) worker() *worker {
	ctx, stop := context.WithCancel(context.Background())
	k := &worker{link: &link{Store: w.store}, stop: stop, done: make(chan error, 1)}
	k.Engine = w.make(&engine.Carrier{
		Store: k.link, Agents: w.agents, Log: slog.New(slog.DiscardHandler),
		Models:  w.model,
		Backoff: engine.Backoff{First: 10 * time.Millisecond, Max: 50 * time.Millisecond},
	}, w.lease)
	w.mu.Lock()
	w.workers = append(w.workers, k)
	w.mu.Unlock()
	go func() { k.done <- k.Run(ctx) }()
	w.t.Cleanup(k.end)
	return k
}

func (w *world) model(ref string) (model.Model, error) {
	if ref == "helper" {
		return w.helper, nil
	}
	return w.script, nil
}

// end stops the worker and waits for it.
func (k *worker) end() {
	k.stop()
	if err := <-k.done; err != nil {
		panic(fmt.Sprintf("the engine ended with %v", err))
	}
	k.done <- nil
}

// submit accepts a message that asks for a run, and gives the run's id.
func (w *world) submit(sessionID string) string {
	w.t.Helper()
	w.mu.Lock()
	w.count++
	n := w.count
	w.mu.Unlock()
	c := &session.Submit{
		ID: fmt.Sprintf("msg_%d", n), Parts: []session.Part{{Type: session.PartText, Text: "go"}},
		Tenant: "t", Owner: "o", DefaultAgent: "a", Run: fmt.Sprintf("run_%d", n), Output: fmt.Sprintf("out_%d", n),
		At: time.Now(), Grace: grace,
	}
	w.do(sessionID, c.Decide)
	return c.Accepted
}

func (w *world) do(sessionID string, decide session.Decide) {
	w.t.Helper()
	if _, err := w.store.Append(context.Background(), sessionID, decide); err != nil {
		w.t.Fatalf("append: %v", err)
	}
}

func (w *world) cancel(sessionID, run string) {
	w.t.Helper()
	w.do(sessionID, session.Cancel{Run: run, By: "o", At: time.Now(), Grace: grace}.Decide)
}

// until waits until the session's state is as wanted.
func (w *world) until(sessionID, what string, wanted func(s *session.State) bool) {
	w.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		w.mu.Lock()
		changed := w.changed
		w.mu.Unlock()
		ok, last := false, ""
		err := w.store.View(context.Background(), sessionID, func(s *session.State) {
			ok = wanted(s)
			for _, r := range s.Runs {
				last += fmt.Sprintf(" %s=%s/%s", r.ID, r.Status, r.WaitingReason)
			}
		})
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			w.t.Fatal(err)
		}
		if ok {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			w.t.Fatalf("waited in vain for %s; the runs:%s", what, last)
		}
	}
}

func (w *world) untilStatus(sessionID, run string, status session.Status) {
	w.t.Helper()
	w.until(sessionID, run+" to be "+string(status), func(s *session.State) bool {
		r := s.Run(run)
		return r != nil && r.Status == status
	})
}

// events are the session's log.
func (w *world) events(sessionID string) []session.Event {
	w.t.Helper()
	frames, err := w.store.Read(context.Background(), sessionID, 0, 100_000)
	if err != nil {
		w.t.Fatal(err)
	}
	var events []session.Event
	for i, f := range frames {
		e, ok, err := f.Event()
		if err != nil || !ok {
			w.t.Fatalf("frame %d: %v", i, err)
		}
		if e.Seq != int64(i+1) {
			w.t.Fatalf("event %d has seq %d", i+1, e.Seq)
		}
		events = append(events, e)
	}
	return events
}

// types counts the events of each type.
func (w *world) types(sessionID string) map[string]int {
	count := map[string]int{}
	for _, e := range w.events(sessionID) {
		count[e.Type()]++
	}
	return count
}

// endsOnce fails unless each run of the session has exactly one terminal event
// and nothing of its own after it.
func (w *world) endsOnce(sessionID string) {
	w.t.Helper()
	ended := map[string]string{}
	for _, e := range w.events(sessionID) {
		if end, ok := ended[e.Run]; ok && e.Run != "" {
			if _, title := e.Data.(session.RunQueued); !title {
				w.t.Errorf("run %s ended with %s, and then came %s (seq %d)", e.Run, end, e.Type(), e.Seq)
			}
		}
		switch e.Data.(type) {
		case session.RunCompleted, session.RunFailed, session.RunCancelled:
			ended[e.Run] = e.Type()
		}
	}
	_ = w.store.View(context.Background(), sessionID, func(s *session.State) {
		for _, r := range s.Runs {
			if r.Status.Terminal() && ended[r.ID] == "" {
				w.t.Errorf("run %s is %s without a terminal event", r.ID, r.Status)
			}
		}
	})
}

// answer is the text of the message that the run wrote last.
func (w *world) answer(sessionID, run string) string {
	w.t.Helper()
	var id string
	_ = w.store.View(context.Background(), sessionID, func(s *session.State) { id = s.Run(run).Message })
	messages, err := w.store.Messages(context.Background(), sessionID, []string{id})
	if err != nil || len(messages) != 1 {
		w.t.Fatalf("message %s: %v", id, err)
	}
	return messages[0].Text()
}

func (l *link) broken() error {
	if l.cut.Load() {
		return errCut
	}
	return nil
}

func (l *link) Append(ctx context.Context, id string, decide session.Decide) (store.Appended, error) {
	if err := l.broken(); err != nil {
		return store.Appended{}, err
	}
	return l.Store.Append(ctx, id, decide)
}

func (l *link) View(ctx context.Context, id string, look func(*session.State)) error {
	if err := l.broken(); err != nil {
		return err
	}
	return l.Store.View(ctx, id, look)
}

func (l *link) Claim(ctx context.Context, worker string, ttl time.Duration, limit int) ([]store.Lease, error) {
	if err := l.broken(); err != nil {
		return nil, err
	}
	return l.Store.Claim(ctx, worker, ttl, limit)
}

func (l *link) ClaimRun(ctx context.Context, due store.Due, worker string, ttl time.Duration) (store.Lease, error) {
	if err := l.broken(); err != nil {
		return store.Lease{}, err
	}
	return l.Store.ClaimRun(ctx, due, worker, ttl)
}

func (l *link) Due(ctx context.Context, age time.Duration, limit int) ([]store.Due, error) {
	if err := l.broken(); err != nil {
		return nil, err
	}
	return l.Store.Due(ctx, age, limit)
}

func (l *link) Renew(ctx context.Context, lease store.Lease, ttl time.Duration) (store.Lease, error) {
	if err := l.broken(); err != nil {
		return store.Lease{}, err
	}
	return l.Store.Renew(ctx, lease, ttl)
}

func (l *link) Expired(ctx context.Context, limit int) ([]store.Lease, error) {
	if err := l.broken(); err != nil {
		return nil, err
	}
	return l.Store.Expired(ctx, limit)
}

func (l *link) Overdue(ctx context.Context, limit int) ([]store.Due, error) {
	if err := l.broken(); err != nil {
		return nil, err
	}
	return l.Store.Overdue(ctx, limit)
}
