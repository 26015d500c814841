package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/internal/pgtest"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/postgres"
	"github.com/holdfast-run/holdfast/store/storetest"
)

func TestTheContractOfAStore(t *testing.T) {
	storetest.Exercise(t, func(t *testing.T, opts store.Options) store.Store {
		url := pgtest.New(t)
		return kept{open(t, url, postgres.Options{Options: opts}), t, url}
	})
}

// kept is a store whose database the suite may open again or damage.
type kept struct {
	*postgres.Store
	t   testing.TB
	url string
}

// Reopen closes the store and opens another one on the same database.
func (k kept) Reopen(opts store.Options) (store.Store, error) {
	if err := k.Close(); err != nil {
		return nil, err
	}
	return kept{open(k.t, k.url, postgres.Options{Options: opts}), k.t, k.url}, nil
}

// Damage changes the database behind the store's back.
func (k kept) Damage(session string, damage storetest.Damage) error {
	change := func(table, from, to string) string {
		return fmt.Sprintf(`UPDATE %s SET body = convert_to(replace(convert_from(body, 'UTF8'), '%s', '%s'), 'UTF8') WHERE session = $1`, table, from, to)
	}
	return run(k.url, map[storetest.Damage]string{
		storetest.LoseEvent:      `DELETE FROM log WHERE (session, first) = (SELECT session, first FROM log WHERE session = $1 ORDER BY first OFFSET 1 LIMIT 1)`,
		storetest.ChangeSession:  `UPDATE sessions SET title = title || '!' WHERE id = $1`,
		storetest.ChangeRun:      change("runs", `"status":"`, `"status":"x`),
		storetest.ChangeApproval: change("approvals", `"status":"`, `"status":"x`),
		storetest.ChangeMessage:  change("messages", `"parts":[`, `"parts":[{"type":"text","text":"x"},`),
	}[damage], session)
}

// run runs a statement on a connection of its own.
func run(url, query string, args ...any) error {
	db, err := pgx.Connect(context.Background(), url)
	if err != nil {
		return err
	}
	defer db.Close(context.Background())
	_, err = db.Exec(context.Background(), query, args...)
	return err
}

func TestALogThatLostItsEndIsDamaged(t *testing.T) {
	url := pgtest.New(t)
	s := open(t, url, postgres.Options{})
	for _, id := range []string{"ses_1", "ses_2"} {
		for range 3 {
			if _, err := s.Append(t.Context(), id, note("x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := run(url, `DELETE FROM log WHERE session = 'ses_1' AND last = 3`); err != nil {
		t.Fatal(err)
	}
	other := open(t, url, postgres.Options{})
	refusedAs(t, other.View(t.Context(), "ses_1", nil), postgres.ErrDamaged)
	_, err := other.Append(t.Context(), "ses_1", note("y"))
	refusedAs(t, err, postgres.ErrDamaged)
	if findings, err := other.Check(t.Context(), "ses_1"); err != nil || len(findings) == 0 {
		t.Errorf("check found %q, %v", findings, err)
	}
	if _, err := other.Append(t.Context(), "ses_2", note("y")); err != nil {
		t.Errorf("another session suffers: %v", err)
	}
}
