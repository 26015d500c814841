//go:build unix

package sqlite_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/sqlite"
	"github.com/holdfast-run/holdfast/store/storetest"
)

// The benchmarks say what a commit to a real disk costs, fsync included. CPU
// is that of the whole process, the callers and the garbage collector included.

func BenchmarkStore(b *testing.B) {
	storetest.Benchmark(b, func(b *testing.B, opts store.Options) store.Store {
		return open(b, b.TempDir(), sqlite.Options{Options: opts})
	})
}

// BenchmarkDeltas appends token deltas to many sessions, one append of each at a time, as the workers of that many chats do.
func BenchmarkDeltas(b *testing.B) {
	for _, sessions := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) { benchmarkDeltas(b, sessions, 1) })
	}
	b.Run("sessions=1000,packed=4", func(b *testing.B) { benchmarkDeltas(b, 1000, 4) })
}

func benchmarkDeltas(b *testing.B, sessions, packed int) {
	s := open(b, b.TempDir(), sqlite.Options{})
	runs := carried(b, s, sessions)
	latencies := make([][]time.Duration, sessions)
	var left atomic.Int64
	left.Store(int64(b.N))
	start := cpuTime()
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, lease := range runs {
		wg.Go(func() {
			for left.Add(-int64(packed)) > -int64(packed) {
				began := time.Now()
				if _, err := s.Append(b.Context(), lease.Session, storetest.Say(lease, packed, " token")); err != nil {
					b.Error(err)
					return
				}
				latencies[i] = append(latencies[i], time.Since(began))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	report(b, b.N, start, latencies)
}

// BenchmarkTokens is that many chats of 50 tokens a second: what a token costs
// when nothing forces commits to be shared. cpu-us/event includes the clock that drives it.
func BenchmarkTokens(b *testing.B) {
	for _, sessions := range []int{1, 10, 50, 100, 500} {
		b.Run(fmt.Sprintf("chats=%d", sessions), func(b *testing.B) { benchmarkTokens(b, sessions) })
	}
}

func benchmarkTokens(b *testing.B, chats int) {
	const every = 20 * time.Millisecond
	s := open(b, b.TempDir(), sqlite.Options{})
	runs := carried(b, s, chats)
	each := max(b.N/chats, 1)
	latencies := make([][]time.Duration, chats)
	start := cpuTime()
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, lease := range runs {
		wg.Go(func() {
			next := time.Now().Add(every * time.Duration(i) / time.Duration(chats))
			for range each {
				time.Sleep(time.Until(next))
				if _, err := s.Append(b.Context(), lease.Session, storetest.Say(lease, 1, " token")); err != nil {
					b.Error(err)
					return
				}
				latencies[i] = append(latencies[i], time.Since(next))
				next = next.Add(every)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	report(b, chats*each, start, latencies)
}

func report(b *testing.B, events int, start time.Duration, latencies [][]time.Duration) {
	all := slices.Concat(latencies...)
	slices.Sort(all)
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64((cpuTime()-start).Nanoseconds())/1000/float64(events), "cpu-us/event")
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(0, "ns/op")
}

func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkRuns takes runs from the message to the end with twenty tokens each: seven commits of facts.
func BenchmarkRuns(b *testing.B) {
	for _, sessions := range []int{1, 100} {
		b.Run(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) { benchmarkRuns(b, sessions) })
	}
}

func benchmarkRuns(b *testing.B, sessions int) {
	s := open(b, b.TempDir(), sqlite.Options{})
	var next atomic.Int64
	start := cpuTime()
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range sessions {
		wg.Go(func() {
			for {
				n := next.Add(1)
				if n > int64(b.N) {
					return
				}
				if err := wholeRun(b, s, fmt.Sprintf("ses_%d", i), fmt.Sprintf("%d", n)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
	b.ReportMetric(float64((cpuTime()-start).Nanoseconds())/1000/float64(b.N), "cpu-us/run")
}

// wholeRun claims by hand, so that each goroutine carries the run that it queued.
func wholeRun(b testing.TB, s *sqlite.Store, id, n string) error {
	run := "run_" + n
	claim := &session.Claim{Run: run, Worker: "wrk_1", At: time.Now()}
	carry := func(events ...session.Data) session.Decide {
		return session.Carry(run, 1, func(_ *session.State, r *session.Run) ([]session.Event, error) {
			var list []session.Event
			for _, d := range events {
				list = append(list, session.Event{Step: 1, Attempt: 1, Data: d})
			}
			return list, nil
		})
	}
	message := "out_msg_" + n
	decides := []session.Decide{storetest.Submit("msg_"+n, run).Decide, claim.Decide, carry(session.StepStarted{Message: message})}
	for range 20 {
		decides = append(decides, carry(session.TextDelta{Message: message, Text: " token"}))
	}
	decides = append(decides,
		carry(session.ModelCompleted{Message: message, Parts: []session.Part{{Type: session.PartText, Text: " token"}}, Finish: "stop"}),
		carry(session.StepCompleted{}),
		session.Carry(run, 1, func(s *session.State, r *session.Run) ([]session.Event, error) {
			return s.End(r, session.RunCompleted{}), nil
		}))
	for _, decide := range decides {
		if _, err := s.Append(b.Context(), id, decide); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkClaim claims due runs of many sessions, a few at a time.
func BenchmarkClaim(b *testing.B) {
	s := open(b, b.TempDir(), sqlite.Options{})
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for n := i; n < b.N; n += 64 {
				c := storetest.Submit(fmt.Sprintf("msg_%d", n), fmt.Sprintf("run_%d", n))
				if _, err := s.Append(b.Context(), fmt.Sprintf("ses_%d", n), c.Decide); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	start := cpuTime()
	b.ResetTimer()
	for claimed := 0; claimed < b.N; {
		leases, err := s.Claim(b.Context(), "wrk_1", time.Hour, 10)
		if err != nil || len(leases) == 0 {
			b.Fatal(leases, err)
		}
		claimed += len(leases)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "claims/s")
	b.ReportMetric(float64((cpuTime()-start).Nanoseconds())/1000/float64(b.N), "cpu-us/claim")
}

// BenchmarkRead reads 10,000 events in pages, as a reader that far behind does.
func BenchmarkRead(b *testing.B) {
	for name, tail := range map[string]int64{"tail": 64 << 20, "log": 1} {
		b.Run("from="+name, func(b *testing.B) {
			s := open(b, b.TempDir(), sqlite.Options{TailBytes: tail})
			lease := carried(b, s, 1)[0]
			for range 1000 {
				if _, err := s.Append(b.Context(), lease.Session, storetest.Say(lease, 10, " token")); err != nil {
					b.Fatal(err)
				}
			}
			b.ResetTimer()
			for b.Loop() {
				after := int64(0)
				for {
					frames, err := s.Read(b.Context(), lease.Session, after, 0)
					if err != nil {
						b.Fatal(err)
					}
					if len(frames) == 0 {
						break
					}
					after = frames[len(frames)-1].To
				}
				if after < 10000 {
					b.Fatalf("read to %d", after)
				}
			}
		})
	}
}

// BenchmarkView looks at a session that is in the cache, and at sessions that are not.
func BenchmarkView(b *testing.B) {
	for _, cached := range []int{1000, 1} {
		b.Run(fmt.Sprintf("cached=%d", cached), func(b *testing.B) {
			s := open(b, b.TempDir(), sqlite.Options{CachedSessions: cached})
			for i := range 100 {
				for n := range 5 {
					if err := wholeRun(b, s, fmt.Sprintf("ses_%d", i), fmt.Sprintf("%d_%d", i, n)); err != nil {
						b.Fatal(err)
					}
				}
			}
			i := 0
			for b.Loop() {
				i++
				if err := s.View(b.Context(), fmt.Sprintf("ses_%d", i%100), func(*session.State) {}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkOpen opens a store with a full tail.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	s, err := sqlite.Open(b.Context(), dir, sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	leases := carried(b, s, 100)
	for i := range 800 {
		if _, err := s.Append(b.Context(), leases[i%100].Session, storetest.Say(leases[i%100], 100, " token")); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s, err := sqlite.Open(b.Context(), dir, sqlite.Options{})
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}
