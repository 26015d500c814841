package app

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/model/anthropic"
	"github.com/holdfast-run/holdfast/model/demo"
	"github.com/holdfast-run/holdfast/model/openai"
	"github.com/holdfast-run/holdfast/tool"
	"github.com/holdfast-run/holdfast/tool/builtin"
	demotool "github.com/holdfast-run/holdfast/tool/demo"
)

// built is what a configuration describes.
type built struct {
	models    *model.Registry
	agents    []agent.Agent
	callbacks *callbacks
}

// build makes the models and agents of a configuration, and checks all of it.
// dir is the data folder. extra are tools beside the built-in ones, by name. The
// error names everything that is wrong, each with its line.
func (c Config) build(dir string, extra map[string]tool.Tool) (built, error) {
	b := &builder{config: c, extra: extra, tools: builtin.Config{
		NotesDir: c.Tools.Notes,
		HTTP:     builtin.HTTPConfig{Allow: c.Tools.HTTPGet.Allow, MaxBytes: c.Tools.HTTPGet.MaxBytes, Timeout: c.Tools.HTTPGet.Timeout},
	}}
	if b.tools.NotesDir == "" {
		b.tools.NotesDir = filepath.Join(dir, "notes")
	}
	b.callbacks = &callbacks{}
	b.checkNumbers()
	c.Server.check(b.fault)
	c.Store.check(b.fault)
	b.notNegative("store.connections", c.Store.Connections)
	c.Engine.check(b.fault)
	c.checkMCP(b.fault)
	b.checkHTTP()
	b.makeModels()
	for i := range c.Agents {
		b.makeAgent(i)
	}
	return b.built, errors.Join(b.faults...)
}

// builder builds a configuration and gathers its faults.
type builder struct {
	built
	config Config
	extra  map[string]tool.Tool
	tools  builtin.Config
	faults []error
	// brokenHTTP are the names of HTTP tools with a fault that was told.
	brokenHTTP []string
}

// fault notes what is wrong with the value at a path such as "agents[0].model".
func (b *builder) fault(path, format string, args ...any) {
	b.faults = append(b.faults, fmt.Errorf("%s: %w", b.config.source.at(path), fmt.Errorf(format, args...)))
}

func (b *builder) checkNumbers() {
	c := b.config
	for _, d := range []struct {
		path  string
		value time.Duration
		least time.Duration
	}{
		{"engine.lease", c.Engine.Lease, time.Second},
		{"engine.poll", c.Engine.Poll, 10 * time.Millisecond},
		{"engine.drain", c.Engine.Drain, 0},
		{"engine.retryFirst", c.Engine.RetryFirst, 0},
		{"engine.retryMax", c.Engine.RetryMax, 0},
		{"engine.crashFirst", c.Engine.CrashFirst, 0},
		{"engine.temporal.heartbeat", c.Engine.Temporal.Heartbeat, time.Second},
		{"server.heartbeat", c.Server.Heartbeat, time.Second},
		{"tools.httpGet.timeout", c.Tools.HTTPGet.Timeout, 0},
		{"cancelGrace", c.CancelGrace, 100 * time.Millisecond},
	} {
		switch {
		case d.value < 0:
			b.fault(d.path, "%v is negative", d.value)
		case d.value != 0 && d.value < d.least:
			b.fault(d.path, "%v is too short: at least %v", d.value, d.least)
		}
	}
	b.notNegative("engine.slots", c.Engine.Slots)
	b.notNegative("server.maxStreams", c.Server.MaxStreams)
	b.notNegative("tools.httpGet.maxBytes", int(c.Tools.HTTPGet.MaxBytes))
}

func (b *builder) notNegative(path string, n int) {
	if n < 0 {
		b.fault(path, "%d is negative", n)
	}
}

// makeModels builds the configured providers, and the demo model.
func (b *builder) makeModels() {
	constructors := map[string]model.Constructor{
		model.TypeOpenAI:           openai.New,
		model.TypeOpenAICompatible: openai.New,
		model.TypeAnthropic:        anthropic.New,
		model.TypeDemo:             func(model.ProviderConfig) (model.Provider, error) { return demo.New(), nil },
	}
	sound := map[string]model.ProviderConfig{}
	for _, name := range slices.Sorted(maps.Keys(b.config.Providers)) {
		p := b.config.Providers[name]
		path := "providers." + name
		if strings.HasPrefix(p.APIKey, "$") {
			b.fault(path+".apiKey", "a key is not read from a variable here: use apiKeyEnv: %s", strings.Trim(p.APIKey, "${}"))
		}
		if _, err := model.NewRegistry(map[string]model.ProviderConfig{name: p}, constructors); err != nil {
			b.fault(path, "%w", err)
			continue
		}
		sound[name] = p
	}
	var err error
	if b.models, err = model.NewRegistry(sound, constructors); err != nil {
		b.fault("providers", "%w", err)
		return
	}
	if _, named := b.config.Providers["demo"]; !named {
		if err := b.models.Add("demo", demo.New()); err != nil {
			b.fault("providers", "%w", err)
		}
	}
}

