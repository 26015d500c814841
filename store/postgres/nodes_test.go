package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/pgtest"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/postgres"
	"github.com/holdfast-run/holdfast/store/storetest"
)

const (
	countWriters = 8
	countSeqs    = 500 // appends of each
)

// countChild appends to one session from several goroutines. Each decision
// takes the number that the state has and writes the next: a state that is
// behind would write one twice.
func countChild(args []string) int {
	s, err := postgres.Open(context.Background(), args[0], postgres.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer s.Close()
	var failed atomic.Bool
	var writers sync.WaitGroup
	for range countWriters {
		writers.Go(func() {
			for range countSeqs {
				if _, err := s.Append(context.Background(), "ses_1", countUp); err != nil {
					fmt.Fprintln(os.Stderr, err)
					failed.Store(true)
					return
				}
			}
		})
	}
	writers.Wait()
	if failed.Load() {
		return 1
	}
	return 0
}

func countUp(s *session.State) ([]session.Event, error) {
	n := 0
	if s.Title != "" {
		var err error
		if n, err = strconv.Atoi(s.Title); err != nil {
			return nil, err
		}
	}
	next := strconv.Itoa(n + 1)
	return []session.Event{{Data: session.Updated{Title: &next}}}, nil
}

func TestSixteenWritersOfTwoProcessesKeepOneOrderAndNoReaderSkips(t *testing.T) {
	url := pgtest.New(t)
	const all = 2 * countWriters * countSeqs
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for n := range 3 {
		s := open(t, url, postgres.Options{})
		readers.Go(func() { follow(t, s, n, all, stop) })
	}
	var nodes sync.WaitGroup
	for range 2 {
		nodes.Go(func() {
			cmd := child("count", url)
			var out bytes.Buffer
			cmd.Stderr = &out
			if err := cmd.Run(); err != nil {
				t.Errorf("a process failed: %v\n%s", err, &out)
				close(stop)
			}
		})
	}
	nodes.Wait()
	readers.Wait()
	s := open(t, url, postgres.Options{})
	for i, title := range titles(t, s, "ses_1") {
		if title != strconv.Itoa(i+1) {
			t.Fatalf("event %d says %s", i+1, title)
		}
	}
	storetest.Sound(t, s, "ses_1")
}

// follow reads a log as it grows, as fast as it can, until it ends at last.
func follow(t *testing.T, s store.Store, n int, last int64, stop <-chan struct{}) {
	for after := int64(0); after < last; {
		select {
		case <-stop:
			return
		default:
		}
		frames, err := s.Read(context.Background(), "ses_1", after, 1+n*50)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Errorf("read: %v", err)
			return
		}
		for _, f := range frames {
			if f.From != after+1 || f.To != f.From {
				t.Errorf("a reader got %d..%d after %d", f.From, f.To, after)
				return
			}
			after = f.To
		}
	}
}

func TestAStoreSeesWhatAnotherHasWritten(t *testing.T) {
	url := pgtest.New(t)
	var mu sync.Mutex // guards told
	var told []store.Commit
	a := open(t, url, postgres.Options{})
	b := open(t, url, postgres.Options{Options: store.Options{OnCommit: func(c store.Commit) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, c)
	}}})
	lease := carried(t, a, "ses_1")
	look := func() (seq int64, status session.Status) {
		t.Helper()
		if err := b.View(t.Context(), "ses_1", func(s *session.State) { seq, status = s.Seq, s.Run(lease.Run).Status }); err != nil {
			t.Fatal(err)
		}
		return seq, status
	}
	if _, status := look(); status != session.Running {
		t.Errorf("the other store sees the run %s", status)
	}
	for range 3 {
		wrote, err := a.Append(t.Context(), "ses_1", storetest.Say(lease, 2, "x"))
		if err != nil {
			t.Fatal(err)
		}
		if seq, _ := look(); seq != wrote.Last {
			t.Errorf("the other store sees seq %d, not %d", seq, wrote.Last)
		}
	}
	cancel := session.Cancel{Run: lease.Run, By: "o", At: a.Now(), Grace: time.Minute}
	if _, err := b.Append(t.Context(), "ses_1", cancel.Decide); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Append(t.Context(), "ses_1", storetest.End(lease)); err != nil {
		t.Fatal(err)
	}
	if _, status := look(); status != session.Completed {
		t.Errorf("the other store sees the run %s", status)
	}
	if err := a.Delete(t.Context(), "ses_1"); err != nil {
		t.Fatal(err)
	}
	if err := b.View(t.Context(), "ses_1", func(*session.State) {}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the other store still shows a deleted session: %v", err)
	}
	for range 2 {
		if _, err := a.Append(t.Context(), "ses_1", note("again")); err != nil {
			t.Fatal(err)
		}
	}
	if wrote, err := b.Append(t.Context(), "ses_1", note("and again")); err != nil || wrote.First != 3 {
		t.Errorf("the other store appended %+v, %v to a session that was begun again", wrote, err)
	}
	storetest.Sound(t, b, "ses_1")
	mu.Lock()
	defer mu.Unlock()
	seq := map[bool]int64{}
	again := false
	for _, c := range told {
		again = again || c.Deleted
		for _, e := range c.Events {
			if e.Seq <= seq[again] {
				t.Errorf("it was told of seq %d after %d", e.Seq, seq[again])
			}
			seq[again] = e.Seq
		}
	}
	if !again {
		t.Error("it was not told that the session was deleted")
	}
}

