package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

// strict refuses what the strictest providers refuse.
func strict(req model.Request) error {
	if len(req.Messages) == 0 || req.Messages[0].Role != model.User {
		return fmt.Errorf("the first message is not the user's")
	}
	open := []string{}
	used := map[string]bool{}
	for i, m := range req.Messages {
		if len(m.Parts) == 0 {
			return fmt.Errorf("message %d is empty", i)
		}
		if (m.Role == model.ToolRole) != (len(open) > 0) {
			return fmt.Errorf("message %d is of %s while the calls %q are open", i, m.Role, open)
		}
		reasoningOnly := m.Role == model.Assistant
		for _, p := range m.Parts {
			switch p.Kind {
			case model.TextPart:
				reasoningOnly = false
				if strings.TrimSpace(p.Text) == "" {
					return fmt.Errorf("message %d has a blank text", i)
				}
			case model.CallPart:
				reasoningOnly = false
				var object map[string]json.RawMessage
				if err := json.Unmarshal(p.Arguments, &object); err != nil || object == nil {
					return fmt.Errorf("the arguments of %s are %q", p.Call, p.Arguments)
				}
				if used[p.Call] {
					return fmt.Errorf("the call id %s is used twice", p.Call)
				}
				used[p.Call] = true
				open = append(open, p.Call)
			case model.ResultPart:
				if len(open) == 0 || open[0] != p.Call {
					return fmt.Errorf("a result for %s, but %q are open", p.Call, open)
				}
				open = open[1:]
				if strings.TrimSpace(p.Text) == "" {
					return fmt.Errorf("the result of %s is blank", p.Call)
				}
			}
		}
		if reasoningOnly {
			return fmt.Errorf("message %d is nothing but reasoning", i)
		}
		if m.Role == model.ToolRole && len(open) > 0 {
			return fmt.Errorf("message %d leaves %q open", i, open)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("the history ends with %q open", open)
	}
	return nil
}

func anAgent(t interface{ Fatal(...any) }) agent.Agent {
	set, err := tool.NewSet(tool.New("look", "", func(context.Context, struct{}, tool.Call) (string, error) { return "", nil }))
	if err != nil {
		t.Fatal(err)
	}
	return agent.Agent{Name: "a", Model: "m", Tools: set}
}

// Whatever a branch went through, the model is told a history that nobody refuses.
func TestNoBranchMakesAHistoryThatAStrictProviderRefuses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := anAgent(t)
		if rapid.Bool().Draw(t, "no tools any more") {
			a.Tools = nil
		}
		var branch []session.Message
		calls := 0
		turns := rapid.IntRange(1, 6).Draw(t, "turns")
		for i := range turns {
			for range rapid.IntRange(1, 2).Draw(t, "user messages") {
				branch = append(branch, session.Message{
					ID: fmt.Sprint("u", len(branch)), Role: session.RoleUser, Status: session.MessageWhole,
					Parts: rapid.SliceOfN(userPart(), 1, 2).Draw(t, "said"),
				})
			}
			m := session.Message{ID: fmt.Sprint("a", i), Role: session.RoleAssistant, Status: session.MessageWhole}
			steps := rapid.IntRange(0, 4).Draw(t, "steps")
			for step := 1; step <= steps; step++ {
				m.Parts = append(m.Parts, session.Part{Type: session.PartStep, Step: step})
				for range rapid.IntRange(0, 4).Draw(t, "parts") {
					m.Parts = append(m.Parts, assistantPart(t, step, &calls))
				}
			}
			if rapid.IntRange(0, 4).Draw(t, "from the background") == 0 {
				m.Background = &session.Background{Run: "r", Title: "look"}
				if rapid.Bool().Draw(t, "failed") {
					m.Background.Error = &session.Failure{Message: "no"}
				}
			}
			branch = append(branch, m)
		}
		last := branch[len(branch)-1]
		step := rapid.IntRange(1, 5).Draw(t, "step")
		req := a.See(agent.View{Branch: branch, Message: last.ID, Step: step}).Request
		if err := strict(req); err != nil {
			raw, _ := json.MarshalIndent(req.Messages, "", " ")
			t.Fatalf("%v\n%s", err, raw)
		}
	})
}

func userPart() *rapid.Generator[session.Part] {
	return rapid.OneOf(
		rapid.Map(rapid.SampledFrom([]string{"hello", " ", "\n\t", "go on"}), func(s string) session.Part {
			return session.Part{Type: session.PartText, Text: s}
		}),
		rapid.Just(session.Part{Type: session.PartFile, File: &session.File{Name: "f", MediaType: "text/plain", Blob: &session.Blob{Hash: "x"}}}),
		rapid.Just(session.Part{Type: session.PartData, Data: json.RawMessage(`{"a":1}`)}),
	)
}

