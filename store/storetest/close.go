package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

var closePromises = []promise{
	{"a context that has ended gives its cause and nothing is done", anEndedContextGivesItsCause},
	{"every method is refused after Close", everyMethodIsRefusedAfterClose},
	{"closing again is harmless", func(t *testing.T, w *world) {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil && !errors.Is(err, store.ErrClosed) {
			t.Errorf("closing again gave %v", err)
		}
	}},
	{"Close finishes the appends that are under way", closeFinishesAppends},
	{"an open store is ready", func(t *testing.T, w *world) {
		if err := w.Ready(w.ctx); err != nil {
			t.Error(err)
		}
	}},
}

func isNotFound(err error) bool { return errors.Is(err, store.ErrNotFound) }

// calls are all methods but Close.
func calls(w *world) map[string]func(ctx context.Context) error {
	all := map[string]func(ctx context.Context) error{
		"Append":    func(ctx context.Context) error { _, err := w.Append(ctx, "ses_1", fact(note("never"))); return err },
		"Messages":  func(ctx context.Context) error { _, err := w.Messages(ctx, "ses_1", []string{"m1"}); return err },
		"Sessions":  func(ctx context.Context) error { _, err := w.Sessions(ctx, store.SessionQuery{}); return err },
		"Runs":      func(ctx context.Context) error { _, err := w.Runs(ctx, store.RunQuery{}); return err },
		"Approvals": func(ctx context.Context) error { _, err := w.Approvals(ctx, store.ApprovalQuery{}); return err },
		"Run":       func(ctx context.Context) error { _, err := w.Run(ctx, "run_m1"); return err },
		"Approval":  func(ctx context.Context) error { _, err := w.Approval(ctx, "apr_1"); return err },
		"Claim":     func(ctx context.Context) error { _, err := w.Claim(ctx, "wrk_1", ttl, 1); return err },
		"Renew": func(ctx context.Context) error {
			_, err := w.Renew(ctx, store.Lease{Session: "ses_1", Run: "run_m1", Worker: "wrk_1", Fence: 1}, ttl)
			return err
		},
		"Expired": func(ctx context.Context) error { _, err := w.Expired(ctx, 1); return err },
		"Held":    func(ctx context.Context) error { _, err := w.Held(ctx, "", 1); return err },
		"Overdue": func(ctx context.Context) error { _, err := w.Overdue(ctx, 1); return err },
		"NextDue": func(ctx context.Context) error { _, err := w.NextDue(ctx); return err },
		"PutBlob": func(ctx context.Context) error {
			_, err := w.PutBlob(ctx, "ses_1", "text/plain", strings.NewReader("x"))
			return err
		},
		"Blob": func(ctx context.Context) error {
			_, _, err := w.Blob(ctx, "ses_1", strings.Repeat("0", 64))
			return err
		},
		"Fold":  func(ctx context.Context) error { _, err := w.Fold(ctx, w.clock.Now()); return err },
		"Ready": w.Ready,
	}
	for what, call := range sessionCalls(w) {
		all[what] = func(ctx context.Context) error { return call(ctx, "ses_1") }
	}
	return all
}

func anEndedContextGivesItsCause(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	before := w.readAll("ses_1")
	cause := errors.New("the person left")
	ctx, cancel := context.WithCancelCause(w.ctx)
	cancel(cause)
	for what, call := range calls(w) {
		if err := call(ctx); !errors.Is(err, cause) {
			t.Errorf("%s gave %v, not the cause", what, err)
		}
	}
	same(t, "the log", w.readAll("ses_1"), before)
	w.sound("ses_1")
	if lease := w.claim("wrk_1"); lease.Fence != 1 {
		t.Errorf("the first claim has the fence %d", lease.Fence)
	}
}

func everyMethodIsRefusedAfterClose(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for what, call := range calls(w) {
		if err := call(w.ctx); !errors.Is(err, store.ErrClosed) {
			t.Errorf("%s gave %v after Close", what, err)
		}
	}
}

func closeFinishesAppends(t *testing.T, w *world) {
	const writers = 16
	var mu sync.Mutex // guards last
	last := map[string]int64{}
	started := make(chan struct{}, writers)
	var group sync.WaitGroup
	for n := range writers {
		id := fmt.Sprintf("ses_%d", n%4)
		group.Go(func() {
			for i := 0; ; i++ {
				a, err := w.Append(w.ctx, id, fact(note("a"), note("b")))
				if i == 0 {
					started <- struct{}{}
				}
				if err != nil {
					if !errors.Is(err, store.ErrClosed) {
						t.Errorf("append gave %v", err)
					}
					return
				}
				mu.Lock()
				last[id] = max(last[id], a.Last)
				mu.Unlock()
			}
		})
	}
	for range writers {
		<-started
	}
	if err := w.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	group.Wait()
	if !w.reopen() {
		return
	}
	for id, acknowledged := range last {
		if head, err := w.Head(w.ctx, id); err != nil || head < acknowledged {
			t.Errorf("%s: the head is %d, %v; %d was acknowledged", id, head, err, acknowledged)
		}
		if head := w.told.head(id); head != acknowledged {
			t.Errorf("%s: OnCommit was told of %d; %d was acknowledged", id, head, acknowledged)
		}
		same(t, "the seqs of the log", int64(len(w.readAll(id))), acknowledged)
	}
}

var reopenPromises = []promise{
	{"everything is as it was", everythingIsAsItWas},
	{"an empty store stays empty", func(t *testing.T, w *world) {
		if !w.reopen() {
			t.Skip("this backend keeps nothing")
		}
		_, err := w.Head(w.ctx, "ses_1")
		is(t, err, store.ErrNotFound)
		w.wholeRun("ses_1", "m1", "a")
		w.sound("ses_1")
	}},
}

func everythingIsAsItWas(t *testing.T, w *world) {
	w.manySided("m1")
	w.submit("ses_1", "m2")
	lease := w.claim("wrk_1")
	w.submit("ses_1", "m3")
	w.submit("ses_1", "m4", busy(session.Steer))
	w.stream(lease, "half")
	for i := range 4 {
		before := w.viewed("ses_1")
		if !w.reopen() {
			t.Skip("this backend keeps nothing")
		}
		same(t, "the state", w.viewed("ses_1"), before)
		w.sound("ses_1")
		switch i {
		case 0:
			w.ask(lease, wanted{id: "c1", name: "delete", arguments: "{}", approval: "apr_1"})
		case 1:
			w.wait(lease, session.WaitApproval, nil)
		case 2:
			w.do("ses_1", session.DecideApproval{ID: "apr_1", Decision: session.Deny, By: owner}.Decide)
		}
	}
	if again := w.claim("wrk_2"); again.Run != "run_m2" {
		t.Errorf("claimed %s", again.Run)
	}
	w.sound("ses_1")
}
