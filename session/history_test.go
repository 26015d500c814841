package session_test

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast/session"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// tester is what testing and rapid have in common.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// history appends decisions to a log as a store does: by its wire form.
type history struct {
	t      tester
	events []session.Event
	state  *session.State
}

func newHistory(t tester) *history { return &history{t: t, state: session.New("ses_1")} }

// now is the time of the next event: a second after the last.
func (h *history) now() time.Time { return epoch.Add(time.Duration(h.state.Seq) * time.Second) }

// try appends what decide gives, and gives it back as it was appended.
func (h *history) try(decide session.Decide) ([]session.Event, error) {
	h.t.Helper()
	events, err := decide(h.state)
	if err != nil {
		return nil, err
	}
	first := len(h.events)
	for _, e := range events {
		e.Session, e.Seq, e.At = "ses_1", h.state.Seq+1, h.now()
		raw, err := e.MarshalJSON()
		if err != nil {
			h.t.Fatal(err)
		}
		var read session.Event
		if err := json.Unmarshal(raw, &read); err != nil {
			h.t.Fatal(err)
		}
		h.events = append(h.events, read)
		h.state.Apply(read)
	}
	return h.events[first:], nil
}

func (h *history) do(decide session.Decide) []session.Event {
	h.t.Helper()
	events, err := h.try(decide)
	if err != nil {
		h.t.Fatal(err)
	}
	return events
}

// refused wants decide to be refused with this code, and nothing to change.
func (h *history) refused(code session.ErrorCode, decide session.Decide) *session.Error {
	h.t.Helper()
	before := asJSON(h.t, h.state)
	events, err := h.try(decide)
	var refusal *session.Error
	if !errors.As(err, &refusal) || refusal.Code != code {
		h.t.Fatalf("gave %d events and %v, not a refusal with %s", len(events), err, code)
	}
	if after := asJSON(h.t, h.state); after != before {
		h.t.Errorf("a refusal changed the state:\n%s\n%s", before, after)
	}
	return refusal
}

// submit submits the text as message id, whose run is "r_"+id and whose answer "o_"+id.
func (h *history) submit(id string, change ...func(*session.Submit)) *session.Submit {
	h.t.Helper()
	c := submission(id, change...)
	c.At = h.now()
	h.do(c.Decide)
	return c
}

