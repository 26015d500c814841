package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/internal/models"
)

// writer is the one goroutine that writes. What is asked of it while a commit
// is being flushed gathers and shares the next one.
type writer struct {
	store    *Store
	db       *sql.DB // of one connection
	conn     *sql.Conn
	stmts    map[string]*sql.Stmt
	turn     int64 // counts the times that a run became due
	failures int   // commits that failed since the last that succeeded

	// What batches use one after the other.
	row     []byte // of the tail, being made
	line    []byte // events, being encoded
	changes []*change
	chunks  []sessionChunk
	packer  packer

	lastCommit atomic.Int64 // when the last commit succeeded, by the machine's clock in nanoseconds; 0: the last failed

	gatherer *gatherer

	wake chan struct{} // of capacity 1
	done chan struct{} // closed when the goroutine has ended

	mu     sync.Mutex // guards what is below
	queue  []*request
	wanted int // the length of the queue that the gatherer waits for; 0: it does not wait
	closed bool
}

// request is one thing asked of the writer.
type request struct {
	// entry is the session whose state it changes, pinned and if possible
	// loaded; nil when it changes none or several.
	entry *entry
	// do says in the batch what to write. Its error is for this request only and
	// then it must have written nothing. It may run more than once.
	do func(*batch) error

	done chan struct{} // of capacity 1: gets one value when err is set
	err  error

	mu       sync.Mutex // held while do runs
	gone     bool       // nobody waits any more
	deferred int        // how many batches it has waited for a look at its session to end
}

// mostDeferred is how many batches go ahead of a request whose session is being
// looked at. After that all writing waits for the look.
const mostDeferred = 100

var requests = sync.Pool{New: func() any { return &request{done: make(chan struct{}, 1)} }}

// submit asks and waits. When ctx ends first, a request that is still queued
// does not happen; of one that is being committed the outcome is unknown.
func (w *writer) submit(ctx context.Context, e *entry, do func(*batch) error) error {
	r := requests.Get().(*request)
	r.entry, r.do, r.err, r.deferred = e, do, nil, 0
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return store.ErrClosed
	}
	w.queue = append(w.queue, r)
	first, full := len(w.queue) == 1, w.wanted > 0 && (len(w.queue) == w.wanted || r.urgent())
	w.mu.Unlock()
	if full {
		tell(w.gatherer.full)
	}
	if first {
		tell(w.wake)
	}
	select {
	case <-r.done:
		err := r.err
		r.entry, r.do = nil, nil
		requests.Put(r)
		return err
	case <-ctx.Done():
		r.mu.Lock() // do is not under way when we return
		r.gone = true
		r.mu.Unlock()
		return context.Cause(ctx)
	}
}

// poke makes the writer look at its queue and at the cache.
func (w *writer) poke() { tell(w.wake) }

// tell fills a channel of capacity 1.
func tell(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// close lets the writer finish what is queued and waits for its end.
func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.poke()
	<-w.done
}

// run writes until the writer is closed and its queue is empty.
func (w *writer) run() {
	defer close(w.done)
	var deferred, spare []*request
	for {
		w.evict()
		w.gather()
		w.mu.Lock()
		taken := w.queue
		w.queue = spare[:0]
		closed := w.closed
		w.mu.Unlock()
		if len(taken) == 0 && len(deferred) == 0 {
			if closed {
				return
			}
			spare = taken
			<-w.wake
			continue
		}
		deferred = w.commit(append(deferred, taken...))
		clear(taken)
		spare = taken
	}
}

// commit does requests in one transaction and answers them. It gives back
// those that must wait because somebody looks at their session.
func (w *writer) commit(reqs []*request) (deferred []*request) {
	b := newBatch(w)
	_ = b.begin() // before any gate is held: waiting for another process must not keep readers waiting
	var did []*request
	var late map[*entry]bool
	for i, r := range reqs {
		if b.err != nil {
			did = append(did, reqs[i:]...)
			break
		}
		if e := r.entry; e != nil && e.change == nil {
			if late[e] || !e.gate.TryHold() {
				if late[e] || r.deferred < mostDeferred && len(reqs) > 1 {
					if late == nil {
						late = map[*entry]bool{}
					}
					late[e] = true
					r.deferred++
					deferred = append(deferred, r)
					continue
				}
				_ = e.gate.Hold(background)
			}
			b.take(e)
			w.gatherer.wrote(e)
		}
		if w.do(b, r) {
			did = append(did, r)
		}
	}
	b.guard(b.flush)
	b.finish()
	if b.err != nil && !environmental(b.err) && len(did) > 1 {
		// One of them is at fault: each gets a commit of its own.
		for _, r := range did {
			if r.err == nil {
				deferred = append(deferred, w.commit([]*request{r})...)
			} else {
				r.done <- struct{}{}
			}
		}
		return deferred
	}
	for _, r := range did {
		if b.err != nil && r.err == nil {
			r.err = b.errorFor(r)
		}
		r.done <- struct{}{}
	}
	return deferred
}

