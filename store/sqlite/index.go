package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/internal/models"
)

const (
	sessionColumns = `id, tenant, owner, title, agent, status, run, approvals, inbox, seq, parent, created_at, updated_at`

	selectSession  = `SELECT ` + sessionColumns + ` FROM sessions WHERE id = ?`
	selectSessions = `
SELECT ` + sessionColumns + ` FROM sessions
WHERE tenant = ?1 AND owner = ?2 AND (updated_at, id) < (?3, ?4) AND (?5 = '' OR instr(search, ?5) > 0)
ORDER BY updated_at DESC, id DESC LIMIT ?6`

	selectRun      = `SELECT body FROM runs WHERE id = ?`
	selectApproval = `SELECT body FROM approvals WHERE id = ?`

	// One range of an owner's index for each status, merged.
	runsOfStatus = `
SELECT * FROM (SELECT queued_at AS at, id, body FROM runs
WHERE tenant = ?1 AND owner = ?2 AND status = '%s' AND (queued_at, id) < (?3, ?4)
AND (?5 = '' OR reason = ?5) ORDER BY queued_at DESC, id DESC LIMIT ?6)`
	runsOfSession = `
SELECT queued_at AS at, id, body FROM runs
WHERE session = ?5 AND (queued_at, id) < (?3, ?4) AND tenant = ?1 AND owner = ?2
AND (?6 = '' OR reason = ?6) AND (?7 = '' OR instr(?7, ' ' || status || ' ') > 0)
ORDER BY queued_at DESC, id DESC LIMIT ?8`
	approvalsOfStatus = `
SELECT * FROM (SELECT requested_at AS at, id, body FROM approvals
WHERE tenant = ?1 AND owner = ?2 AND status = '%s' AND (requested_at, id) < (?3, ?4)
AND (?5 = '' OR run = ?5) ORDER BY requested_at DESC, id DESC LIMIT ?6)`
	approvalsOfSession = `
SELECT requested_at AS at, id, body FROM approvals
WHERE session = ?5 AND (requested_at, id) < (?3, ?4) AND tenant = ?1 AND owner = ?2
AND (?6 = '' OR run = ?6) AND (?7 = '' OR status = ?7)
ORDER BY requested_at DESC, id DESC LIMIT ?8`
)

var (
	allStatuses = []session.Status{
		session.Queued, session.Running, session.Waiting, session.Completed, session.Failed, session.Cancelled,
	}
	allApprovalStatuses = []session.ApprovalStatus{
		session.StatusPending, session.StatusApproved, session.StatusDenied, session.StatusExpired, session.StatusVoided,
	}
)

// Sessions lists the sessions of one owner, the last changed first.
func (s *Store) Sessions(ctx context.Context, q store.SessionQuery) (store.Page[store.SessionRow], error) {
	var none store.Page[store.SessionRow]
	if err := s.enter(ctx); err != nil {
		return none, err
	}
	from, err := models.ParsePlace(q.Cursor)
	if err != nil {
		return none, err
	}
	limit := models.PageLimit(q.Limit)
	rows, err := collect(ctx, s.readers, func(rows *sql.Rows) (store.SessionRow, error) { return scanSession(rows) },
		selectSessions, q.Tenant, q.Owner, from.At, from.ID, strings.ToLower(q.Search), limit+1)
	if err != nil {
		return none, s.unavailable(ctx, "list sessions", err)
	}
	return models.Cut(rows, limit, func(r store.SessionRow) models.Place { return models.Place{At: millis(r.UpdatedAt), ID: r.ID} }), nil
}

// Runs lists the runs of one owner, the last queued first.
func (s *Store) Runs(ctx context.Context, q store.RunQuery) (store.Page[session.Run], error) {
	var none store.Page[session.Run]
	if err := s.enter(ctx); err != nil {
		return none, err
	}
	from, err := models.ParsePlace(q.Cursor)
	if err != nil {
		return none, err
	}
	limit := models.PageLimit(q.Limit)
	var rows []session.Run
	if q.Session != "" {
		statuses := ""
		for _, status := range q.Status {
			statuses += " " + string(status) + " "
		}
		rows, err = collect(ctx, s.readers, scanBody[session.Run], runsOfSession,
			q.Tenant, q.Owner, from.At, from.ID, q.Session, string(q.Reason), statuses, limit+1)
	} else {
		query := merged(runsOfStatus, allStatuses, q.Status...)
		if query == "" {
			return none, nil
		}
		rows, err = collect(ctx, s.readers, scanBody[session.Run], query,
			q.Tenant, q.Owner, from.At, from.ID, string(q.Reason), limit+1)
	}
	if err != nil {
		return none, s.unavailable(ctx, "list runs", err)
	}
	return models.Cut(rows, limit, func(r session.Run) models.Place { return models.Place{At: millis(r.QueuedAt), ID: r.ID} }), nil
}

