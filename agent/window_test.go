package agent_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/session"
)

func TestAWindowIsKnownByTheModelsName(t *testing.T) {
	for ref, want := range map[string]int{
		"anthropic/claude-sonnet-4-5": 200_000, "openai/gpt-5-mini": 272_000, "router/openai/gpt-4o-mini": 128_000, "local/some-model": 128_000, "openai/gpt-4-0613": 8_192, "openai/gpt-4-turbo": 128_000,
	} {
		if got := agent.WindowOf(ref); got != want {
			t.Errorf("%s: %d, want %d", ref, got, want)
		}
	}
}

func TestABudgetKeepsPlaceForTheAnswerAndLearnsFromTheProvider(t *testing.T) {
	a := agent.Agent{Model: "local/m"}
	if b := a.Budget(0, session.Measure{}); b.Window != 128_000 || b.Reserve != 8_192 || b.Room != 119_808 || b.Tokens(100) != 100 {
		t.Errorf("by default %+v", b)
	}
	a.Context.Window, a.MaxTokens = 10_000, 1_000
	if b := a.Budget(0, session.Measure{Counted: 1_000, Reported: 1_500}); b.Room != 6_000 || b.Tokens(100) != 150 {
		t.Errorf("for a provider that counts more %+v", b)
	}
	if b := a.Budget(0, session.Measure{Counted: 1_000, Reported: 3}); b.Tokens(1000) != 800 {
		t.Errorf("for a provider that counts nonsense %+v", b)
	}
	if b := a.Budget(4_000, session.Measure{}); b.Window != 4_000 || b.Room != 3_000 {
		t.Errorf("after a refusal %+v", b)
	}
	a.MaxTokens = 1_000_000
	if b := a.Budget(0, session.Measure{}); b.Room != 5_000 {
		t.Errorf("with an answer larger than the window %+v", b)
	}
}
