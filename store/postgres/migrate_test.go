package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/internal/pgtest"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// newer are this program's migrations and one more, as the next version would have.
func newer(t *testing.T, up string) fs.FS {
	t.Helper()
	files := fstest.MapFS{"99999_next.sql": {Data: []byte("-- +goose Up\n" + up)}}
	names, err := fs.Glob(migrations, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		raw, err := fs.ReadFile(migrations, name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: raw}
	}
	return files
}

func openQuiet(t *testing.T, url string) *Store {
	t.Helper()
	s, err := Open(context.Background(), url, Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func config(t *testing.T, url string) *pgx.ConnConfig {
	t.Helper()
	c, err := configure(url, Options{}.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	return c.ConnConfig
}

// noteDown is an append of no consequence.
func noteDown(text string) session.Decide {
	return func(*session.State) ([]session.Event, error) {
		return []session.Event{{Data: session.Updated{Title: &text}}}, nil
	}
}

func TestProcessesThatStartAtOnceMakeTheTablesOnce(t *testing.T) {
	url := pgtest.New(t)
	var starting sync.WaitGroup
	for n := range 6 {
		starting.Go(func() {
			s, err := Open(context.Background(), url, Options{})
			if err != nil {
				t.Errorf("process %d: %v", n, err)
				return
			}
			defer s.Close()
			if _, err := s.Append(context.Background(), "ses_1", noteDown("x")); err != nil {
				t.Errorf("process %d: %v", n, err)
			}
		})
	}
	starting.Wait()
	s := openQuiet(t, url)
	if head, err := s.Head(t.Context(), "ses_1"); err != nil || head != 6 {
		t.Errorf("the log ends at %d, %v", head, err)
	}
}

func TestAnOldProcessWorksOnWhileANewOneChangesTheTables(t *testing.T) {
	url := pgtest.New(t)
	old := openQuiet(t, url)
	stop := make(chan struct{})
	var writing sync.WaitGroup
	wrote := make([]int, 4)
	for n := range wrote {
		writing.Go(func() {
			id := fmt.Sprintf("ses_%d", n)
			for i := 0; ; i++ {
				select {
				case <-stop:
					wrote[n] = i
					return
				default:
				}
				if _, err := old.Append(context.Background(), id, noteDown("x")); err != nil {
					t.Errorf("the old process cannot write: %v", err)
				}
				if err := old.View(context.Background(), id, func(*session.State) {}); err != nil {
					t.Errorf("the old process cannot look: %v", err)
				}
			}
		})
	}
	// What a new version may do: add.
	next := newer(t, `
ALTER TABLE sessions ADD COLUMN pinned boolean NOT NULL DEFAULT false;
ALTER TABLE heads ADD COLUMN shard integer;
ALTER TABLE log ADD COLUMN codec smallint NOT NULL DEFAULT 0;
ALTER TABLE work ADD COLUMN queue text;
CREATE INDEX sessions_pinned ON sessions (tenant, owner) WHERE pinned;
CREATE TABLE extras (id bigint PRIMARY KEY);`)
	var migrating sync.WaitGroup
	for range 3 { // several new processes at once
		migrating.Go(func() {
			if err := migrate(context.Background(), config(t, url), next, false); err != nil {
				t.Errorf("migrate: %v", err)
			}
		})
	}
	migrating.Wait()
	another := openQuiet(t, url) // of the old version, started after the change
	if _, err := another.Append(t.Context(), "ses_0", noteDown("y")); err != nil {
		t.Errorf("an old process that starts now cannot write: %v", err)
	}
	close(stop)
	writing.Wait()
	wrote[0]++
	for n, events := range wrote {
		id := fmt.Sprintf("ses_%d", n)
		if head, err := old.Head(t.Context(), id); err != nil || head != int64(events) {
			t.Errorf("%s ends at %d and has %d events, %v", id, head, events, err)
		}
		if findings, err := old.Check(t.Context(), id); err != nil || len(findings) > 0 {
			t.Errorf("%s: %q, %v", id, findings, err)
		}
	}
}

func TestAProgramThatIsTooOldIsToldSo(t *testing.T) {
	url := pgtest.New(t)
	openQuiet(t, url)
	if err := migrate(t.Context(), config(t, url), newer(t, `UPDATE compatibility SET oldest = 99999;`), false); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), url, Options{}); !errors.Is(err, ErrVersion) {
		t.Errorf("opening it gave %v", err)
	}
}

func TestAReadOnlyStoreChangesNothing(t *testing.T) {
	url := pgtest.New(t)
	if _, err := Open(t.Context(), url, Options{ReadOnly: true}); err == nil {
		t.Error("an empty database was opened to be read only")
	}
	s := openQuiet(t, url)
	if _, err := s.Append(t.Context(), "ses_1", noteDown("x")); err != nil {
		t.Fatal(err)
	}
	r, err := Open(t.Context(), url, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Append(t.Context(), "ses_1", noteDown("y")); !errors.Is(err, ErrReadOnly) || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("an append gave %v", err)
	}
	if _, err := r.pool.Exec(t.Context(), `DELETE FROM log`); codeOf(err) != "25006" {
		t.Errorf("a statement that writes gave %v", err)
	}
	if findings, err := r.Check(t.Context(), "ses_1"); err != nil || len(findings) > 0 {
		t.Errorf("check gave %q, %v", findings, err)
	}
}

func TestAConnectionIsBoundedAndDurableUnlessTheURLSaysOtherwise(t *testing.T) {
	url := pgtest.New(t)
	show := func(s *Store, name string) (value string) {
		t.Helper()
		if err := s.pool.QueryRow(t.Context(), `SELECT current_setting($1)`, name).Scan(&value); err != nil {
			t.Fatal(err)
		}
		return value
	}
	s := openQuiet(t, url)
	for name, want := range map[string]string{
		"statement_timeout": "10s", "lock_timeout": "5s", "idle_in_transaction_session_timeout": "10s", "synchronous_commit": "on",
		"application_name": "holdfast",
	} {
		if got := show(s, name); got != want {
			t.Errorf("%s is %s", name, got)
		}
	}
	s = openQuiet(t, url+"?statement_timeout=30000&synchronous_commit=off&application_name=mine")
	for name, want := range map[string]string{"statement_timeout": "30s", "synchronous_commit": "on", "application_name": "mine"} {
		if got := show(s, name); got != want {
			t.Errorf("with a URL that says otherwise %s is %s", name, got)
		}
	}
}
