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
	"github.com/goccy/go-yaml/ast"

	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/tool"
	httptool "github.com/holdfast-run/holdfast/tool/http"
	"github.com/holdfast-run/holdfast/tool/mcp"
)

// Config is holdfast.yaml. A field that is not known is an error that names its line.
type Config struct {
	// Providers say how models are reached, by the name that agents use before the "/".
	// The provider "demo" is always there.
	Providers map[string]model.ProviderConfig `yaml:"providers"`
	// Agents are what can run. The first is the default. Default: the demo agent.
	Agents []AgentConfig `yaml:"agents"`
	// Tools tunes the built-in tools.
	Tools ToolsConfig `yaml:"tools"`
	// MCP are the servers whose tools agents can use, by the name that begins the
	// names of their tools.
	MCP map[string]mcp.Config `yaml:"mcp"`
	// HTTP are tools that post to an endpoint of their own, by name.
	HTTP map[string]httptool.Config `yaml:"http"`
	// Store says where sessions are kept.
	Store StoreConfig `yaml:"store"`
	// Engine tunes how runs are carried.
	Engine EngineConfig `yaml:"engine"`
	// Server tunes the HTTP API.
	Server ServerConfig `yaml:"server"`
	// CancelGrace is how long a cancelled run has to end. Default: 5s.
	CancelGrace time.Duration `yaml:"cancelGrace"`
	// Retention is how long the deltas of ended runs are kept. Default: 1h; negative: for ever.
	Retention time.Duration `yaml:"retention"`

	source source
}

// AgentConfig defines an agent.
type AgentConfig struct {
	Name         string        `yaml:"name"`
	Description  string        `yaml:"description"`
	Model        string        `yaml:"model"` // "provider/name"
	Instructions string        `yaml:"instructions"`
	Tools        []ToolConfig  `yaml:"tools"`
	MCP          []string      `yaml:"mcp"`       // the servers whose tools it has
	Subagents    []string      `yaml:"subagents"` // the agents that it may give tasks to
	MaxTokens    int           `yaml:"maxTokens"`
	Temperature  *float64      `yaml:"temperature"`
	Reasoning    string        `yaml:"reasoning"`
	Limits       agent.Limits  `yaml:"limits"`
	Context      agent.Context `yaml:"context"`
	// ApprovalTimeout ends an approval that nobody decided. Default: never.
	ApprovalTimeout time.Duration `yaml:"approvalTimeout"`
}

// ToolConfig gives an agent a tool: its name, or a map with a name and what differs.
type ToolConfig struct {
	Name     string       `yaml:"name"`
	Approval *tool.Policy `yaml:"approval"`
	// Timeout bounds one call. Default: the tool's own.
	Timeout time.Duration `yaml:"timeout"`
}

// UnmarshalYAML takes a plain name as well.
func (c *ToolConfig) UnmarshalYAML(node ast.Node) error {
	if name, ok := node.(*ast.StringNode); ok {
		c.Name = name.Value
		return nil
	}
	type plain ToolConfig
	err := yaml.NodeToValue(node, (*plain)(c), yaml.Strict())
	var placed yaml.Error
	if err != nil && !errors.As(err, &placed) {
		at := node.GetToken().Position
		return fmt.Errorf("[%d:%d] %w", at.Line, at.Column, err)
	}
	return err
}

// ToolsConfig tunes the built-in tools.
type ToolsConfig struct {
	// Notes is the folder of the notes tools. Default: notes in the data folder.
	Notes string `yaml:"notes"`
	// HTTPGet bounds http_get.
	HTTPGet HTTPGetConfig `yaml:"httpGet"`
}

// HTTPGetConfig bounds http_get. Zero values mean its defaults.
type HTTPGetConfig struct {
	// Allow names hosts that may be reached although they are not on the public internet.
	Allow    []string      `yaml:"allow"`
	MaxBytes int64         `yaml:"maxBytes"`
	Timeout  time.Duration `yaml:"timeout"`
}

// ServerConfig tunes the HTTP API. Zero values mean its defaults.
type ServerConfig struct {
	// PublicURL is where services reach this server. Default: the address it listens on.
	PublicURL      string        `yaml:"publicUrl"`
	AllowedHosts   []string      `yaml:"allowedHosts"`
	AllowedOrigins []string      `yaml:"allowedOrigins"`
	MaxStreams     int           `yaml:"maxStreams"`
	Heartbeat      time.Duration `yaml:"heartbeat"`
}

// readConfig reads the file at path. A missing file that is not required means
// the demo configuration.
func readConfig(path string, required bool) (Config, error) {
	raw, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist) && !required:
		return demoConfig(), nil
	case err != nil:
		return Config{}, fmt.Errorf("read the configuration: %w", err)
	}
	return parseConfig(path, raw)
}

// parseConfig reads the text of a configuration. Whether it makes sense is for [Config.build].
func parseConfig(path string, raw []byte) (Config, error) {
	c := Config{source: source{path: filepath.Clean(path), raw: raw}}
	dec := yaml.NewDecoder(bytes.NewReader(raw), yaml.Strict())
	err := dec.Decode(&c)
	if err == nil {
		if err := dec.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
			return c, fmt.Errorf("%s: it holds more than one YAML document", path)
		}
	} else if !errors.Is(err, io.EOF) { // an empty file is fine
		return c, c.source.mistake(err)
	}
	if len(c.Agents) == 0 {
		c.Agents = demoConfig().Agents
	}
	return c, nil
}

// demoConfig is what runs without a holdfast.yaml: the scripted demo model.
func demoConfig() Config {
	helper := AgentConfig{
		Name:        "helper",
		Description: "Does one thing for the demo agent, in a conversation of its own.",
		Model:       "demo/demo",
		Tools:       []ToolConfig{{Name: "notes_list"}, {Name: "notes_write"}, {Name: "notes_delete"}, {Name: "long_task"}, {Name: "weather_sample"}},
	}
	return Config{Agents: []AgentConfig{{
		Subagents:   []string{helper.Name},
		Name:        "demo",
		Description: "A scripted model that shows what Holdfast does, without a key and without a network.",
		Model:       "demo/demo",
		Tools: []ToolConfig{
			{Name: "clock"},
			{Name: "calculator"},
			{Name: "notes_list"},
			{Name: "notes_read"},
			{Name: "notes_write"},
			{Name: "notes_delete"},
			{Name: "long_task"},
			{Name: "mail_sample"},
			{Name: "flaky"},
			{Name: "weather_sample"},
		},
	}, helper}}
}
