package openai

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/model"
)

// Public providers speak HTTP/2, where a cut is a reset of one stream of many.
func TestOverHTTP2AStreamIsCutAndCancelledOnItsOwn(t *testing.T) {
	llm := fakellm.New(fakellm.Options{})
	t.Cleanup(llm.Close)
	var oldProtocol atomic.Bool
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			oldProtocol.Store(true)
		}
		llm.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)

	p, err := New(model.ProviderConfig{Type: model.TypeOpenAI, BaseURL: server.URL + "/v1", APIKey: "sk-0123456789"})
	if err != nil {
		t.Fatal(err)
	}
	roots := server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	p.(*provider).line.Client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots}
	m, err := p.Model("gpt-5-mini")
	if err != nil {
		t.Fatal(err)
	}
	req := model.Request{Messages: []model.Message{{Role: model.User, Parts: []model.Part{{Kind: model.TextPart, Text: "Hello?"}}}}}
	read := func(ctx context.Context, then func()) (text string, failed error) {
		for c, err := range m.Stream(ctx, req) {
			if err != nil {
				return text, err
			}
			text += c.Text
			then()
		}
		return text, nil
	}

	llm.Script(
		fakellm.Reply(fakellm.Text("Hel"), fakellm.Cut()),
		fakellm.Reply(fakellm.Text("Hel"), fakellm.Stall()),
		fakellm.Reply(fakellm.Text("Hello.")))
	text, err := read(t.Context(), func() {})
	var failure *model.Error
	if !errors.As(err, &failure) || failure.Code != model.CodeIncomplete || text != "Hel" {
		t.Errorf("cut: %q, %v", text, err)
	}
	why := errors.New("someone pressed stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	if text, err := read(ctx, func() { cancel(why) }); !errors.Is(err, why) || text != "Hel" {
		t.Errorf("cancelled: %q, %v", text, err)
	}
	if r, err := llm.WaitClosed(t.Context(), 2); err != nil || !r.ClientLeft {
		t.Errorf("the server still streams to nobody: %v", err)
	}
	if text, err := read(t.Context(), func() {}); err != nil || text != "Hello." {
		t.Errorf("the next: %q, %v", text, err)
	}
	if oldProtocol.Load() {
		t.Error("a request came over HTTP/1")
	}
}
