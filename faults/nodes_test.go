package faults

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/internal/pgtest"
	"github.com/holdfast-run/holdfast/session"
)

// newNodes starts two servers on one database, and one provider for both.
func newNodes(t *testing.T, s settings) (a, b *world) {
	t.Helper()
	if s.store == "" && s.services == nil {
		s.store = pgtest.New(t)
	}
	a = newWorld(t, s)
	return a, a.join()
}

// join starts one more server of the same house. The oracles are asked of it as well.
func (w *world) join() *world {
	w.t.Helper()
	dir := w.t.TempDir()
	if err := os.Symlink(filepath.Join(w.dir, "ledger"), filepath.Join(dir, "ledger")); err != nil {
		w.t.Fatal(err)
	}
	b := &world{t: w.t, ctx: w.ctx, dir: dir, llm: w.llm, http: &http.Client{}, seen: w.seen, config: w.config, keep: w.keep, store: w.store}
	b.next.Store(1000) // its message ids are others
	b.srv = start(w.t, dir, w.config, 0, w.keep...)
	w.t.Cleanup(func() { b.http.CloseIdleConnections() })
	w.t.Cleanup(b.oracles)
	return b
}

// watched is what a reader saw, and when.
type watched struct {
	frames []frame
	lags   []time.Duration // from the event to the reader
	gaps   []time.Duration // between events
}

// watch follows a session in the background until an event of the given type.
// The function waits for that and checks that nothing was missing.
func (w *world) watch(sessionID, until string) (wait func() watched) {
	w.t.Helper()
	s := w.follow(sessionID, 0)
	var seen watched
	var failed error
	done := make(chan struct{})
	go func() {
		defer close(done)
		last := time.Now()
		_, failed = s.read(func(f frame) bool {
			now := time.Now()
			seen.frames = append(seen.frames, f)
			seen.lags = append(seen.lags, now.Sub(f.event.At))
			seen.gaps = append(seen.gaps, now.Sub(last))
			last = now
			return f.Type == until
		})
	}()
	return func() watched {
		w.t.Helper()
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-done:
		case <-timer.C:
			s.close()
			<-done
			w.t.Fatalf("a reader waited in vain for %s, after %d frames", until, len(seen.frames))
		}
		if failed != nil {
			w.t.Fatalf("a reader's stream ended after %d frames: %v", len(seen.frames), failed)
		}
		joins(w.t.Errorf, seen.frames, 0)
		return seen
	}
}

// median of durations.
func median(d []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	return sorted[len(sorted)/2]
}

func TestARunOfOneNodeIsWatchedOnAnotherAsItGoes(t *testing.T) {
	a, b := newNodes(t, settings{})
	a.llm.Script(fakellm.Reply(deltas(200, 10*time.Millisecond)...))
	run := a.submit("ses", "count")
	there, here := b.watch("ses", "run.completed"), a.watch("ses", "run.completed")
	seen, own := there(), here()
	if got := b.run(run.ID); got.Status != session.Completed {
		t.Errorf("on the other node the run is %s", got.Status)
	}
	t.Logf("an event reaches a reader of the other node after %v, of its own after %v (medians)", median(seen.lags), median(own.lags))
	if lag := median(seen.lags); lag > 300*time.Millisecond {
		t.Errorf("the other node is behind by %v", lag)
	}
}

