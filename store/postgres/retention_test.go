package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/internal/pgtest"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/postgres"
	"github.com/holdfast-run/holdfast/store/storetest"
)

// Deltas come one to a commit, as models say them. What they leave behind after
// retention does not grow with them, and room once taken is used again.
func TestDeltasDoNotBloatTheTables(t *testing.T) {
	const generations, chats, deltas = 4, 8, 250
	url := pgtest.New(t)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := open(t, url, postgres.Options{Options: store.Options{Now: func() time.Time { return now }}})
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.Background())
	size := func(tables ...string) (bytes int64) {
		t.Helper()
		for _, table := range tables {
			var n int64
			if err := db.QueryRow(t.Context(), `SELECT pg_total_relation_size($1::regclass)`, table).Scan(&n); err != nil {
				t.Fatal(err)
			}
			bytes += n
		}
		return bytes
	}
	var full, folded []int64
	for generation := range generations {
		done := make(chan error, chats)
		for chat := range chats {
			lease := carried(t, s, fmt.Sprintf("ses_%d_%d", generation, chat))
			go func() {
				for range deltas {
					if _, err := s.Append(context.Background(), lease.Session, storetest.Say(lease, 1, strings.Repeat("word ", 4))); err != nil {
						done <- err
						return
					}
				}
				_, err := s.Append(context.Background(), lease.Session, storetest.End(lease))
				done <- err
			}()
		}
		for range chats {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		full = append(full, size("log"))
		for {
			dropped, err := s.Fold(t.Context(), now.Add(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			if dropped == 0 {
				break
			}
		}
		// What autovacuum does by itself, after some time.
		for _, table := range []string{"log", "heads", "writers", "work"} {
			if _, err := db.Exec(t.Context(), `VACUUM `+table); err != nil {
				t.Fatal(err)
			}
		}
		folded = append(folded, size("log"))
	}
	t.Logf("the log has %d bytes with the deltas of each generation, %d after retention", full, folded)
	if most := full[0] + full[0]/2; full[generations-1] > most {
		t.Errorf("the log has grown to %d bytes from %d: room is not used again", full[generations-1], full[0])
	}
	var rows, kept int64
	if err := db.QueryRow(t.Context(), `SELECT count(*), sum(octet_length(body)) FROM log`).Scan(&rows, &kept); err != nil {
		t.Fatal(err)
	}
	if rows > 2*generations*chats {
		t.Errorf("%d rows are left of %d sessions", rows, generations*chats)
	}
	if written := full[0] / chats; kept/(generations*chats) > written/10 {
		t.Errorf("%d bytes are left of a session of about %d", kept/(generations*chats), written)
	}
	if n := size("heads", "writers", "work"); n > 512<<10 {
		t.Errorf("the tables that every commit changes have %d bytes", n)
	}
	for generation := range generations {
		for chat := range chats {
			storetest.Sound(t, s, fmt.Sprintf("ses_%d_%d", generation, chat))
		}
	}
}

func TestRetentionOfTwoProcessesAndWritersLeaveTheLogWhole(t *testing.T) {
	url := pgtest.New(t)
	a, b := open(t, url, postgres.Options{}), open(t, url, postgres.Options{})
	const runs = 6
	for i := range runs {
		name := fmt.Sprintf("%d", i)
		if _, err := a.Append(t.Context(), "ses_1", storetest.Submit("msg_"+name, "run_"+name).Decide); err != nil {
			t.Fatal(err)
		}
		lease, err := a.ClaimRun(t.Context(), store.Due{Session: "ses_1", Run: "run_" + name}, "wrk_1", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		for range 30 {
			if _, err := a.Append(t.Context(), "ses_1", storetest.Say(lease, 3, "x")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := a.Append(t.Context(), "ses_1", storetest.End(lease)); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 4)
	later := time.Now().Add(time.Hour)
	var dropped [2]int64
	for n, s := range []*postgres.Store{a, b} {
		go func() {
			for {
				some, err := s.Fold(context.Background(), later)
				dropped[n] += some
				if err != nil || some == 0 {
					done <- err
					return
				}
			}
		}()
		go func() {
			for i := range 100 {
				if _, err := s.Append(context.Background(), "ses_1", note(fmt.Sprint(n, i))); err != nil {
					done <- err
					return
				}
				if _, err := storetest.WholeLog(s, "ses_1"); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if all := dropped[0] + dropped[1]; all != runs*90 {
		t.Errorf("%d deltas were dropped, not %d", all, runs*90)
	}
	storetest.Sound(t, a, "ses_1")
	storetest.Sound(t, b, "ses_1")
	if err := b.View(t.Context(), "ses_1", func(s *session.State) {
		if len(s.Runs) != runs {
			t.Errorf("%d runs are left", len(s.Runs))
		}
	}); err != nil {
		t.Error(err)
	}
}
