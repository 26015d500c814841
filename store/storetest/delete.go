package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

var deletePromises = []promise{
	{"a session that does not exist is not found", func(t *testing.T, w *world) {
		is(t, w.Delete(w.ctx, "ses_1"), store.ErrNotFound)
	}},
	{"everything of the session is gone, and nothing of another", deletingTakesEverything},
	{"a session begun again under the id begins at one", aDeletedIDBeginsAgain},
	{"a worker of a deleted session can write nothing", func(t *testing.T, w *world) {
		w.submit("ses_1", "m1")
		lease := w.claim("wrk_1")
		if err := w.Delete(w.ctx, "ses_1"); err != nil {
			t.Fatal(err)
		}
		_, err := w.Append(w.ctx, "ses_1", session.Carry(lease.Run, lease.Fence, func(_ *session.State, run *session.Run) ([]session.Event, error) {
			return beginAttempt(run), nil
		}))
		refused(t, err, session.NotFound)
		_, err = w.Head(w.ctx, "ses_1")
		is(t, err, store.ErrNotFound)
	}},
}

func deletingTakesEverything(t *testing.T, w *world) {
	for _, id := range []string{"a", "b"} {
		w.wholeRun("ses_"+id, "done_"+id, "x")
		w.submit("ses_"+id, "asks_"+id)
		lease := w.claim("wrk_1")
		w.stream(lease)
		w.ask(lease, wanted{id: "c", name: "delete", arguments: "{}", approval: "apr_" + id})
		w.wait(lease, session.WaitApproval, nil)
		w.submit("ses_"+id, "waits_"+id)
		w.submit("ses_"+id, "beside_"+id, func(c *session.Submit) { c.Background = true })
		w.claim("wrk_1")
		w.submit("ses_"+id, "due_"+id, func(c *session.Submit) { c.Background = true })
		w.do("ses_"+id, session.Cancel{Run: "run_beside_" + id, By: owner, At: w.clock.Now()}.Decide)
		if id == "a" {
			w.claim("wrk_1")
		}
	}
	if err := w.Delete(w.ctx, "ses_a"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for what, call := range sessionCalls(w) {
			if err := call(w.ctx, "ses_a"); !isNotFound(err) {
				t.Errorf("%s of a deleted session gave %v", what, err)
			}
		}
		for _, run := range []string{"run_done_a", "run_asks_a", "run_waits_a", "run_beside_a", "run_due_a"} {
			_, err := w.Run(w.ctx, run)
			is(t, err, store.ErrNotFound)
		}
		_, err := w.Approval(w.ctx, "apr_a")
		is(t, err, store.ErrNotFound)
		for _, row := range w.sessions(store.SessionQuery{Tenant: tenant, Owner: owner}) {
			if row.ID != "ses_b" {
				t.Errorf("%s is in the list", row.ID)
			}
		}
		if n := len(w.runs(store.RunQuery{Tenant: tenant, Owner: owner})); n != 5 {
			t.Errorf("%d runs are in the list, not the 5 of the other session", n)
		}
		if n := len(w.approvals(store.ApprovalQuery{Tenant: tenant, Owner: owner})); n != 1 {
			t.Errorf("%d approvals are in the list, not the one of the other session", n)
		}
		w.sound("ses_b")
		w.reopen()
	}
	w.clock.advance(time.Hour)
	for _, l := range append(w.expired(10), w.held("wrk_0", 10)...) {
		if l.Session == "ses_a" {
			t.Errorf("the lease %+v is left", l)
		}
	}
	for _, d := range w.overdue(10) {
		if d.Session == "ses_a" {
			t.Errorf("%+v is overdue", d)
		}
	}
	if lease := w.claim("wrk_2"); lease.Run != "run_due_b" {
		t.Errorf("claimed %+v", lease)
	}
}

// sessionCalls are the methods that need a session.
func sessionCalls(w *world) map[string]func(ctx context.Context, id string) error {
	return map[string]func(ctx context.Context, id string) error{
		"View":    func(ctx context.Context, id string) error { return w.View(ctx, id, func(*session.State) {}) },
		"Read":    func(ctx context.Context, id string) error { _, err := w.Read(ctx, id, 0, 0); return err },
		"Head":    func(ctx context.Context, id string) error { _, err := w.Head(ctx, id); return err },
		"Session": func(ctx context.Context, id string) error { _, err := w.Session(ctx, id); return err },
		"Delete":  w.Delete,
		"Check":   func(ctx context.Context, id string) error { _, err := w.Check(ctx, id); return err },
	}
}

func aDeletedIDBeginsAgain(t *testing.T, w *world) {
	w.wholeRun("ses_1", "m1", "a", "b")
	w.foldAll(w.clock.Now().Add(time.Hour))
	if err := w.Delete(w.ctx, "ses_1"); err != nil {
		t.Fatal(err)
	}
	again := w.newSubmit("m1", by("other", "bob"))
	if a := w.do("ses_1", again.Decide); a.First != 1 || again.Repeated {
		t.Errorf("the new log begins at %d, repeated %v", a.First, again.Repeated)
	}
	w.sound("ses_1")
	lease := w.claim("wrk_1")
	w.stream(lease, "new")
	w.finish(lease, "new")
	w.sound("ses_1")
	if n := len(w.sessions(store.SessionQuery{Tenant: tenant, Owner: owner})); n != 0 {
		t.Errorf("the former owner sees %d sessions", n)
	}
}
