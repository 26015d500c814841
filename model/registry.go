package model

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

// The types of provider that Holdfast knows. A registry is told who builds each.
const (
	TypeOpenAI           = "openai"
	TypeOpenAICompatible = "openai-compatible"
	TypeAnthropic        = "anthropic"
	TypeDemo             = "demo"
)

// DefaultIdleTimeout is how long a model may be silent. Models that think
// without showing it are silent for minutes.
const DefaultIdleTimeout = 5 * time.Minute

// ProviderConfig says how to reach one provider. Printing or logging it shows
// neither its key nor the values of its headers.
type ProviderConfig struct {
	// Type is one of the Type constants.
	Type string `json:"type" yaml:"type"`
	// BaseURL is where the API's own paths begin, for OpenAI's with the version:
	// "http://localhost:11434/v1". Required for openai-compatible.
	// Default: the provider's public one.
	BaseURL string `json:"baseURL,omitempty" yaml:"baseURL,omitempty"`
	// APIKey is the key itself. APIKeyEnv names an environment variable that
	// holds it, and is ignored when APIKey is set.
	// Default: OPENAI_API_KEY or ANTHROPIC_API_KEY where BaseURL is the default
	// one; elsewhere none is sent.
	APIKey    string `json:"apiKey,omitempty" yaml:"apiKey,omitempty"`
	APIKeyEnv string `json:"apiKeyEnv,omitempty" yaml:"apiKeyEnv,omitempty"`
	// Headers are sent with every request, over those of the same name.
	Headers map[string]string `json:"headers,omitempty" yaml:"headers,omitempty"`
	// IdleTimeout is how long the model may be silent: see [Watch]. Negative
	// means no limit. Default: [DefaultIdleTimeout].
	IdleTimeout time.Duration `json:"idleTimeout,omitempty" yaml:"idleTimeout,omitempty"`
}

// String tells what may be told.
func (c ProviderConfig) String() string {
	key := "no key"
	switch {
	case c.APIKey != "":
		key = "key set"
	case c.APIKeyEnv != "":
		key = "key from " + c.APIKeyEnv
	}
	return fmt.Sprintf("{%s %s, %s, headers %v, idle %s}", c.Type, bareURL(c.BaseURL), key, slices.Sorted(maps.Keys(c.Headers)), c.IdleTimeout)
}

// bareURL is a URL without the parts in which people put keys.
func bareURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "(not a URL)"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// Format prints as String does, whatever the verb.
func (c ProviderConfig) Format(f fmt.State, _ rune) { fmt.Fprint(f, c.String()) }

// LogValue logs as String does.
func (c ProviderConfig) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Constructor builds a provider. The registry has put the key into APIKey.
// It does no I/O.
type Constructor func(ProviderConfig) (Provider, error)

// Registry finds models by "provider/name", such as "openai/gpt-5-mini" or
// "local/llama3". It is safe for concurrent use after the last Add.
type Registry struct {
	entries map[string]entry
}

type entry struct {
	provider Provider
	idle     time.Duration
	// err is what hinders this provider alone, such as a key that is not there.
	err error
}

// NewRegistry builds the providers, by name. Constructors are by type.
//
// A configuration that can never work is an error at once. A missing key is one
// only when a model of that provider is asked for, so that a configuration may
// list more providers than its reader has keys for.
func NewRegistry(providers map[string]ProviderConfig, constructors map[string]Constructor) (*Registry, error) {
	r := &Registry{entries: map[string]entry{}}
	for _, name := range slices.Sorted(maps.Keys(providers)) {
		cfg := providers[name]
		if err := checkName(name); err != nil {
			return nil, err
		}
		build, ok := constructors[cfg.Type]
		if !ok {
			return nil, fmt.Errorf("model provider %q: type %q is not one of %s", name, cfg.Type, list(constructors))
		}
		if err := cfg.check(); err != nil {
			return nil, fmt.Errorf("model provider %q: %w", name, err)
		}
		if err := cfg.findKey(); err != nil {
			r.entries[name] = entry{err: fmt.Errorf("model provider %q: %w", name, err)}
			continue
		}
		provider, err := build(cfg)
		if err != nil {
			return nil, fmt.Errorf("model provider %q: %w", name, err)
		}
		r.add(name, provider, cfg.IdleTimeout)
	}
	return r, nil
}

func checkName(name string) error {
	if name == "" || strings.ContainsAny(name, "/ ") {
		return fmt.Errorf("model provider %q: a name is not empty and has no slash or space", name)
	}
	return nil
}

func (c ProviderConfig) check() error {
	if c.BaseURL == "" {
		if c.Type == TypeOpenAICompatible {
			return errors.New("baseURL is missing")
		}
		return nil
	}
	u, err := url.Parse(c.BaseURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("baseURL is not an http or https URL")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("baseURL holds a user, a query or a fragment: keys belong into apiKey, apiKeyEnv or headers")
	}
	return nil
}

// findKey fills in APIKey from where the configuration says it is.
func (c *ProviderConfig) findKey() error {
	if c.APIKey != "" {
		return nil
	}
	from, required := c.APIKeyEnv, c.APIKeyEnv != ""
	if from == "" && c.BaseURL == "" {
		// A key of the public service goes to the public service only.
		from = map[string]string{TypeOpenAI: "OPENAI_API_KEY", TypeAnthropic: "ANTHROPIC_API_KEY"}[c.Type]
		required = from != "" && !c.authorizes()
	}
	if from == "" {
		return nil
	}
	c.APIKey = strings.TrimSpace(os.Getenv(from))
	if c.APIKey == "" && required {
		return fmt.Errorf("environment variable %s is not set", from)
	}
	return nil
}

// authorizes reports whether the headers carry the credentials.
func (c ProviderConfig) authorizes() bool {
	for name := range c.Headers {
		if n := strings.ToLower(name); n == "authorization" || n == "x-api-key" {
			return true
		}
	}
	return false
}

// Add puts a provider that a program built itself under a name, which must not
// be taken. Its models are watched with [DefaultIdleTimeout].
func (r *Registry) Add(name string, p Provider) error {
	if err := checkName(name); err != nil {
		return err
	}
	if _, taken := r.entries[name]; taken {
		return fmt.Errorf("model provider %q: there is one of that name", name)
	}
	r.add(name, p, 0)
	return nil
}

func (r *Registry) add(name string, p Provider, idle time.Duration) {
	if idle == 0 {
		idle = DefaultIdleTimeout
	}
	r.entries[name] = entry{provider: p, idle: idle}
}

// Providers gives the names of the providers, sorted.
func (r *Registry) Providers() []string { return slices.Sorted(maps.Keys(r.entries)) }

// Model gives the model that ref names: the provider's name up to the first
// slash, then the provider's own name of the model. It is watched with the
// provider's idle timeout. An unknown provider is an error that names the known.
func (r *Registry) Model(ref string) (Model, error) {
	provider, name, ok := strings.Cut(ref, "/")
	if !ok || provider == "" || name == "" {
		return nil, fmt.Errorf("model %q: want \"provider/name\", with a provider of %s", ref, list(r.entries))
	}
	e, ok := r.entries[provider]
	if !ok {
		return nil, fmt.Errorf("model %q: no provider %q, only %s", ref, provider, list(r.entries))
	}
	if e.err != nil {
		return nil, fmt.Errorf("model %q: %w", ref, e.err)
	}
	m, err := e.provider.Model(name)
	if err != nil {
		return nil, fmt.Errorf("model %q: %w", ref, err)
	}
	return Watch(m, e.idle), nil
}

// list is the keys of m for people.
func list[V any](m map[string]V) string {
	if len(m) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}
