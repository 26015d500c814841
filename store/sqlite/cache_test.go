package sqlite

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store/internal/models"
)

func TestStatesThatAreThrownOutAreLoadedAsTheyWere(t *testing.T) {
	for name, opts := range map[string]Options{
		"by number": {CachedSessions: 3},
		"by bytes":  {CachedBytes: 4 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			opts.TailBytes = 8 << 10
			s := openQuiet(t, opts)
			rng := rand.New(rand.NewPCG(1, 2))
			const sessions = 12
			for range 600 {
				id := fmt.Sprintf("ses_%d", rng.IntN(sessions))
				if _, err := s.Append(t.Context(), id, anything(rng)); err != nil {
					t.Fatal(err)
				}
			}
			for i := range sessions {
				id := fmt.Sprintf("ses_%d", i)
				if findings, err := s.Check(t.Context(), id); err != nil || len(findings) > 0 {
					t.Errorf("session %s: %q, %v", id, findings, err)
				}
			}
			if _, err := s.Append(t.Context(), "ses_0", entitle("last")); err != nil {
				t.Fatal(err) // after it the writer has thrown out what is too much
			}
			release := hold(t, s)
			if n, size := s.cache.Len(), s.cache.Bytes(); n > s.opts.CachedSessions || size > s.opts.CachedBytes {
				t.Errorf("%d sessions with %d bytes are cached", n, size)
			}
			release()
			if n := count(t, s, `SELECT count(*) FROM snapshots`); n == 0 {
				t.Error("no snapshot was written")
			}
		})
	}
}

// anything is a command that fits a session or, now and then, a stretch of deltas.
func anything(rng *rand.Rand) session.Decide {
	n := rng.Uint64()
	return func(s *session.State) ([]session.Event, error) {
		run := s.Active()
		switch {
		case run == nil:
			name := fmt.Sprintf("%s_%x", s.ID, n)
			c := session.Submit{
				ID: "msg_" + name, Run: "run_" + name, Output: "out_" + name, Tenant: "t", Owner: "o", DefaultAgent: "demo",
				Parts: []session.Part{{Type: session.PartText, Text: "hello"}},
			}
			return c.Decide(s)
		case run.Status != session.Running:
			return (&session.Claim{Run: run.ID, Worker: "wrk_1"}).Decide(s)
		case n%8 == 0:
			return s.End(run, session.RunCompleted{}), nil
		default:
			events := make([]session.Event, 1+n%64)
			for i := range events {
				events[i] = session.Event{Run: run.ID, Step: 1, Attempt: 1, Data: session.TextDelta{Message: run.Message, Text: "token "}}
			}
			return events, nil
		}
	}
}

func TestASessionThatDoesNotExistIsNotCached(t *testing.T) {
	s := openQuiet(t, Options{})
	for i := range 10 {
		if err := s.View(t.Context(), fmt.Sprintf("ses_%d", i), func(*session.State) {}); err == nil {
			t.Fatal("it exists")
		}
	}
	if n := s.cache.Len(); n != 0 {
		t.Errorf("%d entries are cached", n)
	}
}

func TestASnapshotOfAnotherVersionIsNotRead(t *testing.T) {
	s := openQuiet(t, Options{CachedSessions: 1})
	if _, err := s.Append(t.Context(), "ses_1", create("o")); err != nil {
		t.Fatal(err)
	}
	err := s.writer.submit(t.Context(), nil, func(b *batch) error {
		_, err := b.exec(upsertSnapshot, "ses_1", models.SnapshotVersion-1, 1, []byte(`{"id":"ses_1","seq":1,"title":"of old"}`))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), "ses_2", create("o")); err != nil { // throws out the first
		t.Fatal(err)
	}
	release := hold(t, s)
	release()
	if err := s.View(t.Context(), "ses_1", func(s *session.State) {
		if s.Title != "" || s.Owner != "o" {
			t.Errorf("the state was loaded from the old snapshot: %+v", s)
		}
	}); err != nil {
		t.Fatal(err)
	}
}
