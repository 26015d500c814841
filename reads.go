package holdfast

import (
	"context"
	"io"
	"slices"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// Snapshot is a session at one seq: what a page needs to be rebuilt. The
// stream after Seq goes on from exactly here.
type Snapshot struct {
	Session store.SessionRow `json:"session"`
	Seq     int64            `json:"seq"`
	Head    string           `json:"head,omitempty"`
	// Messages are the last of the active branch, oldest first.
	Messages []session.Message `json:"messages"`
	// HasMore says that the branch has messages before these.
	HasMore bool `json:"hasMore"`
	// Runs are those that are not terminal, and those of Messages.
	Runs      []session.Run       `json:"runs"`
	Approvals []session.Approval  `json:"approvals"`
	Inbox     []session.InboxItem `json:"inbox"`
}

// Snapshot gives the session with the last window messages of its active branch (default 50, at most 500).
func (r *Runtime) Snapshot(ctx context.Context, p Principal, id string, window int) (Snapshot, error) {
	if window <= 0 {
		window = 50
	}
	window = min(window, 500)
	snap := Snapshot{Messages: []session.Message{}, Runs: []session.Run{}, Approvals: []session.Approval{}, Inbox: []session.InboxItem{}}
	live := map[string]session.Message{}
	var path []string
	siblings := map[string][]string{}
	open := map[string]session.Run{}
	var ended []string
	err := r.view(ctx, p, id, func(s *session.State) error {
		snap.Session, snap.Seq, snap.Head = store.RowOf(s), s.Seq, s.Head
		path = s.Path(s.Head)
		snap.HasMore = len(path) > window
		path = path[max(0, len(path)-window):]
		wanted := map[string]bool{}
		byPlace := s.SiblingIndex()
		for _, mid := range path {
			m := s.Message(mid)
			wanted[m.Run] = true
			if ids := byPlace[session.Place{Parent: m.Parent, Role: m.Role}]; len(ids) > 1 {
				siblings[mid] = slices.Clone(ids)
			}
			if m.Status == session.MessageStreaming {
				live[mid] = cloneMessage(m)
			}
		}
		for _, run := range s.Runs {
			switch {
			case !run.Status.Terminal():
				open[run.ID] = cloneRun(run)
				snap.Runs = append(snap.Runs, open[run.ID])
			case wanted[run.ID]:
				ended = append(ended, run.ID)
			}
		}
		for _, a := range s.Approvals {
			if a.Status == session.StatusPending {
				snap.Approvals = append(snap.Approvals, *a)
			}
		}
		for _, item := range s.Inbox {
			snap.Inbox = append(snap.Inbox, *item)
		}
		return nil
	})
	if err != nil {
		return Snapshot{}, err
	}
	// Messages that stream were copied above, at Seq. The others cannot change.
	kept := slices.DeleteFunc(slices.Clone(path), func(mid string) bool { _, ok := live[mid]; return ok })
	bodies, err := r.store.Messages(ctx, id, kept)
	if err != nil {
		return Snapshot{}, err
	}
	for _, m := range bodies {
		live[m.ID] = m
	}
	for _, mid := range path {
		if m, ok := live[mid]; ok {
			m.Siblings = siblings[mid]
			snap.Messages = append(snap.Messages, m)
		}
	}
	for _, runID := range ended {
		run, err := r.store.Run(ctx, runID)
		if err != nil {
			return Snapshot{}, err
		}
		snap.Runs = append(snap.Runs, run)
	}
	slices.SortFunc(snap.Runs, func(a, b session.Run) int { return a.QueuedAt.Compare(b.QueuedAt) })
	return snap, nil
}

func cloneMessage(m *session.Message) session.Message {
	c := *m
	c.Parts = slices.Clone(m.Parts)
	for i := range c.Parts {
		if t := c.Parts[i].Tool; t != nil {
			call := *t
			c.Parts[i].Tool = &call
		}
	}
	return c
}

func cloneRun(run *session.Run) session.Run {
	c := *run
	c.Steps = slices.Clone(run.Steps)
	return c
}

// Messages pages backwards through the branch that ends at the head: at most
// limit messages (default 50, at most 500) before the message before, oldest
// first. An empty before means from the end. more says that there are earlier ones.
func (r *Runtime) Messages(ctx context.Context, p Principal, id, before string, limit int) (messages []session.Message, more bool, err error) {
	if limit <= 0 {
		limit = 50
	}
	limit = min(limit, 500)
	var path []string
	siblings := map[string][]string{}
	err = r.view(ctx, p, id, func(s *session.State) error {
		leaf := s.Head
		if before != "" {
			m := s.Message(before)
			if m == nil {
				return &session.Error{Code: session.NotFound, Field: "before", Message: "there is no message " + before}
			}
			leaf = m.Parent
		}
		path = s.Path(leaf)
		more = len(path) > limit
		path = path[max(0, len(path)-limit):]
		byPlace := s.SiblingIndex()
		for _, mid := range path {
			m := s.Message(mid)
			if ids := byPlace[session.Place{Parent: m.Parent, Role: m.Role}]; len(ids) > 1 {
				siblings[mid] = slices.Clone(ids)
			}
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	messages, err = r.store.Messages(ctx, id, path)
	for i := range messages {
		messages[i].Siblings = siblings[messages[i].ID]
	}
	return messages, more, err
}

// Sessions lists the principal's sessions, the last changed first.
func (r *Runtime) Sessions(ctx context.Context, p Principal, q store.SessionQuery) (store.Page[store.SessionRow], error) {
	q.Tenant, q.Owner = p.Tenant, p.Owner
	return r.store.Sessions(ctx, q)
}

// Session finds one session's row, or gives store.ErrNotFound.
func (r *Runtime) Session(ctx context.Context, p Principal, id string) (store.SessionRow, error) {
	row, err := r.store.Session(ctx, id)
	if err == nil && (row.Tenant != p.Tenant || row.Owner != p.Owner) {
		err = store.ErrNotFound
	}
	if err != nil {
		return store.SessionRow{}, err
	}
	return row, nil
}

// Runs lists the principal's runs, the last queued first.
func (r *Runtime) Runs(ctx context.Context, p Principal, q store.RunQuery) (store.Page[session.Run], error) {
	q.Tenant, q.Owner = p.Tenant, p.Owner
	return r.store.Runs(ctx, q)
}

// FindRun finds one run, or gives store.ErrNotFound.
func (r *Runtime) FindRun(ctx context.Context, p Principal, id string) (session.Run, error) {
	run, err := r.store.Run(ctx, id)
	if err != nil {
		return session.Run{}, err
	}
	if err := r.Allowed(ctx, p, run.Session); err != nil {
		return session.Run{}, err
	}
	return run, nil
}

// Approvals lists the principal's approvals over all sessions, the last requested first.
func (r *Runtime) Approvals(ctx context.Context, p Principal, q store.ApprovalQuery) (store.Page[session.Approval], error) {
	q.Tenant, q.Owner = p.Tenant, p.Owner
	return r.store.Approvals(ctx, q)
}

// Approval finds one approval, or gives store.ErrNotFound.
func (r *Runtime) Approval(ctx context.Context, p Principal, id string) (session.Approval, error) {
	a, err := r.store.Approval(ctx, id)
	if err != nil {
		return session.Approval{}, err
	}
	if err := r.Allowed(ctx, p, a.Session); err != nil {
		return session.Approval{}, err
	}
	return a, nil
}

// Blob opens a large value of a session. The caller closes it.
func (r *Runtime) Blob(ctx context.Context, p Principal, id, hash string) (session.Blob, io.ReadCloser, error) {
	if err := r.Allowed(ctx, p, id); err != nil {
		return session.Blob{}, nil, err
	}
	return r.store.Blob(ctx, id, hash)
}