func TestTheRunsOfANodeThatIsKilledGoOnWithinTheLease(t *testing.T) {
	a, b := newNodes(t, settings{})
	const runs = 5
	gate := make(chan struct{})
	for i := range runs {
		a.llm.Script(fakellm.Reply(append(deltas(20, time.Millisecond), fakellm.Wait(gate))...).On(fakellm.Match{LastUser: fmt.Sprintf("go %d", i)}))
	}
	// Node b is deaf to what is due until a carries everything: it stands still.
	b.srv.signal(syscall.SIGSTOP)
	all := make([]session.Run, runs)
	for i := range all {
		all[i] = a.submit(fmt.Sprintf("ses_%d", i), fmt.Sprintf("go %d", i))
		a.arrives(i + 1)
	}
	b.srv.signal(syscall.SIGCONT)
	waits := make([]func() watched, runs)
	for i := range all {
		waits[i] = b.watch(all[i].Session, "run.completed")
	}
	a.llm.DropScript()
	a.llm.SetDefault(func(fakellm.Request) fakellm.Turn { return fakellm.Reply(fakellm.Text("carried on")) })
	killed := time.Now()
	a.srv.kill()
	close(gate)
	for i, wait := range waits {
		seen := wait()
		var reconciled time.Time
		for _, f := range seen.frames {
			if f.Type == "run.reconciled" {
				reconciled = f.event.At
			}
		}
		if took := reconciled.Sub(killed); took > lease+3*time.Second {
			t.Errorf("run %d was taken over after %v", i, took)
		}
		if got := b.run(all[i].ID); got.Status != session.Completed || got.Attempt != 2 {
			t.Errorf("run %d is %s at attempt %d: %+v", i, got.Status, got.Attempt, got.Error)
		}
		b.continues(all[i].Session)
	}
}

func TestANodeThatStoodStillWritesNothingWhenItWakes(t *testing.T) {
	a, b := newNodes(t, settings{})
	b.srv.signal(syscall.SIGSTOP) // so that a carries
	a.llm.Script(fakellm.Reply(deltas(2000, 5*time.Millisecond)...))
	run := a.submit("ses", "go")
	a.arrives(1)
	b.srv.signal(syscall.SIGCONT)
	pause(t, 300*time.Millisecond)
	a.llm.SetDefault(func(fakellm.Request) fakellm.Turn { return fakellm.Reply(deltas(400, 10*time.Millisecond)...) })
	wait := b.watch("ses", "run.completed")
	a.srv.signal(syscall.SIGSTOP) // in the middle of whatever it does
	b.until(run, "to be taken over", func(r session.Run) bool { return r.Attempt == 2 && r.Status == session.Running })
	a.srv.signal(syscall.SIGCONT)
	if got := b.ends(run); got.Status != session.Completed || got.Attempt != 2 {
		t.Errorf("the run is %s at attempt %d: %+v", got.Status, got.Attempt, got.Error)
	}
	wait()
	if got := a.text("ses"); got != b.text("ses") {
		t.Error("the nodes give different texts")
	}
	b.continues("ses")
}

func TestACancelOnOneNodeStopsARunThatAnotherCarries(t *testing.T) {
	a, b := newNodes(t, settings{})
	gate := make(chan struct{})
	t.Cleanup(func() { close(gate) })
	const runs = 6 // some are carried by either
	for i := range runs {
		a.llm.Script(fakellm.Reply(fakellm.Text("half"), fakellm.Wait(gate)).On(fakellm.Match{LastUser: fmt.Sprintf("go %d", i)}))
	}
	all := make([]session.Run, runs)
	for i := range all {
		all[i] = a.submit(fmt.Sprintf("ses_%d", i), fmt.Sprintf("go %d", i))
		a.arrives(i + 1)
	}
	workers := map[string]bool{}
	for i := range all {
		workers[b.run(all[i].ID).Worker] = true
		began := time.Now()
		if got := b.cancel(all[i].ID); got.status/100 != 2 {
			t.Fatalf("cancel answers %d: %s", got.status, got.raw)
		}
		if got := a.ends(all[i]); got.Status != session.Cancelled {
			t.Errorf("run %d is %s", i, got.Status)
		}
		if took := time.Since(began); took > 3*time.Second { // without being told it were the grace of 5
			t.Errorf("the cancel of run %d took %v", i, took)
		}
		a.closes(i+1, 3*time.Second)
	}
	t.Logf("%d workers carried the runs", len(workers))
}

