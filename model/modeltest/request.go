package modeltest

import (
	"encoding/json"
	"testing"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/model"
)

func result(call, name, text string, failed bool) model.Message {
	return model.Message{Role: model.ToolRole, Parts: []model.Part{{Kind: model.ResultPart, Call: call, Name: name, Text: text, Failed: failed}}}
}

func callsOf(r fakellm.Request) []fakellm.Call {
	var all []fakellm.Call
	for _, m := range r.Messages {
		all = append(all, m.Calls...)
	}
	return all
}

// request: what is sent. The server is strict: it refuses what any real one
// refuses.
func (h Harness) request(t *testing.T) {
	t.Run("AWholeConversationIsAcceptedAndArrivesAsItWas", func(t *testing.T) {
		const arguments = `{ "id": 9007199254740993, "price": 1.10, "q":"<é\u00e9>" }`
		b := h.start(t,
			fakellm.Reply(
				fakellm.Reasoning("They want ", "two things."),
				fakellm.Text("I look."),
				fakellm.Call{ID: "call_A", Name: "look", Args: arguments, Every: 5},
				fakellm.Call{ID: "call_B", Name: "wait"}),
			fakellm.Reply(fakellm.Text("done")))
		temperature := 0.5
		req := model.Request{
			System:      "You are <brief> & kind.",
			MaxTokens:   4096,
			Temperature: &temperature,
			Tools: []model.Tool{
				{Name: "look", Description: "Looks <up>.", Parameters: json.RawMessage(`{"type":"object","properties":{"id":{"type":"integer","maximum":9007199254740993}},"required":["id"]}`)},
				{Name: "wait"},
			},
			Messages: []model.Message{
				user("First."),
				{Role: model.Assistant, Parts: []model.Part{{Kind: model.TextPart, Text: "Yes?"}}},
				user("Look & wait."),
			},
		}
		a := b.send(req)
		if a.Err != nil {
			t.Fatal(a.Err)
		}
		results := model.Message{Role: model.ToolRole, Parts: append(
			result("call_A", "look", "It is\nthere.", false).Parts,
			result("call_B", "wait", "", true).Parts...)}
		req.Messages = append(req.Messages, a.Message(), results, user("And now?"))
		if a := b.send(req); a.Err != nil || a.Text != "done" {
			t.Fatalf("the history is refused: %v", a.Err)
		}

		sent := b.llm.Requests()[1]
		if sent.Model != "fake-model" || !sent.Stream || sent.System != req.System {
			t.Errorf("model %q, stream %v, system %q", sent.Model, sent.Stream, sent.System)
		}
		calls := callsOf(sent)
		if len(calls) != 2 || calls[0].ID != "call_A" || calls[0].Name != "look" || calls[0].Args != arguments {
			t.Errorf("calls %+v, want arguments %s", calls, arguments)
		}
		if len(calls) == 2 && calls[1].Args != "{}" {
			t.Errorf("empty arguments are sent as %q", calls[1].Args)
		}
		got := sent.Results()
		if len(got) != 2 || got[0].ID != "call_A" || got[0].Text != "It is\nthere." || got[1].ID != "call_B" || got[1].Text != "" {
			t.Errorf("results %+v", got)
		}
		if sent.LastUser() != "And now?" {
			t.Errorf("last user text %q", sent.LastUser())
		}
		if len(sent.Tools) != 2 || string(sent.Tools[0].Schema) != string(req.Tools[0].Parameters) || sent.Tools[0].Description != "Looks <up>." {
			t.Errorf("tools %+v", sent.Tools)
		}
	})
	t.Run("SignedReasoningGoesBackToWhereItCameFromOnly", func(t *testing.T) {
		b := h.start(t, fakellm.Reply(fakellm.Reasoning("Deep thought."), fakellm.HiddenReasoning("cipher"), fakellm.Call{ID: "call_A", Name: "look", Args: "{}"}))
		a := b.ask()
		if a.Err != nil || a.Reasoning != "Deep thought." {
			t.Fatalf("got %v", a)
		}
		signed := a.Message()
		if signed.Parts[0].Signature == "" && h.Signs {
			t.Fatal("the reasoning has no signature")
		}
		messages := []model.Message{user("Hello?"), signed, result("call_A", "look", "ok", false)}
		back := func(b bench) string {
			b.Helper()
			b.llm.Script(fakellm.Reply(fakellm.Text("done")))
			if a := b.send(model.Request{Messages: messages}); a.Err != nil {
				t.Fatalf("the history is refused: %v", a.Err)
			}
			all := b.llm.Requests()
			reasoning := ""
			for _, m := range all[len(all)-1].Messages {
				reasoning += m.Reasoning
			}
			return reasoning
		}
		if got := back(b); h.Signs && got != "Deep thought." {
			t.Errorf("reasoning %q goes back", got)
		}
		if got := back(h.start(t)); got != "" {
			t.Errorf("reasoning %q goes to another server", got)
		}
		signed.Parts[0].Signature = ""
		if got := back(b); got != "" {
			t.Errorf("unsigned reasoning %q goes back", got)
		}
	})
	t.Run("ArgumentsThatAreNoObjectAreNotSent", func(t *testing.T) {
		b := h.start(t)
		for _, arguments := range []string{`{"a":`, `null`, `[]`, `"x"`, `{}}`} {
			a := b.send(model.Request{Messages: []model.Message{
				user("Hello?"),
				{Role: model.Assistant, Parts: []model.Part{{Kind: model.CallPart, Call: "call_A", Name: "look", Arguments: json.RawMessage(arguments)}}},
				result("call_A", "look", "ok", false),
			}})
			b.fails(a, model.CodeInvalidRequest, false)
		}
		b.asked(0)
	})
	t.Run("FilesThatTheModelCannotSeeAreToldOf", func(t *testing.T) {
		b := h.start(t, fakellm.Reply(fakellm.Text("a cat")))
		a := b.send(model.Request{Messages: []model.Message{{Role: model.User, Parts: []model.Part{
			{Kind: model.FilePart, MediaType: "image/png", Data: []byte("png")},
			{Kind: model.FilePart, MediaType: "application/pdf", Data: []byte("pdf")},
			{Kind: model.FilePart, MediaType: "application/zip", Data: []byte("zip")},
			{Kind: model.FilePart, MediaType: "text/csv; charset=utf-8", Data: []byte("a,b")},
			{Kind: model.TextPart, Text: "What is it?"},
		}}}})
		if a.Err != nil {
			t.Fatal(a.Err)
		}
		sent := b.llm.Requests()[0].Messages[0]
		if len(sent.Media) != 2 {
			t.Errorf("media %q", sent.Media)
		}
		const want = "[a file of type application/zip, 3 bytes, which you cannot see]a,bWhat is it?"
		if sent.Text != want {
			t.Errorf("text %q, want %q", sent.Text, want)
		}
	})
	t.Run("TheKeyIsSentAndNoneFromTheEnvironment", func(t *testing.T) {
		for _, name := range []string{"OPENAI_API_KEY", "OPENAI_ORG_ID", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"} {
			t.Setenv(name, "from-the-environment")
		}
		b := h.start(t, fakellm.Reply(fakellm.Text("one")), fakellm.Reply(fakellm.Text("two")))
		b.ask()
		p, err := h.New(model.ProviderConfig{Type: h.Type, BaseURL: b.llm.URL() + h.Path, Headers: map[string]string{"X-Team": "blue"}})
		if err != nil {
			t.Fatal(err)
		}
		b.model, _ = p.Model("fake-model")
		if a := b.ask(); a.Err != nil {
			t.Fatal(a.Err)
		}
		keys := func(n int) (found []string) {
			for name, values := range b.llm.Requests()[n].Header {
				for _, v := range values {
					if name == "Authorization" || name == "X-Api-Key" || v == "from-the-environment" {
						found = append(found, v)
					}
				}
			}
			return found
		}
		if got := keys(0); len(got) != 1 || got[0] != apiKey && got[0] != "Bearer "+apiKey {
			t.Errorf("the configured key is sent as %q", got)
		}
		if got := keys(1); len(got) != 0 {
			t.Errorf("without a key %q is sent", got)
		}
		if got := b.llm.Requests()[1].Header.Get("X-Team"); got != "blue" {
			t.Errorf("the configured header is sent as %q", got)
		}
	})
}
