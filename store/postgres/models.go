package postgres

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/internal/models"
)

// The read models are written in the transaction of the events they follow from.

const (
	upsertSession = `
INSERT INTO sessions (id, tenant, owner, title, search, agent, status, run, approvals, inbox, seq, parent, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
ON CONFLICT (id) DO UPDATE SET tenant = excluded.tenant, owner = excluded.owner,
    title = excluded.title, search = excluded.search, agent = excluded.agent,
    status = excluded.status, run = excluded.run, approvals = excluded.approvals, inbox = excluded.inbox,
    seq = excluded.seq, parent = excluded.parent, created_at = excluded.created_at, updated_at = excluded.updated_at`

	upsertMessage = `
INSERT INTO messages (session, id, body) VALUES ($1, $2, $3)
ON CONFLICT (session, id) DO UPDATE SET body = excluded.body`

	// A run or an approval stays with its session: an id that another session uses fails the transaction.
	upsertRun = `
INSERT INTO runs (id, session, tenant, owner, status, reason, queued_at, finished_at, first, last, body)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (id) DO UPDATE SET session = CASE WHEN runs.session = excluded.session THEN runs.session END,
    status = excluded.status, reason = excluded.reason,
    finished_at = excluded.finished_at, last = excluded.last, body = excluded.body`

	upsertApproval = `
INSERT INTO approvals (id, session, run, tenant, owner, status, requested_at, body)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (id) DO UPDATE SET session = CASE WHEN approvals.session = excluded.session THEN approvals.session END,
    status = excluded.status, body = excluded.body`

	// A run that was due keeps its place in the queue ($7), and one that is
	// still held under the same fence keeps its lease.
	upsertWork = `
INSERT INTO work (run, session, due_at, turn, worker, fence, cancel_by) VALUES ($1, $2, $3, nextval('turns'), $4, $5, $6)
ON CONFLICT (run) DO UPDATE SET
    due_at = CASE WHEN $7 THEN work.due_at ELSE excluded.due_at END, turn = CASE WHEN $7 THEN work.turn ELSE excluded.turn END,
    lease_until = CASE WHEN excluded.worker IS NOT NULL AND work.fence = excluded.fence THEN work.lease_until END,
    worker = excluded.worker, fence = excluded.fence, cancel_by = excluded.cancel_by`

	deleteWork = `DELETE FROM work WHERE run = $1`

	updateLease = `
UPDATE work SET lease_until = $1
WHERE run = $2 AND session = $3 AND fence = $4 AND worker = $5 AND (lease_until IS NOT NULL OR $6)`
)

// deleteSession is everything that goes with a session, but for its row.
var deleteSession = []string{
	`DELETE FROM work WHERE session = $1`,
	`DELETE FROM runs WHERE session = $1`,
	`DELETE FROM approvals WHERE session = $1`,
	`DELETE FROM messages WHERE session = $1`,
	`DELETE FROM snapshots WHERE session = $1`,
	`DELETE FROM log WHERE session = $1`,
	`DELETE FROM sessions WHERE id = $1`,
	`DELETE FROM blobs WHERE session = $1`,
}

