package sqlite

import (
	"context"
	"database/sql"
	"maps"
	"slices"
)

// Every table that names a session: one that has been deleted is in none of them.
const selectEverySession = `
SELECT id FROM sessions UNION SELECT session FROM log UNION SELECT session FROM snapshots
UNION SELECT session FROM messages UNION SELECT session FROM runs UNION SELECT session FROM approvals
UNION SELECT session FROM work UNION SELECT session FROM blobs`

// EverySession gives the ids of all sessions of which anything is stored,
// whoever owns them, in the order of their bytes.
func (s *Store) EverySession(ctx context.Context) ([]string, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	ids, err := s.texts(ctx, selectEverySession)
	if err != nil {
		return nil, s.unavailable(ctx, "list every session", err)
	}
	all := map[string]bool{}
	for _, id := range ids {
		all[id] = true
	}
	s.tail.mu.RLock()
	defer s.tail.mu.RUnlock()
	for id := range s.tail.sessions {
		all[id] = true
	}
	return slices.Sorted(maps.Keys(all)), nil
}

// Inspect reads the whole database file and says what is damaged in it. No findings means sound.
func (s *Store) Inspect(ctx context.Context) ([]string, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	findings, err := s.texts(ctx, `PRAGMA integrity_check`)
	if err != nil {
		return nil, s.unavailable(ctx, "inspect the database", err)
	}
	if len(findings) == 1 && findings[0] == "ok" {
		return nil, nil
	}
	return findings, nil
}

func (s *Store) texts(ctx context.Context, query string) ([]string, error) {
	return collect(ctx, s.readers, func(rows *sql.Rows) (text string, err error) {
		err = rows.Scan(&text)
		return text, err
	}, query)
}