func TestAP01AnApprovalIsDecidedOnceOverTwoNodes(t *testing.T) {
	a, b := newNodes(t, settings{})
	run, approval := a.asked("ses")
	if pending := b.pending("ses"); len(pending) != 1 || pending[0].ID != approval.ID {
		t.Fatalf("on the other node %v are pending", pending)
	}
	var wg sync.WaitGroup
	var approved, denied atomic.Int64
	for i := range 20 {
		w, decision, won := a, "approve", &approved
		if i%2 == 1 {
			w = b
		}
		if i%4 == 3 {
			decision, won = "deny", &denied
		}
		wg.Go(func() {
			got, err := w.try(w.ctx, "POST", "/v1/approvals/"+approval.ID, map[string]string{"decision": decision})
			switch {
			case err != nil || got.status >= 500:
				t.Errorf("HTTP %d, %v: %s", got.status, err, got.raw)
			case got.status/100 == 2:
				won.Add(1)
			}
		})
	}
	wg.Wait()
	if approved.Load() > 0 && denied.Load() > 0 {
		t.Errorf("%d times it was approved and %d times denied", approved.Load(), denied.Load())
	}
	if got := b.ends(run); got.Status != session.Completed {
		t.Errorf("the run is %s: %+v", got.Status, got.Error)
	}
	want := 0
	if approved.Load() > 0 {
		want = 1
	}
	if n := len(a.ledger()); n != want {
		t.Errorf("the tool acted %d times, not %d", n, want)
	}
	b.continues("ses")
}

func TestCA01CancelAgainstTheEndOverTwoNodesEndsOnce(t *testing.T) {
	a, b := newNodes(t, settings{})
	runs := 60
	if testing.Short() {
		runs = 10
	}
	a.llm.SetDefault(func(fakellm.Request) fakellm.Turn { return fakellm.Reply(deltas(3, 5*time.Millisecond)...) })
	var all sync.WaitGroup
	for i := range runs {
		id := fmt.Sprintf("ses_%d", i)
		w, other := a, b
		if i%2 == 1 {
			w, other = b, a
		}
		run := w.submit(id, "go")
		all.Go(func() {
			pause(t, time.Duration(i)*time.Millisecond)
			if _, err := other.try(other.ctx, "POST", "/v1/runs/"+run.ID+"/cancel", map[string]string{}); err != nil {
				t.Error(err)
			}
		})
		if i%10 == 9 {
			all.Wait()
		}
	}
	all.Wait()
	for id := range a.seen {
		for _, r := range a.snapshot(id).Runs {
			a.ends(r)
		}
	}
}

func TestARollingDeployLosesNothing(t *testing.T) {
	a, b := newNodes(t, settings{drain: 300 * time.Millisecond})
	a.llm.SetDefault(func(fakellm.Request) fakellm.Turn { return fakellm.Reply(deltas(100, 20*time.Millisecond)...) })
	const runs = 4
	all := make([]session.Run, runs)
	for i := range all {
		all[i] = []*world{a, b}[i%2].submit(fmt.Sprintf("ses_%d", i), "go")
		a.arrives(i + 1)
	}
	wait := b.watch(all[0].Session, "run.completed")
	pause(t, 200*time.Millisecond)
	a.srv.stop(t) // its runs are handed over, and b goes on
	for _, run := range all {
		if got := b.ends(run); got.Status != session.Completed {
			t.Errorf("run %s is %s: %+v", run.ID, got.Status, got.Error)
		}
	}
	wait()
	a.again()
	for _, run := range all {
		a.continues(run.Session)
	}
}

// bells runs a query on the connections of the doorbells, such as to kill them.
func (w *world) bells(do string) {
	w.t.Helper()
	db, err := pgx.Connect(w.ctx, w.store)
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close(w.ctx)
	if _, err := db.Exec(w.ctx, `SELECT `+do+`(pid) FROM pg_stat_activity WHERE application_name = 'holdfast doorbell' AND datname = current_database()`); err != nil {
		w.t.Fatal(err)
	}
}

func TestRG08TheEndOfARunReachesAReaderWhoseNodeHearsNothing(t *testing.T) {
	a, b := newNodes(t, settings{})
	gate := make(chan struct{})
	a.llm.Script(fakellm.Reply(append(deltas(5, time.Millisecond), fakellm.Wait(gate))...))
	run := a.submit("ses", "go")
	wait := b.watch("ses", "run.completed")
	a.arrives(1)
	// For three seconds no connection of a doorbell lives long, and the run ends in the middle of that.
	for i := range 60 {
		a.bells("pg_terminate_backend")
		pause(t, 50*time.Millisecond)
		if i == 30 {
			close(gate)
		}
	}
	seen := wait()
	if lag := seen.lags[len(seen.lags)-1]; lag > 5*time.Second {
		t.Errorf("the end of the run came after %v", lag)
	}
	if got := b.run(run.ID); got.Status != session.Completed {
		t.Errorf("the run is %s", got.Status)
	}
}

