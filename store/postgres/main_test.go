package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/postgres"
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

func submit(message, run string) *session.Submit {
	return &session.Submit{
		ID: message, Run: run, Output: "out_" + message, Tenant: "t", Owner: "o", DefaultAgent: "demo",
		Parts: []session.Part{{Type: session.PartText, Text: "hello"}},
	}
}

// note is an append of no consequence.
func note(text string) session.Decide {
	return func(*session.State) ([]session.Event, error) {
		return []session.Event{{Data: session.Updated{Title: &text}}}, nil
	}
}

// say is a worker's append of n deltas of the same text.
func say(lease store.Lease, n int, text string) session.Decide {
	return session.Carry(lease.Run, lease.Fence, func(_ *session.State, run *session.Run) ([]session.Event, error) {
		events := make([]session.Event, n)
		for i := range events {
			events[i] = session.Event{Step: 1, Attempt: 1, Data: session.TextDelta{Message: run.Message, Text: text}}
		}
		return events, nil
	})
}

// end is a worker's append that ends the run.
func end(lease store.Lease) session.Decide {
	return session.Carry(lease.Run, lease.Fence, func(s *session.State, run *session.Run) ([]session.Event, error) {
		return s.End(run, session.RunCompleted{}), nil
	})
}

// carried is a session with a run that a worker carries.
func carried(t testing.TB, s *postgres.Store, id string) store.Lease {
	t.Helper()
	if _, err := s.Append(t.Context(), id, submit("msg_"+id, "run_"+id).Decide); err != nil {
		t.Fatal(err)
	}
	lease, err := s.ClaimRun(t.Context(), store.Due{Session: id, Run: "run_" + id}, "wrk_1", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// readAll gives a whole log and checks that its frames join.
func readAll(s store.Store, id string) ([]session.Frame, error) {
	var all []session.Frame
	for after := int64(0); ; {
		frames, err := s.Read(context.Background(), id, after, 0)
		if err != nil || len(frames) == 0 {
			return all, err
		}
		for _, f := range frames {
			if f.From != after+1 || f.To < f.From {
				return nil, fmt.Errorf("session %s: a frame %d..%d follows seq %d", id, f.From, f.To, after)
			}
			after = f.To
		}
		all = append(all, frames...)
	}
}

// titles are the titles that updates of a log set, in order.
func titles(t testing.TB, s store.Store, id string) []string {
	t.Helper()
	frames, err := readAll(s, id)
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

// sound checks that a session does not contradict itself.
func sound(t testing.TB, s *postgres.Store, id string) {
	t.Helper()
	findings, err := s.Check(context.Background(), id)
	if err != nil {
		t.Errorf("check session %s: %v", id, err)
	}
	for _, f := range findings {
		t.Errorf("session %s: %s", id, f)
	}
}

// refusedAs checks that writing was refused as unavailable for one of package postgres's reasons.
func refusedAs(t testing.TB, err, reason error) {
	t.Helper()
	if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, reason) {
		t.Errorf("got %v, which does not say that %v", err, reason)
	}
}
