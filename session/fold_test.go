package session_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast/session"
)

func TestALaterAttemptDropsWhatTheEarlierStreamed(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.carry("r_m1", session.StepStarted{Message: "o_m1"},
		session.ReasoningDelta{Message: "o_m1", Part: 0, Text: "hm"},
		session.TextDelta{Message: "o_m1", Part: 1, Text: "The answer is 4"},
		session.ToolInputDelta{Message: "o_m1", Part: 2, Call: "c1", Name: "clock", Text: `{"z`})
	h.carry("r_m1", session.AttemptFailed{Message: "o_m1", Parts: h.message("o_m1").Streamed(), Error: session.Failure{Code: "cut"}})
	var kinds []session.PartType
	for _, p := range h.message("o_m1").Parts {
		kinds = append(kinds, p.Type)
		if p.Type != session.PartStep && p.State != session.PartFailed {
			t.Errorf("a part of the failed attempt is %s", asJSON(t, p))
		}
	}
	if want := []session.PartType{session.PartStep, session.PartReasoning, session.PartText}; !slices.Equal(kinds, want) {
		t.Errorf("the failed attempt left %v", kinds)
	}
	h.carry("r_m1", session.StepStarted{Message: "o_m1", Because: "retry"},
		session.TextDelta{Message: "o_m1", Part: 0, Text: "The answer is "}, session.TextDelta{Message: "o_m1", Part: 0, Text: "42."})
	if got := h.message("o_m1").Text(); got != "The answer is 42." {
		t.Errorf("the second attempt says %q", got)
	}
	h.carry("r_m1", session.ModelCompleted{Message: "o_m1", Parts: text("The answer is 42."), Finish: "stop"}, session.StepCompleted{})
	h.end("r_m1", session.RunCompleted{})
	if m := h.message("o_m1"); m.Text() != "The answer is 42." || len(m.Parts) != 2 {
		t.Errorf("the message is %s", asJSON(t, m))
	}
	steps := h.run("r_m1").Steps
	if len(steps) != 2 || steps[0].Error == nil || steps[0].Error.Code != "cut" || steps[1].Because != "retry" || steps[1].CompletedAt == nil {
		t.Errorf("the steps are %s", asJSON(t, steps))
	}
}

func TestARetryLeavesEarlierStepsAlone(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.call("r_m1", session.Unsafe, false, "pay")
	h.carry("r_m1", session.ToolStarted{Message: "o_m1", Call: "c_pay", Try: 1}, session.ToolCompleted{Message: "o_m1", Call: "c_pay"}, session.StepCompleted{})
	h.carry("r_m1", session.StepStarted{Message: "o_m1"}, session.TextDelta{Message: "o_m1", Text: "Pa"})
	h.carry("r_m1", session.AttemptFailed{Message: "o_m1", Error: session.Failure{Code: "overloaded"}})
	h.carry("r_m1", session.StepStarted{Message: "o_m1", Because: "retry"})
	if c := h.toolCall("o_m1", "c_pay"); c.Status != session.CallCompleted {
		t.Errorf("the call of the first step is %s", c.Status)
	}
	if run := h.run("r_m1"); run.CurrentStep != 2 || run.Attempt != 2 {
		t.Errorf("the run is at step %d attempt %d", run.CurrentStep, run.Attempt)
	}
}

