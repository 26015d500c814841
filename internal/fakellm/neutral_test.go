package fakellm_test

import (
	"reflect"
	"testing"

	"github.com/holdfast-run/holdfast/internal/fakellm"
)

func TestEachWireIsReadIntoTheSameWords(t *testing.T) {
	const args = `{"id":2512292042121000001,"x":1e2,"y":1.10}`
	bodies := map[fakellm.Wire]string{
		fakellm.Chat: `{"model":"m","tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}],"messages":[
			{"role":"system","content":"one"},{"role":"developer","content":[{"type":"text","text":"two"}]},
			{"role":"user","content":[{"type":"text","text":"hi"},{"type":"image_url","image_url":{"url":"data:"}}]},
			{"role":"assistant","content":"ok","reasoning_content":"hm","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"id\":2512292042121000001,\"x\":1e2,\"y\":1.10}"}}]},
			{"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"42"}]}]}`,
		fakellm.Responses: `{"model":"m","instructions":"one","tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"}}],"input":[
			{"role":"developer","content":"two"},
			{"role":"user","content":[{"type":"input_text","text":"hi"},{"type":"input_image","image_url":"data:"}]},
			{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"hm"}]},
			{"role":"assistant","content":[{"type":"output_text","text":"ok"}]},
			{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"id\":2512292042121000001,\"x\":1e2,\"y\":1.10}"},
			{"type":"function_call_output","call_id":"c1","output":"42"}]}`,
		fakellm.Messages: `{"model":"m","max_tokens":5,"system":[{"type":"text","text":"one"},{"type":"text","text":"two"}],"tools":[{"name":"f","description":"d","input_schema":{"type":"object"}}],"messages":[
			{"role":"user","content":[{"type":"text","text":"hi"},{"type":"image","source":{}}]},
			{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"ok"},{"type":"tool_use","id":"c1","name":"f","input":` + args + `}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","is_error":true,"content":[{"type":"text","text":"42"}]}]}]}`,
	}
	media := map[fakellm.Wire]string{fakellm.Chat: "image_url", fakellm.Responses: "input_image", fakellm.Messages: "image"}
	eachWire(t, func(t *testing.T, wire fakellm.Wire, llm *fakellm.Server) {
		if status, text, _ := exchange(t, llm, wire, bodies[wire]); status != 200 {
			t.Fatalf("status %d, %s", status, text)
		}
		r := llm.Requests()[0]
		if r.System != "one\n\ntwo" || r.LastUser() != "hi" || r.Stream {
			t.Errorf("system %q, last user %q", r.System, r.LastUser())
		}
		if len(r.Tools) != 1 || r.Tools[0].Name != "f" || r.Tools[0].Description != "d" || string(r.Tools[0].Schema) != `{"type":"object"}` {
			t.Errorf("tools %+v", r.Tools)
		}
		if !reflect.DeepEqual(r.Messages[0].Media, []string{media[wire]}) {
			t.Errorf("media %v", r.Messages[0].Media)
		}
		var text, reasoning string
		var calls []fakellm.Call
		for _, m := range r.Messages {
			if m.Role == "assistant" {
				text += m.Text
				reasoning += m.Reasoning
				calls = append(calls, m.Calls...)
			}
		}
		if text != "ok" || reasoning != "hm" {
			t.Errorf("text %q, reasoning %q", text, reasoning)
		}
		if want := []fakellm.Call{{ID: "c1", Name: "f", Args: args}}; !reflect.DeepEqual(calls, want) {
			t.Errorf("calls %+v", calls)
		}
		want := []fakellm.Result{{ID: "c1", Text: "42", Error: wire == fakellm.Messages}}
		if got := r.Results(); !reflect.DeepEqual(got, want) {
			t.Errorf("results %+v", got)
		}
		if last := r.Messages[len(r.Messages)-1]; last.Text != "" {
			t.Errorf("the last message %+v", last)
		}
	})
}