var agentName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func (b *builder) makeAgent(i int) {
	a := b.config.Agents[i]
	path := fmt.Sprintf("agents[%d]", i)
	if !agentName.MatchString(a.Name) {
		b.fault(path+".name", "an agent's name has 1 to 64 letters, digits, _ or -, not %q", a.Name)
	}
	if slices.ContainsFunc(b.config.Agents[:i], func(o AgentConfig) bool { return o.Name == a.Name }) {
		b.fault(path+".name", "there is another agent %q", a.Name)
	}
	if a.Model == "" {
		b.fault(path, "the agent %q names no model: such as openai/gpt-5-mini, or demo/demo", a.Name)
	} else if provider, _, _ := strings.Cut(a.Model, "/"); b.models != nil && !b.broken(provider) {
		if _, err := b.models.Model(a.Model); err != nil {
			b.fault(path+".model", "%w", err)
		}
	}
	if !slices.Contains([]string{"", "low", "medium", "high"}, a.Reasoning) {
		b.fault(path+".reasoning", "reasoning is low, medium or high, not %q", a.Reasoning)
	}
	if t := a.Temperature; t != nil && (*t < 0 || *t > 2) {
		b.fault(path+".temperature", "a temperature is from 0 to 2, not %v", *t)
	}
	for j, name := range a.Subagents {
		at := fmt.Sprintf("%s.subagents[%d]", path, j)
		switch {
		case !slices.ContainsFunc(b.config.Agents, func(o AgentConfig) bool { return o.Name == name }):
			b.fault(at, "there is no agent %q", name)
		case slices.Contains(a.Subagents[:j], name):
			b.fault(at, "the agent has the subagent %q already", name)
		case slices.ContainsFunc(a.Tools, func(t ToolConfig) bool { return t.Name == name }):
			b.fault(at, "the agent has a tool %q: a subagent is a tool of its name", name)
		}
	}
	if a.ApprovalTimeout < 0 {
		b.fault(path+".approvalTimeout", "%v is negative", a.ApprovalTimeout)
	}
	b.checkLimits(path+".limits", a.Limits)
	b.notNegative(path+".maxTokens", a.MaxTokens)
	if w := a.Context.Window; w != 0 && w < agent.MinWindow {
		b.fault(path+".context.window", "a window has at least %d tokens, not %d", agent.MinWindow, w)
	}
	b.agents = append(b.agents, agent.Agent{
		Name: a.Name, Description: a.Description, Model: a.Model, Instructions: a.Instructions, Tools: b.makeTools(path, a),
		MaxTokens: a.MaxTokens, Temperature: a.Temperature, Reasoning: a.Reasoning, Limits: a.Limits, Context: a.Context,
		ApprovalTimeout: a.ApprovalTimeout, Subagents: a.Subagents,
	})
}

// broken says whether a provider has a fault of its own, which was told already.
func (b *builder) broken(provider string) bool {
	_, named := b.config.Providers[provider]
	return named && !slices.Contains(b.models.Providers(), provider)
}

func (b *builder) checkLimits(path string, l agent.Limits) {
	b.notNegative(path+".steps", l.Steps)
	b.notNegative(path+".tokens", l.Tokens)
	b.notNegative(path+".toolOutput", l.ToolOutput)
	b.notNegative(path+".attempts", l.Attempts)
	b.notNegative(path+".crashes", l.Crashes)
	b.notNegative(path+".depth", l.Depth)
	b.notNegative(path+".children", l.Children)
	if l.Time < 0 {
		b.fault(path+".time", "%v is negative", l.Time)
	}
}

func (b *builder) makeTools(path string, a AgentConfig) *tool.Set {
	var tools []tool.Tool
	for i, t := range a.Tools {
		at := fmt.Sprintf("%s.tools[%d]", path, i)
		made, err := b.makeTool(t)
		if err != nil {
			b.fault(at, "%w", err)
			continue
		}
		if slices.ContainsFunc(a.Tools[:i], func(o ToolConfig) bool { return o.Name == t.Name }) {
			b.fault(at, "the agent has %s already", t.Name)
			continue
		}
		tools = append(tools, made)
	}
	set, err := tool.NewSet(tools...)
	if err != nil {
		b.fault(path+".tools", "%w", err)
	}
	return set
}

func (b *builder) makeTool(t ToolConfig) (tool.Tool, error) {
	made, err := b.findTool(t.Name)
	if err != nil {
		return nil, err
	}
	if t.Approval != nil {
		made = tool.With(made, tool.WithApproval(*t.Approval))
	}
	switch {
	case t.Timeout < 0:
		return nil, fmt.Errorf("the timeout %v is negative", t.Timeout)
	case t.Timeout > 0:
		made = tool.With(made, tool.WithTimeout(t.Timeout))
	}
	return made, nil
}

// findTool finds a tool by the name that agents use.
func (b *builder) findTool(name string) (tool.Tool, error) {
	if c, ok := b.config.HTTP[name]; ok {
		return b.makeHTTP(name, c)
	}
	if t, ok := b.extra[name]; ok {
		return t, nil
	}
	if t, ok := demotool.ByName(name); ok {
		return t, nil
	}
	t, err := builtin.ByName(name, b.tools)
	if errors.Is(err, tool.ErrUnknownTool) {
		return nil, fmt.Errorf("there is no tool %q: there are %s", name, strings.Join(b.toolNames(), ", "))
	}
	return t, err
}

// toolNames are all tools that an agent can be given.
func (b *builder) toolNames() []string {
	return slices.Concat(slices.Sorted(maps.Keys(b.config.HTTP)), b.ownTools())
}

// ownTools are those that are part of the program.
func (b *builder) ownTools() []string {
	return slices.Concat(slices.Sorted(maps.Keys(b.extra)), builtin.Names(), demotool.Names())
}
