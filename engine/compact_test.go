package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/engine"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/model/modeltest"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/memory"
)

// long is a session whose next model call needs a summary, carried by hand.
type long struct {
	t       *testing.T
	store   *memory.Store
	script  *modeltest.Script
	carrier *engine.Carrier
	lease   store.Lease
}

func asksForSummary(r model.Request) bool {
	last := r.Messages[len(r.Messages)-1]
	return last.Role == model.User && strings.Contains(last.Parts[0].Text, "Write the summary")
}

// newLong makes one whose summary is answered so.
func newLong(t *testing.T, summary func(asked int) modeltest.Turn) *long {
	t.Helper()
	l := &long{t: t, store: memory.New(store.Options{}), script: modeltest.NewScript()}
	book, err := agent.NewBook(agent.Agent{Name: "a", Model: "script", Context: agent.Context{Window: 4_000}})
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	l.script.Otherwise(func(r model.Request) modeltest.Turn {
		if asksForSummary(r) {
			asked++
			return summary(asked)
		}
		return modeltest.Reply(modeltest.Text("Well. " + strings.Repeat("and so on ", 100)))
	})
	l.carrier = &engine.Carrier{
		Store: l.store, Agents: book, Log: slog.New(slog.DiscardHandler),
		Models: func(string) (model.Model, error) { return l.script, nil },
	}
	for i := range 8 {
		l.ask(i)
		if i < 7 {
			if err := l.carry(t.Context()); err != nil {
				t.Fatal(err)
			}
			if asked > 0 {
				t.Fatalf("a summary is asked for at question %d already", i)
			}
		}
	}
	return l
}

// ask submits question i, long enough in the end, and claims its run.
func (l *long) ask(i int) {
	l.t.Helper()
	text := fmt.Sprintf("Question %d? ", i)
	if i == 7 {
		text += strings.Repeat("it is about this ", 300)
	}
	submit := &session.Submit{
		ID: fmt.Sprint("m", i), Run: fmt.Sprint("r", i), Output: fmt.Sprint("o", i), Tenant: "t", Owner: "o", DefaultAgent: "a",
		Parts: []session.Part{{Type: session.PartText, Text: text}},
	}
	if _, err := l.store.Append(l.t.Context(), "s", submit.Decide); err != nil {
		l.t.Fatal(err)
	}
	l.claim()
}

func (l *long) claim() {
	l.t.Helper()
	leases, err := l.store.Claim(l.t.Context(), "w", time.Hour, 1)
	if err != nil || len(leases) != 1 {
		l.t.Fatalf("%v, %v", leases, err)
	}
	l.lease = leases[0]
}

func (l *long) carry(ctx context.Context) error {
	return l.carrier.Carry(ctx, l.lease, engine.Signals{})
}

func (l *long) run() session.Run {
	l.t.Helper()
	run, err := l.store.Run(l.t.Context(), l.lease.Run)
	if err != nil {
		l.t.Fatal(err)
	}
	return run
}

// compactions are the events that the log has.
func (l *long) compactions() (list []session.ContextCompacted) {
	l.t.Helper()
	frames, err := l.store.Read(l.t.Context(), "s", 0, 10_000)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, f := range frames {
		e, _, err := f.Event()
		if err != nil {
			l.t.Fatal(err)
		}
		if d, ok := e.Data.(session.ContextCompacted); ok {
			list = append(list, d)
		}
	}
	return list
}

func good(int) modeltest.Turn {
	return modeltest.Reply(modeltest.Text("They ", "talked."), modeltest.Finish(model.Stop, model.Usage{InputTokens: 500, OutputTokens: 5}))
}

