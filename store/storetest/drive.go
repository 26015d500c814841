package storetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// The principal of most tests, and the lease time.
const (
	tenant = "acme"
	owner  = "ann"
	ttl    = 15 * time.Second
)

// do appends what must be accepted.
func (w *world) do(id string, decide session.Decide) store.Appended {
	w.t.Helper()
	a, err := w.Append(w.ctx, id, decide)
	if err != nil {
		w.t.Fatalf("append to %s: %v", id, err)
	}
	return a
}

// emit is the decision to append events whatever the state is.
func emit(events ...session.Event) session.Decide {
	return func(*session.State) ([]session.Event, error) { return events, nil }
}

// fact is the decision to append data that belong to no run.
func fact(data ...session.Data) session.Decide {
	events := make([]session.Event, len(data))
	for i, d := range data {
		events[i].Data = d
	}
	return emit(events...)
}

// note is a fact of no consequence.
func note(text string) session.Data { return session.Updated{Title: &text} }

// create begins a session without a message.
func (w *world) create(id string) {
	w.t.Helper()
	w.do(id, session.Create{Tenant: tenant, Owner: owner, Title: "about " + id}.Decide)
}

// newSubmit is a message "hello" with ids made from its own: the run run_ID, the answer out_ID.
func (w *world) newSubmit(id string, change ...func(*session.Submit)) *session.Submit {
	c := &session.Submit{
		ID: id, Run: "run_" + id, Output: "out_" + id, Tenant: tenant, Owner: owner, DefaultAgent: "demo",
		Parts: []session.Part{{Type: session.PartText, Text: "hello"}}, At: w.clock.Now(), Grace: 5 * time.Second,
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func busy(mode session.OnBusy) func(*session.Submit) {
	return func(c *session.Submit) { c.OnBusy = mode }
}

func by(tenant, owner string) func(*session.Submit) {
	return func(c *session.Submit) { c.Tenant, c.Owner = tenant, owner }
}

// submit sends a message that must be accepted.
func (w *world) submit(id, message string, change ...func(*session.Submit)) {
	w.t.Helper()
	w.do(id, w.newSubmit(message, change...).Decide)
}

// claim has worker claim the one run that is due.
func (w *world) claim(worker string) store.Lease {
	w.t.Helper()
	leases := w.claimAll(worker, 10)
	if len(leases) != 1 {
		w.t.Fatalf("claimed %v, not one run", leases)
	}
	return leases[0]
}

func (w *world) claimAll(worker string, limit int) []store.Lease {
	w.t.Helper()
	leases, err := w.Claim(w.ctx, worker, ttl, limit)
	if err != nil {
		w.t.Fatalf("claim: %v", err)
	}
	return leases
}

// carry writes as the worker that holds lease.
func (w *world) carry(lease store.Lease, write func(s *session.State, run *session.Run) []session.Event) store.Appended {
	w.t.Helper()
	return w.do(lease.Session, session.Carry(lease.Run, lease.Fence, func(s *session.State, run *session.Run) ([]session.Event, error) {
		return write(s, run), nil
	}))
}

// stream begins an attempt and streams texts, one delta each.
func (w *world) stream(lease store.Lease, texts ...string) {
	w.t.Helper()
	w.carry(lease, func(_ *session.State, run *session.Run) []session.Event { return beginAttempt(run) })
	w.carry(lease, func(_ *session.State, run *session.Run) []session.Event {
		var events []session.Event
		for _, text := range texts {
			events = append(events, delta(run, 0, text))
		}
		return events
	})
}

// ask answers the attempt with calls.
func (w *world) ask(lease store.Lease, calls ...wanted) {
	w.t.Helper()
	w.carry(lease, func(_ *session.State, run *session.Run) []session.Event { return answer(run, "let me see", calls...) })
}

// finish answers the attempt with text and completes the run.
func (w *world) finish(lease store.Lease, text string) {
	w.t.Helper()
	w.carry(lease, func(_ *session.State, run *session.Run) []session.Event {
		return append(answer(run, text), at(run, session.StepCompleted{}))
	})
	w.end(lease, session.RunCompleted{})
}

// end ends the run.
func (w *world) end(lease store.Lease, terminal session.Data) {
	w.t.Helper()
	w.carry(lease, func(s *session.State, run *session.Run) []session.Event { return s.End(run, terminal) })
}

// wait lets go of the run.
func (w *world) wait(lease store.Lease, reason session.WaitingReason, until *time.Time) {
	w.t.Helper()
	w.carry(lease, func(_ *session.State, run *session.Run) []session.Event {
		return []session.Event{at(run, session.RunWaiting{Reason: reason, Until: until})}
	})
}

// wholeRun submits a message and carries its run to the end.
func (w *world) wholeRun(id, message string, texts ...string) {
	w.t.Helper()
	w.submit(id, message)
	lease := w.claim("wrk_1")
	w.stream(lease, texts...)
	w.finish(lease, "done")
}

// readAll reads a log from the beginning and checks that its frames join.
func (w *world) readAll(id string) []session.Frame {
	w.t.Helper()
	return w.readFrom(id, 0, 0)
}

func (w *world) readFrom(id string, after int64, limit int) []session.Frame {
	w.t.Helper()
	var all []session.Frame
	for {
		frames, err := w.Read(w.ctx, id, after, limit)
		if err != nil {
			w.t.Fatalf("read %s after %d: %v", id, after, err)
		}
		if len(frames) == 0 {
			return all
		}
		if limit > 0 && len(frames) > limit {
			w.t.Fatalf("read gave %d frames of at most %d", len(frames), limit)
		}
		for _, f := range frames {
			if f.From != after+1 || f.To < f.From {
				w.t.Fatalf("frame %d..%d follows %d", f.From, f.To, after)
			}
			after = f.To
		}
		all = append(all, frames...)
	}
}

// fold is the fold of what can be read.
func (w *world) fold(id string) *session.State {
	w.t.Helper()
	s := session.New(id)
	for _, f := range w.readAll(id) {
		e, ok, err := f.Event()
		if err != nil {
			w.t.Fatal(err)
		}
		if ok {
			s.Apply(e)
		}
		s.Seq = f.To
	}
	return s
}

// seen is the state as decide sees it.
func (w *world) seen(id string) *session.State {
	w.t.Helper()
	var seen *session.State
	w.do(id, func(s *session.State) ([]session.Event, error) {
		seen = s.Clone()
		return nil, nil
	})
	return seen
}

// viewed is the state as View shows it.
func (w *world) viewed(id string) *session.State {
	w.t.Helper()
	var seen *session.State
	if err := w.View(w.ctx, id, func(s *session.State) { seen = s.Clone() }); err != nil {
		w.t.Fatalf("view %s: %v", id, err)
	}
	return seen
}

// sound checks everything that the contract says of one session at rest, and that the store itself agrees.
func (w *world) sound(id string) {
	w.t.Helper()
	w.isTheFold(id)
	findings, err := w.Check(w.ctx, id)
	if err != nil || len(findings) > 0 {
		w.t.Errorf("Check of %s gave %q, %v", id, findings, err)
	}
}

// isTheFold checks that everything that can be asked about a session is the fold of its log.
func (w *world) isTheFold(id string) {
	w.t.Helper()
	fold := w.fold(id)
	head, err := w.Head(w.ctx, id)
	if err != nil || head != fold.Seq {
		w.t.Errorf("the head of %s is %d, %v; its log ends at %d", id, head, err, fold.Seq)
	}
	if told := w.told.head(id); told != head {
		w.t.Errorf("the head of %s is %d; OnCommit was told of %d", id, head, told)
	}
	var ids []string
	for _, m := range fold.Messages {
		ids = append(ids, m.ID)
	}
	messages, err := w.Messages(w.ctx, id, ids)
	if err != nil || len(messages) != len(ids) {
		w.t.Errorf("messages of %s: %d of %d, %v", id, len(messages), len(ids), err)
	}
	if len(ids) > 0 {
		same(w.t, "the messages", messages, fold.Messages)
	}
	row, err := w.Session(w.ctx, id)
	if err != nil {
		w.t.Errorf("row of %s: %v", id, err)
	}
	sameRow(w.t, "the row", row, store.RowOf(fold))
	sameRow(w.t, "the row that OnCommit was told", w.told.row(id), store.RowOf(fold))
	for _, r := range fold.Runs {
		run, err := w.Run(w.ctx, r.ID)
		if err != nil {
			w.t.Errorf("run %s: %v", r.ID, err)
		}
		same(w.t, "the run "+r.ID, run, r)
		work, cancel := w.told.workOf(id, r.ID)
		if want := fold.WorkOf(r); !cmp.Equal(work, want) || cancel != (want.Held && r.CancelRequestedAt != nil) {
			w.t.Errorf("OnCommit was told that run %s asks for %+v, cancel %v; it asks for %+v", r.ID, work, cancel, want)
		}
	}
	for _, a := range fold.TakeChanges().Decided {
		approval, err := w.Approval(w.ctx, a.ID)
		if err != nil {
			w.t.Errorf("approval %s: %v", a.ID, err)
		}
		same(w.t, "the approval "+a.ID, approval, a)
	}
	fold.Shed()
	same(w.t, "the state that decide sees", w.seen(id), fold)
	same(w.t, "the state that View shows", w.viewed(id), fold)
}

// same compares by JSON, byte for byte.
func same(t rapid.TB, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(indented(want), indented(got)); diff != "" {
		t.Errorf("%s differ (-want +got):\n%s", what, diff)
	}
}

func indented(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err.Error()
	}
	return b.String()
}

func sameRow(t rapid.TB, what string, got, want store.SessionRow) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", what, diff)
	}
}

// refused checks that err is a refusal with the given code.
func refused(t rapid.TB, err error, code session.ErrorCode) {
	t.Helper()
	if !errors.Is(err, &session.Error{Code: code}) {
		t.Errorf("got %v, not the refusal %s", err, code)
	}
}

// is checks for a sentinel.
func is(t rapid.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, not %v", err, want)
	}
}