func assistantPart(t *rapid.T, step int, calls *int) session.Part {
	switch rapid.IntRange(0, 3).Draw(t, "part") {
	case 0:
		return session.Part{
			Type: session.PartText, Step: step, Text: rapid.SampledFrom([]string{"", " ", "text", "text "}).Draw(t, "text"),
			State: rapid.SampledFrom([]session.PartState{"", session.PartFailed, session.PartStreaming}).Draw(t, "state"),
		}
	case 1:
		return session.Part{Type: session.PartReasoning, Step: step, Text: "hm", Signature: rapid.SampledFrom([]string{"", "sig"}).Draw(t, "signature")}
	}
	*calls++
	c := &session.ToolCall{
		ID: fmt.Sprint("call_", *calls), Name: "look", Try: rapid.IntRange(0, 1).Draw(t, "try"),
		Status: rapid.SampledFrom([]session.CallStatus{
			session.CallWriting, session.CallCalled, session.CallStarted, session.CallCompleted, session.CallFailed,
			session.CallDenied, session.CallCancelled, session.CallUnknown,
		}).Draw(t, "status"),
	}
	switch rapid.IntRange(0, 2).Draw(t, "arguments") {
	case 0:
		c.Arguments = json.RawMessage(`{"id":2512292042121000001}`)
	case 1:
		c.RawArguments = `{"id":`
	}
	c.Result = rapid.SampledFrom([]json.RawMessage{
		json.RawMessage(`""`), json.RawMessage(`" \n"`), json.RawMessage(`null`), json.RawMessage(`"x"`), json.RawMessage(`[]`), json.RawMessage(`0`), json.RawMessage(`false`),
	}).Draw(t, "result")
	return session.Part{Type: session.PartTool, Step: step, Tool: c}
}

func told(t *testing.T, c session.ToolCall, limits agent.Limits) model.Part {
	t.Helper()
	a := anAgent(t)
	a.Limits = limits
	c.ID, c.Name = "c", "look"
	req := a.See(agent.View{Step: 1, Branch: []session.Message{
		{ID: "u", Role: session.RoleUser, Parts: []session.Part{{Type: session.PartText, Text: "go"}}},
		{ID: "a", Role: session.RoleAssistant, Parts: []session.Part{{Type: session.PartTool, Step: 1, Tool: &c}}},
	}}).Request
	if err := strict(req); err != nil {
		t.Fatal(err)
	}
	return req.Messages[2].Parts[0]
}

func TestAResultIsToldByteForByte(t *testing.T) {
	for raw, want := range map[string]string{
		`"plain \"text\""`:         `plain "text"`,
		`{"big":9007199254740993}`: `{"big":9007199254740993}`,
		`null`:                     `null`,
		`" \n"`:                    `" \n"`, // as JSON: providers refuse blanks
		`""`:                       `""`,
		`{"a":1,"a":2}`:            `{"a":1,"a":2}`,
		`{"type":"finish"}`:        `{"type":"finish"}`,
		`{"__proto__":{"x":1}}`:    `{"__proto__":{"x":1}}`,
	} {
		if got := told(t, session.ToolCall{Status: session.CallCompleted, Result: json.RawMessage(raw)}, agent.Limits{}).Text; got != want {
			t.Errorf("%s is told as %q", raw, got)
		}
	}
}

func TestAPictureThatWasUnpackedIsShownWithItsResult(t *testing.T) {
	got := told(t, session.ToolCall{Status: session.CallCompleted, Result: json.RawMessage(`"two pictures"`), Files: []session.File{
		{MediaType: "image/png", URL: "data:image/png;base64,YSBwaWN0dXJl", Blob: &session.Blob{Hash: "x"}},
		{MediaType: "image/png", Blob: &session.Blob{Hash: "y"}},
	}}, agent.Limits{})
	if len(got.Files) != 1 || got.Files[0].Kind != model.FilePart || string(got.Files[0].Data) != "a picture" || got.Files[0].URL != "" {
		t.Errorf("the model is shown %+v", got.Files)
	}
}

func TestALongResultIsCutOnACharacterAndSaysSo(t *testing.T) {
	raw, _ := json.Marshal(strings.Repeat("a", 99) + "😀" + strings.Repeat("b", 100))
	got := told(t, session.ToolCall{Status: session.CallCompleted, Result: raw}, agent.Limits{ToolOutput: 101}).Text
	if want := strings.Repeat("a", 99) + "\n[104 more bytes are not shown]"; got != want {
		t.Errorf("it is told as %q", got)
	}
}

func TestWhatAPersonSaidOfACallIsTold(t *testing.T) {
	got := told(t, session.ToolCall{Status: session.CallDenied, Note: "too dear"}, agent.Limits{})
	if !got.Failed || !strings.Contains(got.Text, "too dear") {
		t.Errorf("it is told as %+v", got)
	}
}

func TestTheStepBeingCalledIsNotInItsOwnHistory(t *testing.T) {
	a := anAgent(t)
	req := a.See(agent.View{Message: "a", Step: 2, Branch: []session.Message{
		{ID: "u", Role: session.RoleUser, Parts: []session.Part{{Type: session.PartText, Text: "go"}}},
		{ID: "a", Role: session.RoleAssistant, Status: session.MessageStreaming, Parts: []session.Part{
			{Type: session.PartText, Step: 1, Text: "first"},
			{Type: session.PartText, Step: 2, Text: "half an att", State: session.PartFailed},
		}},
	}}).Request
	if len(req.Messages) != 2 || req.Messages[1].Parts[0].Text != "first" {
		t.Errorf("the model sees %+v", req.Messages)
	}
}