func TestASummaryIsToldInThePlaceOfTheFirstTurnsAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLong(t, good)
		if err := l.carry(t.Context()); err != nil || l.run().Status != session.Completed {
			t.Fatalf("%v; the run is %+v", err, l.run())
		}
		done := l.compactions()
		if len(done) != 1 || done[0].Summary != "They talked." || done[0].Error != nil || done[0].After >= done[0].Before || done[0].Before > 4_000 {
			t.Fatalf("compacted %+v", done)
		}
		requests := l.script.Requests()
		last := requests[len(requests)-1].Messages
		if first := last[0]; first.Role != model.User || !strings.Contains(first.Parts[0].Text, "They talked.") {
			t.Errorf("the model is told first %+v", first)
		}
		if text := last[len(last)-1].Parts[0].Text; !strings.HasPrefix(text, "Question 7?") {
			t.Errorf("the model is told last %.50q", text)
		}
		if u := l.run().Usage; u.InputTokens < 500 || u.OutputTokens < 5 {
			t.Errorf("the run used %+v", u)
		}
		if c := l.run().Steps[0].Context; c == nil || c.Compaction == 0 || c.Tokens > 4_000 || c.Window != 4_000 || c.Agent == "" {
			t.Errorf("of the step is kept %+v", c)
		}
	})
}

func TestASummaryThatFailsCostsTheFirstTurnsAndNotTheRun(t *testing.T) {
	for name, c := range map[string]struct {
		summary func(int) modeltest.Turn
		code    string
		asked   int
	}{
		"refused": {func(int) modeltest.Turn {
			return modeltest.Reply(modeltest.Fail(&model.Error{Code: model.CodeInvalidRequest}))
		}, "invalid_request", 1},
		"overloaded for long": {func(int) modeltest.Turn {
			return modeltest.Reply(modeltest.Fail(&model.Error{Code: model.CodeOverloaded, Retryable: true}))
		}, "overloaded", 2},
		"told to wait for an hour": {func(int) modeltest.Turn {
			return modeltest.Reply(modeltest.Fail(&model.Error{Code: model.CodeRateLimited, Retryable: true, RetryAfter: time.Hour}))
		}, "rate_limited", 1},
		"empty": {func(int) modeltest.Turn { return modeltest.Reply(modeltest.Text(" ")) }, "summary_empty", 1},
		"cut": {func(int) modeltest.Turn {
			return modeltest.Reply(modeltest.Text("Th"), modeltest.Finish(model.Length, model.Usage{}))
		}, "summary_too_long", 1},
		"too long":  {func(int) modeltest.Turn { return modeltest.Reply(modeltest.Text(strings.Repeat("words ", 20_000))) }, "summary_too_long", 1},
		"withheld":  {func(int) modeltest.Turn { return modeltest.Reply(modeltest.Finish(model.ContentFilter, model.Usage{})) }, "summary_refused", 1},
		"a call":    {func(int) modeltest.Turn { return modeltest.Reply(modeltest.Call("c", "look", "{}")) }, "summary_called_tools", 1},
		"a panic":   {func(int) modeltest.Turn { return modeltest.Reply(modeltest.Do(func() { panic("broken") })) }, "panic", 2},
		"no finish": {func(int) modeltest.Turn { return modeltest.Reply(modeltest.Fail(errors.New("a connection was reset"))) }, "unavailable", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				l := newLong(t, func(n int) modeltest.Turn { asked = n; return c.summary(n) })
				if err := l.carry(t.Context()); err != nil || l.run().Status != session.Completed {
					t.Fatalf("%v; the run is %+v", err, l.run())
				}
				done := l.compactions()
				if len(done) != 1 || done[0].Error == nil || done[0].Error.Code != c.code || done[0].Summary != "" || !done[0].Lost() {
					t.Fatalf("compacted %+v", done)
				}
				if asked != c.asked {
					t.Errorf("it was asked for %d times", asked)
				}
				requests := l.script.Requests()
				if first := requests[len(requests)-1].Messages[0].Parts[0].Text; !strings.Contains(first, "not shown any more") {
					t.Errorf("the model is told first %.80q", first)
				}
			})
		})
	}
}

func TestASummaryThatFailsForAMomentIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLong(t, func(n int) modeltest.Turn {
			if n == 1 {
				return modeltest.Reply(modeltest.Text("They"), modeltest.Fail(&model.Error{Code: model.CodeOverloaded, Retryable: true}))
			}
			return good(n)
		})
		if err := l.carry(t.Context()); err != nil || l.run().Status != session.Completed {
			t.Fatalf("%v; the run is %+v", err, l.run())
		}
		if done := l.compactions(); len(done) != 1 || done[0].Summary != "They talked." {
			t.Fatalf("compacted %+v", done)
		}
	})
}

