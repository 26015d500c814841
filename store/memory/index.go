package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// Sessions lists the sessions of one owner, the last changed first.
func (s *Store) Sessions(ctx context.Context, q store.SessionQuery) (store.Page[store.SessionRow], error) {
	unlock, err := s.enter(ctx, "Sessions")
	if err != nil {
		return store.Page[store.SessionRow]{}, err
	}
	defer unlock()
	var rows []store.SessionRow
	for _, l := range s.ownedLocked(q.Tenant, q.Owner) {
		if strings.Contains(strings.ToLower(l.whole.Title), strings.ToLower(q.Search)) {
			rows = append(rows, store.RowOf(l.whole))
		}
	}
	return page(rows, q.Cursor, q.Limit, func(r store.SessionRow) place { return place{r.UpdatedAt, r.ID} })
}

// Runs lists the runs of one owner, the last queued first.
func (s *Store) Runs(ctx context.Context, q store.RunQuery) (store.Page[session.Run], error) {
	unlock, err := s.enter(ctx, "Runs")
	if err != nil {
		return store.Page[session.Run]{}, err
	}
	defer unlock()
	var rows []session.Run
	for _, l := range s.ownedLocked(q.Tenant, q.Owner) {
		for _, r := range l.whole.Runs {
			if (q.Session == "" || q.Session == l.id) &&
				(len(q.Status) == 0 || slices.Contains(q.Status, r.Status)) &&
				(q.Reason == "" || q.Reason == r.WaitingReason) {
				rows = append(rows, clone(*r))
			}
		}
	}
	return page(rows, q.Cursor, q.Limit, func(r session.Run) place { return place{r.QueuedAt, r.ID} })
}

// Approvals lists the approvals of one owner, the last requested first.
func (s *Store) Approvals(ctx context.Context, q store.ApprovalQuery) (store.Page[session.Approval], error) {
	unlock, err := s.enter(ctx, "Approvals")
	if err != nil {
		return store.Page[session.Approval]{}, err
	}
	defer unlock()
	var rows []session.Approval
	for _, l := range s.ownedLocked(q.Tenant, q.Owner) {
		for _, a := range l.approvals {
			if (q.Session == "" || q.Session == l.id) && (q.Run == "" || q.Run == a.Run) &&
				(q.Status == "" || q.Status == a.Status) {
				rows = append(rows, clone(a))
			}
		}
	}
	return page(rows, q.Cursor, q.Limit, func(a session.Approval) place { return place{a.RequestedAt, a.ID} })
}

// Session finds one session's row.
func (s *Store) Session(ctx context.Context, id string) (store.SessionRow, error) {
	l, unlock, err := s.enterLog(ctx, "Session", id)
	if err != nil {
		return store.SessionRow{}, err
	}
	defer unlock()
	return store.RowOf(l.whole), nil
}

// Run finds one run.
func (s *Store) Run(ctx context.Context, id string) (session.Run, error) {
	unlock, err := s.enter(ctx, "Run")
	if err != nil {
		return session.Run{}, err
	}
	defer unlock()
	for _, l := range s.logs {
		if r := l.whole.Run(id); r != nil {
			return clone(*r), nil
		}
	}
	return session.Run{}, fmt.Errorf("run %s: %w", id, store.ErrNotFound)
}

// Approval finds one approval, decided or not.
func (s *Store) Approval(ctx context.Context, id string) (session.Approval, error) {
	unlock, err := s.enter(ctx, "Approval")
	if err != nil {
		return session.Approval{}, err
	}
	defer unlock()
	for _, l := range s.logs {
		if a, ok := l.approvals[id]; ok {
			return clone(a), nil
		}
	}
	return session.Approval{}, fmt.Errorf("approval %s: %w", id, store.ErrNotFound)
}

func (s *Store) ownedLocked(tenant, owner string) []*log {
	var owned []*log
	for _, l := range s.logs {
		if l.whole.Tenant == tenant && l.whole.Owner == owner {
			owned = append(owned, l)
		}
	}
	return owned
}

// place is where a row stands in a list: newest first, then by id.
type place struct {
	at time.Time
	id string
}

func (p place) compare(q place) int {
	return cmp.Or(q.at.Compare(p.at), cmp.Compare(q.id, p.id))
}

// page cuts one page out of all rows. Its cursor is the place of the page's last row.
func page[T any](rows []T, cursor string, limit int, placeOf func(T) place) (store.Page[T], error) {
	if limit <= 0 {
		limit = 50
	}
	limit = min(limit, 200)
	slices.SortFunc(rows, func(a, b T) int { return placeOf(a).compare(placeOf(b)) })
	if cursor != "" {
		last, err := parsePlace(cursor)
		if err != nil {
			return store.Page[T]{}, err
		}
		rows = slices.DeleteFunc(rows, func(row T) bool { return placeOf(row).compare(last) <= 0 })
	}
	p := store.Page[T]{Items: rows}
	if len(rows) > limit {
		p.Items = rows[:limit]
		p.Next = placeOf(p.Items[limit-1]).String()
	}
	return p, nil
}

func (p place) String() string { return strconv.FormatInt(p.at.UnixMilli(), 10) + "." + p.id }

func parsePlace(cursor string) (place, error) {
	ms, id, ok := strings.Cut(cursor, ".")
	at, err := strconv.ParseInt(ms, 10, 64)
	if !ok || err != nil {
		return place{}, &session.Error{Code: session.Invalid, Field: "cursor", Message: "the cursor is not one that a list gave"}
	}
	return place{time.UnixMilli(at).UTC(), id}, nil
}
