package faults

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/session"
)

// wires are the provider wires that the binary speaks.
var wires = []string{"openai-compatible", "anthropic"}

// onWires runs a test on each wire.
func onWires(t *testing.T, s settings, test func(t *testing.T, w *world)) {
	for _, wire := range wires {
		t.Run(wire, func(t *testing.T) {
			s.wire = wire
			test(t, newWorld(t, s))
		})
	}
}

func TestPS01AStreamWithoutAnEndIsNoAnswer(t *testing.T) {
	onWires(t, settings{}, func(t *testing.T, w *world) {
		for name, steps := range map[string][]fakellm.Step{
			"after text":        {fakellm.Text("The total is 12"), fakellm.CleanEOF()},
			"nothing at all":    {fakellm.Headers(), fakellm.CleanEOF()},
			"inside a frame":    {fakellm.Text("The total"), fakellm.EOFInsideFrame()},
			"after a tool name": {fakellm.Fragments(fakellm.Fragment{ID: "c", Name: "charge"}), fakellm.CleanEOF()},
			"half a call":       {fakellm.Fragments(fakellm.Fragment{ID: "c", Name: "charge", Args: `{"note":"x`}), fakellm.CleanEOF()},
		} {
			id := "ses_" + strings.ReplaceAll(name, " ", "_")
			w.llm.Script(fakellm.Reply(steps...).On(fakellm.Match{LastUser: name}), fakellm.Reply(fakellm.Text("The total is 120.")).On(fakellm.Match{LastUser: name}))
			run := w.ends(w.submit(id, name))
			if run.Status != session.Completed || w.text(id) != "The total is 120." {
				t.Errorf("%s: the run is %s with %q", name, run.Status, w.text(id))
			}
			failed := w.events(id, "attempt.failed")
			if len(failed) != 1 || failed[0].Data.(session.AttemptFailed).Error.Code != "incomplete" {
				t.Errorf("%s: the failed attempts are %+v", name, failed)
			}
		}
		if n := len(w.ledger()); n != 0 {
			t.Errorf("a half call acted %d times", n)
		}
	})
}

func TestPS03ASilentStreamIsGivenUpAndASlowOneIsNot(t *testing.T) {
	onWires(t, settings{idle: 1500 * time.Millisecond, attempts: 1}, func(t *testing.T, w *world) {
		for name, steps := range map[string][]fakellm.Step{
			"headers then silence": {fakellm.Headers(), fakellm.Stall()},
			"text then silence":    {fakellm.Text("a", "b"), fakellm.Stall()},
			"comments only":        {fakellm.Text("a"), fakellm.PingEvery(300 * time.Millisecond), fakellm.Stall()},
			"a black hole":         {fakellm.BlackHole()},
		} {
			id := "ses_" + strings.ReplaceAll(name, " ", "_")
			w.llm.Script(fakellm.Reply(steps...).On(fakellm.Match{LastUser: name}))
			begun := time.Now()
			run := w.ends(w.submit(id, name))
			if run.Status != session.Failed || run.Error.Code != "stalled" {
				t.Errorf("%s: the run is %s: %+v", name, run.Status, run.Error)
			}
			if took := time.Since(begun); took < 1400*time.Millisecond || took > 10*time.Second {
				t.Errorf("%s: it took %s", name, took)
			}
		}
		w.llm.Script(fakellm.Reply(fakellm.Paced(time.Second, "slow ", "but ", "steady")).On(fakellm.Match{LastUser: "steady"}))
		if run := w.ends(w.submit("ses_steady", "steady")); run.Status != session.Completed || w.text("ses_steady") != "slow but steady" {
			t.Errorf("a slow stream is %s with %q", run.Status, w.text("ses_steady"))
		}
		// Cancel works during each.
		w.llm.Script(fakellm.Reply(fakellm.BlackHole()).On(fakellm.Match{LastUser: "cancel me"}))
		n := len(w.llm.Requests())
		run := w.submit("ses_cancel", "cancel me")
		w.arrives(n + 1)
		w.cancel(run.ID)
		w.closes(n+1, time.Second)
		if got := w.ends(run); got.Status != session.Cancelled {
			t.Errorf("the cancelled run is %s", got.Status)
		}
	})
}

