package sqlite

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/internal/models"
)

// The read models are written in the transaction of the events they follow from.

const (
	upsertSession = `
INSERT INTO sessions (id, tenant, owner, title, search, agent, status, run, approvals, inbox, seq, parent, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET tenant = excluded.tenant, owner = excluded.owner,
    title = excluded.title, search = excluded.search, agent = excluded.agent,
    status = excluded.status, run = excluded.run, approvals = excluded.approvals, inbox = excluded.inbox,
    seq = excluded.seq, parent = excluded.parent, created_at = excluded.created_at, updated_at = excluded.updated_at`

	upsertMessage = `
INSERT INTO messages (session, id, body) VALUES (?, ?, ?)
ON CONFLICT (session, id) DO UPDATE SET body = excluded.body`

	// A run or an approval stays with its session: an id that another session uses changes no row.
	upsertRun = `
INSERT INTO runs (id, session, tenant, owner, status, reason, queued_at, finished_at, first, last, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET status = excluded.status, reason = excluded.reason,
    finished_at = excluded.finished_at, last = excluded.last, body = excluded.body
WHERE runs.session = excluded.session`

	upsertApproval = `
INSERT INTO approvals (id, session, run, tenant, owner, status, requested_at, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET status = excluded.status, body = excluded.body
WHERE approvals.session = excluded.session`

	// A run that was due keeps its place in the queue (?8), and one that is
	// still held under the same fence keeps its lease.
	upsertWork = `
INSERT INTO work (run, session, due_at, turn, worker, fence, cancel_by) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (run) DO UPDATE SET
    due_at = iif(?8, work.due_at, excluded.due_at), turn = iif(?8, work.turn, excluded.turn),
    lease_until = iif(excluded.worker IS NOT NULL AND work.fence = excluded.fence, work.lease_until, NULL),
    worker = excluded.worker, fence = excluded.fence, cancel_by = excluded.cancel_by`

	deleteWork = `DELETE FROM work WHERE run = ?`

	updateLease = `UPDATE work SET lease_until = ? WHERE run = ? AND session = ? AND fence = ? AND worker = ? AND (lease_until IS NOT NULL OR ?)`
)

// deleteSession is everything that goes with a session, in this order.
var deleteSession = []string{
	`DELETE FROM work WHERE run IN (SELECT id FROM runs WHERE session = ?)`,
	`DELETE FROM runs WHERE session = ?`,
	`DELETE FROM approvals WHERE session = ?`,
	`DELETE FROM messages WHERE session = ?`,
	`DELETE FROM snapshots WHERE session = ?`,
	`DELETE FROM log WHERE session = ?`,
	`DELETE FROM sessions WHERE id = ?`,
	`INSERT OR IGNORE INTO blob_trash (hash)
	 SELECT hash FROM blobs b WHERE session = ?1
	 AND NOT EXISTS (SELECT 1 FROM blobs o WHERE o.hash = b.hash AND o.session <> ?1)`,
	`DELETE FROM blobs WHERE session = ?`,
}