func TestST01ALargeEventIsDeliveredOnTheOtherNodeAtOnce(t *testing.T) {
	a, b := newNodes(t, settings{})
	id := strings.Repeat("s", session.MaxIDLength)
	a.llm.Script(fakellm.Reply(fakellm.Text("here")))
	a.ends(a.send(id, say("msg_begin", "begin")).Run)
	for i, text := range []string{
		strings.Repeat("x", 7900), strings.Repeat("x", 7999), strings.Repeat("x", 8000), strings.Repeat("x", 8001), strings.Repeat("x", 20_000),
		strings.Repeat("你", 2700),
	} {
		a.llm.Script(fakellm.Reply(fakellm.Text(text)))
		s := b.follow(id, b.snapshot(id).Seq)
		run := a.send(id, say(fmt.Sprintf("msg_%d", i), "say it: "+text)).Run
		frames, err := s.read(func(f frame) bool { return f.Type == "run.completed" })
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range frames {
			if lag := time.Since(f.event.At); f.Type == "run.completed" && lag > time.Second {
				t.Errorf("of %d bytes the end came after %v", len(text), lag)
			}
		}
		a.ends(run)
		if got := b.text(id); got != text {
			t.Errorf("%d bytes came as %d", len(text), len(got))
		}
	}
}

func TestST03ReadersGoOnWhenDoorbellAndDatabaseGoAway(t *testing.T) {
	server := pgtest.Start(t)
	a, b := newNodes(t, settings{store: server.New(t)})
	gate := make(chan struct{})
	a.llm.Script(fakellm.Reply(append(deltas(400, 25*time.Millisecond), fakellm.Wait(gate))...))
	run := a.submit("ses", "go")
	there, here := b.watch("ses", "run.completed"), a.watch("ses", "run.completed")
	a.arrives(1)
	pause(t, time.Second)
	a.bells("pg_terminate_backend")
	pause(t, 2*time.Second)
	server.Stop(t)
	pause(t, 500*time.Millisecond)
	server.Start(t)
	pause(t, 2*time.Second)
	close(gate)
	for where, seen := range map[string]watched{"the other": there(), "its own": here()} {
		if worst := slices.Max(seen.gaps); worst > 5*time.Second {
			t.Errorf("on %s node nothing came for %v", where, worst)
		}
	}
	// On a busy machine the database is away for longer than the short lease: then another attempt is right.
	if got := a.ends(run); got.Status != session.Completed {
		t.Errorf("the run is %s: %+v", got.Status, got.Error)
	}
}

func TestST07ADatabaseThatIsAwayIsToldAndTheServerComesBack(t *testing.T) {
	server := pgtest.Start(t)
	w := newWorld(t, settings{store: server.New(t)})
	gate := make(chan struct{})
	w.llm.Script(fakellm.Reply(append(deltas(50, 20*time.Millisecond), fakellm.Wait(gate))...))
	run := w.submit("ses", "go")
	w.arrives(1)
	server.Stop(t)
	for i := range 3 {
		a := w.ask("POST", "/v1/sessions/ses_other/messages", say(fmt.Sprintf("msg_%d", i), "hello"))
		if a.status != http.StatusServiceUnavailable || a.problem(t).Code != "unavailable" {
			t.Errorf("without a database a message is answered %d: %s", a.status, a.raw)
		}
	}
	if ready := w.ask("GET", "/readyz", nil); ready.status == http.StatusOK {
		t.Error("it says that it is ready")
	}
	server.Start(t)
	close(gate)
	w.within(20*time.Second, "coming back", func(ctx context.Context) error {
		for {
			a, err := w.try(ctx, "POST", "/v1/sessions/ses_other/messages", say("msg_0", "hello"))
			if err != nil || a.status/100 == 2 {
				return err
			}
		}
	})
	w.seen["ses_other"] = true
	if got := w.ends(run); got.Status != session.Completed {
		t.Errorf("the run is %s: %+v", got.Status, got.Error)
	}
	w.ends(w.send("ses_other", say("msg_0", "hello")).Run)
	w.continues("ses")
}
