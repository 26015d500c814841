package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/internal/models"
)

const (
	sessionColumns = `id, tenant, owner, title, agent, status, run, approvals, inbox, seq, parent, created_at, updated_at`

	selectSession  = `SELECT ` + sessionColumns + ` FROM sessions WHERE id = $1`
	selectSessions = `
SELECT ` + sessionColumns + ` FROM sessions
WHERE tenant = $1 AND owner = $2 AND (updated_at, id) < ($3, $4) AND ($5::bytea = '' OR position($5::bytea IN search) > 0)
ORDER BY updated_at DESC, id DESC LIMIT $6`

	selectRun      = `SELECT body FROM runs WHERE id = $1`
	selectApproval = `SELECT body FROM approvals WHERE id = $1`

	// One range of an owner's index for each status, merged.
	runsOfStatus = `
(SELECT queued_at AS at, id, body FROM runs
WHERE tenant = $1 AND owner = $2 AND status = '%s' AND (queued_at, id) < ($3, $4)
AND ($5::text = '' OR reason = $5::text) ORDER BY queued_at DESC, id DESC LIMIT $6)`
	runsOfSession = `
SELECT queued_at AS at, id, body FROM runs
WHERE session = $5 AND (queued_at, id) < ($3, $4) AND tenant = $1 AND owner = $2
AND ($6::text = '' OR reason = $6::text) AND (cardinality($7::text[]) = 0 OR status = ANY($7::text[]))
ORDER BY queued_at DESC, id DESC LIMIT $8`
	approvalsOfStatus = `
(SELECT requested_at AS at, id, body FROM approvals
WHERE tenant = $1 AND owner = $2 AND status = '%s' AND (requested_at, id) < ($3, $4)
AND ($5::text = '' OR run = $5::text) ORDER BY requested_at DESC, id DESC LIMIT $6)`
	approvalsOfSession = `
SELECT requested_at AS at, id, body FROM approvals
WHERE session = $5 AND (requested_at, id) < ($3, $4) AND tenant = $1 AND owner = $2
AND ($6::text = '' OR run = $6::text) AND ($7::text = '' OR status = $7::text)
ORDER BY requested_at DESC, id DESC LIMIT $8`
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
	return list(ctx, s, "sessions", q.Cursor, q.Limit, []string{q.Tenant, q.Owner},
		func(r store.SessionRow) models.Place { return models.Place{At: millis(r.UpdatedAt), ID: r.ID} },
		func(db querier, from models.Place, limit int) ([]store.SessionRow, error) {
			return collect(ctx, db, func(row pgx.CollectableRow) (store.SessionRow, error) { return scanSession(row) },
				selectSessions, q.Tenant, q.Owner, from.At, from.ID, []byte(strings.ToLower(q.Search)), limit)
		})
}

// Runs lists the runs of one owner, the last queued first.
func (s *Store) Runs(ctx context.Context, q store.RunQuery) (store.Page[session.Run], error) {
	return list(ctx, s, "runs", q.Cursor, q.Limit, []string{q.Tenant, q.Owner, q.Session, string(q.Reason)},
		func(r session.Run) models.Place { return models.Place{At: millis(r.QueuedAt), ID: r.ID} },
		func(db querier, from models.Place, limit int) ([]session.Run, error) {
			if q.Session != "" {
				statuses := []string{}
				for _, status := range q.Status {
					statuses = append(statuses, string(status))
				}
				return collect(ctx, db, scanBody[session.Run], runsOfSession,
					q.Tenant, q.Owner, from.At, from.ID, q.Session, string(q.Reason), statuses, limit)
			}
			query := merged(runsOfStatus, allStatuses, q.Status...)
			if query == "" {
				return nil, nil
			}
			return collect(ctx, db, scanBody[session.Run], query, q.Tenant, q.Owner, from.At, from.ID, string(q.Reason), limit)
		})
}

