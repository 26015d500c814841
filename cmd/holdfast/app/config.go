package app

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/tool"
	"github.com/holdfast-run/holdfast/tool/builtin"
	demotool "github.com/holdfast-run/holdfast/tool/demo"
)

// Config is holdfast.yaml. A field that is not known is an error that names its line.
type Config struct {
	// Providers say how models are reached, by the name that agents use before the "/".
	// The provider "demo" is always there.
	Providers map[string]model.ProviderConfig `yaml:"providers"`
	// Agents are what can run. The first is the default.
	Agents []AgentConfig `yaml:"agents"`
	// Engine tunes how runs are carried.
	Engine EngineConfig `yaml:"engine"`
	// Server tunes the HTTP API.
	Server ServerConfig `yaml:"server"`
	// CancelGrace is how long a cancelled run has to end. Default: 5s.
	CancelGrace time.Duration `yaml:"cancelGrace"`
	// Retention is how long the deltas of ended runs are kept. Default: 1h; negative: for ever.
	Retention time.Duration `yaml:"retention"`
}

// AgentConfig defines an agent.
type AgentConfig struct {
	Name         string       `yaml:"name"`
	Description  string       `yaml:"description"`
	Model        string       `yaml:"model"` // "provider/name"
	Instructions string       `yaml:"instructions"`
	Tools        []ToolConfig `yaml:"tools"`
	MaxTokens    int          `yaml:"maxTokens"`
	Temperature  *float64     `yaml:"temperature"`
	Reasoning    string       `yaml:"reasoning"`
	Limits       agent.Limits `yaml:"limits"`
	// ApprovalTimeout ends an approval that nobody decided. Default: never.
	ApprovalTimeout time.Duration `yaml:"approvalTimeout"`
}

// ToolConfig gives an agent a tool: its name, or a map with a name and what differs.
type ToolConfig struct {
	Name     string       `yaml:"name"`
	Approval *tool.Policy `yaml:"approval"`
}

// UnmarshalYAML takes a plain name as well.
func (c *ToolConfig) UnmarshalYAML(unmarshal func(any) error) error {
	if err := unmarshal(&c.Name); err == nil {
		return nil
	}
	type plain ToolConfig
	return unmarshal((*plain)(c))
}

// EngineConfig tunes the local engine. Zero values mean its defaults.
type EngineConfig struct {
	Slots      int           `yaml:"slots"`
	Lease      time.Duration `yaml:"lease"`
	Poll       time.Duration `yaml:"poll"`
	Drain      time.Duration `yaml:"drain"`
	RetryFirst time.Duration `yaml:"retryFirst"`
	RetryMax   time.Duration `yaml:"retryMax"`
	CrashFirst time.Duration `yaml:"crashFirst"`
}

// ServerConfig tunes the HTTP API. Zero values mean its defaults.
type ServerConfig struct {
	AllowedHosts   []string      `yaml:"allowedHosts"`
	AllowedOrigins []string      `yaml:"allowedOrigins"`
	MaxStreams     int           `yaml:"maxStreams"`
	Heartbeat      time.Duration `yaml:"heartbeat"`
}

// readConfig reads the file at path. A missing file at the default path means the demo configuration.
func readConfig(path string, required bool) (Config, error) {
	var c Config
	raw, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist) && !required:
		return demoConfig(), nil
	case err != nil:
		return c, fmt.Errorf("read the configuration: %w", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw), yaml.Strict())
	if err := dec.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return c, fmt.Errorf("%s: %s", path, yaml.FormatError(err, false, true))
	}
	if len(c.Agents) == 0 {
		c.Agents = demoConfig().Agents
	}
	return c, nil
}

// demoConfig is what runs without a holdfast.yaml: the scripted demo model.
func demoConfig() Config {
	return Config{Agents: []AgentConfig{{
		Name:        "demo",
		Description: "A scripted model that shows what Holdfast does, without a key and without a network.",
		Model:       "demo/demo",
		Tools: []ToolConfig{
			{Name: "clock"}, {Name: "calculator"}, {Name: "notes_list"}, {Name: "notes_read"},
			{Name: "notes_write"}, {Name: "notes_delete"}, {Name: "long_task"}, {Name: "flaky"}, {Name: "weather_sample"},
		},
	}}}
}

// agents builds the agents of a configuration. dir is where tools keep their files.
// extra are tools beside the built-in ones, by name.
func (c Config) agents(dir string, extra map[string]tool.Tool) ([]agent.Agent, error) {
	tools := builtin.Config{NotesDir: filepath.Join(dir, "notes")}
	var agents []agent.Agent
	for _, a := range c.Agents {
		set, err := a.tools(tools, extra)
		if err != nil {
			return nil, fmt.Errorf("agent %s: %w", a.Name, err)
		}
		agents = append(agents, agent.Agent{
			Name: a.Name, Description: a.Description, Model: a.Model, Instructions: a.Instructions, Tools: set,
			MaxTokens: a.MaxTokens, Temperature: a.Temperature, Reasoning: a.Reasoning, Limits: a.Limits,
			ApprovalTimeout: a.ApprovalTimeout,
		})
	}
	return agents, nil
}

func (a AgentConfig) tools(config builtin.Config, extra map[string]tool.Tool) (*tool.Set, error) {
	var tools []tool.Tool
	for _, t := range a.Tools {
		made, ok := extra[t.Name]
		if !ok {
			made, ok = demotool.ByName(t.Name)
		}
		if !ok {
			var err error
			if made, err = builtin.ByName(t.Name, config); err != nil {
				return nil, err
			}
		}
		if t.Approval != nil {
			made = tool.With(made, tool.WithApproval(*t.Approval))
		}
		tools = append(tools, made)
	}
	return tool.NewSet(tools...)
}