func TestTheAnswerReplacesWhatWasStreamed(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.carry("r_m1", session.StepStarted{Message: "o_m1"}, session.TextDelta{Message: "o_m1", Text: "let me s"})
	h.carry("r_m1",
		session.ModelCompleted{Message: "o_m1", Finish: "tool_calls", Usage: session.Usage{InputTokens: 5, OutputTokens: 7}, Parts: []session.Part{
			{Type: session.PartText, Text: "let me see"}, {Type: session.PartTool, Tool: &session.ToolCall{ID: "c1", Name: "clock"}},
		}},
		session.ToolCalled{Message: "o_m1", Call: "c1", Name: "clock", Arguments: json.RawMessage(`{}`), Effects: session.ReadOnly},
		session.ToolCalled{Message: "o_m1", Call: "c2", Name: "late", RawArguments: "{", ArgumentsBlob: &session.Blob{Hash: "h"}})
	if c := h.toolCall("o_m1", "c1"); c.Name != "clock" || string(c.Arguments) != "{}" || c.Effects != session.ReadOnly {
		t.Errorf("the call is %s", asJSON(t, c))
	}
	if c := h.toolCall("o_m1", "c2"); c.Name != "late" || c.RawArguments != "{" || c.ArgumentsBlob.Hash != "h" {
		t.Errorf("the call that the answer did not mention is %s", asJSON(t, c))
	}
	m := h.message("o_m1")
	if len(m.Parts) != 4 || m.Parts[1].Text != "let me see" || m.Parts[2].Part != 1 || m.Parts[2].Step != 1 || m.Parts[2].Tool.Status != session.CallCalled {
		t.Errorf("the message is %s", asJSON(t, m))
	}
	if run := h.run("r_m1"); run.Usage.OutputTokens != 7 || run.Steps[0].Finish != "tool_calls" || run.Steps[0].AnsweredAt == nil {
		t.Errorf("the run is %s", asJSON(t, run))
	}
}

func TestPartsOfOneAttemptGrowApart(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.carry("r_m1", session.StepStarted{Message: "o_m1"})
	for _, s := range []string{"a", "b", "c"} {
		h.carry("r_m1", session.ReasoningDelta{Message: "o_m1", Part: 0, Text: "r" + s}, session.TextDelta{Message: "o_m1", Part: 1, Text: "t" + s},
			session.ToolInputDelta{Message: "o_m1", Part: 2, Call: "c1", Name: "one", Text: "1" + s},
			session.ToolInputDelta{Message: "o_m1", Part: 3, Call: "c2", Name: "two", Text: "2" + s})
		h.state = h.state.Clone() // a state that was kept meanwhile goes on the same
	}
	parts := h.message("o_m1").Parts
	got := []string{parts[1].Text, parts[2].Text, parts[3].Tool.RawArguments, parts[4].Tool.RawArguments}
	if want := []string{"rarbrc", "tatbtc", "1a1b1c", "2a2b2c"}; !slices.Equal(got, want) {
		t.Errorf("the parts are %v", got)
	}
	if len(parts) != 5 || parts[3].Tool.Status != session.CallWriting || len(h.state.Calls(h.run("r_m1"))) != 0 {
		t.Errorf("the parts are %s", asJSON(t, parts))
	}
}

func TestAResultIsSettledOnce(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.call("r_m1", session.ReadOnly, false, "clock")
	h.carry("r_m1", session.ToolStarted{Message: "o_m1", Call: "c_clock", Try: 1, Key: "k"},
		session.ToolProgress{Message: "o_m1", Call: "c_clock", Progress: session.Progress{Message: "soon", Fraction: 0.5}})
	if p := h.toolCall("o_m1", "c_clock").Progress; p == nil || p.Message != "soon" || p.Fraction != 0.5 {
		t.Errorf("the progress is %+v", p)
	}
	h.carry("r_m1", session.ToolCompleted{Message: "o_m1", Call: "c_clock", Result: json.RawMessage(`"noon"`), Cut: 3, By: "bob"})
	if c := h.toolCall("o_m1", "c_clock"); c.By != "bob" || c.Cut != 3 || c.EndedAt == nil {
		t.Errorf("the call is %s", asJSON(t, c))
	}
	want := asJSON(t, h.toolCall("o_m1", "c_clock"))
	h.carry("r_m1", session.ToolFailed{Message: "o_m1", Call: "c_clock"}, session.ToolStarted{Message: "o_m1", Call: "c_clock", Try: 2},
		session.ToolUnknown{Message: "o_m1", Call: "c_clock"}, session.ToolCompleted{Message: "o_m1", Call: "c_clock", Result: json.RawMessage(`1`)},
		session.ToolCalled{Message: "o_m1", Call: "c_clock", Name: "other"})
	if diff := cmp.Diff(want, asJSON(t, h.toolCall("o_m1", "c_clock"))); diff != "" {
		t.Errorf("a settled call changed:\n%s", diff)
	}
}

