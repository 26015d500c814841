package anthropic

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/holdfast-run/holdfast/model"
)

// tokens is an answer as Anthropic sends it, of n text deltas.
func tokens(n int) []byte {
	var b bytes.Buffer
	frame := func(kind, rest string) {
		b.WriteString("event: " + kind + "\ndata: {\"type\":\"" + kind + "\"" + rest + "}\n\n")
	}
	frame("message_start", `,"message":{"model":"claude-sonnet-4-5-20250929","id":"msg_01XFDUDYJgAACzvnptvVoYEL","type":"message","role":"assistant","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":25,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":1}}`)
	frame("content_block_start", `,"index":0,"content_block":{"type":"text","text":""}`)
	for range n {
		frame("content_block_delta", `,"index":0,"delta":{"type":"text_delta","text":" token"}`)
	}
	frame("content_block_stop", `,"index":0`)
	frame("message_delta", `,"delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":15}`)
	frame("message_stop", "")
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
		p, err := New(model.ProviderConfig{Type: model.TypeAnthropic, APIKey: "k"})
		if err != nil {
			b.Fatal(err)
		}
		p.(*provider).line.Client.Transport = answer
		m, _ := p.Model("claude-sonnet-4-5")
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
		c := anthropic.NewClient(option.WithoutEnvironmentDefaults(), option.WithAPIKey("k"), option.WithHTTPClient(&http.Client{Transport: answer}))
		b.ReportAllocs()
		for b.Loop() {
			stream := c.Messages.NewStreaming(b.Context(), anthropic.MessageNewParams{})
			text := 0
			for stream.Next() {
				text += len(stream.Current().Delta.Text)
			}
			if stream.Err() != nil || text == 0 {
				b.Fatal(stream.Err())
			}
		}
		report(b)
	})
}
