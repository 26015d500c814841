package sqlite_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

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
				if _, err := s.Append(b.Context(), lease.Session, say(lease, packed, " token")); err != nil {
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
				if _, err := s.Append(b.Context(), lease.Session, say(lease, 1, " token")); err != nil {
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
