package holdfast

import (
	"context"
	"encoding/json"
	"io"
	"slices"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// Session is a session as its owner sees it.
type Session struct {
	store.SessionRow
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// ForkedFrom is where it was copied from, if it is a fork.
	ForkedFrom *session.Origin `json:"forkedFrom,omitempty"`
}

// Snapshot is a session at one seq: what a page needs to be rebuilt. The
// stream after Seq goes on from exactly here.
type Snapshot struct {
	Session Session `json:"session"`
	Seq     int64   `json:"seq"`
	Head    string  `json:"head,omitempty"`
	// Messages are the last of the active branch, oldest first.
	Messages []session.Message `json:"messages"`
	// HasMore says that the branch has messages before these.
	HasMore bool `json:"hasMore"`
	// Below are the messages that follow Head on other branches, by role, oldest
	// first: the siblings of what will be said next.
	Below map[session.Role][]string `json:"below,omitempty"`
	// Aside are what open background runs were asked and write: no branch shows it.
	Aside []session.Message `json:"aside,omitempty"`
	// Runs are those that are not terminal, and those of Messages, oldest first, without steps.
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
	snap := Snapshot{Runs: []session.Run{}, Approvals: []session.Approval{}, Inbox: []session.InboxItem{}}
	var shown, aside branch
	err := r.view(ctx, p, id, func(s *session.State) error {
		snap.Session, snap.Seq, snap.Head = sessionOf(s), s.Seq, s.Head
		shown, snap.HasMore = branchOf(s, s.Head, window)
		if s.Head != "" {
			for _, role := range []session.Role{session.RoleUser, session.RoleAssistant} {
				if ids := shown.places[session.Place{Parent: s.Head, Role: role}]; len(ids) > 0 {
					if snap.Below == nil {
						snap.Below = map[session.Role][]string{}
					}
					snap.Below[role] = ids
				}
			}
		}
		for _, run := range s.Runs {
			if !run.Status.Terminal() || shown.runs[run.ID] {
				snap.Runs = append(snap.Runs, cloneRun(run))
			}
		}
		aside = asideOf(s)
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
	if snap.Messages, err = r.bodies(ctx, id, shown); err != nil {
		return snap, err
	}
	if len(aside.path) > 0 {
		snap.Aside, err = r.bodies(ctx, id, aside)
	}
	return snap, err
}

// Look shows the state of a session of p, without a copy: look must not keep or
// change it, and must not block. Messages that can no longer change have shed
// their parts. Its error is given as it is; store.ErrNotFound for what is not p's.
func (r *Runtime) Look(ctx context.Context, p Principal, id string, look func(*session.State) error) error {
	return r.view(ctx, p, id, look)
}

// branch is the end of a branch as it is at one seq.
type branch struct {
	path   []string
	places map[session.Place][]string // the messages in each place of the path, and behind its leaf; oldest first
	runs   map[string]bool            // that the messages name
	// live are the messages that can still change, as they are at this seq. The
	// others cannot: the store keeps their parts.
	live     map[string]session.Message
	siblings map[string][]string
}

// branchOf gives the last messages of the branch that ends in leaf, at most limit, and whether it has more.
func branchOf(s *session.State, leaf string, limit int) (b branch, more bool) {
	b = branch{places: map[session.Place][]string{}, runs: map[string]bool{}, live: map[string]session.Message{}, siblings: map[string][]string{}}
	m := s.Message(leaf)
	for ; m != nil && len(b.path) < limit; m = s.Message(m.Parent) {
		b.path = append(b.path, m.ID)
		b.runs[m.Run] = true
		b.places[session.Place{Parent: m.Parent, Role: m.Role}] = nil
		if m.Status == session.MessageStreaming {
			b.live[m.ID] = cloneMessage(m)
		}
	}
	slices.Reverse(b.path)
	for _, role := range []session.Role{session.RoleUser, session.RoleAssistant} {
		b.places[session.Place{Parent: leaf, Role: role}] = nil
	}
	// Only these places: a session may have very many messages.
	for _, other := range s.Messages {
		if s.Aside(other) {
			continue
		}
		place := session.Place{Parent: other.Parent, Role: other.Role}
		if ids, ok := b.places[place]; ok {
			b.places[place] = append(ids, other.ID)
		}
	}
	for _, id := range b.path {
		one := s.Message(id)
		if s.Aside(one) {
			continue
		}
		if ids := b.places[session.Place{Parent: one.Parent, Role: one.Role}]; len(ids) > 1 {
			b.siblings[id] = ids
		}
	}
	return b, m != nil
}

// asideOf gives what open background runs were asked and write, as it is at one seq.
func asideOf(s *session.State) branch {
	b := branch{live: map[string]session.Message{}}
	for _, run := range s.Runs {
		if !run.Background || run.Status.Terminal() {
			continue
		}
		for _, id := range []string{run.Input, run.Message} {
			m := s.Message(id)
			if m == nil || slices.Contains(b.path, id) {
				continue
			}
			b.path = append(b.path, id)
			if m.Status == session.MessageStreaming {
				b.live[id] = cloneMessage(m)
			}
		}
	}
	return b
}

// bodies gives the messages of a branch with their parts.
func (r *Runtime) bodies(ctx context.Context, id string, b branch) ([]session.Message, error) {
	kept := slices.DeleteFunc(slices.Clone(b.path), func(mid string) bool { _, ok := b.live[mid]; return ok })
	stored, err := r.store.Messages(ctx, id, kept)
	if err != nil {
		return nil, err
	}
	for _, m := range stored {
		b.live[m.ID] = m
	}
	messages := make([]session.Message, 0, len(b.path))
	for _, mid := range b.path {
		if m, ok := b.live[mid]; ok {
			m.Siblings = b.siblings[mid]
			messages = append(messages, m)
		}
	}
	return messages, nil
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

// cloneRun is a run as lists show it: without its steps.
func cloneRun(run *session.Run) session.Run {
	c := *run
	c.Steps = nil
	return c
}

func sessionOf(s *session.State) Session {
	return Session{SessionRow: store.RowOf(s), Metadata: s.Metadata, ForkedFrom: s.ForkedFrom}
}

// MessagePage is a piece of a branch, oldest message first.
type MessagePage struct {
	Messages []session.Message `json:"messages"`
	// HasMore says that the branch has earlier messages.
	HasMore bool  `json:"hasMore"`
	Seq     int64 `json:"seq"` // the session's, when the page was read
}

// pageLimit is how many messages a page has that was asked for with limit: by default 50, at most 500.
func pageLimit(limit int) int {
	if limit <= 0 {
		return 50
	}
	return min(limit, 500)
}

// Messages pages backwards: at most limit messages (default 50, at most 500)
// that lead to the message before, without it. An empty before means the end of
// the active branch.
func (r *Runtime) Messages(ctx context.Context, p Principal, id, before string, limit int) (MessagePage, error) {
	limit = pageLimit(limit)
	var page MessagePage
	var shown branch
	err := r.view(ctx, p, id, func(s *session.State) error {
		leaf := s.Head
		if before != "" {
			m := s.Message(before)
			if m == nil {
				return &session.Error{Code: session.NotFound, Field: "before", Message: "there is no message " + before}
			}
			leaf = m.Parent
		}
		page.Seq = s.Seq
		shown, page.HasMore = branchOf(s, leaf, limit)
		return nil
	})
	if err != nil {
		return MessagePage{}, err
	}
	page.Messages, err = r.bodies(ctx, id, shown)
	return page, err
}

// Through gives the branch that leads through a message, from that message on,
// oldest first, at most limit messages (default 50, at most 500). HasMore says that it goes on behind them.
func (r *Runtime) Through(ctx context.Context, p Principal, id, message string, limit int) (MessagePage, error) {
	limit = pageLimit(limit)
	var page MessagePage
	var shown branch
	err := r.view(ctx, p, id, func(s *session.State) error {
		if s.Message(message) == nil {
			return &session.Error{Code: session.NotFound, Field: "through", Message: "there is no message " + message}
		}
		path := s.Path(newestBelow(s, message))
		path = path[slices.Index(path, message):]
		page.Seq, page.HasMore = s.Seq, len(path) > limit
		path = path[:min(limit, len(path))]
		shown, _ = branchOf(s, path[len(path)-1], len(path))
		return nil
	})
	if err != nil {
		return MessagePage{}, err
	}
	page.Messages, err = r.bodies(ctx, id, shown)
	return page, err
}

// Sessions lists the principal's sessions, the last changed first.
func (r *Runtime) Sessions(ctx context.Context, p Principal, q store.SessionQuery) (store.Page[store.SessionRow], error) {
	q.Tenant, q.Owner = p.Tenant, p.Owner
	return r.store.Sessions(ctx, q)
}

// Session finds one session, or gives store.ErrNotFound.
func (r *Runtime) Session(ctx context.Context, p Principal, id string) (found Session, err error) {
	err = r.view(ctx, p, id, func(s *session.State) error {
		found = sessionOf(s)
		return nil
	})
	return found, err
}

// Runs lists the principal's runs, the last queued first, without their steps.
func (r *Runtime) Runs(ctx context.Context, p Principal, q store.RunQuery) (store.Page[session.Run], error) {
	q.Tenant, q.Owner = p.Tenant, p.Owner
	page, err := r.store.Runs(ctx, q)
	for i := range page.Items {
		page.Items[i].Steps = nil
	}
	return page, err
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
