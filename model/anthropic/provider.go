// Package anthropic reaches models that speak Anthropic's messages, thinking
// included.
//
// The official SDK makes the request, signs and sends it, and splits the answer
// into events. What is in an event is decoded here: a token costs a third of what
// it costs through the SDK's types (BenchmarkChunk).
package anthropic

import (
	"net/url"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/model/internal/wire"
)

// provider gives models of one server. It is safe for concurrent use.
type provider struct {
	line   *wire.Line
	client anthropic.Client
	host   string
}

// New builds a provider of type anthropic. It is a [model.Constructor].
func New(cfg model.ProviderConfig) (model.Provider, error) {
	p := &provider{line: wire.NewLine(cfg), host: "api.anthropic.com"}
	opts := []option.RequestOption{
		// A key that lies in the environment must not travel to a server that
		// nobody gave it to.
		option.WithoutEnvironmentDefaults(),
		option.WithHTTPClient(p.line.Client),
		option.WithMaxRetries(0),
		option.WithMiddleware(p.line.Check),
		option.WithHeader("Accept", "text/event-stream"),
	}
	if cfg.BaseURL != "" {
		u, err := url.Parse(cfg.BaseURL)
		if err != nil {
			return nil, err
		}
		p.host = u.Host
		opts = append(opts, option.WithBaseURL(cfg.BaseURL))
	}
	if cfg.APIKey != "" {
		opts = append(opts, option.WithAPIKey(cfg.APIKey))
	}
	for name, value := range cfg.Headers {
		opts = append(opts, option.WithHeader(name, value))
	}
	p.client = anthropic.NewClient(opts...)
	return p, nil
}

// Model gives the model that the server knows by this name.
func (p *provider) Model(name string) (model.Model, error) {
	return messages{p, name}, nil
}

type messages struct {
	*provider
	name string
}
