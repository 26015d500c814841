package model_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/model/modeltest"
)

const idle = time.Minute

func watched(t *testing.T, steps ...modeltest.Step) (modeltest.Answer, time.Duration) {
	t.Helper()
	began := time.Now()
	m := model.Watch(modeltest.NewScript(modeltest.Reply(steps...)), idle)
	return modeltest.Collect(t, m.Stream(t.Context(), model.Request{})), time.Since(began)
}

func TestSilenceForTheIdleLimitStallsACall(t *testing.T) {
	for name, c := range map[string]struct {
		steps []modeltest.Step
		after time.Duration
	}{
		"from the beginning": {[]modeltest.Step{modeltest.Stall()}, idle},
		"after some text":    {[]modeltest.Step{modeltest.Pause(idle / 2), modeltest.Text("one"), modeltest.Stall()}, idle * 3 / 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, took := watched(t, c.steps...)
				var e *model.Error
				if !errors.As(a.Err, &e) || e.Code != model.CodeStalled || !e.Retryable {
					t.Errorf("got %v", a.Err)
				}
				if took != c.after {
					t.Errorf("stalled after %s, want %s", took, c.after)
				}
			})
		})
	}
}

func TestASlowButSteadyAnswerIsWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var steps []modeltest.Step
		for range 1000 {
			steps = append(steps, modeltest.Pause(idle-time.Nanosecond), modeltest.Text("x"))
		}
		a, took := watched(t, steps...)
		if a.Err != nil || len(a.Text) != 1000 || took < 999*idle {
			t.Errorf("%d bytes in %s, %v", len(a.Text), took, a.Err)
		}
	})
}

func TestTheIdleClockRestsWhileTheReaderIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := model.Watch(modeltest.NewScript(modeltest.Reply(modeltest.Text("one", "two"))), idle)
		text := ""
		for c, err := range m.Stream(t.Context(), model.Request{}) {
			if err != nil {
				t.Fatal(err)
			}
			text += c.Text
			time.Sleep(10 * idle)
		}
		if text != "onetwo" {
			t.Errorf("got %q", text)
		}
	})
}

func TestWatchKeepsTheCallersReasonAndTheProvidersError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("someone pressed stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		m := model.Watch(modeltest.NewScript(
			modeltest.Reply(modeltest.Text("one"), modeltest.Do(func() { cancel(why) }), modeltest.Stall()),
			modeltest.Reply(modeltest.Fail(why)),
		), idle)
		if a := modeltest.Collect(t, m.Stream(ctx, model.Request{})); !errors.Is(a.Err, why) {
			t.Errorf("cancelled: got %v", a.Err)
		}
		if a := modeltest.Collect(t, m.Stream(t.Context(), model.Request{})); a.Err != why {
			t.Errorf("failed: got %v", a.Err)
		}
	})
}

func TestLeavingAWatchedStreamEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := modeltest.NewScript(modeltest.Reply(modeltest.Text("one", "two"), modeltest.Stall()))
		for range model.Watch(script, idle).Stream(t.Context(), model.Request{}) {
			break
		}
		if err := script.WaitIdle(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAnIdleOfZeroIsNoLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := model.Watch(modeltest.NewScript(modeltest.Reply(modeltest.Pause(1000*time.Hour), modeltest.Text("at last"))), 0)
		if a := modeltest.Collect(t, m.Stream(t.Context(), model.Request{})); a.Text != "at last" {
			t.Errorf("got %v", a)
		}
	})
}
