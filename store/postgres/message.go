package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store/internal/models"
)

const selectMessages = `SELECT body FROM messages WHERE session = $1 AND id = ANY($2)`

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
		bodies, err := read(ctx, s, func(q querier) ([]session.Message, error) {
			return collect(ctx, q, func(row pgx.CollectableRow) (session.Message, error) { return scanJSON[session.Message](row) }, selectMessages, id, stored)
		})
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
	return slices.Clip(found), nil
}
