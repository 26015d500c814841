package storetest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

var indexPromises = []promise{
	{"what is not there is not found", nothingIsFound},
	{"the rows follow a session through its life", rowsFollowALife},
	{"tenants and owners never see each other", ownersNeverSeeEachOther},
	{"sessions are found by a part of their title", sessionsAreFoundByTitle},
	{"runs are found by session, status and reason", runsAreFound},
	{"approvals are found by session, run and status", approvalsAreFound},
	{"an approval is kept after its run has ended", approvalsAreKept},
	{"lists are newest first", listsAreNewestFirst},
}

func nothingIsFound(t *testing.T, w *world) {
	_, err := w.Session(w.ctx, "ses_1")
	is(t, err, store.ErrNotFound)
	_, err = w.Run(w.ctx, "run_1")
	is(t, err, store.ErrNotFound)
	_, err = w.Approval(w.ctx, "apr_1")
	is(t, err, store.ErrNotFound)
	same(t, "the sessions of nobody", len(w.sessions(store.SessionQuery{Tenant: tenant, Owner: owner})), 0)
	same(t, "the runs of nobody", len(w.runs(store.RunQuery{Tenant: tenant, Owner: owner})), 0)
	same(t, "the approvals of nobody", len(w.approvals(store.ApprovalQuery{Tenant: tenant, Owner: owner})), 0)
}

// sessions follows the pages of a list to its end.
func (w *world) sessions(q store.SessionQuery) []store.SessionRow {
	w.t.Helper()
	return allPages(w, func(cursor string) (store.Page[store.SessionRow], error) {
		q.Cursor = cursor
		return w.Sessions(w.ctx, q)
	})
}

func (w *world) runs(q store.RunQuery) []session.Run {
	w.t.Helper()
	return allPages(w, func(cursor string) (store.Page[session.Run], error) {
		q.Cursor = cursor
		return w.Runs(w.ctx, q)
	})
}

func (w *world) approvals(q store.ApprovalQuery) []session.Approval {
	w.t.Helper()
	return allPages(w, func(cursor string) (store.Page[session.Approval], error) {
		q.Cursor = cursor
		return w.Approvals(w.ctx, q)
	})
}

func allPages[T any](w *world, page func(cursor string) (store.Page[T], error)) []T {
	w.t.Helper()
	var all []T
	for cursor := ""; ; {
		p, err := page(cursor)
		if err != nil {
			w.t.Fatalf("list: %v", err)
		}
		all = append(all, p.Items...)
		if p.Next == "" {
			return all
		}
		if len(p.Items) == 0 || p.Next == cursor {
			w.t.Fatalf("the page after %q has %d items and the next is %q", cursor, len(p.Items), p.Next)
		}
		cursor = p.Next
	}
}

func rowsFollowALife(t *testing.T, w *world) {
	expect := func(status string, run string, approvals, inbox int) {
		t.Helper()
		row, err := w.Session(w.ctx, "ses_1")
		if err != nil {
			t.Fatal(err)
		}
		if row.Status != status || row.Run != run || row.Approvals != approvals || row.Inbox != inbox {
			t.Errorf("the row says %s, run %q, %d approvals, inbox %d; not %s, %q, %d, %d",
				row.Status, row.Run, row.Approvals, row.Inbox, status, run, approvals, inbox)
		}
		list := w.sessions(store.SessionQuery{Tenant: tenant, Owner: owner})
		if len(list) != 1 {
			t.Fatalf("%d sessions in the list", len(list))
		}
		sameRow(t, "the row in the list", list[0], row)
		w.clock.advance(time.Second)
	}
	w.create("ses_1")
	expect("idle", "", 0, 0)
	w.submit("ses_1", "m1")
	expect("queued", "run_m1", 0, 0)
	lease := w.claim("wrk_1")
	expect("running", "run_m1", 0, 0)
	w.submit("ses_1", "m2")
	expect("running", "run_m1", 0, 1)
	w.stream(lease)
	w.ask(lease, wanted{id: "c1", name: "delete", arguments: "{}", approval: "apr_1"}, wanted{id: "c2", name: "delete", arguments: "{}", approval: "apr_2"})
	w.wait(lease, session.WaitApproval, nil)
	expect("waiting", "run_m1", 2, 1)
	w.do("ses_1", session.DecideApproval{ID: "apr_1", Decision: session.Approve, By: owner}.Decide)
	expect("waiting", "run_m1", 1, 1)
	w.do("ses_1", session.Cancel{Run: "run_m1", By: owner, At: w.clock.Now()}.Decide)
	expect("queued", "run_m2", 0, 0)
	lease = w.claim("wrk_1")
	w.stream(lease)
	w.finish(lease, "done")
	expect("idle", "", 0, 0)
	w.sound("ses_1")
}

