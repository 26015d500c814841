//go:build unix

package pgtest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/internal/pgtest"
)

func query(t *testing.T, url, query string) (answer string) {
	t.Helper()
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(t.Context())
	if err := db.QueryRow(t.Context(), query).Scan(&answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestEachTestHasADatabaseOfItsOwn(t *testing.T) {
	a, b := pgtest.New(t), pgtest.New(t)
	if query(t, a, `SELECT current_database()`) == query(t, b, `SELECT current_database()`) {
		t.Error("two tests share a database")
	}
}

func TestAServerKeepsWhatIsCommittedWhenItStops(t *testing.T) {
	s := pgtest.Start(t, pgtest.Durable...)
	url := s.New(t)
	query(t, url, `SELECT set_config('a.b', 'c', false)`)
	if got := query(t, url, `SHOW fsync`); got != "on" {
		t.Errorf("fsync is %s", got)
	}
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(t.Context(), `CREATE TABLE kept AS SELECT 'kept' AS word`); err != nil {
		t.Fatal(err)
	}
	s.Stop(t)
	if err := db.Ping(t.Context()); err == nil {
		t.Error("a stopped server answers")
	}
	s.Start(t)
	if got := query(t, url, `SELECT word FROM kept`); got != "kept" {
		t.Errorf("it kept %q", got)
	}
}