// writeModels writes what the events of a change have changed.
func (b *batch) writeModels(c *change) {
	s := c.entry.state
	changed := s.TakeChanges()
	if c.fact {
		row := store.RowOf(s)
		c.row = &row
		b.writes.Queue(upsertSession, row.ID, row.Tenant, row.Owner, []byte(row.Title), []byte(strings.ToLower(row.Title)), []byte(row.Agent),
			row.Status, row.Run, row.Approvals, row.Inbox, row.Seq, row.Parent, millis(row.CreatedAt), millis(row.UpdatedAt))
	}
	for _, id := range changed.Messages {
		if m := s.Message(id); m != nil {
			b.writeJSON(upsertMessage, m, s.ID, id)
		}
	}
	ended := len(changed.Messages) > 0
	for _, id := range changed.Runs {
		if run := s.Run(id); run != nil {
			b.writeRun(c, run)
			ended = ended || run.Status.Terminal()
		}
	}
	for i := range changed.Decided {
		a := &changed.Decided[i]
		b.writeJSON(upsertApproval, a, a.ID, s.ID, a.Run, s.Tenant, s.Owner, string(a.Status), millis(a.RequestedAt))
	}
	if c.fact || len(c.touched) > 0 {
		c.work = append(c.work, models.Rework(s, c.entry.work, changed.Runs, c.touched, func(was, is models.Work) {
			b.writeWork(s.ID, was, is)
		})...)
	}
	e := c.entry
	e.since.Events += int64(len(c.events))
	e.since.Bytes += int64(len(c.body))
	if ended {
		s.Shed()
		b.store.cache.Resize(e, models.SizeOf(s))
	} else {
		b.store.cache.Grow(e, int64(len(c.body)))
	}
}

// writeJSON writes a row whose last column is the JSON of v.
func (b *batch) writeJSON(query string, v any, columns ...any) {
	raw, err := models.Marshal(v)
	if err != nil {
		b.fail(fmt.Errorf("encode a row: %w: %w", errPanic, err))
		return
	}
	b.writes.Queue(query, append(columns, raw)...)
}

func (b *batch) writeRun(c *change, run *session.Run) {
	s := c.entry.state
	var finished, last *int64
	if run.FinishedAt != nil {
		at := millis(*run.FinishedAt)
		finished, last = &at, &s.Seq
	}
	if run.Status.Terminal() && len(run.Steps) == 0 && run.CurrentStep > 0 {
		run = b.withSteps(run)
	}
	first := s.Seq
	if len(c.events) > 0 {
		first = c.events[0].Seq
	}
	b.writeJSON(upsertRun, run, run.ID, s.ID, s.Tenant, s.Owner, string(run.Status), string(run.WaitingReason),
		millis(run.QueuedAt), finished, first, last)
}

// withSteps gives a run that ended earlier the steps that its state has shed.
func (b *batch) withSteps(run *session.Run) *session.Run {
	ctx, cancel := b.trip()
	defer cancel()
	stored, err := scanJSON[session.Run](b.w.conn.QueryRow(ctx, selectRun, run.ID))
	if err != nil {
		b.fail(fmt.Errorf("read run %s: %w", run.ID, err))
		return run
	}
	whole := *run
	whole.Steps = stored.Steps
	return &whole
}

// writeWork writes the work of a run, if it has any.
func (b *batch) writeWork(session string, was, is models.Work) {
	row, ok := is.Columns(was, b.now)
	if !ok {
		b.writes.Queue(deleteWork, is.Run)
		return
	}
	b.writes.Queue(upsertWork, is.Run, session, row.Due, row.Worker, is.Fence, row.CancelBy, row.Keeps)
}

// leaseChange gives a lease its end.
type leaseChange struct {
	lease store.Lease
	claim bool  // a new lease; else it must be there
	lost  *bool // set when it is not
}

// writeLeases follows writeModels: the rows say who holds each run now.
func (b *batch) writeLeases() {
	for _, l := range b.leases {
		b.writes.Queue(updateLease, millis(l.lease.Until), l.lease.Run, l.lease.Session, l.lease.Fence, l.lease.Worker, l.claim).
			Exec(func(tag pgconn.CommandTag) error {
				if l.lost != nil {
					*l.lost = tag.RowsAffected() == 0
				}
				return nil
			})
	}
}

// snapshot writes an entry's state.
func (b *batch) snapshot(e *entry) {
	raw, err := models.Marshal(e.state)
	if err != nil {
		b.fail(fmt.Errorf("encode the state of session %s: %w: %w", e.ID, errPanic, err))
		return
	}
	b.writes.Queue(upsertSnapshot, e.ID, models.SnapshotVersion, e.state.Seq, raw)
	e.since = models.Progress{Snapshot: int64(len(raw))}
}
