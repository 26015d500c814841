package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/session"
)

// summary matches the requests for a summary.
var summary = fakellm.Match{Func: asksForSummary}

func asksForSummary(r fakellm.Request) bool {
	return strings.Contains(r.LastUser(), "Write the summary that will stand in their place")
}

// speaker answers each question with a call for output and then in words, and each summary with one.
func speaker(letters int) func(fakellm.Request) fakellm.Turn {
	return func(r fakellm.Request) fakellm.Turn {
		last := r.Messages[len(r.Messages)-1]
		switch {
		case asksForSummary(r):
			return fakellm.Reply(fakellm.Text("The password is swordfish. They went on talking."))
		case len(last.Results) > 0:
			return fakellm.Reply(fakellm.Text("That is the answer to " + r.LastUser()))
		}
		return fakellm.Reply(fakellm.Text("I look."), fakellm.Call{Name: "output", Args: fmt.Sprintf(`{"letters":%d}`, letters)})
	}
}

// A conversation of 300 turns with 2 MB of tool output stays within a window of
// 32,000 tokens; a strict provider takes every request; nothing leaves the log. CS-05, TD-01.
func TestCS05AConversationFarLongerThanTheWindowIsAcceptedTurnForTurn(t *testing.T) {
	onWires(t, settings{window: 32_000}, func(t *testing.T, w *world) {
		const letters = 7_000
		turns := 300
		if strings.HasSuffix(t.Name(), "anthropic") { // the other wire is told the same, by a shorter conversation
			turns = 60
		}
		w.llm.SetDefault(speaker(letters))
		w.llm.Script(fakellm.Reply(fakellm.Text("Noted.")).On(fakellm.Match{LastUser: "The password is swordfish."}))
		var runs []session.Run
		for i := range turns {
			text := fmt.Sprintf("Question %d: what does the long report say about the matter, and why?", i)
			if i == 0 {
				text = "The password is swordfish."
			}
			run := w.ends(w.submit("ses", text))
			if run.Status != session.Completed {
				t.Fatalf("turn %d is %s: %+v", i, run.Status, run.Error)
			}
			runs = append(runs, run)
		}
		summaries, largest := 0, 0
		for _, r := range w.llm.Requests() {
			if r.Status != http.StatusOK || r.Rule != "" {
				t.Fatalf("request %d was answered %d: %s", r.Number, r.Status, r.Refusal)
			}
			// Text of words has no fewer than three and a half bytes a token.
			if size := len(r.Body) * 2 / 7; size > 32_000 {
				t.Errorf("request %d has %d bytes, some %d tokens", r.Number, len(r.Body), size)
			}
			largest = max(largest, len(r.Body))
			if asksForSummary(r) {
				summaries++
			} else if r.Number > turns && !strings.Contains(string(r.Body), "The password is swordfish.") {
				t.Fatalf("request %d does not know what was said at first", r.Number)
			}
		}
		if summaries == 0 || summaries > 60 {
			t.Errorf("there were %d summaries", summaries)
		}
		t.Logf("%d requests, %d summaries, the largest request had %d bytes", len(w.llm.Requests()), summaries, largest)

		// The log has every result, whole.
		results, bytes := 0, 0
		for _, e := range w.events("ses", "tool.completed") {
			d := e.Data.(session.ToolCompleted)
			var text string
			if err := json.Unmarshal(d.Result, &text); err != nil || d.Blob != nil || len(text) < letters {
				t.Fatalf("a result is kept as %.100s, %v", d.Result, err)
			}
			results, bytes = results+1, bytes+len(text)
		}
		if results != turns-1 || bytes < (turns-1)*letters || turns == 300 && bytes < 2_000_000 {
			t.Errorf("the log has %d results with %d bytes", results, bytes)
		}
		if created := w.events("ses", "message.created"); len(created) != 2*turns {
			t.Errorf("the log has %d messages", len(created))
		}

		// What the model saw at a step is told as it was sent.
		var seen holdfast.Context
		w.ask("GET", "/v1/runs/"+runs[turns-1].ID+"/steps/2/context", nil).into(t, &seen)
		if !seen.Exact || seen.Tokens > 32_000 || seen.Compaction == nil || seen.Messages[len(seen.Messages)-1].Role != "tool" {
			t.Errorf("it is told as exact %v (%s), %d tokens", seen.Exact, seen.Reason, seen.Tokens)
		}
		usage := session.Usage{}
		for _, e := range w.events("ses", "context.compacted") {
			usage = usage.Add(e.Data.(session.ContextCompacted).Usage)
		}
		if usage.OutputTokens == 0 {
			t.Error("no summary was counted")
		}
	})
}

