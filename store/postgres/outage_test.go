package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/internal/pgtest"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/postgres"
	"github.com/holdfast-run/holdfast/store/storetest"
)

// ledger is what writers were answered.
type ledger struct {
	mu     sync.Mutex
	acked  map[string]int64 // the seq of each append that was acknowledged, by its text
	failed map[string]bool  // appends that were answered with an error
	told   map[int64]int    // how often OnCommit told of a seq
}

func newLedger() *ledger {
	return &ledger{acked: map[string]int64{}, failed: map[string]bool{}, told: map[int64]int{}}
}

func (l *ledger) hear(c store.Commit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range c.Events {
		l.told[e.Seq]++
	}
}

// write appends texts to one session until stop is closed.
func (l *ledger) write(t *testing.T, s *postgres.Store, name string, stop <-chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		text := name + "-" + strconv.Itoa(i)
		a, err := s.Append(context.Background(), "ses_1", note(text))
		l.mu.Lock()
		if err == nil {
			l.acked[text] = a.Last
		} else {
			l.failed[text] = true
			if !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("append: %v", err)
			}
		}
		l.mu.Unlock()
	}
}

// verify compares the log with what was answered.
func (l *ledger) verify(t *testing.T, s *postgres.Store) {
	t.Helper()
	count := map[string]int{}
	for i, text := range titles(t, s, "ses_1") {
		seq := int64(i + 1)
		count[text]++
		if at, ok := l.acked[text]; ok && at != seq {
			t.Errorf("%s was acknowledged at seq %d and is at %d", text, at, seq)
		} else if !ok && !l.failed[text] {
			t.Errorf("%s is there and was never answered", text)
		}
		if l.told[seq] > 1 {
			t.Errorf("OnCommit was told of seq %d %d times", seq, l.told[seq])
		}
	}
	for text := range l.acked {
		if count[text] != 1 {
			t.Errorf("%s was acknowledged and is there %d times", text, count[text])
		}
	}
	for text := range l.failed {
		if count[text] > 1 {
			t.Errorf("%s failed and is there %d times", text, count[text])
		}
	}
	storetest.Sound(t, s, "ses_1")
}

func TestConnectionsThatAreKilledLoseAndDoubleNothing(t *testing.T) {
	kills := 300
	if testing.Short() {
		kills = 40
	}
	url := pgtest.New(t)
	l := newLedger()
	a := open(t, url, postgres.Options{Options: store.Options{OnCommit: l.hear}, Patience: time.Minute})
	b := open(t, url, postgres.Options{Patience: time.Minute})
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for n := range 4 {
		writers.Go(func() { l.write(t, []*postgres.Store{a, b}[n%2], fmt.Sprint(n), stop) })
	}
	killer, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer killer.Close(context.Background())
	killed := 0
	acked := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.acked)
	}
	// On a busy machine most tries meet nobody at work: it goes on until it has shown enough.
	for tries := 0; tries < kills || killed < kills/2 || acked() < 2*kills; tries++ {
		if tries > 20*kills {
			t.Fatalf("in %d tries %d connections were killed and %d appends acknowledged: the test has shown little", tries, killed, acked())
		}
		// At any moment: connecting, in a transaction, in its commit.
		if _, err := killer.Exec(t.Context(), `SELECT pg_sleep($1)`, rand.Float64()*0.05); err != nil {
			t.Fatal(err)
		}
		var n int
		if err := killer.QueryRow(t.Context(), `
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE application_name = 'holdfast' AND datname = current_database() AND ($1 OR state <> 'idle')`, rand.IntN(4) == 0).Scan(&n); err != nil {
			t.Fatal(err)
		}
		killed += n
	}
	close(stop)
	writers.Wait()
	t.Logf("%d connections were killed, %d appends acknowledged, %d failed", killed, len(l.acked), len(l.failed))
	if len(l.failed) > 0 {
		t.Errorf("%d appends failed although the database was there", len(l.failed))
	}
	l.verify(t, a)
}

func TestAServerThatCrashesLosesAndDoublesNothing(t *testing.T) {
	crashes := 10
	if testing.Short() {
		crashes = 3
	}
	server := pgtest.Start(t)
	url := server.New(t)
	l := newLedger()
	a := open(t, url, postgres.Options{Options: store.Options{OnCommit: l.hear}, Patience: time.Minute})
	b := open(t, url, postgres.Options{Patience: time.Minute})
	for range crashes {
		stop := make(chan struct{})
		var writers sync.WaitGroup
		before := len(l.acked)
		for n := range 4 {
			name := fmt.Sprintf("%d.%d", before, n)
			writers.Go(func() { l.write(t, []*postgres.Store{a, b}[n%2], name, stop) })
		}
		waitFor(t, "appends", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.acked) > before+20+rand.IntN(40)
		})
		server.Stop(t)
		server.Start(t)
		close(stop)
		writers.Wait()
	}
	t.Logf("%d appends acknowledged, %d failed", len(l.acked), len(l.failed))
	if len(l.failed) > 0 {
		t.Errorf("%d appends failed although the database came back soon", len(l.failed))
	}
	l.verify(t, b)
}

