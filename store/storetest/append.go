package storetest

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

var errRefused = errors.New("the rule refuses")

var appendPromises = []promise{
	{"events get the next seqs, the session and the store's time", eventsGetTheNextSeqs},
	{"an append can be read when it returns", anAppendCanBeRead},
	{"an error of decide is returned as it is and changes nothing", anErrorOfDecideChangesNothing},
	{"no events write nothing", noEventsWriteNothing},
	{"an event without a JSON form changes nothing", anEventWithoutJSONChangesNothing},
	{"decide sees the fold of the log", decideSeesTheFold},
	{"decide sees what was written and not what was handed in", decideSeesWhatWasWritten},
	{"a session that does not exist has an empty state", aMissingSessionIsEmpty},
	{"a message sent again is accepted once", aMessageSentAgainIsAcceptedOnce},
	{"a message id used with another body is refused", anotherBodyIsRefused},
	{"two sessions may use the same message id", twoSessionsMayUseOneMessageID},
	{"a worker under an old fence writes nothing", anOldFenceWritesNothing},
	{"a long append keeps its order", aLongAppendKeepsItsOrder},
}

func eventsGetTheNextSeqs(t *testing.T, w *world) {
	first := w.do("ses_1", fact(session.Created{Tenant: tenant, Owner: owner}, note("a"), note("b")))
	w.clock.advance(1500*time.Millisecond + 700*time.Microsecond)
	second := w.do("ses_1", fact(note("c"), note("d")))
	if first.First != 1 || first.Last != 3 || second.First != 4 || second.Last != 5 {
		t.Errorf("appended %d..%d and %d..%d, not 1..3 and 4..5", first.First, first.Last, second.First, second.Last)
	}
	want := []any{session.Created{Tenant: tenant, Owner: owner}, note("a"), note("b"), note("c"), note("d")}
	events := append(first.Events, second.Events...)
	if len(events) != len(want) {
		t.Fatalf("%d events, not %d", len(events), len(want))
	}
	for i, e := range events {
		when := newClock().Now()
		if i >= 3 {
			when = when.Add(1500 * time.Millisecond)
		}
		if e.Session != "ses_1" || e.Seq != int64(i+1) || !e.At.Equal(when) {
			t.Errorf("event %d has session %s, seq %d, time %s, not %s", i+1, e.Session, e.Seq, e.At, when)
		}
		same(t, "the data", e.Data, want[i])
	}
}

func anAppendCanBeRead(t *testing.T, w *world) {
	for i := range 20 {
		a := w.do("ses_1", fact(note("a"), note("b")))
		frames, err := w.Read(w.ctx, "ses_1", a.First-1, 0)
		if err != nil || len(frames) != 2 || frames[1].To != a.Last {
			t.Fatalf("append %d: read %v, %v", i, frames, err)
		}
		if head, err := w.Head(w.ctx, "ses_1"); err != nil || head != a.Last {
			t.Fatalf("append %d: the head is %d, %v", i, head, err)
		}
		e, _, err := frames[1].Event()
		if err != nil {
			t.Fatal(err)
		}
		same(t, "the event", e, a.Events[1])
	}
}

func anErrorOfDecideChangesNothing(t *testing.T, w *world) {
	refuse := func(*session.State) ([]session.Event, error) {
		return []session.Event{{Data: note("never")}}, errRefused
	}
	if _, err := w.Append(w.ctx, "ses_1", refuse); err != errRefused { //nolint:errorlint // the contract promises this very error
		t.Errorf("append to a new session gave %v, not the error of decide as it was", err)
	}
	if _, err := w.Head(w.ctx, "ses_1"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a refused append made the session: %v", err)
	}
	w.submit("ses_1", "m1")
	head, told := w.readAll("ses_1"), w.told.count()
	if _, err := w.Append(w.ctx, "ses_1", refuse); err != errRefused { //nolint:errorlint // the contract promises this very error
		t.Errorf("append gave %v, not the error of decide as it was", err)
	}
	same(t, "the log after a refusal", w.readAll("ses_1"), head)
	if w.told.count() != told {
		t.Error("OnCommit was told of a refusal")
	}
	w.sound("ses_1")
}

