package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/memory"
)

// exerciseHistories does whatever comes to mind to the store and, at the same
// times, to a memory store. Both must answer alike, and what the store says
// must be the fold of its log.
func exerciseHistories(t *testing.T, open Open) {
	w := newWorld(t, open)
	broken := false
	rapid.Check(t, func(rt *rapid.T) {
		if broken { // a store that failed once proves nothing about a shorter history
			w.Store = open(t, w.opts)
		}
		broken = true
		h := newHistory(rt, w)
		// What is named often, or first, is drawn often.
		actions := []struct {
			name string
			do   func()
		}{
			{"work", h.work},
			{"work", h.work},
			{"submit", h.submit},
			{"work", h.work},
			{"claim", h.claim},
			{"decide approval", h.decideApproval},
			{"work", h.work},
			{"submit", h.submit},
			{"pass time", h.passTime},
			{"reconcile", h.reconcile},
			{"resolve tool", h.resolveTool},
			{"reconcile", h.reconcile},
			{"cancel", h.cancel},
			{"retry", h.retry},
			{"fold", h.fold},
			{"submit again", h.submitAgain},
			{"end overdue", h.endOverdue},
			{"renew", h.renew},
			{"update", h.update},
			{"edit inbox", h.editInbox},
			{"remove from inbox", h.removeFromInbox},
			{"reopen", h.reopen},
			{"delete", h.delete},
		}
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, len(actions)-1), 20, 100).Draw(rt, "actions") {
			rt.Log(actions[i].name)
			h.begin()
			actions[i].do()
			h.compare()
			if rt.Failed() {
				return
			}
		}
		for _, id := range h.sessions {
			if findings, err := h.Check(h.ctx, id); len(findings) > 0 || err != nil && !isNotFound(err) {
				rt.Errorf("Check of %s gave %q, %v", id, findings, err)
			}
			if err := h.Delete(h.ctx, id); err != nil && !isNotFound(err) {
				rt.Errorf("delete %s: %v", id, err)
			}
		}
		broken = rt.Failed()
	})
}

// history is one random life of two stores.
type history struct {
	*world // the store under test
	rt     *rapid.T
	oracle *memory.Store
	n      int // actions so far
	// What the history has made, to be mentioned again. Some of it is gone by now.
	sessions, messages, runs, approvals []string
	leases                              []store.Lease
	submitted                           []func() (string, *session.Submit)
	touched                             map[string]bool // sessions to compare
}

func newHistory(rt *rapid.T, w *world) *history {
	w.t = rt
	w.told.reset()
	w.clock.reset()
	h := &history{
		world: w, rt: rt, oracle: memory.New(store.Options{Now: w.clock.Now}),
		sessions: []string{"ses_a", "ses_b", "ses_c"}, touched: map[string]bool{},
	}
	return h
}

// begin is the start of an action. No two actions have the same time, and no
// time that an action chooses is chosen by another, so that nothing is due at
// the same time as something else and the order of claims is one.
func (h *history) begin() {
	h.n++
	h.clock.advance(time.Second)
}

func (h *history) chooseTime(label string) time.Time {
	odd := time.Duration(h.n%999+1) * time.Millisecond
	return h.clock.Now().Add(time.Duration(rapid.IntRange(0, 30).Draw(h.rt, label))*time.Second + odd)
}

func (h *history) name(prefix string) string { return fmt.Sprintf("%s%d", prefix, h.n) }

// pick chooses one of what the history made, or something that never was.
func pick(rt *rapid.T, of []string, label string) string {
	return rapid.SampledFrom(append(slices.Clone(of), "nothing")).Draw(rt, label)
}

// both does the same to both stores and compares the answers.
func (h *history) both(what string, do func(s store.Store) (any, error)) {
	h.rt.Helper()
	want, wantErr := do(h.oracle)
	got, err := do(h.Store)
	if outcome(err) != outcome(wantErr) {
		h.rt.Fatalf("%s gave the error %v, the memory store %v", what, err, wantErr)
	}
	if err == nil {
		same(h.rt, what, got, want)
	}
}

