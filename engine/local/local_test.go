package local_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/engine"
	"github.com/holdfast-run/holdfast/engine/local"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/model/modeltest"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/memory"
	"github.com/holdfast-run/holdfast/tool"
)

func TestARunAnswersAndCompletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e *local.Engine
		s := memory.New(store.Options{OnCommit: func(c store.Commit) { e.Notify(c) }})
		clock := tool.New("clock", "the time", func(ctx context.Context, in struct{}, call tool.Call) (string, error) {
			return "noon", nil
		})
		tools, err := tool.NewSet(clock)
		if err != nil {
			t.Fatal(err)
		}
		book, err := agent.NewBook(agent.Agent{Name: "a", Model: "script", Tools: tools})
		if err != nil {
			t.Fatal(err)
		}
		script := modeltest.NewScript(
			modeltest.Reply(modeltest.Text("Let me ", "see."), modeltest.Call("c1", "clock", `{}`)),
			modeltest.Reply(modeltest.Fail(&model.Error{Code: model.CodeOverloaded, Retryable: true})),
			modeltest.Reply(modeltest.Text("It is noon.")),
		)
		e = local.Make(&engine.Carrier{Store: s, Agents: book, Models: func(string) (model.Model, error) { return script, nil }}, local.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		c := &session.Submit{ID: "msg_1", Parts: []session.Part{{Type: session.PartText, Text: "what time is it?"}},
			Tenant: "t", Owner: "o", Run: "run_1", Output: "msg_2", At: time.Now(), Grace: time.Second}
		if _, err := s.Append(ctx, "ses_1", c.Decide); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // of the bubble's time
		frames, err := s.Read(ctx, "ses_1", 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range frames {
			t.Logf("%s", f.JSON)
		}
		_ = s.View(ctx, "ses_1", func(st *session.State) {
			raw, _ := json.MarshalIndent(st, "", " ")
			if st.Run("run_1").Status != session.Completed {
				t.Errorf("run is %s: %s", st.Run("run_1").Status, raw)
			}
		})
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}