// Approvals lists the approvals of one owner, the last requested first.
func (s *Store) Approvals(ctx context.Context, q store.ApprovalQuery) (store.Page[session.Approval], error) {
	var none store.Page[session.Approval]
	if err := s.enter(ctx); err != nil {
		return none, err
	}
	from, err := models.ParsePlace(q.Cursor)
	if err != nil {
		return none, err
	}
	limit := models.PageLimit(q.Limit)
	var rows []session.Approval
	if q.Session != "" {
		rows, err = collect(ctx, s.readers, scanBody[session.Approval], approvalsOfSession,
			q.Tenant, q.Owner, from.At, from.ID, q.Session, q.Run, string(q.Status), limit+1)
	} else {
		var wanted []session.ApprovalStatus
		if q.Status != "" {
			wanted = append(wanted, q.Status)
		}
		query := merged(approvalsOfStatus, allApprovalStatuses, wanted...)
		if query == "" {
			return none, nil
		}
		rows, err = collect(ctx, s.readers, scanBody[session.Approval], query,
			q.Tenant, q.Owner, from.At, from.ID, q.Run, limit+1)
	}
	if err != nil {
		return none, s.unavailable(ctx, "list approvals", err)
	}
	return models.Cut(rows, limit, func(a session.Approval) models.Place { return models.Place{At: millis(a.RequestedAt), ID: a.ID} }), nil
}

// merged is a query over one range for each wanted status, or all if none is
// named. It is empty when none of those wanted is known.
func merged[S ~string](ofStatus string, all []S, wanted ...S) string {
	var ranges []string
	for _, status := range all {
		if len(wanted) == 0 || slices.Contains(wanted, status) {
			ranges = append(ranges, fmt.Sprintf(ofStatus, status))
		}
	}
	if len(ranges) == 0 {
		return ""
	}
	return strings.Join(ranges, " UNION ALL ") + ` ORDER BY at DESC, id DESC LIMIT ?6`
}

// Session finds one session's row.
func (s *Store) Session(ctx context.Context, id string) (store.SessionRow, error) {
	if err := s.enter(ctx); err != nil {
		return store.SessionRow{}, err
	}
	row, err := scanSession(s.readers.QueryRowContext(ctx, selectSession, id))
	return row, s.found(ctx, "session", id, err)
}

// Run finds one run.
func (s *Store) Run(ctx context.Context, id string) (session.Run, error) {
	if err := s.enter(ctx); err != nil {
		return session.Run{}, err
	}
	run, err := scanJSON[session.Run](s.readers.QueryRowContext(ctx, selectRun, id))
	return run, s.found(ctx, "run", id, err)
}

// Approval finds one approval, decided or not.
func (s *Store) Approval(ctx context.Context, id string) (session.Approval, error) {
	if err := s.enter(ctx); err != nil {
		return session.Approval{}, err
	}
	a, err := scanJSON[session.Approval](s.readers.QueryRowContext(ctx, selectApproval, id))
	return a, s.found(ctx, "approval", id, err)
}

func (s *Store) found(ctx context.Context, kind, id string, err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return notFound(kind, id)
	}
	return s.unavailable(ctx, "read "+kind+" "+id, err)
}

// collect gives all rows of a query.
func collect[T any](ctx context.Context, db querier, scan func(*sql.Rows) (T, error), query string, args ...any) ([]T, error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, rows.Err()
}

// scanner is a row.
type scanner interface{ Scan(dest ...any) error }

func scanSession(row scanner) (r store.SessionRow, err error) {
	var created, updated int64
	err = row.Scan(&r.ID, &r.Tenant, &r.Owner, &r.Title, &r.Agent, &r.Status, &r.Run, &r.Approvals, &r.Inbox, &r.Seq, &r.Parent, &created, &updated)
	r.CreatedAt, r.UpdatedAt = fromMillis(created), fromMillis(updated)
	return r, err
}

// scanBody reads a row of (at, id, body).
func scanBody[T any](rows *sql.Rows) (v T, err error) {
	var at int64
	var id string
	var raw sql.RawBytes
	if err := rows.Scan(&at, &id, &raw); err != nil {
		return v, err
	}
	return v, decodeRow(raw, &v)
}

// scanJSON reads a row of one body.
func scanJSON[T any](row scanner) (v T, err error) {
	var raw []byte
	if err := row.Scan(&raw); err != nil {
		return v, err
	}
	return v, decodeRow(raw, &v)
}

func decodeRow(raw []byte, v any) error {
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}