func TestFalsyResultsAreResults(t *testing.T) {
	for _, result := range []string{"null", "false", "0", `""`, "[]", "{}"} {
		h := newHistory(t)
		h.submit("m1")
		h.claim("r_m1")
		h.call("r_m1", session.ReadOnly, false, "ask")
		h.carry("r_m1", session.ToolStarted{Message: "o_m1", Call: "c_ask", Try: 1}, session.ToolCompleted{Message: "o_m1", Call: "c_ask", Result: json.RawMessage(result)})
		if c := h.toolCall("o_m1", "c_ask"); string(c.Result) != result || c.Status != session.CallCompleted {
			t.Errorf("%s became %s", result, asJSON(t, c))
		}
		if c := h.state.Clone().Message("o_m1").Call("c_ask"); string(c.Result) != result {
			t.Errorf("%s was kept as %s", result, c.Result)
		}
	}
}

func TestDeltasMoveTheSeqAndNotTheLastFact(t *testing.T) {
	h := newHistory(t)
	h.submit("m1")
	h.claim("r_m1")
	h.carry("r_m1", session.StepStarted{Message: "o_m1"})
	fact, at := h.state.FactSeq, h.state.UpdatedAt
	h.carry("r_m1", session.TextDelta{Message: "o_m1", Text: "a"})
	if s := h.state; s.Seq != fact+1 || s.FactSeq != fact || !s.UpdatedAt.Equal(at) {
		t.Errorf("after a delta the state is at %d, its last fact at %d", s.Seq, s.FactSeq)
	}
}