func ownersNeverSeeEachOther(t *testing.T, w *world) {
	type principal struct{ tenant, owner string }
	principals := []principal{{"acme", "ann"}, {"acme", "bob"}, {"evil", "ann"}, {"", ""}, {"acme", ""}, {"", "ann"}, {"ac", "meann"}}
	for i, p := range principals {
		name := string(rune('a' + i))
		w.submit("ses_"+name, "m_"+name, by(p.tenant, p.owner))
		lease := w.claim("wrk_1")
		w.stream(lease)
		w.ask(lease, wanted{id: "c1", name: "delete", arguments: "{}", approval: "apr_" + name})
		w.wait(lease, session.WaitApproval, nil)
	}
	for i, p := range principals {
		name := string(rune('a' + i))
		sessions := w.sessions(store.SessionQuery{Tenant: p.tenant, Owner: p.owner})
		runs := w.runs(store.RunQuery{Tenant: p.tenant, Owner: p.owner})
		approvals := w.approvals(store.ApprovalQuery{Tenant: p.tenant, Owner: p.owner})
		if len(sessions) != 1 || sessions[0].ID != "ses_"+name || sessions[0].Tenant != p.tenant || sessions[0].Owner != p.owner {
			t.Errorf("%v sees the sessions %+v", p, sessions)
		}
		if len(runs) != 1 || runs[0].ID != "run_m_"+name {
			t.Errorf("%v sees the runs %+v", p, runs)
		}
		if len(approvals) != 1 || approvals[0].ID != "apr_"+name {
			t.Errorf("%v sees the approvals %+v", p, approvals)
		}
		other := string(rune('a' + (i+1)%len(principals)))
		if got := w.runs(store.RunQuery{Tenant: p.tenant, Owner: p.owner, Session: "ses_" + other}); len(got) != 0 {
			t.Errorf("%v sees the runs of another's session: %v", p, got)
		}
		if got := w.approvals(store.ApprovalQuery{Tenant: p.tenant, Owner: p.owner, Session: "ses_" + other}); len(got) != 0 {
			t.Errorf("%v sees the approvals of another's session: %v", p, got)
		}
		if got := w.approvals(store.ApprovalQuery{Tenant: p.tenant, Owner: p.owner, Run: "run_m_" + other}); len(got) != 0 {
			t.Errorf("%v sees the approvals of another's run: %v", p, got)
		}
	}
	_, err := w.Append(w.ctx, "ses_a", w.newSubmit("m9", by("evil", "ann")).Decide)
	refused(t, err, session.NotFound)
}