// writeModels writes what the events of a change have changed.
func (b *batch) writeModels(c *change) {
	s := c.entry.state
	changed := s.TakeChanges()
	if c.fact {
		row := store.RowOf(s)
		c.row = &row
		b.writeSession(row)
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
		b.writeApproval(s, &changed.Decided[i])
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

// writeJSON writes a row whose last column is the JSON of v, and says how many rows that changed.
func (b *batch) writeJSON(query string, v any, columns ...any) int64 {
	raw, err := models.Marshal(v)
	if err != nil {
		b.fail(fmt.Errorf("encode a row: %w: %w", errPanic, err))
		return 0
	}
	n, _ := b.exec(query, append(columns, raw)...)
	return n
}

func (b *batch) writeSession(r store.SessionRow) {
	_, _ = b.exec(upsertSession, r.ID, r.Tenant, r.Owner, r.Title, strings.ToLower(r.Title), r.Agent, r.Status, r.Run,
		r.Approvals, r.Inbox, r.Seq, r.Parent, millis(r.CreatedAt), millis(r.UpdatedAt))
}

func (b *batch) writeRun(c *change, run *session.Run) {
	s := c.entry.state
	var finished, last any
	if run.FinishedAt != nil {
		finished, last = millis(*run.FinishedAt), s.Seq
	}
	if run.Status.Terminal() && len(run.Steps) == 0 && run.CurrentStep > 0 {
		run = b.withSteps(run)
	}
	n := b.writeJSON(upsertRun, run, run.ID, s.ID, s.Tenant, s.Owner, string(run.Status), string(run.WaitingReason),
		millis(run.QueuedAt), finished, c.events[0].Seq, last)
	if n == 0 {
		b.fail(&session.Error{
			Code: session.Conflict, Message: fmt.Sprintf("the run id %q is taken: choose a new id", run.ID),
		})
	}
}

// withSteps gives a run that ended earlier the steps that its state has shed.
func (b *batch) withSteps(run *session.Run) *session.Run {
	stored, err := scanJSON[session.Run](b.w.queryRow(selectRun, run.ID))
	if err != nil {
		b.fail(fmt.Errorf("read run %s: %w", run.ID, err))
		return run
	}
	whole := *run
	whole.Steps = stored.Steps
	return &whole
}

func (b *batch) writeApproval(s *session.State, a *session.Approval) {
	n := b.writeJSON(upsertApproval, a, a.ID, s.ID, a.Run, s.Tenant, s.Owner, string(a.Status), millis(a.RequestedAt))
	if n == 0 {
		b.fail(&session.Error{
			Code: session.Conflict, Message: fmt.Sprintf("the approval id %q is taken: choose a new id", a.ID),
		})
	}
}

// writeWork writes the work of a run, if it has any.
func (b *batch) writeWork(session string, was, is models.Work) {
	row, ok := is.Columns(was, b.now)
	if !ok {
		_, _ = b.exec(deleteWork, is.Run)
		return
	}
	b.w.turn++
	_, _ = b.exec(upsertWork, is.Run, session, row.Due, b.w.turn, row.Worker, is.Fence, row.CancelBy, row.Keeps)
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
		if b.err != nil {
			return
		}
		n, _ := b.exec(updateLease, millis(l.lease.Until), l.lease.Run, l.lease.Session, l.lease.Fence, l.lease.Worker, l.claim)
		if l.lost != nil {
			*l.lost = n == 0
		}
	}
}

// snapshot writes an entry's state.
func (b *batch) snapshot(e *entry) {
	raw, err := models.Marshal(e.state)
	if err != nil {
		b.fail(fmt.Errorf("encode the state of session %s: %w: %w", e.ID, errPanic, err))
		return
	}
	if _, err := b.exec(upsertSnapshot, e.ID, models.SnapshotVersion, e.state.Seq, raw); err == nil {
		e.since = models.Progress{Snapshot: int64(len(raw))}
	}
}

// deleteRows removes everything of a session from before this batch.
func (b *batch) deleteRows(id string) {
	for _, query := range deleteSession {
		if _, err := b.exec(query, id); err != nil {
			return
		}
	}
}

// delete ends a session.
func (b *batch) delete(e *entry) error {
	c, err := b.hold(e)
	if err != nil {
		return err
	}
	if !e.state.Exists() {
		return notFound("session", e.ID)
	}
	if err := b.begin(); err != nil {
		return err
	}
	last := store.RowOf(e.state)
	*c = change{entry: e, deleted: &last}
	e.state, e.work, e.since = session.New(e.ID), map[string]models.Work{}, models.Progress{}
	b.store.cache.Resize(e, 0)
	// Its events leave the tail with everybody else's: rows of the tail go from the oldest on.
	b.settleAll = b.settleAll || len(b.store.tail.of(e.ID)) > 0
	return nil
}

func millis(t time.Time) int64 { return t.UnixMilli() }

func fromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