func TestPS04AnOverloadInsideAStreamIsRetriedByItsKind(t *testing.T) {
	onWires(t, settings{attempts: 4}, func(t *testing.T, w *world) {
		ok := fakellm.Reply(fakellm.Text("Hello there."))
		cases := []struct {
			name     string
			fail     fakellm.Turn
			attempts int
			ends     session.Status
			least    time.Duration
		}{
			{"529 then fine", fakellm.Reply(fakellm.Status{Code: 529}), 2, session.Completed, 0},
			{"429 with a wait", fakellm.Reply(fakellm.Status{Code: 429, RetryAfter: "2"}), 2, session.Completed, 2 * time.Second},
			{"said before any text", fakellm.Reply(fakellm.InBandError("overloaded_error", "busy")), 2, session.Completed, 0},
			{"said after some text", fakellm.Reply(fakellm.Text("Hel"), fakellm.InBandError("overloaded_error", "busy")), 2, session.Completed, 0},
			{"a fault of ours", fakellm.Reply(fakellm.Text("Hel"), fakellm.InBandError("invalid_request_error", "no such thing")), 1, session.Failed, 0},
			{"overloaded for ever", fakellm.Reply(fakellm.Status{Code: 529}).Times(10), 4, session.Failed, 0},
		}
		for i, c := range cases {
			id := fmt.Sprintf("ses_%d", i)
			w.llm.DropScript()
			w.llm.Script(c.fail, ok)
			begun := time.Now()
			run := w.ends(w.submit(id, c.name))
			if run.Status != c.ends {
				t.Errorf("%s: the run is %s: %+v", c.name, run.Status, run.Error)
			}
			if c.ends == session.Completed && w.text(id) != "Hello there." {
				t.Errorf("%s: the answer is %q", c.name, w.text(id))
			}
			if n := len(w.events(id, "step.started")); n != c.attempts {
				t.Errorf("%s: there were %d attempts, not %d", c.name, n, c.attempts)
			}
			if took := time.Since(begun); took < c.least {
				t.Errorf("%s: it was tried again after %s", c.name, took)
			}
			for _, m := range w.snapshot(id).Messages {
				if strings.Contains(m.Text(), "busy") || strings.Contains(m.Text(), "no such thing") {
					t.Errorf("%s: the error is told as text: %q", c.name, m.Text())
				}
			}
		}
		w.llm.DropScript()
	})
}

func TestPS05FragmentsOfParallelCallsAreNeverMixed(t *testing.T) {
	const zero, one, none = 0, 1, -1
	whole := func(id, name, args string, index int) fakellm.Fragment {
		return fakellm.Fragment{Index: max(index, 0), NoIndex: index == none, ID: id, Name: name, Args: args}
	}
	var bytes []fakellm.Fragment
	bytes = append(bytes, whole("A", "look", "", zero), whole("B", "put", "", one))
	a, b := `{"note":"A"}`, `{"note":"B"}`
	for i := range len(a) {
		bytes = append(bytes, whole("", "", a[i:i+1], zero), whole("", "", b[i:i+1], one))
	}
	cases := map[string][]fakellm.Fragment{
		"by index":     {whole("A", "look", "", zero), whole("B", "put", "", one), whole("", "", a, zero), whole("", "", b, one)},
		"all index 0":  {whole("A", "look", a, zero), whole("B", "put", b, zero)},
		"no index":     {whole("A", "look", a, none), whole("B", "put", b, none)},
		"byte by byte": bytes,
	}
	w := newWorld(t, settings{})
	for name, fragments := range cases {
		id := "ses_" + strings.ReplaceAll(name, " ", "_")
		w.llm.Script(fakellm.Reply(fakellm.Fragments(fragments...)).On(fakellm.Match{LastUser: name}), fakellm.Reply(fakellm.Text("done")).On(fakellm.Match{LastUser: name}))
		before := len(w.ledger())
		run := w.ends(w.submit(id, name))
		if run.Status != session.Completed {
			t.Errorf("%s: the run is %s: %+v", name, run.Status, run.Error)
		}
		got := map[string]string{}
		for _, line := range w.ledger()[before:] {
			f := strings.Fields(line)
			got[f[0]] += f[len(f)-1]
		}
		if got["look"] != "A" || got["put"] != "B" {
			t.Errorf("%s: the tools got %v", name, got)
		}
	}
}