func sessionsAreFoundByTitle(t *testing.T, w *world) {
	titles := []string{"Plan a TRIP to Rome", "100% sure", "a_b", "axb", "Überblick der ÄRZTE", `back\slash`, ""}
	for i, title := range titles {
		w.clock.advance(time.Second)
		w.do("ses_"+string(rune('a'+i)), session.Create{Tenant: tenant, Owner: owner, Title: title}.Decide)
	}
	for search, want := range map[string][]string{
		"trip": {titles[0]}, "TO ROME": {titles[0]}, "%": {titles[1]}, "_": {titles[2]}, "überBLICK": {titles[4]},
		"ärzte": {titles[4]}, `\`: {titles[5]}, "nothing like it": nil, "a_b": {titles[2]}, "100% SURE": {titles[1]},
	} {
		var got []string
		for _, row := range w.sessions(store.SessionQuery{Tenant: tenant, Owner: owner, Search: search}) {
			got = append(got, row.Title)
		}
		if !slices.Equal(got, want) {
			t.Errorf("the search %q found %q, not %q", search, got, want)
		}
	}
	if all := w.sessions(store.SessionQuery{Tenant: tenant, Owner: owner}); len(all) != len(titles) {
		t.Errorf("%d sessions without a search", len(all))
	}
}

func runsAreFound(t *testing.T, w *world) {
	w.wholeRun("ses_1", "done", "a")
	w.submit("ses_1", "failed")
	w.end(w.claim("wrk_1"), session.RunFailed{Error: session.Failure{Code: "model"}})
	w.submit("ses_1", "retrying")
	later := w.clock.Now().Add(time.Hour)
	w.wait(w.claim("wrk_1"), session.WaitRetry, &later)
	w.submit("ses_1", "behind")
	w.submit("ses_2", "asking")
	lease := w.claim("wrk_1")
	w.stream(lease)
	w.ask(lease, wanted{id: "c", name: "delete", arguments: "{}", approval: "apr_1"})
	w.wait(lease, session.WaitApproval, nil)
	w.submit("ses_3", "running")
	w.claim("wrk_1")

	find := func(q store.RunQuery, want ...string) {
		t.Helper()
		q.Tenant, q.Owner, q.Limit = tenant, owner, 2
		var got []string
		for _, r := range w.runs(q) {
			got = append(got, strings.TrimPrefix(r.ID, "run_"))
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%+v found %q, not %q", q, got, want)
		}
	}
	find(store.RunQuery{}, "done", "failed", "retrying", "behind", "asking", "running")
	find(store.RunQuery{Session: "ses_1"}, "done", "failed", "retrying", "behind")
	find(store.RunQuery{Session: "ses_9"})
	find(store.RunQuery{Status: []session.Status{session.Waiting}}, "retrying", "asking")
	find(store.RunQuery{Status: []session.Status{session.Completed, session.Failed}}, "done", "failed")
	find(store.RunQuery{Reason: session.WaitApproval}, "asking")
	find(store.RunQuery{Session: "ses_1", Status: []session.Status{session.Queued, session.Running}}, "behind")
	find(store.RunQuery{Session: "ses_1", Reason: session.WaitApproval})
}

func approvalsAreFound(t *testing.T, w *world) {
	for _, name := range []string{"a", "b", "c"} {
		w.submit("ses_"+name, "m_"+name)
		lease := w.claim("wrk_1")
		w.stream(lease)
		w.ask(lease,
			wanted{id: "c1", name: "delete", arguments: "{}", approval: "apr_" + name + "1"},
			wanted{id: "c2", name: "delete", arguments: "{}", approval: "apr_" + name + "2"})
		w.wait(lease, session.WaitApproval, nil)
	}
	w.do("ses_a", session.DecideApproval{ID: "apr_a1", Decision: session.Approve, By: owner}.Decide)
	w.do("ses_b", session.DecideApproval{ID: "apr_b1", Decision: session.Deny, By: owner}.Decide)
	w.do("ses_c", session.Cancel{Run: "run_m_c", By: owner, At: w.clock.Now()}.Decide)

	find := func(q store.ApprovalQuery, want ...string) {
		t.Helper()
		q.Tenant, q.Owner, q.Limit = tenant, owner, 2
		var got []string
		for _, a := range w.approvals(q) {
			got = append(got, strings.TrimPrefix(a.ID, "apr_"))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%+v found %q, not %q", q, got, want)
		}
	}
	find(store.ApprovalQuery{}, "a1", "a2", "b1", "b2", "c1", "c2")
	find(store.ApprovalQuery{Session: "ses_b"}, "b1", "b2")
	find(store.ApprovalQuery{Run: "run_m_c"}, "c1", "c2")
	find(store.ApprovalQuery{Status: session.StatusPending}, "a2", "b2")
	find(store.ApprovalQuery{Status: session.StatusApproved}, "a1")
	find(store.ApprovalQuery{Status: session.StatusDenied}, "b1")
	find(store.ApprovalQuery{Status: session.StatusVoided}, "c1", "c2")
	find(store.ApprovalQuery{Session: "ses_a", Status: session.StatusPending}, "a2")
	find(store.ApprovalQuery{Session: "ses_a", Run: "run_m_b"})
}

func approvalsAreKept(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	lease := w.claim("wrk_1")
	w.stream(lease)
	w.ask(lease,
		wanted{id: "c1", name: "delete", arguments: `{"path":"a"}`, effects: session.Unsafe, approval: "apr_1"},
		wanted{id: "c2", name: "delete", arguments: `{"path":"b"}`, effects: session.Unsafe, approval: "apr_2"})
	w.wait(lease, session.WaitApproval, nil)
	w.clock.advance(time.Minute)
	decided := w.clock.Now()
	w.do("ses_1", session.DecideApproval{
		ID: "apr_1", Decision: session.Approve, By: "bob", Note: "go on", Arguments: []byte(`{"path":"c"}`),
	}.Decide)
	w.clock.advance(time.Minute)
	w.do("ses_1", session.Cancel{Run: "run_m1", By: owner, At: w.clock.Now()}.Decide)
	a, err := w.Approval(w.ctx, "apr_1")
	if err != nil {
		t.Fatal(err)
	}
	if a.Status != session.StatusApproved || a.By != "bob" || a.Note != "go on" || string(a.Edited) != `{"path":"c"}` ||
		string(a.Arguments) != `{"path":"a"}` || a.DecidedAt == nil || !a.DecidedAt.Equal(decided) || a.Session != "ses_1" {
		t.Errorf("the decided approval is %+v", a)
	}
	if a, err = w.Approval(w.ctx, "apr_2"); err != nil || a.Status != session.StatusVoided {
		t.Errorf("the approval that the end voided is %+v, %v", a, err)
	}
	w.sound("ses_1")
}

func listsAreNewestFirst(t *testing.T, w *world) {
	for _, name := range []string{"a", "b", "c"} {
		w.clock.advance(time.Second)
		w.submit("ses_"+name, "m_"+name)
	}
	w.clock.advance(time.Second)
	w.do("ses_a", fact(note("changed last")))
	var sessions, runs []string
	for _, r := range w.sessions(store.SessionQuery{Tenant: tenant, Owner: owner}) {
		sessions = append(sessions, r.ID)
	}
	for _, r := range w.runs(store.RunQuery{Tenant: tenant, Owner: owner}) {
		runs = append(runs, r.Session)
	}
	if want := []string{"ses_a", "ses_c", "ses_b"}; !slices.Equal(sessions, want) {
		t.Errorf("the sessions are %q, not %q: the last changed first", sessions, want)
	}
	if want := []string{"ses_c", "ses_b", "ses_a"}; !slices.Equal(runs, want) {
		t.Errorf("the runs are of %q, not %q: the last queued first", runs, want)
	}
	// Deltas are no change that a list shows.
	for range 3 {
		w.clock.advance(time.Second)
		w.claimAll("wrk_1", 1)
	}
	row, err := w.Session(w.ctx, "ses_b")
	if err != nil {
		t.Fatal(err)
	}
	run, err := w.Run(w.ctx, "run_m_b")
	if err != nil {
		t.Fatal(err)
	}
	w.clock.advance(time.Second)
	w.do("ses_b", emit(delta(&run, 0, "streaming")))
	after, err := w.Session(w.ctx, "ses_b")
	if err != nil {
		t.Fatal(err)
	}
	sameRow(t, "the row after a delta", after, row)
}
