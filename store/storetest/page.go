package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

var pagePromises = []promise{
	{"sessions come once each while new ones come", sessionsComeOnce},
	{"runs come once each while new ones come", runsComeOnce},
	{"approvals come once each while new ones come", approvalsComeOnce},
	{"a page has fifty rows if not told otherwise, and never more than two hundred", pageSizes},
	{"the last page has no cursor", theLastPageHasNoCursor},
	{"a cursor that no list gave is refused", badCursors},
}

// pages follows a list in small pages, makes something new before each, and
// checks that what was there at the start comes once, newest first.
func pages[T any](t *testing.T, page func(cursor string) (store.Page[T], error), name func(T) string, old []string, more func(i int)) {
	t.Helper()
	var got []string
	cursor := ""
	for i := 0; ; i++ {
		p, err := page(cursor)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range p.Items {
			got = append(got, name(item))
		}
		if p.Next == "" {
			break
		}
		if i > 100 {
			t.Fatal("the list has no end")
		}
		cursor = p.Next
		more(i)
	}
	seen := map[string]int{}
	for _, n := range got {
		seen[n]++
	}
	for _, n := range old {
		if seen[n] != 1 {
			t.Errorf("%s came %d times", n, seen[n])
		}
	}
	if len(got) != len(old) {
		t.Errorf("%d rows came, %d were there at the start: %q", len(got), len(old), got)
	}
}

// Many rows share one millisecond, so that a cursor of time alone would lose or repeat some.
func sessionsComeOnce(t *testing.T, w *world) {
	var old []string
	for i := range 30 {
		id := fmt.Sprintf("ses_%02d", (i*7)%30)
		w.create(id)
		old = append(old, id)
		if i%10 == 9 {
			w.clock.advance(time.Second)
		}
	}
	pages(t, func(cursor string) (store.Page[store.SessionRow], error) {
		return w.Sessions(w.ctx, store.SessionQuery{Tenant: tenant, Owner: owner, Cursor: cursor, Limit: 4})
	}, func(r store.SessionRow) string { return r.ID }, old, func(i int) {
		w.clock.advance(time.Second)
		w.create(fmt.Sprintf("ses_new%d", i))
	})
}

func runsComeOnce(t *testing.T, w *world) {
	var old []string
	for i := range 30 {
		name := fmt.Sprintf("%02d", (i*7)%30)
		w.submit("ses_"+name, name)
		old = append(old, "run_"+name)
		if i%10 == 9 {
			w.clock.advance(time.Second)
		}
	}
	pages(t, func(cursor string) (store.Page[session.Run], error) {
		return w.Runs(w.ctx, store.RunQuery{Tenant: tenant, Owner: owner, Cursor: cursor, Limit: 4})
	}, func(r session.Run) string { return r.ID }, old, func(i int) {
		w.clock.advance(time.Second)
		w.submit(fmt.Sprintf("ses_new%d", i), fmt.Sprintf("new%d", i))
	})
}

func approvalsComeOnce(t *testing.T, w *world) {
	ask := func(name string, n int) (ids []string) {
		w.submit("ses_"+name, name)
		lease := w.claim("wrk_1")
		w.stream(lease)
		var calls []wanted
		for i := range n {
			id := fmt.Sprintf("apr_%s_%02d", name, (i*7)%n)
			ids = append(ids, id)
			calls = append(calls, wanted{id: fmt.Sprintf("c%d", i), name: "delete", arguments: "{}", approval: id})
		}
		w.ask(lease, calls...)
		w.wait(lease, session.WaitApproval, nil)
		w.clock.advance(time.Second)
		return ids
	}
	old := slices.Concat(ask("a", 10), ask("b", 9))
	pages(t, func(cursor string) (store.Page[session.Approval], error) {
		return w.Approvals(w.ctx, store.ApprovalQuery{Tenant: tenant, Owner: owner, Cursor: cursor, Limit: 4})
	}, func(a session.Approval) string { return a.ID }, old, func(i int) { ask(fmt.Sprintf("new%d", i), 1) })
}

func pageSizes(t *testing.T, w *world) {
	for i := range 205 {
		w.create(fmt.Sprintf("ses_%d", i))
	}
	for limit, want := range map[int]int{0: 50, -1: 50, 7: 7, 200: 200, 1000: 200} {
		p, err := w.Sessions(w.ctx, store.SessionQuery{Tenant: tenant, Owner: owner, Limit: limit})
		if err != nil || len(p.Items) != want || p.Next == "" {
			t.Errorf("a page of %d has %d rows, not %d; next %q, %v", limit, len(p.Items), want, p.Next, err)
		}
	}
}

func theLastPageHasNoCursor(t *testing.T, w *world) {
	for i := range 4 {
		w.create(fmt.Sprintf("ses_%d", i))
	}
	p, err := w.Sessions(w.ctx, store.SessionQuery{Tenant: tenant, Owner: owner, Limit: 4})
	if err != nil || len(p.Items) != 4 || p.Next != "" {
		t.Errorf("a page of all four has %d rows and the next %q, %v", len(p.Items), p.Next, err)
	}
}

func badCursors(t *testing.T, w *world) {
	w.create("ses_1")
	for _, cursor := range []string{"nonsense", "\x00", "1", "-", "ses_1", "{}"} {
		_, err := w.Sessions(w.ctx, store.SessionQuery{Tenant: tenant, Owner: owner, Cursor: cursor})
		refused(t, err, session.Invalid)
		_, err = w.Runs(w.ctx, store.RunQuery{Tenant: tenant, Owner: owner, Cursor: cursor})
		refused(t, err, session.Invalid)
		_, err = w.Approvals(w.ctx, store.ApprovalQuery{Tenant: tenant, Owner: owner, Cursor: cursor})
		refused(t, err, session.Invalid)
	}
}
