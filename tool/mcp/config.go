package mcp

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

// Config is how one server is reached and what is believed of it. Exactly one of
// Command and URL is set.
type Config struct {
	// Command is a program and its arguments, started without a shell. It speaks
	// MCP on its standard input and output.
	Command []string `yaml:"command"`
	// Dir is where it is started. Default: where this process was.
	Dir string `yaml:"dir"`
	// Env is its environment. PATH is there unless named; nothing else is handed on.
	Env map[string]string `yaml:"env"`
	// EnvFrom names variables of this process that it gets as well: secrets, say.
	EnvFrom []string `yaml:"envFrom"`

	// URL is the endpoint of a server that speaks streamable HTTP.
	URL string `yaml:"url"`
	// Headers are sent with every request.
	Headers map[string]string `yaml:"headers"`
	// HeadersEnv are headers whose values are in variables of this process.
	HeadersEnv map[string]string `yaml:"headersEnv"`

	// Effects is what every tool does, whatever the server says of it. Default: as
	// the server says, which may be wrong: name it for a server that you do not trust.
	Effects session.Effects `yaml:"effects"`
	// Approval is when a person must agree to a call. Default: unless_read_only.
	Approval *tool.Policy `yaml:"approval"`
	// Timeout bounds one call. Default: [tool.DefaultTimeout].
	Timeout time.Duration `yaml:"timeout"`
	// StartTimeout bounds a start: process, handshake and list of tools. Default: 30 seconds.
	StartTimeout time.Duration `yaml:"startTimeout"`
	// Only names the tools that are used, as the server names them. Default: all.
	Only []string `yaml:"only"`
	// Tools says what differs for single tools, as the server names them.
	Tools map[string]ToolConfig `yaml:"tools"`
}

// ToolConfig is what differs for one tool. Zero values mean the server's.
type ToolConfig struct {
	Effects  session.Effects `yaml:"effects"`
	Approval *tool.Policy    `yaml:"approval"`
	Timeout  time.Duration   `yaml:"timeout"`
}

// namePattern has no "_": it ends the server's name in the name of a tool, so
// that tools of two servers never have one name.
var namePattern = regexp.MustCompile(`^[a-zA-Z0-9-]{1,32}$`)

// Check tells wrong what makes no sense, at its path under the server's entry
// ("" for the entry itself). It looks at nothing but the configuration: whether the
// server can be reached is seen later.
func (c Config) Check(name string, wrong func(path, format string, args ...any)) {
	if !namePattern.MatchString(name) {
		wrong("", "the name of an MCP server has 1 to 32 letters, digits or -, not %q", name)
	}
	switch {
	case len(c.Command) == 0 && c.URL == "":
		wrong("", "the MCP server %s needs a command or a url", name)
	case len(c.Command) > 0 && c.URL != "":
		wrong("url", "the MCP server %s has a command and a url: choose one", name)
	case c.URL != "":
		c.checkURL(wrong)
	case c.Command[0] == "":
		wrong("command", "the command names no program")
	}
	if c.URL != "" && (c.Dir != "" || len(c.Env) > 0 || len(c.EnvFrom) > 0) {
		wrong("", "dir, env and envFrom are for a server with a command")
	}
	if c.URL == "" && (len(c.Headers) > 0 || len(c.HeadersEnv) > 0) {
		wrong("", "headers and headersEnv are for a server with a url")
	}
	for _, variable := range slices.Sorted(maps.Keys(c.Env)) {
		if variable == "" || strings.ContainsAny(variable+c.Env[variable], "\x00") || strings.Contains(variable, "=") {
			wrong("env", "%q is no variable", variable)
		}
	}
	checkEffects("effects", c.Effects, wrong)
	checkTimeout("timeout", c.Timeout, wrong)
	checkTimeout("startTimeout", c.StartTimeout, wrong)
	for _, name := range slices.Sorted(maps.Keys(c.Tools)) {
		checkEffects("tools."+name+".effects", c.Tools[name].Effects, wrong)
		checkTimeout("tools."+name+".timeout", c.Tools[name].Timeout, wrong)
	}
}

func (c Config) checkURL(wrong func(path, format string, args ...any)) {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		wrong("url", "it is no URL") // the error would show what may be a secret
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		wrong("url", "a url begins with http:// or https:// and a host")
	case u.User != nil:
		wrong("url", "a url has no user and password: use headersEnv")
	}
}

func checkEffects(path string, effects session.Effects, wrong func(path, format string, args ...any)) {
	switch effects {
	case "", session.ReadOnly, session.Idempotent, session.Unsafe:
	default:
		wrong(path, "unknown effects %q: use read_only, idempotent or unsafe", effects)
	}
}

func checkTimeout(path string, d time.Duration, wrong func(path, format string, args ...any)) {
	if d < 0 {
		wrong(path, "%v is negative", d)
	}
}

// environment is everything that the program sees.
func (c Config) environment() ([]string, error) {
	env := map[string]string{"PATH": os.Getenv("PATH")}
	for _, name := range c.EnvFrom {
		value, ok := os.LookupEnv(name)
		if !ok {
			return nil, fmt.Errorf("the variable %s is not set (envFrom)", name)
		}
		env[name] = value
	}
	maps.Copy(env, c.Env)
	var list []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list, nil
}

// headers are what every request carries.
func (c Config) headers() (map[string]string, error) {
	all := maps.Clone(c.Headers)
	if all == nil {
		all = map[string]string{}
	}
	for header, name := range c.HeadersEnv {
		value := os.Getenv(name)
		if value == "" {
			return nil, fmt.Errorf("the variable %s is not set (headersEnv)", name)
		}
		all[header] = value
	}
	return all, nil
}

// where says in a word how the server is reached, without its secrets.
func (c Config) where() string {
	if c.URL != "" {
		u, err := url.Parse(c.URL)
		if err != nil {
			return "http"
		}
		return u.Scheme + "://" + u.Host
	}
	return filepath.Base(c.Command[0])
}

// wants says whether a tool of the server is used.
func (c Config) wants(name string) bool { return len(c.Only) == 0 || slices.Contains(c.Only, name) }