func TestEachDueRunIsClaimedByOneOfManyProcesses(t *testing.T) {
	url := pgtest.New(t)
	const runs, workers = 60, 3
	first := open(t, url, postgres.Options{})
	for i := range runs {
		if _, err := first.Append(t.Context(), fmt.Sprintf("ses_%d", i), storetest.Submit(fmt.Sprintf("msg_%d", i), fmt.Sprintf("run_%d", i)).Decide); err != nil {
			t.Fatal(err)
		}
	}
	var claimed sync.Map
	var all atomic.Int64
	var group sync.WaitGroup
	for n := range workers {
		s := open(t, url, postgres.Options{})
		group.Go(func() {
			for all.Load() < runs {
				leases, err := s.Claim(context.Background(), fmt.Sprintf("wrk_%d", n), time.Minute, 4)
				if err != nil {
					t.Errorf("claim: %v", err)
					return
				}
				for _, l := range leases {
					if by, twice := claimed.LoadOrStore(l.Run, l.Worker); twice {
						t.Errorf("%s was claimed by %s and by %s", l.Run, by, l.Worker)
					}
					all.Add(1)
				}
			}
		})
	}
	group.Wait()
	if due, err := first.Due(t.Context(), 0, 10); err != nil || len(due) > 0 {
		t.Errorf("%v are due still, %v", due, err)
	}
}

// Two machines of which one is an hour ahead and the other an hour behind are
// for a store what a database is whose clock is off by as much from this machine's.
func TestCS04AMachinesClockMattersToNoLease(t *testing.T) {
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			url := pgtest.New(t)
			for _, query := range []string{
				`CREATE SCHEMA odd`,
				fmt.Sprintf(`CREATE FUNCTION odd.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
				 AS $$ SELECT pg_catalog.clock_timestamp() + interval '%d seconds' $$`, int(off.Seconds())),
			} {
				if err := run(url, query); err != nil {
					t.Fatal(err)
				}
			}
			url += "?search_path=odd,pg_catalog,public"
			a, b := open(t, url, postgres.Options{}), open(t, url, postgres.Options{})
			wrote, err := a.Append(t.Context(), "ses_1", storetest.Submit("msg_1", "run_1").Decide)
			if err != nil {
				t.Fatal(err)
			}
			leases, err := b.Claim(t.Context(), "wrk_b", 10*time.Second, 1)
			if err != nil || len(leases) != 1 {
				t.Fatalf("claimed %v, %v", leases, err)
			}
			near := func(what string, at time.Time) {
				t.Helper()
				if diff := at.Sub(time.Now().Add(off)); diff.Abs() > 5*time.Second {
					t.Errorf("%s is %v from the database's time", what, diff)
				}
			}
			near("the event", wrote.Events[0].At)
			near("the end of the lease", leases[0].Until.Add(-10*time.Second))
			for name, s := range map[string]*postgres.Store{"that claimed": b, "other": a} {
				near("the time of the node "+name, s.Now())
				if expired, err := s.Expired(t.Context(), 10); err != nil || len(expired) > 0 {
					t.Errorf("the node %s finds %v expired, %v", name, expired, err)
				}
				if next, err := s.NextDue(t.Context()); err != nil || !next.Equal(leases[0].Until) {
					t.Errorf("the node %s expects the end of the lease at %v, not %v; %v", name, next, leases[0].Until, err)
				}
			}
		})
	}
}
