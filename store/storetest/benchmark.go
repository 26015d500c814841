package storetest

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// benchToken is what a model streams at a time, about.
const benchToken = " holdfast"

// Benchmark measures what a store's callers wait for. An operation is one
// call that has returned, so an append is durable. open makes an empty store
// and ends it with b.Cleanup.
func Benchmark(b *testing.B, open func(b *testing.B, opts store.Options) store.Store) {
	b.Run("append/lone", func(b *testing.B) { benchmarkAppend(b, open(b, store.Options{}), 1, 0) })
	b.Run("append/behind 1000 messages", func(b *testing.B) { benchmarkAppend(b, open(b, store.Options{}), 1, 1000) })
	b.Run("append/100 sessions", func(b *testing.B) { benchmarkAppend(b, open(b, store.Options{}), 100, 0) })
	b.Run("append/1000 sessions", func(b *testing.B) { benchmarkAppend(b, open(b, store.Options{}), 1000, 0) })
	b.Run("submit", func(b *testing.B) { benchmarkSubmit(b, open(b, store.Options{})) })
	b.Run("read/10000 events", func(b *testing.B) { benchmarkRead(b, open(b, store.Options{}), 10_000) })
	b.Run("claim/among 1000", func(b *testing.B) { benchmarkClaim(b, open(b, store.Options{}), 1000) })
	b.Run("view/1000 messages", func(b *testing.B) { benchmarkView(b, open(b, store.Options{}), 1000) })
	b.Run("messages/50 of 1000", func(b *testing.B) { benchmarkMessages(b, open(b, store.Options{}), 1000) })
	b.Run("sessions/50 of 1000", func(b *testing.B) { benchmarkSessions(b, open(b, store.Options{}), 1000) })
}

func benchSubmit(message string) *session.Submit {
	return &session.Submit{
		ID: message, Run: "run_" + message, Output: "out_" + message, Tenant: tenant, Owner: owner, DefaultAgent: "demo",
		Parts: []session.Part{{Type: session.PartText, Text: "hello"}}, At: time.Now(), Grace: time.Second,
	}
}

func benchDo(b *testing.B, s store.Store, id string, decide session.Decide) {
	if _, err := s.Append(context.Background(), id, decide); err != nil {
		b.Fatal(err)
	}
}

// benchRun makes a run that is streaming, behind n older messages.
func benchRun(b *testing.B, s store.Store, id string, n int) store.Lease {
	b.Helper()
	benchHistory(b, s, id, n)
	benchDo(b, s, id, benchSubmit("m_"+id).Decide)
	leases, err := s.Claim(context.Background(), "wrk_1", time.Hour, 1)
	if err != nil || len(leases) != 1 {
		b.Fatalf("claimed %v, %v", leases, err)
	}
	benchDo(b, s, id, session.Carry(leases[0].Run, leases[0].Fence, func(_ *session.State, run *session.Run) ([]session.Event, error) {
		return beginAttempt(run), nil
	}))
	return leases[0]
}

// benchHistory adds n messages, which answer each other, in large appends.
func benchHistory(b *testing.B, s store.Store, id string, n int) {
	b.Helper()
	for i := 0; i < n; i += 100 {
		benchDo(b, s, id, func(state *session.State) ([]session.Event, error) {
			var events []session.Event
			if !state.Exists() {
				events = append(events, session.Event{Data: session.Created{Tenant: tenant, Owner: owner, Title: id}})
			}
			parent := state.Head
			for j := i; j < min(i+100, n); j++ {
				m := fmt.Sprintf("m%d", j)
				events = append(events, session.Event{Data: session.MessageCreated{Message: session.Message{
					ID: m, Role: session.RoleUser, Parent: parent, Status: session.MessageWhole,
					Parts: []session.Part{{Type: session.PartText, Text: "What has been said before, in a few words."}},
				}}})
				parent = m
			}
			return events, nil
		})
	}
}

