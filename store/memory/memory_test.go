package memory_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/memory"
	"github.com/holdfast-run/holdfast/store/storetest"
)

var errFault = errors.New("a fault that the test asked for")

func submit(message, run string) *session.Submit {
	return &session.Submit{
		ID: message, Run: run, Output: "out_" + message, Tenant: "t", Owner: "o", DefaultAgent: "demo",
		Parts: []session.Part{{Type: session.PartText, Text: "hello"}},
	}
}

func TestAFaultBeforeTheCommitChangesNothing(t *testing.T) {
	fail := true
	s := memory.NewFaulty(memory.Options{
		Options: store.Options{OnCommit: func(store.Commit) { t.Error("told of a commit that did not happen") }},
		BeforeCommit: func(string, []session.Event) error {
			if fail {
				return errFault
			}
			return nil
		},
	})
	if _, err := s.Append(t.Context(), "ses_1", submit("m1", "r1").Decide); !errors.Is(err, errFault) {
		t.Fatalf("Append gave %v, not the fault", err)
	}
	if _, err := s.Head(t.Context(), "ses_1"); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("Head gave %v: the session exists", err)
	}
}

func TestALostAcknowledgementLeavesTheEventsInTheLog(t *testing.T) {
	told := 0
	fail := true
	s := memory.NewFaulty(memory.Options{
		Options: store.Options{OnCommit: func(store.Commit) { told++ }},
		AfterCommit: func(string, []session.Event) error {
			if fail {
				return errFault
			}
			return nil
		},
	})
	if _, err := s.Append(t.Context(), "ses_1", submit("m1", "r1").Decide); !errors.Is(err, errFault) {
		t.Fatalf("Append gave %v, not the fault", err)
	}
	if told != 1 {
		t.Fatalf("told of %d commits, not 1", told)
	}
	fail = false
	again := submit("m1", "r2")
	if _, err := s.Append(t.Context(), "ses_1", again.Decide); err != nil {
		t.Fatal(err)
	}
	if !again.Repeated || again.Accepted != "r1" {
		t.Fatalf("asking again gave run %q, repeated %v", again.Accepted, again.Repeated)
	}
}

func TestALostAcknowledgementOfAClaimLeavesALeaseThatExpires(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	fail := false
	s := memory.NewFaulty(memory.Options{
		Options: store.Options{Now: func() time.Time { return now }},
		AfterCommit: func(string, []session.Event) error {
			if fail {
				return errFault
			}
			return nil
		},
	})
	if _, err := s.Append(t.Context(), "ses_1", submit("m1", "r1").Decide); err != nil {
		t.Fatal(err)
	}
	fail = true
	if leases, err := s.Claim(t.Context(), "w", time.Minute, 10); !errors.Is(err, errFault) || leases != nil {
		t.Fatalf("Claim gave %v, %v", leases, err)
	}
	now = now.Add(time.Minute)
	expired, err := s.Expired(t.Context(), 10)
	if err != nil || len(expired) != 1 || expired[0].Run != "r1" {
		t.Fatalf("Expired gave %v, %v", expired, err)
	}
}

func TestADroppedCommitIsWrittenButNotTold(t *testing.T) {
	s := memory.NewFaulty(memory.Options{
		Options:    store.Options{OnCommit: func(store.Commit) { t.Error("told") }},
		DropCommit: func(store.Commit) bool { return true },
	})
	if _, err := s.Append(t.Context(), "ses_1", submit("m1", "r1").Decide); err != nil {
		t.Fatal(err)
	}
	if head, err := s.Head(t.Context(), "ses_1"); err != nil || head == 0 {
		t.Fatalf("Head gave %d, %v", head, err)
	}
}

func TestAFaultBeforeACallAnswersIt(t *testing.T) {
	s := memory.NewFaulty(memory.Options{BeforeCall: func(method string) error {
		if method == "Renew" {
			return store.ErrUnavailable
		}
		return nil
	}})
	if _, err := s.Append(t.Context(), "ses_1", submit("m1", "r1").Decide); err != nil {
		t.Fatal(err)
	}
	leases, err := s.Claim(t.Context(), "w", time.Minute, 1)
	if err != nil || len(leases) != 1 {
		t.Fatalf("Claim gave %v, %v", leases, err)
	}
	if _, err := s.Renew(t.Context(), leases[0], time.Minute); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("Renew gave %v", err)
	}
}

func TestTheStoreFollowsTheClockOfASynctestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(store.Options{})
		ctx := context.Background()
		if _, err := s.Append(ctx, "ses_1", submit("m1", "r1").Decide); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Claim(ctx, "w", 15*time.Second, 1); err != nil {
			t.Fatal(err)
		}
		next, err := s.NextDue(ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(next)) // the bubble's clock: no time passes outside
		if expired, err := s.Expired(ctx, 1); err != nil || len(expired) != 1 {
			t.Fatalf("Expired gave %v, %v at the time that NextDue foresaw", expired, err)
		}
	})
}

func TestMemoryKeepsTheContract(t *testing.T) {
	storetest.Exercise(t, func(t *testing.T, opts store.Options) store.Store {
		s := memory.New(opts)
		t.Cleanup(func() { _ = s.Close() }) // it gives no error
		return damageable{s}
	})
}

// damageable is a memory store that can be made to contradict itself.
type damageable struct{ *memory.Store }

func (d damageable) Damage(id string, damage storetest.Damage) error {
	switch damage {
	case storetest.LoseEvent:
		d.LoseEvent(id)
	case storetest.ChangeSession:
		d.ChangeSession(id)
	case storetest.ChangeRun:
		d.ChangeRun(id)
	case storetest.ChangeApproval:
		d.ChangeApproval(id)
	case storetest.ChangeMessage:
		d.ChangeMessage(id)
	default:
		return errors.ErrUnsupported
	}
	return nil
}

func BenchmarkMemory(b *testing.B) {
	storetest.Benchmark(b, func(b *testing.B, opts store.Options) store.Store {
		s := memory.New(opts)
		b.Cleanup(func() { _ = s.Close() }) // it gives no error
		return s
	})
}
