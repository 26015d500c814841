package simtest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/model"
)

// wellFormed is nil if even the strictest provider takes the request. It knows
// nothing of how our context is built.
func wellFormed(req model.Request) error {
	if len(req.Messages) == 0 {
		return fmt.Errorf("there are no messages")
	}
	if first := req.Messages[0].Role; first != model.User {
		return fmt.Errorf("the first message is of the %s", first)
	}
	if last := req.Messages[len(req.Messages)-1].Role; last == model.Assistant {
		return fmt.Errorf("the last message is the assistant's own")
	}
	var open []model.Part // calls of the message before that wait for their results
	called := map[string]bool{}
	for i, m := range req.Messages {
		if err := wellFormedMessage(m, &open, called, len(req.Tools) > 0); err != nil {
			return fmt.Errorf("message %d of %d, of the %s: %w", i, len(req.Messages), m.Role, err)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("the call %s has no result", open[0].Call)
	}
	return nil
}

func wellFormedMessage(m model.Message, open *[]model.Part, called map[string]bool, tools bool) error {
	if len(m.Parts) == 0 {
		return fmt.Errorf("it is empty")
	}
	if m.Role == model.ToolRole {
		return resultsOf(m, open)
	}
	if len(*open) > 0 {
		return fmt.Errorf("it comes before the result of %s", (*open)[0].Call)
	}
	says := false
	for _, p := range m.Parts {
		if !utf8.ValidString(p.Text) {
			return fmt.Errorf("its text is not UTF-8")
		}
		switch {
		case p.Kind == model.TextPart:
			if strings.TrimSpace(p.Text) == "" {
				return fmt.Errorf("it has a blank text")
			}
			says = true
		case p.Kind == model.FilePart && m.Role == model.User:
			says = true
		case p.Kind == model.ReasoningPart && m.Role == model.Assistant:
			if p.Signature == "" {
				return fmt.Errorf("it has reasoning that nobody signed")
			}
		case p.Kind == model.CallPart && m.Role == model.Assistant:
			var object map[string]any
			switch err := json.Unmarshal(p.Arguments, &object); {
			case err != nil || object == nil:
				return fmt.Errorf("the arguments of %s are no object: %s", p.Call, p.Arguments)
			case !tools:
				return fmt.Errorf("it calls %s, and no tools are offered", p.Name)
			case p.Call == "" || p.Name == "":
				return fmt.Errorf("a call has no id or name")
			case called[p.Call]:
				return fmt.Errorf("the call id %s occurs twice", p.Call)
			}
			called[p.Call], says = true, true
			*open = append(*open, p)
		default:
			return fmt.Errorf("it has a %s", p.Kind)
		}
	}
	if !says {
		return fmt.Errorf("it has reasoning only")
	}
	return nil
}

// resultsOf checks the results of the message before.
func resultsOf(m model.Message, open *[]model.Part) error {
	if len(m.Parts) != len(*open) {
		return fmt.Errorf("%d results for %d calls", len(m.Parts), len(*open))
	}
	for i, p := range m.Parts {
		call := (*open)[i]
		switch {
		case p.Kind != model.ResultPart:
			return fmt.Errorf("it has a %s", p.Kind)
		case p.Call != call.Call || p.Name != call.Name:
			return fmt.Errorf("the result of %s stands where that of %s must", p.Call, call.Call)
		case strings.TrimSpace(p.Text) == "":
			return fmt.Errorf("the result of %s is blank", p.Call)
		case !utf8.ValidString(p.Text):
			return fmt.Errorf("the result of %s is not UTF-8", p.Call)
		}
	}
	*open = nil
	return nil
}

func TestTheStrictCheckerRefusesWhatProvidersRefuse(t *testing.T) {
	text := func(s string) model.Part { return model.Part{Kind: model.TextPart, Text: s} }
	call := func(id string) model.Part {
		return model.Part{Kind: model.CallPart, Call: id, Name: "f", Arguments: json.RawMessage(`{}`)}
	}
	result := func(id string) model.Part { return model.Part{Kind: model.ResultPart, Call: id, Name: "f", Text: "ok"} }
	user := func(p ...model.Part) model.Message { return model.Message{Role: model.User, Parts: p} }
	assistant := func(p ...model.Part) model.Message { return model.Message{Role: model.Assistant, Parts: p} }
	tools := func(p ...model.Part) model.Message { return model.Message{Role: model.ToolRole, Parts: p} }
	hi := user(text("hi"))
	good := []model.Message{hi, assistant(text("a"), call("1"), call("2")), tools(result("1"), result("2"))}
	if err := wellFormed(model.Request{Messages: good, Tools: []model.Tool{{Name: "f"}}}); err != nil {
		t.Errorf("a good request is refused: %v", err)
	}
	null := call("1")
	null.Arguments = json.RawMessage(`null`)
	for name, bad := range map[string][]model.Message{
		"nothing":                  {},
		"an assistant first":       {assistant(text("a")), hi},
		"an assistant last":        {hi, assistant(text("a"))},
		"an empty message":         {hi, assistant(), hi},
		"a blank text":             {user(text(" \n"))},
		"unsigned reasoning":       {hi, assistant(model.Part{Kind: model.ReasoningPart, Text: "hm"}, text("a")), hi},
		"reasoning alone":          {hi, assistant(model.Part{Kind: model.ReasoningPart, Text: "hm", Signature: "s"}), hi},
		"a call without a result":  {hi, assistant(call("1")), hi},
		"a call at the end":        {hi, assistant(call("1"))},
		"one result of two":        {hi, assistant(call("1"), call("2")), tools(result("1"))},
		"results in another order": {hi, assistant(call("1"), call("2")), tools(result("2"), result("1"))},
		"a result of no call":      {hi, tools(result("1"))},
		"arguments that are null":  {hi, assistant(null), tools(result("1"))},
		"a call id twice":          {hi, assistant(call("1")), tools(result("1")), assistant(call("1")), tools(result("1"))},
		"a call of the user":       {user(call("1")), tools(result("1"))},
	} {
		if err := wellFormed(model.Request{Messages: bad, Tools: []model.Tool{{Name: "f"}}}); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if err := wellFormed(model.Request{Messages: good}); err == nil {
		t.Error("calls are taken where no tools are offered")
	}
}