// waitFor waits until something is so.
func waitFor(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(time.Minute)
	for !so() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		<-tick.C
	}
}

func TestST07AStoreWhoseDatabaseIsAwaySaysSoAndComesBack(t *testing.T) {
	server := pgtest.Start(t)
	url := server.New(t)
	s := open(t, url, postgres.Options{Patience: 200 * time.Millisecond})
	if _, err := s.Append(t.Context(), "ses_1", note("before")); err != nil {
		t.Fatal(err)
	}
	server.Stop(t)
	if _, err := postgres.Open(t.Context(), url, postgres.Options{}); !errors.Is(err, postgres.ErrUnreachable) {
		t.Errorf("opening without a database gave %v", err)
	}
	for range 3 { // the first waits a little, the others know
		_, err := s.Append(t.Context(), "ses_1", note("during"))
		if !errors.Is(err, postgres.ErrUnknown) { // of the first one its commit may have been cut off
			refusedAs(t, err, postgres.ErrUnreachable)
		}
		_, err = s.Head(t.Context(), "ses_1")
		refusedAs(t, err, postgres.ErrUnreachable)
		refusedAs(t, s.View(t.Context(), "ses_1", nil), postgres.ErrUnreachable)
	}
	waitFor(t, "readiness to tell the truth", func() bool { return s.Ready(t.Context()) != nil })
	server.Start(t)
	waitFor(t, "readiness", func() bool { return s.Ready(t.Context()) == nil })
	if _, err := s.Append(t.Context(), "ses_1", note("after")); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(titles(t, s, "ses_1"), " "); got != "before after" {
		t.Errorf("the log says %s", got)
	}
	storetest.Sound(t, s, "ses_1")
}

func TestASessionThatAnotherProcessHoldsKeepsNoOtherWaiting(t *testing.T) {
	url := pgtest.New(t)
	s := open(t, url, postgres.Options{LockTimeout: 500 * time.Millisecond})
	for _, id := range []string{"ses_1", "ses_2"} {
		if _, err := s.Append(t.Context(), id, note("before")); err != nil {
			t.Fatal(err)
		}
	}
	// Another process that stands still in the middle of a transaction.
	other, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.Background())
	tx, err := other.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM heads WHERE session = 'ses_1' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	held := make(chan error, 1)
	go func() {
		_, err := s.Append(context.Background(), "ses_1", note("held"))
		held <- err
	}()
	others := 0
	for waiting := true; waiting; others++ {
		began := time.Now()
		if _, err := s.Append(t.Context(), "ses_2", note("x")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 300*time.Millisecond {
			t.Errorf("another session waited for %v", took)
		}
		select {
		case err := <-held:
			refusedAs(t, err, postgres.ErrHeld)
			waiting = false
		default:
		}
	}
	if others < 5 {
		t.Errorf("only %d appends to another session went by", others)
	}
	go func() {
		_, err := s.Append(context.Background(), "ses_1", note("waited"))
		held <- err
	}()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-held; err != nil {
		t.Error(err)
	}
	if got := strings.Join(titles(t, s, "ses_1"), " "); got != "before waited" {
		t.Errorf("the log says %s", got)
	}
}

func TestAProcessThatStandsStillDoesNotHoldASessionForEver(t *testing.T) {
	url := pgtest.New(t)
	s := open(t, url, postgres.Options{StatementTimeout: 300 * time.Millisecond})
	if _, err := s.Append(t.Context(), "ses_1", note("before")); err != nil {
		t.Fatal(err)
	}
	// A store like any other, but for the transaction that it leaves open.
	frozen, err := pgx.Connect(t.Context(), url+"?idle_in_transaction_session_timeout=300")
	if err != nil {
		t.Fatal(err)
	}
	defer frozen.Close(context.Background())
	if _, err := frozen.Exec(t.Context(), `BEGIN`); err != nil {
		t.Fatal(err)
	}
	if _, err := frozen.Exec(t.Context(), `SELECT FROM heads WHERE session = 'ses_1' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), "ses_1", note("after")); err != nil {
		t.Error(err)
	}
	if _, err := frozen.Exec(t.Context(), `COMMIT`); err == nil {
		t.Error("it could still commit")
	}
}
