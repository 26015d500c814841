package modeltest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/model"
)

func TestAScriptPlaysItsTurnsInOrderAndKeepsTheRequests(t *testing.T) {
	failure := &model.Error{Code: model.CodeOverloaded, Retryable: true}
	s := NewScript(
		Reply(Reasoning("hm"), Text("a", "b"), Call("c1", "look", `{"x"`, `:1}`), Text("c")),
		Reply(Text("half"), Fail(failure)),
		Reply(),
		Reply(Finish(model.Length, model.Usage{InputTokens: 7})),
	)
	messages := []model.Message{user("one")}
	first := Collect(t, s.Stream(t.Context(), model.Request{Messages: messages}))
	messages[0].Parts[0].Text = "changed later"
	if first.Reasoning != "hm" || first.Text != "abc" || !equal(first.Calls, []Called{{"c1", "look", `{"x":1}`}}) || first.Finish.Reason != model.ToolCalls {
		t.Errorf("first: %v", first)
	}
	if got := len(first.Message().Parts); got != 4 {
		t.Errorf("first: %d blocks, want 4", got)
	}
	if a := Collect(t, s.Stream(t.Context(), model.Request{})); a.Text != "half" || a.Err != failure {
		t.Errorf("second: %v", a)
	}
	if a := Collect(t, s.Stream(t.Context(), model.Request{})); a.Err != nil || a.Finish.Reason != model.Stop {
		t.Errorf("third: %v", a)
	}
	if a := Collect(t, s.Stream(t.Context(), model.Request{})); a.Finish.Reason != model.Length || a.Finish.Usage.InputTokens != 7 {
		t.Errorf("fourth: %v", a)
	}
	if a := Collect(t, s.Stream(t.Context(), model.Request{})); a.Code() != model.CodeInvalidRequest {
		t.Errorf("after the end: %v", a)
	}
	s.Otherwise(func(r model.Request) Turn { return Reply(Text(r.System)) })
	if a := Collect(t, s.Stream(t.Context(), model.Request{System: "echo"})); a.Text != "echo" {
		t.Errorf("otherwise: %v", a)
	}
	if got := s.Requests(); len(got) != 6 || got[0].Messages[0].Parts[0].Text != "one" {
		t.Errorf("requests %v", got)
	}
	if s.Unplayed() != 0 {
		t.Errorf("%d unplayed", s.Unplayed())
	}
}

func TestAScriptWaitsAtAGateAndStopsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		s := NewScript(Reply(Wait(gate), Text("open")), Reply(Stall()), Reply(Pause(time.Hour)))
		answers := make(chan Answer)
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("enough")
		ask := func() { answers <- Collect(t, s.Stream(ctx, model.Request{System: "x"})) }
		go ask()
		if r, err := s.WaitRequest(t.Context(), 1); err != nil || r.System != "x" {
			t.Errorf("%v, %v", r, err)
		}
		synctest.Wait()
		select {
		case a := <-answers:
			t.Errorf("through a closed gate: %v", a)
		default:
		}
		close(gate)
		if a := <-answers; a.Text != "open" {
			t.Errorf("got %v", a)
		}
		go ask()
		go ask()
		synctest.Wait()
		cancel(why)
		for range 2 {
			if a := <-answers; !errors.Is(a.Err, why) {
				t.Errorf("got %v", a)
			}
		}
		if err := s.WaitIdle(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