// Approvals lists the approvals of one owner, the last requested first.
func (s *Store) Approvals(ctx context.Context, q store.ApprovalQuery) (store.Page[session.Approval], error) {
	return list(ctx, s, "approvals", q.Cursor, q.Limit, []string{q.Tenant, q.Owner, q.Session, q.Run, string(q.Status)},
		func(a session.Approval) models.Place { return models.Place{At: millis(a.RequestedAt), ID: a.ID} },
		func(db querier, from models.Place, limit int) ([]session.Approval, error) {
			if q.Session != "" {
				return collect(ctx, db, scanBody[session.Approval], approvalsOfSession,
					q.Tenant, q.Owner, from.At, from.ID, q.Session, q.Run, string(q.Status), limit)
			}
			var wanted []session.ApprovalStatus
			if q.Status != "" {
				wanted = append(wanted, q.Status)
			}
			query := merged(approvalsOfStatus, allApprovalStatuses, wanted...)
			if query == "" {
				return nil, nil
			}
			return collect(ctx, db, scanBody[session.Approval], query, q.Tenant, q.Owner, from.At, from.ID, q.Run, limit)
		})
}

// list gives one page of a list. Nothing has a name that cannot be stored.
func list[T any](ctx context.Context, s *Store, what, cursor string, limit int, names []string,
	placeOf func(T) models.Place, ask func(db querier, from models.Place, limit int) ([]T, error),
) (none store.Page[T], err error) {
	if err := s.enter(ctx); err != nil {
		return none, err
	}
	if !storable(cursor) {
		cursor = "?"
	}
	from, err := models.ParsePlace(cursor)
	if err != nil || !storable(names...) {
		return none, err
	}
	limit = models.PageLimit(limit)
	rows, err := read(ctx, s, func(db querier) ([]T, error) { return ask(db, from, limit+1) })
	if err != nil {
		return none, s.unavailable(ctx, "list "+what, err)
	}
	return models.Cut(rows, limit, placeOf), nil
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
	return `SELECT at, id, body FROM (` + strings.Join(ranges, " UNION ALL ") + `) AS ranges ORDER BY at DESC, id DESC LIMIT $6`
}

// Session finds one session's row.
func (s *Store) Session(ctx context.Context, id string) (store.SessionRow, error) {
	return find(ctx, s, "session", id, func(q querier) (store.SessionRow, error) {
		return scanSession(q.QueryRow(ctx, selectSession, id))
	})
}

// Run finds one run.
func (s *Store) Run(ctx context.Context, id string) (session.Run, error) {
	return find(ctx, s, "run", id, func(q querier) (session.Run, error) {
		return scanJSON[session.Run](q.QueryRow(ctx, selectRun, id))
	})
}

// Approval finds one approval, decided or not.
func (s *Store) Approval(ctx context.Context, id string) (session.Approval, error) {
	return find(ctx, s, "approval", id, func(q querier) (session.Approval, error) {
		return scanJSON[session.Approval](q.QueryRow(ctx, selectApproval, id))
	})
}

// find finds one thing by its id.
func find[T any](ctx context.Context, s *Store, kind, id string, ask func(q querier) (T, error)) (none T, err error) {
	if err := s.enter(ctx); err != nil {
		return none, err
	}
	if !storable(id) {
		return none, notFound(kind, id)
	}
	found, err := read(ctx, s, ask)
	if errors.Is(err, pgx.ErrNoRows) {
		return none, notFound(kind, id)
	}
	if err != nil {
		return none, s.unavailable(ctx, "read "+kind+" "+id, err)
	}
	return found, nil
}

func scanSession(row pgx.Row) (r store.SessionRow, err error) {
	var title, agent []byte
	var created, updated int64
	err = row.Scan(&r.ID, &r.Tenant, &r.Owner, &title, &agent, &r.Status, &r.Run, &r.Approvals, &r.Inbox, &r.Seq, &r.Parent, &created, &updated)
	r.Title, r.Agent = string(title), string(agent)
	r.CreatedAt, r.UpdatedAt = fromMillis(created), fromMillis(updated)
	return r, err
}

// scanBody reads a row of (at, id, body).
func scanBody[T any](row pgx.CollectableRow) (v T, err error) {
	var at int64
	var id string
	var raw []byte
	if err := row.Scan(&at, &id, &raw); err != nil {
		return v, err
	}
	return v, decodeRow(raw, &v)
}

// scanJSON reads a row of one body.
func scanJSON[T any](row pgx.Row) (v T, err error) {
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