// benchmarkAppend has each session's worker append one delta at a time, as
// fast as the store takes them.
func benchmarkAppend(b *testing.B, s store.Store, sessions, messages int) {
	leases := make([]store.Lease, sessions)
	for i := range leases {
		leases[i] = benchRun(b, s, fmt.Sprintf("ses_%d", i), messages)
	}
	write := func(_ *session.State, run *session.Run) ([]session.Event, error) {
		return []session.Event{delta(run, 0, benchToken)}, nil
	}
	var next atomic.Int64
	b.SetParallelism((sessions + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0))
	b.ReportAllocs()
	b.ResetTimer()
	if sessions == 1 {
		for b.Loop() {
			benchDo(b, s, leases[0].Session, session.Carry(leases[0].Run, leases[0].Fence, write))
		}
	} else {
		b.RunParallel(func(pb *testing.PB) {
			lease := leases[int(next.Add(1)-1)%sessions]
			for pb.Next() {
				if _, err := s.Append(context.Background(), lease.Session, session.Carry(lease.Run, lease.Fence, write)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// benchmarkSubmit measures accepting a message: its events, read models and due work.
func benchmarkSubmit(b *testing.B, s store.Store) {
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		benchDo(b, s, fmt.Sprintf("ses_%d", i), benchSubmit(fmt.Sprintf("m%d", i)).Decide)
	}
}

// benchmarkRead catches up from the beginning of a log of deltas.
func benchmarkRead(b *testing.B, s store.Store, events int) {
	lease := benchRun(b, s, "ses_1", 0)
	for n := 0; n < events; n += 10 {
		benchDo(b, s, "ses_1", session.Carry(lease.Run, lease.Fence, func(_ *session.State, run *session.Run) ([]session.Event, error) {
			deltas := make([]session.Event, 10)
			for i := range deltas {
				deltas[i] = delta(run, 0, benchToken)
			}
			return deltas, nil
		}))
	}
	b.ReportAllocs()
	read := 0
	for b.Loop() {
		for after := int64(0); ; {
			frames, err := s.Read(context.Background(), "ses_1", after, 0)
			if err != nil {
				b.Fatal(err)
			}
			if len(frames) == 0 {
				break
			}
			read += len(frames)
			after = frames[len(frames)-1].To
		}
	}
	b.ReportMetric(float64(read)/b.Elapsed().Seconds(), "events/s")
}

// benchmarkClaim measures a claim, and the write that makes the run due again,
// while many other runs wait for their time.
func benchmarkClaim(b *testing.B, s store.Store, others int) {
	wait := func(lease store.Lease, until time.Time) {
		benchDo(b, s, lease.Session, session.Carry(lease.Run, lease.Fence, func(_ *session.State, run *session.Run) ([]session.Event, error) {
			return []session.Event{at(run, session.RunWaiting{Reason: session.WaitRetry, Until: &until})}, nil
		}))
	}
	later := time.Now().Add(time.Hour)
	for i := range others {
		wait(benchRun(b, s, fmt.Sprintf("ses_%d", i), 0), later)
	}
	benchDo(b, s, "ses_due", benchSubmit("due").Decide)
	now := time.Now().Add(-time.Second)
	b.ReportAllocs()
	for b.Loop() {
		leases, err := s.Claim(context.Background(), "wrk_1", time.Minute, 4)
		if err != nil || len(leases) != 1 {
			b.Fatalf("claimed %v, %v", leases, err)
		}
		wait(leases[0], now)
	}
}

func benchmarkView(b *testing.B, s store.Store, messages int) {
	benchHistory(b, s, "ses_1", messages)
	b.ReportAllocs()
	for b.Loop() {
		if err := s.View(context.Background(), "ses_1", func(*session.State) {}); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkMessages(b *testing.B, s store.Store, messages int) {
	benchHistory(b, s, "ses_1", messages)
	ids := make([]string, 50)
	for i := range ids {
		ids[i] = fmt.Sprintf("m%d", messages-len(ids)+i)
	}
	b.ReportAllocs()
	for b.Loop() {
		if got, err := s.Messages(context.Background(), "ses_1", ids); err != nil || len(got) != len(ids) {
			b.Fatalf("%d messages, %v", len(got), err)
		}
	}
}

func benchmarkSessions(b *testing.B, s store.Store, sessions int) {
	for i := range sessions {
		benchDo(b, s, fmt.Sprintf("ses_%d", i), session.Create{Tenant: tenant, Owner: owner, Title: "one of many"}.Decide)
	}
	b.ReportAllocs()
	for b.Loop() {
		page, err := s.Sessions(context.Background(), store.SessionQuery{Tenant: tenant, Owner: owner})
		if err != nil || len(page.Items) != 50 {
			b.Fatalf("%d sessions, %v", len(page.Items), err)
		}
	}
}