// outcome is the part of an error that is a promise.
func outcome(err error) string {
	var refusal *session.Error
	if errors.As(err, &refusal) {
		return refusal.Error()
	}
	for _, known := range []error{store.ErrNotFound, store.ErrLeaseLost, context.Canceled} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// append appends the same to both. decide is made anew for each.
func (h *history) append(id string, decide func() session.Decide) {
	h.rt.Helper()
	h.touched[id] = true
	h.both("append to "+id, func(s store.Store) (any, error) { return s.Append(h.ctx, id, decide()) })
}

func ownerOf(id string) string { return map[bool]string{true: "bob", false: "ann"}[id == "ses_c"] }

func (h *history) submit() {
	id := rapid.SampledFrom(h.sessions).Draw(h.rt, "session")
	message := h.name("msg_")
	run := h.name("run_")
	c := session.Submit{
		ID: message, Run: run, Output: h.name("out_"), Tenant: tenant, Owner: ownerOf(id), DefaultAgent: "demo",
		OnBusy: rapid.SampledFrom([]session.OnBusy{
			"", session.Enqueue, session.Reject, session.Interrupt, session.Rollback, session.Steer, session.Steer,
		}).Draw(h.rt, "on busy"),
		Background: rapid.IntRange(0, 5).Draw(h.rt, "background") == 0,
		Parts:      []session.Part{{Type: session.PartText, Text: rapid.StringN(0, 20, 60).Draw(h.rt, "text")}},
		At:         h.clock.Now(), Grace: h.chooseTime("grace").Sub(h.clock.Now()),
	}
	if rapid.IntRange(0, 4).Draw(h.rt, "has parent") == 0 {
		parent := rapid.SampledFrom(append([]string{""}, h.messages...)).Draw(h.rt, "parent")
		c.Parent = &parent
	}
	if rapid.IntRange(0, 9).Draw(h.rt, "intruder") == 0 {
		c.Owner = "eve"
	}
	again := func() (string, *session.Submit) {
		copied := c
		return id, &copied
	}
	h.send(again)
	h.submitted = append(h.submitted, again)
	h.messages = append(h.messages, message, c.Output)
	h.runs = append(h.runs, run)
}

func (h *history) send(submit func() (string, *session.Submit)) {
	h.rt.Helper()
	id, _ := submit()
	h.touched[id] = true
	h.both("submit to "+id, func(s store.Store) (any, error) {
		_, c := submit()
		a, err := s.Append(h.ctx, id, c.Decide)
		return []any{a, c.Accepted, c.Repeated}, err
	})
}

func (h *history) submitAgain() {
	if len(h.submitted) == 0 {
		return
	}
	again := rapid.SampledFrom(h.submitted).Draw(h.rt, "which")
	if rapid.IntRange(0, 4).Draw(h.rt, "another body") > 0 {
		h.send(again)
		return
	}
	h.send(func() (string, *session.Submit) {
		id, c := again()
		c.Parts = []session.Part{{Type: session.PartText, Text: "another body"}}
		return id, c
	})
}

// inboxMessage chooses a message that waits, if there is one, or any.
func (h *history) inboxMessage() (id, message string) {
	var waiting [][2]string
	for _, id := range h.sessions {
		if err := h.oracle.View(h.ctx, id, func(s *session.State) {
			for _, item := range s.Inbox {
				waiting = append(waiting, [2]string{id, item.Message.ID})
			}
		}); err != nil && !isNotFound(err) {
			h.rt.Fatal(err)
		}
	}
	if len(waiting) > 0 && rapid.IntRange(0, 4).Draw(h.rt, "any") < 4 {
		chosen := rapid.SampledFrom(waiting).Draw(h.rt, "waiting")
		return chosen[0], chosen[1]
	}
	return rapid.SampledFrom(h.sessions).Draw(h.rt, "session"), pick(h.rt, h.messages, "message")
}

func (h *history) editInbox() {
	id, message := h.inboxMessage()
	h.append(id, func() session.Decide {
		return session.EditInbox{ID: message, By: "ann", Parts: []session.Part{{Type: session.PartText, Text: "edited"}}}.Decide
	})
}

func (h *history) removeFromInbox() {
	id, message := h.inboxMessage()
	h.append(id, func() session.Decide {
		return session.RemoveInbox{ID: message, By: "ann", At: h.clock.Now()}.Decide
	})
}

// sessionOf is where a run is, or any session.
func (h *history) sessionOf(run string) string {
	if r, err := h.oracle.Run(h.ctx, run); err == nil {
		return r.Session
	}
	return h.sessions[0]
}

func (h *history) cancel() {
	run := pick(h.rt, h.runs, "run")
	grace := h.chooseTime("grace").Sub(h.clock.Now())
	h.append(h.sessionOf(run), func() session.Decide {
		return session.Cancel{Run: run, By: "ann", Reason: "enough", At: h.clock.Now(), Grace: grace}.Decide
	})
}

func (h *history) retry() {
	run := pick(h.rt, h.runs, "run")
	fresh := h.name("run_")
	h.append(h.sessionOf(run), func() session.Decide {
		return session.Retry{Run: run, ID: fresh, Output: h.name("out_")}.Decide
	})
	h.runs, h.messages = append(h.runs, fresh), append(h.messages, h.name("out_"))
}

func (h *history) update() {
	var u session.Update
	switch rapid.IntRange(0, 3).Draw(h.rt, "what") {
	case 0:
		title := rapid.StringN(0, 10, 40).Draw(h.rt, "title")
		u.Title = &title
	case 1:
		u.Metadata = json.RawMessage(fmt.Sprintf(`{"n":%d}`, h.n))
	default:
		head := pick(h.rt, h.messages, "head")
		u.Head = &head
	}
	h.append(rapid.SampledFrom(h.sessions).Draw(h.rt, "session"), func() session.Decide { return u.Decide })
}

func (h *history) decideApproval() {
	id := rapid.SampledFrom(append(slices.Clone(h.approvals), "apr_none")).Draw(h.rt, "approval")
	if n := len(h.approvals); n > 0 && rapid.Bool().Draw(h.rt, "the newest") {
		id = h.approvals[n-1]
	}
	in := h.sessions[0]
	if a, err := h.oracle.Approval(h.ctx, id); err == nil {
		in = a.Session
	}
	c := session.DecideApproval{
		ID: id, By: rapid.SampledFrom([]string{"ann", "bob"}).Draw(h.rt, "by"),
		Decision: rapid.SampledFrom([]session.Decision{session.Approve, session.Deny}).Draw(h.rt, "decision"),
	}
	if c.Decision == session.Approve && rapid.Bool().Draw(h.rt, "edited") {
		c.Arguments = json.RawMessage(`{"edited":true}`)
	}
	h.append(in, func() session.Decide { return c.Decide })
}

func (h *history) resolveTool() {
	run, call := pick(h.rt, h.runs, "run"), "call_none"
	asking, err := h.oracle.Runs(h.ctx, store.RunQuery{Tenant: tenant, Owner: owner, Reason: session.WaitToolOutcome})
	if err != nil {
		h.rt.Fatal(err)
	}
	if len(asking.Items) > 0 && rapid.IntRange(0, 4).Draw(h.rt, "any") < 4 {
		run = asking.Items[0].ID
	}
	if r, err := h.oracle.Run(h.ctx, run); err == nil {
		if err := h.oracle.View(h.ctx, r.Session, func(s *session.State) {
			for _, c := range s.Calls(s.Run(run)) {
				if c.Status == session.CallUnknown {
					call = c.ID
				}
			}
		}); err != nil {
			h.rt.Fatal(err)
		}
	}
	outcome := rapid.SampledFrom([]session.Outcome{session.Happened, session.DidNot, session.OutcomeFail}).Draw(h.rt, "outcome")
	h.append(h.sessionOf(run), func() session.Decide {
		return session.ResolveTool{Run: run, Call: call, Outcome: outcome, By: "ann", Note: "I looked"}.Decide
	})
}

func (h *history) claim() {
	worker := rapid.SampledFrom([]string{"wrk_1", "wrk_2", "wrk_3"}).Draw(h.rt, "worker")
	limit := rapid.IntRange(1, 4).Draw(h.rt, "limit")
	lasts := h.chooseTime("ttl").Sub(h.clock.Now())
	h.both("claim", func(s store.Store) (any, error) {
		leases, err := s.Claim(h.ctx, worker, lasts, limit)
		if s == store.Store(h.oracle) {
			h.leases = append(h.leases, leases...)
			for _, l := range leases {
				h.touched[l.Session] = true
			}
		}
		return sorted(leases), err
	})
}

// sorted is the leases in an order of their own, and never nil.
func sorted(leases []store.Lease) []store.Lease {
	leases = append([]store.Lease{}, leases...)
	slices.SortFunc(leases, func(a, b store.Lease) int { return strings.Compare(a.Run, b.Run) })
	return leases
}

// lease chooses a lease: mostly one that is held, after a claim if none is.
func (h *history) lease() (store.Lease, bool) {
	if len(h.leases) > 0 && rapid.IntRange(0, 7).Draw(h.rt, "old") == 7 {
		return rapid.SampledFrom(h.leases).Draw(h.rt, "lease"), true
	}
	held := h.holding()
	if len(held) == 0 {
		h.claim()
		held = h.holding()
		h.begin()
	}
	if len(held) == 0 {
		return store.Lease{}, false
	}
	return rapid.SampledFrom(held).Draw(h.rt, "lease"), true
}

// holding gives the leases that are held, expired or not.
func (h *history) holding() []store.Lease {
	held, err := h.oracle.Held(h.ctx, "", 100)
	if err != nil {
		h.rt.Fatal(err)
	}
	return held
}

// work makes several moves of one worker, until it is refused.
func (h *history) work() {
	lease, ok := h.lease()
	if !ok {
		return
	}
	for range rapid.IntRange(1, 16).Draw(h.rt, "moves") {
		if !h.move(lease, false) {
			return
		}
	}
}

// move makes one move of a worker and says whether it still carries the run.
func (h *history) move(lease store.Lease, rush bool) bool {
	h.begin()
	m := move{
		// Multiplied, because small numbers are drawn more often than others.
		pick: rapid.IntRange(0, 1<<20).Draw(h.rt, "move") * 0x9e3779b1 >> 8 & 0xffff, name: h.name(""), rush: rush,
		text: rapid.StringN(0, 20, 60).Draw(h.rt, "text"), until: h.chooseTime("until"),
	}
	decide := session.Carry(lease.Run, lease.Fence, m.events)
	h.append(lease.Session, func() session.Decide { return decide })
	if a, err := h.oracle.Approval(h.ctx, "apr_"+m.name); err == nil {
		h.approvals = append(h.approvals, a.ID)
	}
	run, err := h.oracle.Run(h.ctx, lease.Run)
	return err == nil && run.Fence == lease.Fence && run.Status == session.Running
}

func (h *history) renew() {
	lease, ok := h.lease()
	if !ok {
		return
	}
	lasts := h.chooseTime("ttl").Sub(h.clock.Now())
	h.both("renew", func(s store.Store) (any, error) { return s.Renew(h.ctx, lease, lasts) })
}

func (h *history) reconcile() {
	lease, ok := h.lease()
	if !ok {
		return
	}
	if rapid.Bool().Draw(h.rt, "in a call") { // a worker that is lost in the middle of a call is the interesting one
		for range 8 {
			if h.startedCalls(lease) > 0 || !h.move(lease, true) {
				break
			}
		}
	}
	if rapid.Bool().Draw(h.rt, "late") {
		h.clock.advance(40 * time.Second)
		h.begin()
	}
	cause := rapid.SampledFrom([]session.ReconcileCause{session.CauseLeaseExpired, session.CauseRestart, session.CauseDrain}).Draw(h.rt, "cause")
	wait := h.chooseTime("backoff").Sub(h.clock.Now())
	h.append(lease.Session, func() session.Decide {
		return session.Reconcile{
			Run: lease.Run, Fence: lease.Fence, Cause: cause, Evidence: "silence", At: h.clock.Now(),
			MaxCrashes: 3, Backoff: func(int) time.Duration { return wait },
		}.Decide
	})
}

// startedCalls counts the calls of a leased run that have started and have no result.
func (h *history) startedCalls(lease store.Lease) (n int) {
	if err := h.oracle.View(h.ctx, lease.Session, func(s *session.State) {
		run := s.Run(lease.Run)
		if run == nil {
			return
		}
		for _, c := range s.Calls(run) {
			if c.Status == session.CallStarted {
				n++
			}
		}
	}); err != nil && !isNotFound(err) {
		h.rt.Fatal(err)
	}
	return n
}

func (h *history) endOverdue() {
	due, err := h.oracle.Overdue(h.ctx, 10)
	if lease, ok := h.lease(); ok && err == nil && len(due) == 0 {
		h.append(lease.Session, func() session.Decide {
			return session.Cancel{Run: lease.Run, By: "ann", At: h.clock.Now(), Grace: 10 * time.Second}.Decide
		})
		h.clock.advance(10 * time.Second)
		due, err = h.oracle.Overdue(h.ctx, 10)
	}
	if err != nil {
		h.rt.Fatal(err)
	}
	for _, d := range due {
		h.append(d.Session, func() session.Decide { return session.CancelOverdue{Run: d.Run, At: h.clock.Now()}.Decide })
		h.clock.advance(time.Second)
	}
}

func (h *history) passTime() {
	h.clock.advance(time.Duration(rapid.IntRange(1, 40).Draw(h.rt, "seconds")) * time.Second)
}

func (h *history) fold() {
	before := h.clock.Now().Add(-time.Duration(rapid.IntRange(0, 60).Draw(h.rt, "age")) * time.Second)
	h.both("fold", func(s store.Store) (any, error) {
		var total int64
		for {
			n, err := s.Fold(h.ctx, before)
			if total += n; n == 0 || err != nil {
				return total, err
			}
		}
	})
	for _, id := range h.sessions {
		h.touched[id] = true
	}
}

func (h *history) delete() {
	id := rapid.SampledFrom(h.sessions).Draw(h.rt, "session")
	h.touched[id] = true
	h.both("delete "+id, func(s store.Store) (any, error) { return nil, s.Delete(h.ctx, id) })
}

func (h *history) reopen() {
	h.world.reopen()
	for _, id := range h.sessions {
		h.touched[id] = true
	}
}

// compare looks at both stores after each action.
func (h *history) compare() {
	owners := map[string]bool{}
	for _, id := range slices.Sorted(maps.Keys(h.touched)) {
		h.compareSession(id)
		owners[ownerOf(id)] = true
	}
	clear(h.touched)
	for owner := range owners {
		h.compareLists(owner)
	}
	h.both("the expired leases", func(s store.Store) (any, error) {
		leases, err := s.Expired(h.ctx, 100)
		return sorted(leases), err
	})
	h.both("the held leases", func(s store.Store) (any, error) {
		leases, err := s.Held(h.ctx, "wrk_1", 100)
		return sorted(leases), err
	})
	h.both("what is overdue", func(s store.Store) (any, error) {
		due, err := s.Overdue(h.ctx, 100)
		due = append([]store.Due{}, due...)
		slices.SortFunc(due, func(a, b store.Due) int { return strings.Compare(a.Run, b.Run) })
		return due, err
	})
	h.both("the next time", func(s store.Store) (any, error) {
		next, err := s.NextDue(h.ctx)
		return next.UTC(), err
	})
	for _, fault := range h.told.faults() {
		h.rt.Fatalf("OnCommit: %s", fault)
	}
}

func (h *history) compareSession(id string) {
	if _, err := h.oracle.Head(h.ctx, id); isNotFound(err) {
		_, err := h.Head(h.ctx, id)
		is(h.rt, err, store.ErrNotFound)
		return
	}
	h.isTheFold(id)
	oracle := *h.world
	oracle.Store = h.oracle
	got, want := h.readAll(id), oracle.readAll(id)
	if !reflect.DeepEqual(got, want) { // folded ranges may be cut differently
		sameEntries(h.rt, "the log of "+id, entries(h.rt, id, got), entries(h.rt, id, want))
	}
}

func (h *history) compareLists(owner string) {
	oracle := *h.world
	oracle.Store = h.oracle
	list := func(w *world) ([]store.SessionRow, []session.Run, []session.Approval) {
		sessions := w.sessions(store.SessionQuery{Tenant: tenant, Owner: owner, Limit: 2})
		runs := w.runs(store.RunQuery{Tenant: tenant, Owner: owner, Limit: 3})
		approvals := w.approvals(store.ApprovalQuery{Tenant: tenant, Owner: owner, Limit: 2})
		// The order among what happened at one time is the store's own.
		slices.SortFunc(runs, func(a, b session.Run) int { return strings.Compare(a.ID, b.ID) })
		slices.SortFunc(approvals, func(a, b session.Approval) int { return strings.Compare(a.ID, b.ID) })
		return sessions, runs, approvals
	}
	sessions, runs, approvals := list(h.world)
	wantSessions, wantRuns, wantApprovals := list(&oracle)
	same(h.rt, "the sessions of "+owner, sessions, wantSessions)
	same(h.rt, "the runs of "+owner, runs, wantRuns)
	same(h.rt, "the approvals of "+owner, approvals, wantApprovals)
}