func TestPS07CutOffArgumentsAreNotExecuted(t *testing.T) {
	w := newWorld(t, settings{})
	cases := map[string]struct {
		args   string
		reason string
	}{
		"cut by length": {`{"note":"127.0.0.1 loc`, "length"},
		"a brace":       {`{`, "tool_calls"},
		"null":          {`null`, "tool_calls"},
		"an array":      {`[]`, "tool_calls"},
		"one too many":  {`{}}`, "tool_calls"},
		"a string":      {`"str"`, "tool_calls"},
		"model tokens":  {`{"note":"x"}<|call|>`, "tool_calls"},
	}
	for name, c := range cases {
		id := "ses_" + strings.ReplaceAll(name, " ", "_")
		w.llm.Script(
			fakellm.Reply(fakellm.Fragments(fakellm.Fragment{ID: "c", Name: "charge", Args: c.args}), fakellm.Finish{Reason: c.reason}).On(fakellm.Match{LastUser: name}),
			fakellm.Reply(fakellm.Text("sorry")).On(fakellm.Match{LastUser: name}))
		run := w.ends(w.submit(id, name))
		if run.Status != session.Completed {
			t.Errorf("%s: the run is %s: %+v", name, run.Status, run.Error)
		}
		called, failed := w.events(id, "tool.called"), w.events(id, "tool.failed")
		if len(called) != 1 || called[0].Data.(session.ToolCalled).RawArguments != c.args {
			t.Errorf("%s: the log keeps %+v", name, called)
		}
		if len(failed) != 1 || failed[0].Data.(session.ToolFailed).Error.Code != "invalid_arguments" {
			t.Errorf("%s: the call ended with %+v", name, failed)
		}
	}
	if n := len(w.ledger()); n != 0 {
		t.Errorf("the tool acted %d times", n)
	}
	// Nothing at all stands for {} where nothing is required.
	w.llm.Script(fakellm.Reply(fakellm.Fragments(fakellm.Fragment{ID: "c", Name: "look"})), fakellm.Reply(fakellm.Text("fine")))
	w.ends(w.submit("ses_empty", "empty"))
	if n := len(w.ledger()); n != 1 {
		t.Errorf("a call without arguments acted %d times", n)
	}
}

func TestPS08LongLinesAreReadWhole(t *testing.T) {
	w := newWorld(t, settings{attempts: 1})
	for _, n := range []int{65_535, 65_537, 1_048_577, 5_000_000} {
		id := fmt.Sprintf("ses_%d", n)
		w.llm.Script(fakellm.Reply(fakellm.Text(fakellm.Filler(n))).On(fakellm.Match{LastUser: id}))
		run := w.ends(w.submit(id, id))
		if run.Status != session.Completed {
			t.Fatalf("%d: the run is %s: %+v", n, run.Status, run.Error)
		}
		if got := len(w.wholeText(id)); got != n {
			t.Errorf("of %d bytes %d are kept", n, got)
		}
	}
	for _, n := range []int{70_000, 5_000_000} {
		id := fmt.Sprintf("ses_args_%d", n)
		w.llm.Script(
			fakellm.Reply(fakellm.Call{ID: "c", Name: "echo", Args: `{"x":"` + fakellm.Filler(n) + `"}`}).On(fakellm.Match{LastUser: id}),
			fakellm.Reply(fakellm.Text("read")).On(fakellm.Match{LastUser: id}))
		run := w.ends(w.submit(id, id))
		if run.Status != session.Completed {
			t.Fatalf("%d: the run is %s: %+v", n, run.Status, run.Error)
		}
		done := w.events(id, "tool.completed")
		if len(done) != 1 || done[0].Data.(session.ToolCompleted).Blob == nil || done[0].Data.(session.ToolCompleted).Blob.Size != int64(n+8) {
			t.Errorf("arguments of %d bytes came back as %+v", n, done)
		}
	}
	before := w.memory()
	w.llm.Script(fakellm.Reply(fakellm.Text(fakellm.Filler(300_000_000))).On(fakellm.Match{LastUser: "giant"}))
	run := w.ends(w.submit("ses_giant", "giant"))
	if run.Status != session.Failed || run.Error.Code != "too_large" {
		t.Errorf("a line of 300 MB: the run is %s: %+v", run.Status, run.Error)
	}
	if grown := w.memory() - before; grown > 300<<20 {
		t.Errorf("it took %d MB", grown>>20)
	}
}

// memory is the resident set of the server, in bytes.
func (w *world) memory() int64 {
	w.t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", w.srv.cmd.Process.Pid))
	if err != nil {
		w.t.Fatal(err)
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(raw), &size, &resident); err != nil {
		w.t.Fatal(err)
	}
	return resident * int64(os.Getpagesize())
}

// wholeText is the last answer's text, previews replaced by their blobs.
func (w *world) wholeText(sessionID string) string {
	w.t.Helper()
	s := w.snapshot(sessionID)
	var b strings.Builder
	for _, p := range s.Messages[len(s.Messages)-1].Parts {
		switch {
		case p.Type == session.PartText && p.Blob != nil:
			b.Write(w.ask("GET", "/v1/sessions/"+sessionID+"/blobs/"+p.Blob.Hash, nil).raw)
		case p.Type == session.PartText:
			b.WriteString(p.Text)
		}
	}
	return b.String()
}
