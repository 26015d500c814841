// Package openai reaches models that speak OpenAI's chat completions: OpenAI
// itself, and every compatible server, such as Ollama, vLLM, llama.cpp,
// DeepSeek, OpenRouter or Groq.
//
// The official SDK makes the request, signs and sends it, and splits the answer
// into events. What is in an event is decoded here: the fields of other servers
// than OpenAI's, such as reasoning_content or a call without an index, are plain
// fields then, and a token costs a third of what it costs through the SDK's
// types (BenchmarkChunk).
package openai

import (
	"net/url"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/model/internal/wire"
)

// provider gives models of one server. It is safe for concurrent use.
type provider struct {
	line       *wire.Line
	service    openai.ChatCompletionService
	host       string
	compatible bool
}

// New builds a provider of type openai or openai-compatible. The two differ in
// the name of the token limit, and in that only a compatible server is sent its
// own reasoning again. It is a [model.Constructor].
func New(cfg model.ProviderConfig) (model.Provider, error) {
	p := &provider{
		line:       wire.NewLine(cfg),
		host:       "api.openai.com",
		compatible: cfg.Type == model.TypeOpenAICompatible,
	}
	// A service, unlike the SDK's client, takes nothing from the environment: a
	// key that lies there must not travel to a server that nobody gave it to.
	opts := []option.RequestOption{
		option.WithEnvironmentProduction(),
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
	p.service = openai.NewChatCompletionService(opts...)
	return p, nil
}

// Model gives the model that the server knows by this name.
func (p *provider) Model(name string) (model.Model, error) {
	return chat{p, name}, nil
}

type chat struct {
	*provider
	name string
}
