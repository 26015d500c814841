package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/sqlite"
	"github.com/holdfast-run/holdfast/store/storetest"
)

func TestTheContractOfAStore(t *testing.T) {
	storetest.Exercise(t, openContract)
}

func openContract(t *testing.T, opts store.Options) store.Store {
	s, err := openKept(t, t.TempDir(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// kept is a store whose directory the suite may open again or damage.
type kept struct {
	*sqlite.Store
	t   testing.TB
	dir string
}

func openKept(t testing.TB, dir string, opts store.Options) (kept, error) {
	s, err := sqlite.Open(context.Background(), dir, sqlite.Options{Options: opts})
	if err == nil {
		t.Cleanup(func() { s.Close() })
	}
	return kept{s, t, dir}, err
}

// Reopen closes the store and opens another one on the same directory.
func (k kept) Reopen(opts store.Options) (store.Store, error) {
	if err := k.Close(); err != nil {
		return nil, err
	}
	return openKept(k.t, k.dir, opts)
}

// Damage changes the database behind the store's back.
func (k kept) Damage(session string, damage storetest.Damage) error {
	query := map[storetest.Damage]string{
		storetest.ChangeSession:  `UPDATE sessions SET title = title || '!' WHERE id = ?`,
		storetest.ChangeRun:      `UPDATE runs SET body = CAST(replace(body, '"status":"', '"status":"x') AS BLOB) WHERE session = ?`,
		storetest.ChangeApproval: `UPDATE approvals SET body = CAST(replace(body, '"status":"', '"status":"x') AS BLOB) WHERE session = ?`,
		storetest.ChangeMessage:  `UPDATE messages SET body = CAST(replace(body, '"parts":[', '"parts":[{"type":"text","text":"x"},') AS BLOB) WHERE session = ?`,
	}[damage]
	if query == "" {
		return fmt.Errorf("%s: %w", damage, errors.ErrUnsupported)
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(k.dir, "holdfast.db"))
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.Exec(query, session)
	return err
}
