package openai

import (
	"encoding/json"
	"testing"
)

const plainChunk = `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1764500000,"model":"gpt","service_tier":"default","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"content":" wörld"},"logprobs":null,"finish_reason":null}],"usage":null}`

func TestAnEventThatOnlyAddsTextNeedsNoDecoding(t *testing.T) {
	for event, want := range map[string]string{
		plainChunk: " wörld",
		`{"choices":[{"delta":{"role":"assistant","content":"","refusal":null}}]}`:                          "",
		"{ \"choices\" : [ { \"index\" : 0 , \"delta\" : { \"content\" : \"a\" } } ] , \"usage\" : null } ": "a",
	} {
		text, ok := contentOf([]byte(event))
		if !ok || string(text) != want {
			t.Errorf("%s gave %q, %v", event, text, ok)
		}
	}
}

func TestAnEventThatSaysMoreThanTextIsDecoded(t *testing.T) {
	for _, event := range []string{
		``, `{}`, `null`, `[]`, `{"choices":[]}`, `[DONE]`,
		`{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}`,
		`{"choices":[{"index":1,"delta":{"content":"a"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{"content":"b"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"a\n"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"a","reasoning":"b"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"a","tool_calls":[]}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"a","Content":"b"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":1}}`,
		`{"choices":[{"index":0,"delta":{"content":"a"}}],"error":{"message":"b"}}`,
		`{"object":"error","choices":[{"index":0,"delta":{"content":"a"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"a"}}]`,
		`{"choices":[{"index":0,"delta":{"content":"a"}}]}}`,
		"{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\xff\"}}]}",
	} {
		if text, ok := contentOf([]byte(event)); ok {
			t.Errorf("%s was taken for the text %q", event, text)
		}
	}
}

func FuzzWhatNeedsNoDecodingDecodesToTheSame(f *testing.F) {
	f.Add([]byte(plainChunk))
	f.Add([]byte(`{"choices":[{"delta":{"role":"assistant","content":"","refusal":null}}],"x":"y","n":12}`))
	f.Add([]byte(` {"object":"","error":null,"choices":[{}]}`))
	f.Fuzz(func(t *testing.T, event []byte) {
		text, ok := contentOf(event)
		if !ok {
			return
		}
		var c chunk
		if err := json.Unmarshal(event, &c); err != nil {
			t.Fatalf("%q is no JSON: %v", event, err)
		}
		switch {
		case len(c.Choices) != 1 || c.Choices[0].Index != 0 || c.Choices[0].FinishReason != "":
			t.Errorf("%q has the choices %+v", event, c.Choices)
		case c.Choices[0].Delta.Content != string(text):
			t.Errorf("%q says %q, not %q", event, c.Choices[0].Delta.Content, text)
		case c.Choices[0].Delta.Reasoning != "" || c.Choices[0].Delta.ReasoningContent != "" || c.Choices[0].Delta.Refusal != "" || c.Choices[0].Delta.ToolCalls != nil:
			t.Errorf("%q says more: %+v", event, c.Choices[0].Delta)
		case c.Object == "error" || c.Usage != nil || len(c.Error) > 0 && string(c.Error) != "null":
			t.Errorf("%q is %+v", event, c)
		}
	})
}
