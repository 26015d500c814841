package sqlite

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/session"
)

func TestEverySessionIsListedWhoeverOwnsItAndNoneThatWasDeleted(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for id, owner := range map[string]string{"ses_b": "ann", "ses_a": "bob", "ses_gone": "ann"} {
		create := session.Create{Tenant: "t", Owner: owner}
		if _, err := s.Append(t.Context(), id, create.Decide); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Delete(t.Context(), "ses_gone"); err != nil {
		t.Fatal(err)
	}
	reader, err := Open(t.Context(), dir, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for who, st := range map[string]*Store{"the owner": s, "a reader": reader} {
		ids, err := st.EverySession(t.Context())
		if err != nil || !slices.Equal(ids, []string{"ses_a", "ses_b"}) {
			t.Errorf("%s lists %v, %v", who, ids, err)
		}
		findings, err := st.Inspect(t.Context())
		if err != nil || len(findings) != 0 {
			t.Errorf("%s finds %v, %v", who, findings, err)
		}
	}
}

func TestInspectFindsAnIndexThatDisagreesWithItsTable(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	create := session.Create{Tenant: "t", Owner: "ann"}
	if _, err := s.Append(t.Context(), "ses_a", create.Decide); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// The index of owners becomes one over something else, with its old entries.
	db, err := connect(s.dsn("rwc"), 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		`PRAGMA writable_schema = 1`,
		`UPDATE sqlite_schema SET sql = 'CREATE INDEX sessions_of_owner ON sessions (title, owner, updated_at, id)' WHERE name = 'sessions_of_owner'`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	reader, err := Open(t.Context(), dir, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	findings, err := reader.Inspect(t.Context())
	if err != nil || !strings.Contains(strings.Join(findings, "\n"), "sessions_of_owner") {
		t.Errorf("it finds %v, %v", findings, err)
	}
}