// do runs one request and says whether somebody waits for its answer.
func (w *writer) do(b *batch, r *request) (wanted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone {
		return false
	}
	r.err = nil
	b.guard(func() {
		if err := r.do(b); err != nil && b.err == nil {
			r.err = err
		}
	})
	return true
}

// begin opens the transaction. It waits for other processes at most as long as Options.BusyTimeout.
func (w *writer) begin() error {
	if w.conn == nil {
		conn, err := w.db.Conn(background)
		if err != nil {
			return err
		}
		w.conn = conn
	}
	return w.exec(`BEGIN IMMEDIATE`)
}

func (w *writer) exec(query string, args ...any) error {
	_, err := w.execResult(query, args...)
	return err
}

// execResult runs a statement that is prepared once.
func (w *writer) execResult(query string, args ...any) (sql.Result, error) {
	stmt, err := w.prepare(query)
	if err != nil {
		return nil, err
	}
	return stmt.Exec(args...)
}

// queryRow reads inside the transaction.
func (w *writer) queryRow(query string, args ...any) scanner {
	stmt, err := w.prepare(query)
	if err != nil {
		return failedRow{err}
	}
	return stmt.QueryRow(args...)
}

// failedRow is a row that could not be asked for.
type failedRow struct{ err error }

func (r failedRow) Scan(...any) error { return r.err }

func (w *writer) prepare(query string) (*sql.Stmt, error) {
	if stmt := w.stmts[query]; stmt != nil {
		return stmt, nil
	}
	stmt, err := w.conn.PrepareContext(background, query)
	if err != nil {
		return nil, err
	}
	w.stmts[query] = stmt
	return stmt, nil
}

// rollback undoes the transaction. A connection that cannot even do that is
// given up, and the next begin opens another.
func (w *writer) rollback() {
	if w.conn == nil {
		return
	}
	if _, err := w.conn.ExecContext(background, `ROLLBACK`); err != nil && !noTransaction(err) {
		w.store.log.Error("roll back", slog.Any("error", err))
		w.drop()
	}
}

// drop closes the connection.
func (w *writer) drop() {
	for query, stmt := range w.stmts {
		_ = stmt.Close()
		delete(w.stmts, query)
	}
	if w.conn != nil {
		_ = w.conn.Close()
		w.conn = nil
	}
	w.db.SetMaxIdleConns(0) // or the pool would give the same connection again
	w.db.SetMaxIdleConns(1)
}

// evict throws out of the cache what is too much, after a snapshot where one saves more than it costs.
func (w *writer) evict() {
	victims := w.store.cache.Victims()
	if len(victims) == 0 {
		return
	}
	b := newBatch(w)
	held := victims[:0]
	for _, e := range victims {
		if !e.gate.TryHold() {
			w.store.cache.Unpin(e)
			continue
		}
		held = append(held, e)
		if e.state != nil && e.state.Exists() && e.since.Events > models.KeepEvents {
			b.snapshot(e)
		}
	}
	b.finish()
	for _, e := range held {
		e.forget() // without the snapshot it takes longer to load, that is all
		e.gate.Release()
		w.store.cache.Drop(e)
	}
}

// succeeded notes a commit.
func (w *writer) succeeded() {
	if w.lastCommit.Swap(time.Now().UnixNano()) == 0 && w.failures > 0 {
		w.store.log.Info("writing works again", slog.Int("failures", w.failures))
		w.failures = 0
	}
}

// failed notes a failure of the machine's, and says so once.
func (w *writer) failed(err error) {
	w.lastCommit.Store(0)
	if w.failures++; w.failures == 1 {
		w.store.log.Error("writing fails", slog.Any("error", err))
	}
	if !errors.Is(kindOf(err), ErrLocked) {
		w.drop() // the next batch begins with a connection that has seen nothing of this
	}
}
