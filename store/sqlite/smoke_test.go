package sqlite_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/sqlite"
)

func submit(message, run string) *session.Submit {
	return &session.Submit{
		ID: message, Run: run, Output: "out_" + message, Tenant: "t", Owner: "o", DefaultAgent: "demo",
		Parts: []session.Part{{Type: session.PartText, Text: "hello"}},
	}
}

func TestSmoke(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	told := 0
	s, err := sqlite.Open(ctx, dir, sqlite.Options{Options: store.Options{OnCommit: func(c store.Commit) { told++; t.Logf("%+v", c.Work) }}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(ctx, "s1", submit("m1", "r1").Decide); err != nil {
		t.Fatal(err)
	}
	leases, err := s.Claim(ctx, "w", time.Minute, 10)
	if err != nil || len(leases) != 1 {
		t.Fatal(leases, err)
	}
	for i := range 100 {
		_, err = s.Append(ctx, "s1", session.Carry("r1", 1, func(s *session.State, r *session.Run) ([]session.Event, error) {
			return []session.Event{{Step: 1, Attempt: 1, Data: session.TextDelta{Message: r.Message, Text: fmt.Sprint(i)}}}, nil
		}))
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Renew(ctx, leases[0], time.Hour); err != nil {
		t.Fatal(err)
	}
	check := func(s *sqlite.Store) {
		f, err := s.Check(ctx, "s1")
		if err != nil || len(f) > 0 {
			t.Fatal(f, err)
		}
		frames, err := s.Read(ctx, "s1", 0, 0)
		t.Log(len(frames), err)
		ms, err := s.Messages(ctx, "s1", []string{"m1", "nope", "out_m1"})
		t.Log(ms, err)
	}
	check(s)
	_, err = s.Append(ctx, "s1", session.Carry("r1", 1, func(s *session.State, r *session.Run) ([]session.Event, error) {
		return s.End(r, session.RunCompleted{}), nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	check(s)
	n, err := s.Fold(ctx, time.Now().Add(time.Hour))
	t.Log(n, err)
	check(s)
	if err := s.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	runs, err := s.Runs(ctx, store.RunQuery{Tenant: "t", Owner: "o", Status: []session.Status{session.Completed}})
	t.Log(runs, err)
	sess, err := s.Sessions(ctx, store.SessionQuery{Tenant: "t", Owner: "o", Search: "HEL"})
	t.Log(sess, err)
	s.Close()
	s, err = sqlite.Open(ctx, dir, sqlite.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	check(s)
	s.Close()
	t.Log(told)
}
