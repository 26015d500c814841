package postgres_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/postgres"
	"github.com/holdfast-run/holdfast/store/storetest"
)

// childEnv names what this binary does as a child process of a test.
const childEnv = "HOLDFAST_POSTGRES_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childEnv) {
	case "":
		goleak.VerifyTestMain(m)
	case "crash":
		os.Exit(crashChild(os.Args[1:]))
	case "count":
		os.Exit(countChild(os.Args[1:]))
	}
}

func open(t testing.TB, url string, opts postgres.Options) *postgres.Store {
	t.Helper()
	opts.Log = slog.New(slog.DiscardHandler)
	s, err := postgres.Open(context.Background(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// note is an append of no consequence.
func note(text string) session.Decide {
	return func(*session.State) ([]session.Event, error) {
		return []session.Event{{Data: session.Updated{Title: &text}}}, nil
	}
}

// carried is a session with a run that a worker carries.
func carried(t testing.TB, s *postgres.Store, id string) store.Lease {
	t.Helper()
	if _, err := s.Append(t.Context(), id, storetest.Submit("msg_"+id, "run_"+id).Decide); err != nil {
		t.Fatal(err)
	}
	lease, err := s.ClaimRun(t.Context(), store.Due{Session: id, Run: "run_" + id}, "wrk_1", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// titles are the titles that updates of a log set, in order.
func titles(t testing.TB, s store.Store, id string) []string {
	t.Helper()
	frames, err := storetest.WholeLog(s, id)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range frames {
		e, _, err := f.Event()
		if err != nil {
			t.Fatal(err)
		}
		if u, ok := e.Data.(session.Updated); ok && u.Title != nil {
			all = append(all, *u.Title)
		}
	}
	return all
}

// refusedAs checks that writing was refused as unavailable for one of package postgres's reasons.
func refusedAs(t testing.TB, err, reason error) {
	t.Helper()
	if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, reason) {
		t.Errorf("got %v, which does not say that %v", err, reason)
	}
}
