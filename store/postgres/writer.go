package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/store"
)

// writer is the one goroutine of this process that writes. What is asked of it
// while a transaction is under way gathers and shares the next one.
type writer struct {
	store *Store
	conn  *pgx.Conn // nil: none, or lost
	pid   uint32    // of the server's process behind the last connection
	id    [16]byte  // of the row in writers
	batch int64     // the number of the last transaction
	line  []byte    // events, being encoded

	lastCommit atomic.Int64 // when the last commit succeeded, by the machine's clock in nanoseconds; 0: the last failed

	wake chan struct{} // of capacity 1
	done chan struct{} // closed when the goroutine has ended

	mu     sync.Mutex // guards what is below
	queue  []*request
	closed bool
}

// request is one thing asked of the writer.
type request struct {
	// entry is the session that it is about, pinned and if possible loaded; nil
	// when it is about none, or finds its sessions itself.
	entry *entry
	// do says in the batch what to write. Its error is for this request only and
	// then it must have written nothing. It may run more than once.
	do func(*batch) error

	done  chan struct{} // closed when err is set
	err   error
	asked time.Time

	mu   sync.Mutex // held while do runs
	gone bool       // nobody waits any more
	late int        // how many batches have gone before it because its session was not free
}

const (
	// mostLate is how many batches go ahead of a request whose session another
	// process holds, before it waits for the session alone.
	mostLate = 3
	// loneWait is how long everybody else waits while one request waits alone.
	loneWait = 50 * time.Millisecond
)

func newWriter(s *Store) *writer {
	return &writer{store: s, id: newID(), wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// submit asks and waits. When ctx ends first, a request that is still queued
// does not happen; of one that is being committed the outcome is unknown.
func (w *writer) submit(ctx context.Context, e *entry, do func(*batch) error) error {
	if w.store.opts.ReadOnly {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, ErrReadOnly)
	}
	r := &request{entry: e, do: do, done: make(chan struct{}), asked: time.Now()}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return store.ErrClosed
	}
	w.queue = append(w.queue, r)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		r.mu.Lock() // do is not under way when we return
		r.gone = true
		r.mu.Unlock()
		return context.Cause(ctx)
	}
}

// close lets the writer finish what is queued and waits for its end.
func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	<-w.done
}

// run writes until the writer is closed and its queue is empty.
func (w *writer) run() {
	defer close(w.done)
	defer w.leave()
	var late []*request
	for {
		w.mu.Lock()
		taken := append(late, w.queue...)
		w.queue = nil
		closed := w.closed
		w.mu.Unlock()
		if len(taken) == 0 {
			if closed {
				return
			}
			<-w.wake
			continue
		}
		late = w.write(taken)
	}
}

// write does requests: most of them together, those that others keep waiting
// each session for itself. It gives back those that are to wait.
func (w *writer) write(reqs []*request) (late []*request) {
	waits := map[*entry]bool{}
	for _, r := range reqs {
		waits[r.entry] = waits[r.entry] || r.entry != nil && r.late >= mostLate
	}
	var together []*request
	alone := map[*entry][]*request{} // in order, as everything of a session stays
	for _, r := range reqs {
		if waits[r.entry] {
			alone[r.entry] = append(alone[r.entry], r)
		} else {
			together = append(together, r)
		}
	}
	if len(together) > 0 {
		late = w.commit(together, 0)
	}
	for _, reqs := range alone {
		late = append(late, w.commit(reqs, loneWait)...)
	}
	return late
}

// commit does requests in one transaction and answers them. It waits for the
// rows of their sessions for the given time, and if that is none skips those
// that are locked. It gives back the requests that must wait.
func (w *writer) commit(reqs []*request, wait time.Duration) (late []*request) {
	began := time.Now()
	for pause := firstWait; ; pause = min(2*pause, lastWait) {
		b, did, held := w.try(reqs, wait)
		late = append(late, held...)
		switch {
		case b.err == nil:
			w.succeeded()
			answer(did)
			return late
		case codeOf(b.err) == "55P03" && wait > 0:
			return append(late, w.keep(did)...)
		case !environmental(b.err) && len(did) == 1:
			w.fail(b, did)
			return late
		case !environmental(b.err):
			// One of them is at fault: each gets a transaction of its own.
			for _, r := range did {
				if r.err != nil {
					answer([]*request{r})
				} else {
					late = append(late, w.commit([]*request{r}, wait)...)
				}
			}
			return late
		}
		w.lost(b.err)
		if errors.Is(b.err, ErrUnknown) || !passing(b.err) || !w.store.outage.failed(began) || !w.patient(pause) {
			w.fail(b, did)
			return late
		}
		reqs = did
	}
}