// full fills a session until the next question needs a summary, which is held at the gate.
func (w *world) full(id, gate string) session.Run {
	w.t.Helper()
	w.llm.SetDefault(speaker(3_000))
	held := fakellm.Reply(fakellm.Text("The pass"), fakellm.OpenGate(gate), fakellm.WaitGate(gate+" on"), fakellm.Text("word is swordfish.")).On(summary)
	w.llm.Script(held)
	for i := range 50 {
		run := w.submit(id, fmt.Sprintf("The password is swordfish. Question %d?", i))
		for !w.run(run.ID).Status.Terminal() {
			if w.llm.Unplayed() == 0 {
				w.gate(gate)
				return run
			}
			if err := w.news(w.ctx, id); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	w.t.Fatal("fifty questions need no summary")
	return session.Run{}
}

// gate waits until the provider has opened a gate.
func (w *world) gate(name string) {
	w.t.Helper()
	res, err := http.Get(w.llm.URL() + "/_gates/" + strings.ReplaceAll(name, " ", "%20"))
	if err != nil {
		w.t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusNoContent {
		w.t.Fatalf("the gate %s: %d", name, res.StatusCode)
	}
}

func TestCS05AServerKilledInTheMiddleOfASummaryMakesItAgain(t *testing.T) {
	w := newWorld(t, settings{window: 6_000})
	run := w.full("ses", "begun")
	if n := len(w.events("ses", "context.compacted")); n != 0 {
		t.Errorf("%d compactions before the summary is there", n)
	}
	w.crash()
	if run = w.ends(run); run.Status != session.Completed {
		t.Fatalf("the run is %s: %+v", run.Status, run.Error)
	}
	done := w.events("ses", "context.compacted")
	if len(done) == 0 || done[0].Data.(session.ContextCompacted).Summary != "The password is swordfish. They went on talking." {
		t.Errorf("after the crash there are %+v", done)
	}
	for _, r := range w.llm.Requests() {
		if r.Rule != "" {
			t.Errorf("request %d was refused: %s", r.Number, r.Refusal)
		}
	}
}

func TestACancelInTheMiddleOfASummaryEndsTheRunInTime(t *testing.T) {
	w := newWorld(t, settings{window: 6_000})
	run := w.full("ses", "begun")
	asked := time.Now()
	w.cancel(run.ID)
	if run = w.ends(run); run.Status != session.Cancelled || time.Since(asked) > 5*time.Second {
		t.Errorf("after %s the run is %s", time.Since(asked), run.Status)
	}
	if done := w.events("ses", "context.compacted"); len(done) != 0 {
		t.Errorf("there are %+v", done)
	}
	// The next one asks again.
	if next := w.ends(w.submit("ses", "And now?")); next.Status != session.Completed || len(w.events("ses", "context.compacted")) == 0 {
		t.Errorf("the next run is %s", next.Status)
	}
}

func TestAContextThatTheProviderRefusesAsTooLongIsCompactedAndSentAgain(t *testing.T) {
	onWires(t, settings{}, func(t *testing.T, w *world) {
		w.llm.SetDefault(speaker(6_000))
		for i := range 6 {
			w.ends(w.submit("ses", fmt.Sprint("Question ", i)))
		}
		refusal := `{"type":"error","error":{"type":"invalid_request_error","code":"context_length_exceeded","message":"prompt is too long: 210000 tokens > 200000 maximum"}}`
		w.llm.Script(fakellm.Reply(fakellm.Status{Code: 400, Body: refusal}))
		run := w.ends(w.submit("ses", "One more."))
		if run.Status != session.Completed {
			t.Fatalf("the run is %s: %+v", run.Status, run.Error)
		}
		failed, done := w.events("ses", "attempt.failed"), w.events("ses", "context.compacted")
		if len(failed) != 1 || failed[0].Data.(session.AttemptFailed).Error.Code != "context_too_long" {
			t.Fatalf("the failed attempts are %+v", failed)
		}
		if len(done) != 1 {
			t.Fatalf("there are %d compactions", len(done))
		}
		if d := done[0].Data.(session.ContextCompacted); d.Because != "refused" || d.Window == 0 || d.After >= d.Before {
			t.Errorf("it is compacted as %+v", d)
		}
	})
}