func noEventsWriteNothing(t *testing.T, w *world) {
	none := func(*session.State) ([]session.Event, error) { return nil, nil }
	if a := w.do("ses_1", none); a.First != 1 || a.Last != 0 || len(a.Events) != 0 {
		t.Errorf("an empty append to a new session gave %+v", a)
	}
	if _, err := w.Head(w.ctx, "ses_1"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an empty append made the session: %v", err)
	}
	w.create("ses_1")
	told := w.told.count()
	if a := w.do("ses_1", none); a.First != 2 || a.Last != 1 || len(a.Events) != 0 {
		t.Errorf("an empty append after 1 gave %+v", a)
	}
	if w.told.count() != told {
		t.Error("OnCommit was told of an append without events")
	}
}

func anEventWithoutJSONChangesNothing(t *testing.T, w *world) {
	w.create("ses_1")
	broken := fact(note("good"), session.Updated{Metadata: json.RawMessage(`{"open`)})
	if _, err := w.Append(w.ctx, "ses_1", broken); err == nil {
		t.Error("an event that has no JSON form was appended")
	}
	w.sound("ses_1")
	if a := w.do("ses_1", fact(note("next"))); a.First != 2 {
		t.Errorf("the next event has seq %d, not 2", a.First)
	}
	w.sound("ses_1")
}

func decideSeesTheFold(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	w.sound("ses_1")
	lease := w.claim("wrk_1")
	w.sound("ses_1")
	w.stream(lease, "Hello", ", ", "world")
	w.sound("ses_1")
	w.submit("ses_1", "m2")
	w.submit("ses_1", "m3", busy(session.Steer))
	w.sound("ses_1")
	w.ask(lease, wanted{id: "c1", name: "delete", arguments: `{"path":"/tmp"}`, effects: session.Unsafe, approval: "apr_1"})
	w.sound("ses_1")
	w.wait(lease, session.WaitApproval, nil)
	w.sound("ses_1")
	w.do("ses_1", session.DecideApproval{ID: "apr_1", Decision: session.Deny, By: owner, Note: "no"}.Decide)
	w.sound("ses_1")
	lease = w.claim("wrk_2")
	w.carry(lease, func(_ *session.State, run *session.Run) []session.Event {
		return []session.Event{
			at(run, session.ToolDenied{Message: run.Message, Call: "c1", By: owner}), at(run, session.StepCompleted{}),
		}
	})
	w.carry(lease, func(s *session.State, run *session.Run) []session.Event { return s.DeliverSteers(run) })
	w.sound("ses_1")
	w.stream(lease, "all done")
	w.finish(lease, "All done.")
	w.sound("ses_1")
	w.do("ses_1", session.Cancel{Run: "run_m2", By: owner, At: w.clock.Now()}.Decide)
	w.sound("ses_1")
	if got := w.seen("ses_1"); len(got.Open()) != 0 || len(got.Inbox) != 0 {
		t.Errorf("open runs %v and inbox %v remain", got.Open(), got.Inbox)
	}
}

// What a rule hands in may have another form than what the log keeps: spaces
// in raw JSON, a result that is missing. The state is the fold of the log.
func decideSeesWhatWasWritten(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	lease := w.claim("wrk_1")
	w.stream(lease, "x")
	w.ask(lease,
		wanted{id: "c1", name: "look", arguments: "{ \"n\" : 12345678901234567890,\n \"s\" : \"<&>\" }", effects: session.ReadOnly, approval: "apr_1"},
		wanted{id: "c2", name: "look", arguments: "{}", effects: session.ReadOnly})
	w.sound("ses_1")
	w.carry(lease, func(_ *session.State, run *session.Run) []session.Event {
		return []session.Event{
			at(run, session.ToolStarted{Message: run.Message, Call: "c2", Try: 1, Key: "k"}),
			at(run, session.ToolCompleted{Message: run.Message, Call: "c2"}),
		}
	})
	w.sound("ses_1")
	w.do("ses_1", session.DecideApproval{
		ID: "apr_1", Decision: session.Approve, By: owner, Arguments: json.RawMessage(`{ "n" : 1 }`),
	}.Decide)
	w.sound("ses_1")
	w.do("ses_1", fact(session.Updated{Metadata: json.RawMessage(`{ "k" : [ 1, 2 ] }`)}))
	w.sound("ses_1")
	if got := string(w.seen("ses_1").Metadata); got != `{"k":[1,2]}` {
		t.Errorf("the state has the metadata %s, which is not how the log has it", got)
	}
}

