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

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/sqlite"
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
		c := submit(fmt.Sprintf("msg_%04d", i), fmt.Sprintf("run_%04d", i))
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

func submit(message, run string) *session.Submit {
	return &session.Submit{
		ID: message, Run: run, Output: "out_" + message, Tenant: "t", Owner: "o", DefaultAgent: "demo",
		Parts: []session.Part{{Type: session.PartText, Text: "hello"}},
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

// readAll gives a whole log and checks that its frames join.
func readAll(s *sqlite.Store, id string) ([]session.Frame, error) {
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

// sound checks that a session does not contradict itself.
func sound(t testing.TB, s *sqlite.Store, id string) {
	t.Helper()
	if _, err := readAll(s, id); err != nil {
		t.Errorf("read: %v", err)
	}
	findings, err := s.Check(context.Background(), id)
	if err != nil {
		t.Errorf("check session %s: %v", id, err)
	}
	for _, f := range findings {
		t.Errorf("session %s: %s", id, f)
	}
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
