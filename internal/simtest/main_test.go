package simtest

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seed      = flag.Int64("seed", 0, "live the one history of this seed and tell its story with -v; 0: many")
	histories = flag.Int("histories", 0, "how many histories to live; 0: a good thousand, or what a busy machine does in a minute")
	first     = flag.Int64("first", 1, "the seed of the first of them")
	failures  = flag.Int("failures", 3, "after how many that fail to stop")
)

func TestMain(m *testing.M) {
	flag.Parse()
	runtime.GOMAXPROCS(1) // goroutines then take turns in an order that hardly ever differs
	slog.SetDefault(quiet)
	if err := os.Setenv("GODEBUG", os.Getenv("GODEBUG")+",tracebacklabels=1"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// skipForSeed skips a test when one history is asked for.
func skipForSeed(t *testing.T) {
	t.Helper()
	if *seed != 0 {
		t.Skip("only one history is asked for")
	}
}

// lifetime lives the history of a plan in a bubble of its own and gives what is
// wrong with it. A goroutine that is left over, or a world that stands still for
// ever, is wrong too.
func lifetime(t *testing.T, p *plan, b broken) (w *world, findings []string) {
	w = newWorld(p, b)
	defer func() {
		if r := recover(); r != nil {
			findings = append(w.findings, fmt.Sprintf("%v\n%s", r, stacks()))
		}
	}()
	// If a goroutine of the runtime panics, the label in its trace says in which history.
	labels := pprof.Labels("seed", strconv.FormatInt(p.seed, 10))
	pprof.Do(context.Background(), labels, func(context.Context) { synctest.Test(t, w.live) })
	return w, w.findings
}

// stacks are those of all goroutines.
func stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

func TestRandomHistoriesKeepThePromises(t *testing.T) {
	if *seed != 0 {
		report(t, *seed, true)
		return
	}
	began, n, enough := time.Now(), int64(*histories), time.Duration(1<<62)
	if n == 0 {
		n, enough = defaultHistories, time.Minute
	}
	if testing.Short() {
		n /= 10
	}
	failed, seen := 0, census{}
	s := *first
	for ; s < *first+n && failed < *failures && time.Since(began) < enough; s++ {
		w, ok := report(t, s, false)
		if ok {
			seen.add(w)
		} else {
			failed++
		}
	}
	t.Logf("%d histories in %s, with\n%s", s-*first, time.Since(began).Round(time.Millisecond), seen)
	if s-*first >= 1000 && failed == 0 {
		seen.check(t)
	}
}

// report lives a history and reports what is wrong with it.
func report(t *testing.T, seed int64, tell bool) (*world, bool) {
	t.Helper()
	w, findings := lifetime(t, newPlan(seed), broken{})
	if tell || len(findings) > 0 {
		t.Logf("the story of seed %d:\n%s", seed, w.story.tell())
	}
	for _, f := range findings {
		t.Errorf("seed %d: %s", seed, shorten(f))
	}
	if len(findings) > 0 {
		t.Errorf("live it again with: go test ./internal/simtest -run RandomHistories -seed=%d", seed)
	}
	return w, len(findings) == 0
}