func aMissingSessionIsEmpty(t *testing.T, w *world) {
	same(t, "the state of a session that does not exist", w.seen("ses_1"), session.New("ses_1"))
}

func aMessageSentAgainIsAcceptedOnce(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	w.clock.advance(time.Minute)
	told := w.told.count()
	again := w.newSubmit("m1", func(c *session.Submit) { c.Run, c.Output = "run_other", "out_other" })
	if a := w.do("ses_1", again.Decide); len(a.Events) != 0 {
		t.Errorf("the repetition wrote %d events", len(a.Events))
	}
	if !again.Repeated || again.Accepted != "run_m1" {
		t.Errorf("the repetition gave the run %s, repeated %v", again.Accepted, again.Repeated)
	}
	if w.told.count() != told {
		t.Error("OnCommit was told of a repetition")
	}
	w.sound("ses_1")
	if !w.reopen() {
		return
	}
	again = w.newSubmit("m1")
	w.do("ses_1", again.Decide)
	if !again.Repeated {
		t.Error("a message was accepted again after the store was opened anew")
	}
}

func anotherBodyIsRefused(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	other := w.newSubmit("m1", func(c *session.Submit) { c.Parts = []session.Part{{Type: session.PartText, Text: "bye"}} })
	_, err := w.Append(w.ctx, "ses_1", other.Decide)
	refused(t, err, session.Conflict)
	w.sound("ses_1")
}

func twoSessionsMayUseOneMessageID(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	w.submit("ses_2", "m1", func(c *session.Submit) {
		c.Run = "run_2"
		c.Parts = []session.Part{{Type: session.PartText, Text: "another"}}
	})
	w.sound("ses_1")
	w.sound("ses_2")
}

func anOldFenceWritesNothing(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	old := w.claim("wrk_1")
	w.stream(old, "half")
	w.do("ses_1", session.Reconcile{Run: old.Run, Fence: old.Fence, Cause: session.CauseLeaseExpired, At: w.clock.Now()}.Decide)
	write := func(_ *session.State, run *session.Run) ([]session.Event, error) {
		return []session.Event{delta(run, 0, "late")}, nil
	}
	_, err := w.Append(w.ctx, "ses_1", session.Carry(old.Run, old.Fence, write))
	refused(t, err, session.Fenced)
	lease := w.claim("wrk_2")
	_, err = w.Append(w.ctx, "ses_1", session.Carry(old.Run, old.Fence, write))
	refused(t, err, session.Fenced)
	w.stream(lease, "whole")
	w.finish(lease, "whole")
	w.sound("ses_1")
}

func aLongAppendKeepsItsOrder(t *testing.T, w *world) {
	const n = 3000
	w.submit("ses_1", "m1")
	lease := w.claim("wrk_1")
	w.carry(lease, func(_ *session.State, run *session.Run) []session.Event { return beginAttempt(run) })
	a := w.carry(lease, func(_ *session.State, run *session.Run) []session.Event {
		events := make([]session.Event, n)
		for i := range events {
			events[i] = delta(run, 0, string(rune('a'+i%26)))
		}
		return events
	})
	if a.Last-a.First+1 != n || len(a.Events) != n {
		t.Fatalf("%d events became %d..%d", n, a.First, a.Last)
	}
	m := w.viewed("ses_1").Message("out_m1")
	if text := m.Text(); len(text) != n || text[:28] != "abcdefghijklmnopqrstuvwxyzab" {
		t.Errorf("the text has %d bytes and begins %.28q", len(text), text)
	}
	w.sound("ses_1")
}
