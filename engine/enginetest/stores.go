package enginetest

import (
	"context"
	"testing"

	"github.com/holdfast-run/holdfast/internal/pgtest"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/postgres"
)

// OnPostgreSQL opens a store over a fresh database, for [ExerciseOn].
func OnPostgreSQL(t *testing.T, opts store.Options) store.Store {
	s, err := postgres.At(pgtest.New(t))(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
