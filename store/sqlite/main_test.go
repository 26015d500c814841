package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/sqlite"
	"github.com/holdfast-run/holdfast/store/storetest"
)

// childEnv names what this binary does as a child process of a test.
const childEnv = "HOLDFAST_SQLITE_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childEnv) {
	case "":
		goleak.VerifyTestMain(m)
	case "crash":
		os.Exit(crashChild(os.Args[1:]))
	case "hold":
		os.Exit(holdChild(os.Args[1:]))
	}
}

func open(t testing.TB, dir string, opts sqlite.Options) *sqlite.Store {
	t.Helper()
	opts.Log = slog.New(slog.DiscardHandler)
	s, err := sqlite.Open(context.Background(), dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// carried gives n sessions with a run each that a worker carries.
func carried(t testing.TB, s *sqlite.Store, n int) []store.Lease {
	t.Helper()
	for i := range n {
		c := storetest.Submit(fmt.Sprintf("msg_%04d", i), fmt.Sprintf("run_%04d", i))
		if _, err := s.Append(t.Context(), fmt.Sprintf("ses_%04d", i), c.Decide); err != nil {
			t.Fatal(err)
		}
	}
	var leases []store.Lease
	for len(leases) < n {
		more, err := s.Claim(t.Context(), "wrk_1", time.Hour, 100)
		if err != nil || len(more) == 0 {
			t.Fatalf("claimed %d of %d runs: %v", len(leases), n, err)
		}
		leases = append(leases, more...)
	}
	return leases
}

// refusedAs checks that writing was refused as unavailable for a reason that is nil or one of package sqlite's.
func refusedAs(t testing.TB, err, reason error) {
	t.Helper()
	if !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v, which is not unavailable", err)
	}
	if reason != nil && !errors.Is(err, reason) {
		t.Errorf("got %v, which does not say that %v", err, reason)
	}
}
