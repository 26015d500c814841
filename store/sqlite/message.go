package sqlite

import (
	"context"
	"database/sql"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store/internal/models"
)

const selectMessages = `SELECT body FROM messages WHERE session = ? AND id IN (SELECT value FROM json_each(?))`

// Messages gives messages with their parts.
func (s *Store) Messages(ctx context.Context, id string, messages []string) ([]session.Message, error) {
	known := make(map[string]session.Message, len(messages))
	var stored []string
	err := s.View(ctx, id, func(state *session.State) {
		for _, m := range messages {
			switch found := state.Message(m); {
			case found == nil:
			case found.Status == session.MessageStreaming:
				known[m] = models.CopyMessage(found)
			default:
				stored = append(stored, m)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	if len(stored) > 0 {
		ids, err := models.Marshal(stored)
		if err != nil {
			return nil, err
		}
		bodies, err := collect(ctx, s.readers, func(rows *sql.Rows) (session.Message, error) {
			return scanJSON[session.Message](rows)
		}, selectMessages, id, string(ids))
		if err != nil {
			return nil, s.unavailable(ctx, "read messages of session "+id, err)
		}
		for _, m := range bodies {
			known[m.ID] = m
		}
	}
	found := make([]session.Message, 0, len(messages))
	for _, m := range messages {
		if message, ok := known[m]; ok {
			found = append(found, message)
		}
	}
	return found, nil
}
