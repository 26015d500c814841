package holdfast_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/engine"
	"github.com/holdfast-run/holdfast/engine/local"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/model/modeltest"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/memory"
)

// carried makes a runtime that carries its runs until the test ends.
func carried(t *testing.T, script *modeltest.Script) *holdfast.Runtime {
	t.Helper()
	rt, err := holdfast.Open(t.Context(), holdfast.Options{
		Store:  func(_ context.Context, o store.Options) (store.Store, error) { return memory.New(o), nil },
		Engine: local.New(local.Options{WorkerOptions: engine.WorkerOptions{Drain: 10 * time.Millisecond}}),
		Agents: []agent.Agent{{Name: "a", Model: "script"}},
		Models: func(string) (model.Model, error) { return script, nil },
		Log:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	stopped := make(chan error, 1)
	go func() { stopped <- rt.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-stopped, rt.Close()); err != nil {
			t.Error(err)
		}
	})
	return rt
}

func says(id, text string) holdfast.Submission {
	return holdfast.Submission{ID: id, Parts: []session.Part{{Type: session.PartText, Text: text}}}
}

func TestDoGivesTheAnswerAndShowsItComing(t *testing.T) {
	rt := carried(t, modeltest.NewScript(modeltest.Reply(modeltest.Text("for", "ty-two"))))
	var streamed strings.Builder
	answer, err := rt.Do(t.Context(), holdfast.Local, "ses_1", says("msg_1", "six times seven?"), func(e session.Event) {
		if d, ok := e.Data.(session.TextDelta); ok {
			streamed.WriteString(d.Text)
		}
	})
	if err != nil || answer.Text() != "forty-two" || answer.Status != session.MessageWhole || streamed.String() != "forty-two" {
		t.Errorf("got %+v, %v, streamed %q", answer, err, streamed.String())
	}
	// The same message again is the same run: nobody is asked anew.
	again, err := rt.Do(t.Context(), holdfast.Local, "ses_1", says("msg_1", "six times seven?"), nil)
	if err != nil || again.ID != answer.ID {
		t.Errorf("again: %+v, %v", again, err)
	}
}

func TestDoSaysHowARunFailedOrWasCancelled(t *testing.T) {
	saying := make(chan struct{})
	rt := carried(t, modeltest.NewScript(
		modeltest.Reply(modeltest.Fail(&model.Error{Code: model.CodeInvalidRequest, Message: "no such thing"})),
		modeltest.Reply(modeltest.Text("I was about "), modeltest.Do(func() { close(saying) }), modeltest.Stall()),
	))
	_, err := rt.Do(t.Context(), holdfast.Local, "ses_1", says("msg_1", "fail"), nil)
	var ended *holdfast.RunError
	if !errors.As(err, &ended) || ended.Run.Status != session.Failed || !strings.Contains(err.Error(), "failed: no such thing (invalid_request)") {
		t.Errorf("got %v", err)
	}

	cancelling := make(chan struct{})
	go func() {
		defer close(cancelling)
		<-saying
		runs, err := rt.Runs(t.Context(), holdfast.Local, store.RunQuery{Status: []session.Status{session.Running}})
		if err == nil && len(runs.Items) == 1 {
			_, err = rt.Cancel(t.Context(), holdfast.Local, runs.Items[0].ID, "")
		}
		if err != nil || len(runs.Items) != 1 {
			t.Errorf("cancel: %d runs, %v", len(runs.Items), err)
		}
	}()
	answer, err := rt.Do(t.Context(), holdfast.Local, "ses_1", says("msg_2", "begin"), nil)
	<-cancelling
	if !errors.As(err, &ended) || ended.Run.Status != session.Cancelled || answer.Text() != "I was about " {
		t.Errorf("got %q, %v", answer.Text(), err)
	}
}

func TestDoLeavesTheRunWhenItsContextEnds(t *testing.T) {
	goOn := make(chan struct{})
	rt := carried(t, modeltest.NewScript(modeltest.Reply(modeltest.Text("slow"), modeltest.Wait(goOn), modeltest.Text("ly"))))
	ctx, leave := context.WithCancel(t.Context())
	_, err := rt.Do(ctx, holdfast.Local, "ses_1", says("msg_1", "slowly"), func(e session.Event) {
		if _, ok := e.Data.(session.TextDelta); ok {
			leave()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("left with %v", err)
	}
	close(goOn)
	answer, err := rt.Do(t.Context(), holdfast.Local, "ses_1", says("msg_1", "slowly"), nil)
	if err != nil || answer.Text() != "slowly" {
		t.Errorf("back: %q, %v", answer.Text(), err)
	}
}

// A steer that comes too late is a message of its own, with an answer of its own.
func TestDoWaitsForTheRunThatReallyAnswersASteer(t *testing.T) {
	asked, goOn := make(chan struct{}), make(chan struct{})
	rt := carried(t, modeltest.NewScript(
		modeltest.Reply(modeltest.Do(func() { close(asked) }), modeltest.Wait(goOn), modeltest.Text("first")),
		modeltest.Reply(modeltest.Text("second")),
	))
	first := make(chan error, 1)
	go func() {
		answer, err := rt.Do(t.Context(), holdfast.Local, "ses_1", says("msg_1", "one"), nil)
		if err == nil && answer.Text() != "first" {
			err = errors.New("the first answer is " + answer.Text())
		}
		first <- err
	}()
	<-asked
	steer := says("msg_2", "two")
	steer.OnBusy = session.Steer
	// Accepted while the first run speaks, which then ends without looking again.
	if _, err := rt.Submit(t.Context(), holdfast.Local, "ses_1", steer); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	answer, err := rt.Do(t.Context(), holdfast.Local, "ses_1", steer, nil)
	if err != nil || answer.Text() != "second" {
		t.Errorf("got %q, %v", answer.Text(), err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
}

func TestDoWithAMessageThatWasTakenBackDoesNotWait(t *testing.T) {
	asked := make(chan struct{})
	rt := carried(t, modeltest.NewScript(modeltest.Reply(modeltest.Do(func() { close(asked) }), modeltest.Stall())))
	if _, err := rt.Submit(t.Context(), holdfast.Local, "ses_1", says("msg_1", "one")); err != nil {
		t.Fatal(err)
	}
	<-asked
	if _, err := rt.Submit(t.Context(), holdfast.Local, "ses_1", says("msg_2", "two")); err != nil {
		t.Fatal(err)
	}
	if err := rt.RemoveInbox(t.Context(), holdfast.Local, "ses_1", "msg_2"); err != nil {
		t.Fatal(err)
	}
	var ended *holdfast.RunError
	if _, err := rt.Do(t.Context(), holdfast.Local, "ses_1", says("msg_2", "two"), nil); !errors.As(err, &ended) || ended.Run.Status != session.Cancelled {
		t.Errorf("got %v", err)
	}
}
