// Package agent is what a run does: the model-and-tool loop, as a pure function
// from the folded log to what comes next, and the context that a model sees.
package agent

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast/tool"
)

// Agent is a named way to work: a model, instructions, tools and limits.
type Agent struct {
	// Name is unique in a runtime: letters, digits, "_" and "-".
	Name        string
	Description string
	// Model is the model's reference, such as "openai/gpt-5-mini" or "demo/demo".
	Model        string
	Instructions string
	Tools        *tool.Set // nil: none
	// Subagents names the agents that this one may give tasks to: each is a tool of that name. See [Delegate].
	Subagents []string
	// MaxTokens bounds one answer. Default: the provider's.
	MaxTokens   int
	Temperature *float64
	// Reasoning is "", "low", "medium" or "high".
	Reasoning string
	Limits    Limits
	Context   Context
	// ApprovalTimeout ends an approval that nobody decided. Default 0: never.
	ApprovalTimeout time.Duration
}

// Limits bound a run. The zero value means the defaults.
type Limits struct {
	// Steps bounds the model calls of a run, retries not counted. Default: 50.
	Steps int `yaml:"steps"`
	// Tokens bounds input and output tokens of a run together. Default: 2,000,000.
	Tokens int `yaml:"tokens"`
	// Time bounds a run from its start, waiting for people included not: only
	// the time in which it is carried. Default: 1 hour.
	Time time.Duration `yaml:"time"`
	// ToolOutput bounds what the model sees of one result, in bytes. Default: 32 KiB.
	ToolOutput int `yaml:"toolOutput"`
	// Attempts bounds the tries of one model call. Default: 5.
	Attempts int `yaml:"attempts"`
	// Crashes bounds the workers that a run may lose in one step. Default: 3.
	Crashes int `yaml:"crashes"`
	// Depth bounds how deep subagents may call subagents: a run of that depth calls none. Default: 3.
	Depth int `yaml:"depth"`
	// Children bounds the subagents of one step. Default: 16.
	Children int `yaml:"children"`
}

// WithDefaults fills what is zero.
func (l Limits) WithDefaults() Limits {
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	set(&l.Steps, 50)
	set(&l.Tokens, 2_000_000)
	set(&l.ToolOutput, 32<<10)
	set(&l.Attempts, 5)
	set(&l.Crashes, 3)
	set(&l.Depth, 3)
	set(&l.Children, 16)
	if l.Time <= 0 {
		l.Time = time.Hour
	}
	return l
}

// Book is the agents of a runtime. It does not change once made.
type Book struct {
	agents []Agent
}

// NewBook checks the agents and fills their defaults. The first is the default agent.
func NewBook(agents ...Agent) (*Book, error) {
	if len(agents) == 0 {
		return nil, fmt.Errorf("agent: there must be at least one agent")
	}
	b := &Book{}
	for _, a := range agents {
		switch {
		case a.Name == "":
			return nil, fmt.Errorf("agent: an agent has no name")
		case a.Model == "":
			return nil, fmt.Errorf("agent %s: it names no model", a.Name)
		}
		if _, taken := b.Find(a.Name); taken {
			return nil, fmt.Errorf("agent %s: the name is taken twice", a.Name)
		}
		a.Limits = a.Limits.WithDefaults()
		b.agents = append(b.agents, a)
	}
	if err := b.join(); err != nil {
		return nil, err
	}
	return b, nil
}

// Find gives the agent with the name and the tools that it has at this moment;
// "" is the default agent.
func (b *Book) Find(name string) (Agent, bool) {
	i := slices.IndexFunc(b.agents, func(a Agent) bool { return a.Name == name || name == "" })
	if i < 0 {
		return Agent{}, false
	}
	return b.agents[i].now(), true
}

// All gives the agents, the default first, with the tools that they have at this moment.
func (b *Book) All() []Agent {
	all := slices.Clone(b.agents)
	for i := range all {
		all[i] = all[i].now()
	}
	return all
}

func (a Agent) now() Agent {
	a.Tools = a.Tools.Now()
	return a
}