func submission(id string, change ...func(*session.Submit)) *session.Submit {
	c := &session.Submit{
		ID: id, Parts: text("say " + id), Run: "r_" + id, Output: "o_" + id,
		Tenant: "acme", Owner: "ann", DefaultAgent: "demo", At: epoch, Grace: 5 * time.Second,
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func onBusy(mode session.OnBusy) func(*session.Submit) {
	return func(c *session.Submit) { c.OnBusy = mode }
}

func after(parent string) func(*session.Submit) {
	return func(c *session.Submit) { c.Parent = &parent }
}

func background(c *session.Submit) { c.Background = true }

func text(s string) []session.Part { return []session.Part{{Type: session.PartText, Text: s}} }

// claim has a worker carry the run, and gives its fence.
func (h *history) claim(run string) int64 {
	h.t.Helper()
	c := &session.Claim{Run: run, Worker: "w1", At: h.now()}
	h.do(c.Decide)
	return c.Fence
}

// carry writes the data as the run's worker, for its current step and attempt,
// or for those that a step.started among them says.
func (h *history) carry(run string, data ...session.Data) []session.Event {
	h.t.Helper()
	return h.do(h.writes(run, data...))
}

func (h *history) writes(run string, data ...session.Data) session.Decide {
	r := h.run(run)
	return session.Carry(run, r.Fence, func(*session.State, *session.Run) ([]session.Event, error) {
		var events []session.Event
		step, attempt := max(r.CurrentStep, r.FromStep-1), r.Attempt
		for _, d := range data {
			if started, ok := d.(session.StepStarted); ok {
				if started.Because == "" {
					step, attempt = step+1, 1
				} else {
					attempt++
				}
			}
			events = append(events, session.Event{Step: step, Attempt: attempt, Data: d})
		}
		return events, nil
	})
}

// end ends the run as its worker.
func (h *history) end(run string, terminal session.Data) []session.Event {
	h.t.Helper()
	return h.do(session.Carry(run, h.run(run).Fence, func(s *session.State, r *session.Run) ([]session.Event, error) {
		return s.End(r, terminal), nil
	}))
}

// answer has a claimed run say the text in one step and complete.
func (h *history) answer(run, said string) {
	h.t.Helper()
	m := h.run(run).Message
	h.carry(run, session.StepStarted{Message: m}, session.TextDelta{Message: m, Text: said},
		session.ModelCompleted{Message: m, Parts: text(said), Finish: "stop"}, session.StepCompleted{})
	h.end(run, session.RunCompleted{})
}

// call has a claimed run make one tool call "c_<n>" a name, which waits for an approval "a_<n>" if asked.
func (h *history) call(run string, effects session.Effects, approve bool, names ...string) {
	h.t.Helper()
	m := h.run(run).Message
	var parts []session.Part
	var called []session.Data
	for _, name := range names {
		parts = append(parts, session.Part{Type: session.PartTool, Tool: &session.ToolCall{ID: "c_" + name, Name: name}})
		args := json.RawMessage(`{"of":"` + name + `"}`)
		c := session.ToolCalled{Message: m, Call: "c_" + name, Name: name, Arguments: args, Effects: effects}
		if approve {
			c.Approval = "a_" + name
		}
		called = append(called, c)
		if approve {
			called = append(called, session.ApprovalRequested{Approval: session.Approval{
				ID: c.Approval, Session: "ses_1", Run: run, Message: m, Call: c.Call, Name: name, Effects: effects,
				Arguments: args, ArgumentsHash: session.HashArguments(args),
			}})
		}
	}
	h.carry(run, append([]session.Data{
		session.StepStarted{Message: m}, session.ModelCompleted{Message: m, Parts: parts, Finish: "tool_calls"},
	}, called...)...)
}

func (h *history) run(id string) *session.Run {
	h.t.Helper()
	run := h.state.Run(id)
	if run == nil {
		h.t.Fatalf("there is no run %s", id)
	}
	return run
}

func (h *history) message(id string) *session.Message {
	h.t.Helper()
	m := h.state.Message(id)
	if m == nil {
		h.t.Fatalf("there is no message %s", id)
	}
	return m
}

func (h *history) toolCall(message, id string) *session.ToolCall {
	h.t.Helper()
	c := h.message(message).Call(id)
	if c == nil {
		h.t.Fatalf("the message %s has no call %s", message, id)
	}
	return c
}

func types(events []session.Event) []string {
	names := []string{}
	for _, e := range events {
		names = append(names, e.Type())
	}
	return names
}

func asJSON(t tester, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// inbox gives the ids of the waiting messages, in order.
func (h *history) inbox() []string {
	ids := []string{}
	for _, item := range h.state.Inbox {
		ids = append(ids, item.Message.ID)
	}
	return ids
}

func (h *history) wantTypes(events []session.Event, want ...string) {
	h.t.Helper()
	if got := types(events); !slices.Equal(got, want) {
		h.t.Errorf("the events are %v, not %v", got, want)
	}
}

func (h *history) wantStatus(run string, want session.Status) {
	h.t.Helper()
	if got := h.run(run).Status; got != want {
		h.t.Errorf("the run %s is %s, not %s", run, got, want)
	}
}

func (h *history) wantInbox(want ...string) {
	h.t.Helper()
	if got := h.inbox(); !slices.Equal(got, want) {
		h.t.Errorf("the inbox holds %v, not %v", got, want)
	}
}

func (h *history) wantBranch(want ...string) {
	h.t.Helper()
	if got := h.state.Path(h.state.Head); !slices.Equal(got, want) {
		h.t.Errorf("the branch is %v, not %v", got, want)
	}
}
