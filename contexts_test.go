package holdfast_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/engine"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/model/modeltest"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/memory"
	"github.com/holdfast-run/holdfast/tool"
)

func isSummary(r model.Request) bool {
	last := r.Messages[len(r.Messages)-1]
	return last.Role == model.User && strings.Contains(last.Parts[0].Text, "Write the summary")
}

// asSeen is a request in the shape of what [holdfast.Context] tells.
func asSeen(r model.Request) string {
	var b strings.Builder
	for _, m := range r.Messages {
		fmt.Fprintf(&b, "%s:", m.Role)
		for _, p := range m.Parts {
			fmt.Fprintf(&b, " %s %q", p.Kind, p.Text+string(p.Arguments))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func seenOf(c holdfast.Context) string {
	var b strings.Builder
	for _, m := range c.Messages {
		fmt.Fprintf(&b, "%s:", m.Role)
		for _, p := range m.Parts {
			fmt.Fprintf(&b, " %s %q", p.Kind, p.Text)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestWhatTheModelSawIsToldAgainFromTheLogForEveryStep(t *testing.T) {
	set, err := tool.NewSet(tool.New("look", "Looks.", func(context.Context, struct{}, tool.Call) (string, error) {
		return strings.Repeat("one more line of what was found\n", 120), nil
	}, tool.WithEffects(session.ReadOnly)))
	if err != nil {
		t.Fatal(err)
	}
	script := modeltest.NewScript()
	calls := 0
	script.Otherwise(func(r model.Request) modeltest.Turn {
		last := r.Messages[len(r.Messages)-1]
		switch {
		case isSummary(r):
			return modeltest.Reply(modeltest.Text("They looked."))
		case last.Role == model.User && calls%7 == 3:
			calls++
			return modeltest.Reply(modeltest.Text("Half of"), modeltest.Fail(&model.Error{Code: model.CodeOverloaded, Retryable: true}))
		case last.Role == model.User:
			calls++
			return modeltest.Reply(modeltest.Text("I look."), modeltest.Call(fmt.Sprint("c", calls), "look", `{}`))
		}
		return modeltest.Reply(modeltest.Text("It is there."))
	})
	var hand byHand
	options := holdfast.Options{
		Engine: func(c *engine.Carrier) engine.Engine {
			c.Backoff = engine.Backoff{First: time.Millisecond, Max: time.Millisecond}
			hand = byHand{c}
			return hand
		},
		Agents: []agent.Agent{{Name: "a", Model: "script", Tools: set, Instructions: "Be exact.", Context: agent.Context{Window: 6_000}}},
		Models: func(string) (model.Model, error) { return script, nil },
		Log:    slog.New(slog.DiscardHandler),
	}
	kept := memory.New(store.Options{})
	options.Store = func(context.Context, store.Options) (store.Store, error) { return kept, nil }
	rt, err := holdfast.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close() })
	var runs []string
	for i := range 12 {
		done, err := rt.Submit(t.Context(), holdfast.Local, "ses_1", holdfast.Submission{
			ID: fmt.Sprint("msg_", i), Parts: []session.Part{{Type: session.PartText, Text: fmt.Sprintf("Question %d?", i)}},
		})
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, done.Run.ID)
		leases, err := hand.Store.Claim(t.Context(), "w", time.Minute, 1)
		if err != nil || len(leases) != 1 {
			t.Fatal(leases, err)
		}
		if err := hand.Carry(t.Context(), leases[0], engine.Signals{}); err != nil {
			t.Fatal(err)
		}
	}
	var asked []model.Request
	for _, r := range script.Requests() {
		if !isSummary(r) {
			asked = append(asked, r)
		}
	}
	k := 0
	for _, id := range runs {
		run, err := rt.FindRun(t.Context(), holdfast.Local, id)
		if err != nil || run.Status != session.Completed {
			t.Fatalf("%s, %v", run.Status, err)
		}
		for _, s := range run.Steps {
			seen, err := rt.Context(t.Context(), holdfast.Local, id, s.Step, s.Attempt)
			if err != nil {
				t.Fatal(err)
			}
			if !seen.Exact || seen.Reason != "" || seen.System != "Be exact." || len(seen.Tools) != 1 || seen.Window != 6_000 || seen.Tokens != s.Context.Tokens || seen.Tokens > 6_000 {
				t.Fatalf("step %d of run %s is told as %+v", s.Step, id, seen)
			}
			if got, want := seenOf(seen), asSeen(asked[k]); got != want {
				t.Fatalf("attempt %d of step %d of %s saw\n%s\nand is told to have seen\n%s", s.Attempt, s.Step, id, want, got)
			}
			sum := seen.Fixed
			for _, m := range seen.Messages {
				sum += m.Tokens
			}
			if diff := sum - seen.Tokens; diff < -len(seen.Messages) || diff > len(seen.Messages) {
				t.Errorf("the pieces of step %d of %s make %d tokens, the whole %d", s.Step, id, sum, seen.Tokens)
			}
			k++
		}
	}
	if k != len(asked) {
		t.Errorf("%d attempts and %d requests", k, len(asked))
	}
	last, err := rt.Context(t.Context(), holdfast.Local, runs[11], 2, 0)
	if err != nil || last.Compaction == nil || last.Compaction.Run == "" || last.Messages[0].Message != "" || !strings.Contains(last.Messages[0].Parts[0].Text, "They looked.") {
		t.Fatalf("%+v, %v", last, err)
	}
	list, err := rt.Compactions(t.Context(), holdfast.Local, "ses_1")
	if err != nil || len(list) < 2 || list[0].Seq <= list[1].Seq || list[0].Summary != "They looked." || list[0].Usage == (session.Usage{}) && list[0].Error != nil {
		t.Fatalf("%+v, %v", list, err)
	}
	raw, err := json.Marshal(list[0])
	if err != nil || !strings.Contains(string(raw), `"upTo":{"message":`) {
		t.Errorf("%s, %v", raw, err)
	}

	// The branch with another first question never was compacted.
	if _, err := rt.Submit(t.Context(), holdfast.Local, "ses_1", holdfast.Submission{
		ID: "msg_other", Parent: new(string), Parts: []session.Part{{Type: session.PartText, Text: "Something else?"}},
	}); err != nil {
		t.Fatal(err)
	}
	if list, err := rt.Compactions(t.Context(), holdfast.Local, "ses_1"); err != nil || len(list) != 0 {
		t.Errorf("the other branch has %+v, %v", list, err)
	}

	for name, ask := range map[string]func() error{
		"another's": func() error {
			_, err := rt.Context(t.Context(), holdfast.Principal{Tenant: "local", Owner: "other"}, runs[0], 1, 0)
			return err
		},
		"no step":    func() error { _, err := rt.Context(t.Context(), holdfast.Local, runs[0], 9, 0); return err },
		"no attempt": func() error { _, err := rt.Context(t.Context(), holdfast.Local, runs[0], 1, 9); return err },
	} {
		if err := ask(); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}

	// The same log under an agent with other instructions.
	options.Agents[0].Instructions = "Be kind."
	changed, err := holdfast.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { changed.Close() })
	seen, err := changed.Context(t.Context(), holdfast.Local, runs[3], 1, 0)
	if err != nil || seen.Exact || !strings.Contains(seen.Reason, "changed") {
		t.Errorf("under another agent: %+v, %v", seen, err)
	}
}
