package openai

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/holdfast-run/holdfast/model"
)

// tokens is an answer as OpenAI sends it, of n text deltas.
func tokens(n int) []byte {
	var b bytes.Buffer
	const frame = `data: {"id":"chatcmpl-BxK1v2mZ8pQ4r7Wd3sT6uYhJ","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini-2025-08-07","service_tier":"default","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":{%s},"logprobs":null,"finish_reason":%s}],"usage":null,"obfuscation":"4kqT9xLm"}` + "\n\n"
	for range n {
		fmt.Fprintf(&b, frame, `"content":" token"`, "null")
	}
	fmt.Fprintf(&b, frame, "", `"stop"`)
	b.WriteString("data: [DONE]\n\n")
	return b.Bytes()
}

type canned []byte

func (c canned) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": {"text/event-stream"}},
		Body:       io.NopCloser(bytes.NewReader(c)),
	}, nil
}

// BenchmarkChunk is what one token costs between the socket and the reader of
// the stream, the network itself left out. "sdk" is the same through the SDK's
// own types.
func BenchmarkChunk(b *testing.B) {
	const n = 1000
	answer := canned(tokens(n))
	report := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/chunk")
	}
	b.Run("holdfast", func(b *testing.B) {
		p, err := New(model.ProviderConfig{Type: model.TypeOpenAI, APIKey: "k"})
		if err != nil {
			b.Fatal(err)
		}
		p.(*provider).line.Client.Transport = answer
		m, _ := p.Model("gpt-5-mini")
		b.ReportAllocs()
		for b.Loop() {
			seen := 0
			for _, err := range m.Stream(b.Context(), model.Request{}) {
				if err != nil {
					b.Fatal(err)
				}
				seen++
			}
			if seen != n+1 {
				b.Fatalf("%d chunks", seen)
			}
		}
		report(b)
	})
	b.Run("sdk", func(b *testing.B) {
		s := openai.NewChatCompletionService(option.WithEnvironmentProduction(), option.WithHTTPClient(&http.Client{Transport: answer}))
		b.ReportAllocs()
		for b.Loop() {
			stream := s.NewStreaming(b.Context(), openai.ChatCompletionNewParams{})
			text := 0
			for stream.Next() {
				text += len(stream.Current().Choices[0].Delta.Content)
			}
			if stream.Err() != nil || text == 0 {
				b.Fatal(stream.Err())
			}
		}
		report(b)
	})
}