// patient waits before a lost database is tried again, unless the store closes.
func (w *writer) patient(pause time.Duration) bool {
	w.mu.Lock()
	closed := w.closed
	w.mu.Unlock()
	return !closed && rest(background, pause)
}

// keep keeps requests whose session another process holds, for as long as they may wait.
func (w *writer) keep(reqs []*request) (late []*request) {
	for _, r := range reqs {
		if time.Since(r.asked) < w.store.opts.LockTimeout {
			late = append(late, r)
			continue
		}
		r.err = fmt.Errorf("write session %s: %w: %w", r.entry.ID, store.ErrUnavailable, ErrHeld)
		answer([]*request{r})
	}
	return late
}

// try does requests in one transaction. did are those whose answer is its outcome, held those that must wait.
func (w *writer) try(reqs []*request, wait time.Duration) (b *batch, did, held []*request) {
	b = newBatch(w)
	defer b.finish()
	entries, free := b.hold(reqs)
	if len(entries) > 0 || slices.ContainsFunc(reqs, func(r *request) bool { return r.entry == nil }) {
		b.begin(entries, wait)
	}
	for _, r := range reqs {
		if e := r.entry; b.err == nil && e != nil && (!free[e] || e.change == nil) {
			r.late++
			held = append(held, r)
			continue
		}
		if b.err != nil || w.do(b, r) {
			did = append(did, r)
		}
	}
	b.guard(b.flush)
	b.commit()
	return b, did, held
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

func answer(reqs []*request) {
	for _, r := range reqs {
		close(r.done)
	}
}

// fail answers requests of a transaction that failed.
func (w *writer) fail(b *batch, reqs []*request) {
	for _, r := range reqs {
		if r.err == nil {
			r.err = b.errorFor(r)
		}
	}
	answer(reqs)
}

// errorFor is the error of a failed batch for one of its requests.
func (b *batch) errorFor(r *request) error {
	doing := "write"
	if r.entry != nil {
		doing = "write session " + r.entry.ID
	}
	if environmental(b.err) {
		return fmt.Errorf("%s: %w: %w", doing, store.ErrUnavailable, explain(b.err))
	}
	return fmt.Errorf("%s: %w", doing, b.refusal())
}

// succeeded notes a commit.
func (w *writer) succeeded() {
	w.lastCommit.Store(time.Now().UnixNano())
	if was := w.store.outage.over(); was > time.Second {
		w.store.log.Info("the database is back", slog.Duration("after", was.Round(time.Millisecond)))
	}
}

// lost notes a failure of the machine's, and says so once.
func (w *writer) lost(err error) {
	if w.lastCommit.Swap(0) != 0 {
		w.store.log.Warn("writing to the database fails", slog.Any("error", err))
	}
	if w.conn != nil && (w.conn.IsClosed() || strings.HasPrefix(codeOf(err), "25")) {
		w.drop() // perhaps a standby by now
	}
}

// connect connects if need be.
func (w *writer) connect(ctx context.Context) error {
	if w.conn != nil && !w.conn.IsClosed() {
		return nil
	}
	conn, err := pgx.ConnectConfig(ctx, w.store.config)
	if err != nil {
		return err
	}
	w.conn, w.pid = conn, conn.PgConn().PID()
	return nil
}

// drop closes the connection.
func (w *writer) drop() {
	if w.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(background, time.Second)
	defer cancel()
	_ = w.conn.Close(ctx)
	w.conn = nil
}

// leave removes what the writer has in the database.
func (w *writer) leave() {
	if w.conn != nil && !w.conn.IsClosed() {
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		_, _ = w.conn.Exec(ctx, `DELETE FROM writers WHERE id = $1 OR at < now() - interval '7 days'`, w.id)
	}
	w.drop()
}

// background is for what must be done whoever waits for it.
var background = context.Background()