func TestAWorkerThatIsToldToStopInTheMiddleOfASummaryLeavesNoTrace(t *testing.T) {
	for name, cause := range map[string]error{"cancelled": engine.ErrCancelled, "draining": engine.ErrDraining, "lost": engine.ErrLeaseLost} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancelCause(t.Context())
				var l *long
				l = newLong(t, func(n int) modeltest.Turn {
					if n > 1 {
						return good(n)
					}
					return modeltest.Reply(modeltest.Text("They"), modeltest.Do(func() {
						if errors.Is(cause, engine.ErrCancelled) {
							cancel := session.Cancel{Run: "r7", By: "p", At: time.Now(), Grace: time.Minute}
							if _, err := l.store.Append(t.Context(), "s", cancel.Decide); err != nil {
								t.Error(err)
							}
						}
						stop(cause)
					}), modeltest.Stall())
				})
				err := l.carry(ctx)
				if done := l.compactions(); len(done) != 0 {
					t.Fatalf("compacted %+v", done)
				}
				switch name {
				case "cancelled":
					if err != nil || l.run().Status != session.Cancelled {
						t.Fatalf("%v; the run is %s", err, l.run().Status)
					}
					return
				case "draining":
					if err != nil || l.run().Status != session.Waiting {
						t.Fatalf("%v; the run is %s", err, l.run().Status)
					}
				case "lost":
					if err == nil || l.run().Status != session.Running {
						t.Fatalf("%v; the run is %s", err, l.run().Status)
					}
					lost := session.Reconcile{Run: "r7", Fence: l.lease.Fence, Cause: session.CauseLeaseExpired, At: time.Now()}
					if _, err := l.store.Append(t.Context(), "s", lost.Decide); err != nil {
						t.Fatal(err)
					}
				}
				l.claim()
				if err := l.carry(t.Context()); err != nil || l.run().Status != session.Completed {
					t.Fatalf("%v; the run is %+v", err, l.run())
				}
				if done := l.compactions(); len(done) != 1 || done[0].Summary != "They talked." {
					t.Errorf("compacted %+v", done)
				}
			})
		})
	}
}

func TestAContextThatIsRefusedShrinksUntilItIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLong(t, good)
		l.carrier.Agents, _ = agent.NewBook(agent.Agent{Name: "a", Model: "script", Context: agent.Context{Window: 100_000}})
		refusals := 0
		l.script.Otherwise(func(r model.Request) modeltest.Turn {
			size := 0
			for _, m := range r.Messages {
				size += len(m.Parts[0].Text)
			}
			switch {
			case size > 7_000 && !asksForSummary(r):
				refusals++
				return modeltest.Reply(modeltest.Fail(&model.Error{Code: model.CodeContextTooLong, Message: "too long"}))
			case asksForSummary(r):
				return good(1)
			}
			return modeltest.Reply(modeltest.Text("Well."))
		})
		if err := l.carry(t.Context()); err != nil || l.run().Status != session.Completed {
			t.Fatalf("%v; the run is %+v", err, l.run())
		}
		done := l.compactions()
		if refusals == 0 || len(done) != refusals || done[0].Because != "refused" || done[0].Window == 0 {
			t.Fatalf("%d refusals, compacted %+v", refusals, done)
		}
		// What was learned holds for what follows.
		l.ask(8)
		if err := l.carry(t.Context()); err != nil || l.run().Status != session.Completed || len(l.run().Steps) != 1 {
			t.Fatalf("%v; the next run is %+v", err, l.run())
		}
		if c := l.run().Steps[0].Context; c.Window != done[len(done)-1].Window {
			t.Errorf("the next step believes in a window of %d", c.Window)
		}
	})
}

func TestAContextThatIsAlwaysRefusedFailsTheRunInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLong(t, good)
		l.script.Otherwise(func(model.Request) modeltest.Turn {
			return modeltest.Reply(modeltest.Fail(&model.Error{Code: model.CodeContextTooLong, Message: "too long"}))
		})
		if err := l.carry(t.Context()); err != nil {
			t.Fatal(err)
		}
		if run := l.run(); run.Status != session.Failed || run.Error.Code != "context_too_long" || len(run.Steps) != 5 {
			t.Errorf("the run is %s after %d attempts: %+v", run.Status, len(run.Steps), run.Error)
		}
	})
}