func TestAskingWhatARunWantsInEveryState(t *testing.T) {
	soon := epoch.Add(time.Hour)
	waiting := func(reason session.WaitingReason, until *time.Time) func(*history) {
		return func(h *history) {
			h.claim("r_m1")
			h.carry("r_m1", session.RunWaiting{Reason: reason, Until: until})
		}
	}
	asked := func(until *time.Time) func(*history) {
		return func(h *history) {
			h.claim("r_m1")
			h.call("r_m1", session.Unsafe, true, "pay")
			h.carry("r_m1", session.RunWaiting{Reason: session.WaitApproval, Until: until})
		}
	}
	for name, c := range map[string]struct {
		make func(*history)
		want session.Work
	}{
		"queued":                           {func(*history) {}, session.Work{Due: true}},
		"running":                          {func(h *history) { h.claim("r_m1") }, session.Work{Held: true}},
		"waits to retry":                   {waiting(session.WaitRetry, &soon), session.Work{Due: true, At: soon}},
		"waits to retry, at any time":      {waiting(session.WaitRetry, nil), session.Work{Due: true}},
		"waits for a worker":               {waiting(session.WaitWorker, nil), session.Work{Due: true}},
		"waits for a worker, later":        {waiting(session.WaitWorker, &soon), session.Work{Due: true, At: soon}},
		"waits for approval":               {asked(nil), session.Work{}},
		"waits for approval, for a time":   {asked(&soon), session.Work{Due: true, At: soon}},
		"waits for an approval that is":    {waiting(session.WaitApproval, nil), session.Work{Due: true}},
		"waits for a reason of the future": {waiting("moon", nil), session.Work{Due: true}},
		"completed": {func(h *history) {
			h.claim("r_m1")
			h.end("r_m1", session.RunCompleted{})
		}, session.Work{}},
		"failed": {func(h *history) {
			h.claim("r_m1")
			h.end("r_m1", session.RunFailed{})
		}, session.Work{}},
		"cancelled": {func(h *history) { h.cancel("r_m1") }, session.Work{}},
		"being cancelled": {func(h *history) {
			h.claim("r_m1")
			h.cancel("r_m1")
		}, session.Work{Held: true, CancelBy: epoch.Add(10 * time.Second)}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t)
			h.submit("m1")
			c.make(h)
			if diff := cmp.Diff(c.want, h.state.WorkOf(h.run("r_m1"))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	h := newHistory(t)
	h.submit("m1")
	h.submit("m2")
	if w := h.state.WorkOf(h.run("r_m2")); w != (session.Work{}) {
		t.Errorf("a run whose message waits asks for %+v", w)
	}
	h = lostInATool(t, session.Unsafe)
	if w := h.state.WorkOf(h.run("r_m1")); w != (session.Work{}) {
		t.Errorf("a run that waits for a word asks for %+v", w)
	}
}

func TestAMessageWithoutAStatusIsWhole(t *testing.T) {
	s := session.New("ses_1")
	s.Apply(session.Event{Seq: 1, Data: session.MessageCreated{Message: session.Message{ID: "m1", Role: session.RoleUser, Parent: "m_nobody"}}})
	if m := s.Message("m1"); m.Status != session.MessageWhole || m.Parent != "" {
		t.Errorf("the message is %s", asJSON(t, m))
	}
}

func TestSheddingDropsWhatNoDecisionNeeds(t *testing.T) {
	h := talked(t)
	h.submit("m3")
	h.claim("r_m3")
	h.carry("r_m3", session.StepStarted{Message: "o_m3"}, session.TextDelta{Message: "o_m3", Text: "still"})
	h.state.Shed()
	for _, id := range []string{"m1", "o_m1", "m2", "o_m2", "m3"} {
		if m := h.message(id); len(m.Parts) > 0 {
			t.Errorf("%s keeps its parts", id)
		}
	}
	if got := h.message("o_m3").Text(); got != "still" {
		t.Errorf("what streams says %q", got)
	}
	if len(h.run("r_m1").Steps) > 0 || len(h.run("r_m3").Steps) != 1 {
		t.Error("an ended run keeps its steps, or an open one lost them")
	}
}

func TestAStateThatCannotBeReadIsRefused(t *testing.T) {
	if s, err := session.Load([]byte(`{"seq":"x"}`)); err == nil {
		t.Errorf("read as %+v", s)
	}
	s, err := session.Load([]byte(`{"id":"ses_1"}`))
	if err != nil {
		t.Fatal(err)
	}
	s.Apply(session.Event{Seq: 1, Run: "r1", Data: session.RunQueued{}}) // its indexes are there
	if s.Exists() != true || s.Run("r1") == nil {
		t.Errorf("the state is %s", asJSON(t, s))
	}
}

func TestChangesAreTakenOnce(t *testing.T) {
	empty := newHistory(t)
	empty.do(session.Create{Tenant: "acme", Owner: "ann"}.Decide)
	if !empty.state.TakeChanges().Session {
		t.Error("a session that began is not named")
	}
	h := newHistory(t)
	h.submit("m1")
	c := h.state.TakeChanges()
	if !c.Session || !slices.Equal(c.Runs, []string{"r_m1"}) || !slices.Equal(c.Messages, []string{"m1"}) {
		t.Errorf("the changes are %+v", c)
	}
	if c := h.state.TakeChanges(); c.Session || len(c.Runs)+len(c.Messages)+len(c.Approvals) > 0 {
		t.Errorf("the changes come again: %+v", c)
	}
}

func TestIDsAreLettersDigitsAndTwoMarks(t *testing.T) {
	long := make([]byte, session.MaxIDLength)
	for i := range long {
		long[i] = 'a'
	}
	for id, want := range map[string]bool{
		"ses_1": true, "A-z_09": true, string(long): true, string(long) + "a": false, "": false, "a b": false, "a/b": false,
		"/": false, "a\x00": false, "é": false, "a\n": false, "5%00": false, "..": false,
	} {
		if session.ValidID(id) != want {
			t.Errorf("%q is valid: %v", id, !want)
		}
	}
	a, b := session.NewID(session.RunPrefix), session.NewID(session.RunPrefix)
	if a == b || !session.ValidID(a) || a[:4] != "run_" {
		t.Errorf("fresh ids are %s and %s", a, b)
	}
}
