package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast/bench/internal/workload"
)

// response is one completion, in the pieces in which OpenAI sends it.
type response struct {
	id, model string
	created   int64
	want      workload.Response
	usage     bool
}

// length is how long the tokens take from the first to the last.
func (r *response) length() time.Duration {
	if r.want.Rate == 0 || r.want.Tokens == 0 {
		return 0
	}
	return time.Duration(float64(r.want.Tokens-1) / r.want.Rate * float64(time.Second))
}

// head is everything of a chunk that comes before its choices.
func (r *response) head() string {
	model, _ := json.Marshal(r.model)
	return fmt.Sprintf(`data: {"id":%q,"object":"chat.completion.chunk","created":%d,"model":%s,"system_fingerprint":"fp_bench",`,
		r.id, r.created, model)
}

const (
	roleChoice   = `"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}` + "\n\n"
	contentOpen  = `"choices":[{"index":0,"delta":{"content":"`
	contentClose = `"},"logprobs":null,"finish_reason":null}]}` + "\n\n"
	stopChoice   = `"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}` + "\n\n"
	doneEvent    = "data: [DONE]\n\n"
)

func (r *response) usageJSON() string {
	return fmt.Sprintf(`{"prompt_tokens":10,"completion_tokens":%d,"total_tokens":%d}`, r.want.Tokens, r.want.Tokens+10)
}

// tail is what follows the last token.
func (r *response) tail() []byte {
	b := []byte(r.head() + stopChoice)
	if r.usage {
		b = append(b, r.head()+`"choices":[],"usage":`+r.usageJSON()+"}\n\n"...)
	}
	return append(b, doneEvent...)
}

// whole is the response to a request without streaming.
func (r *response) whole() []byte {
	var text []byte
	for i := range r.want.Tokens {
		text = workload.AppendToken(text, i, time.Now().UnixNano(), r.want.Size)
	}
	model, _ := json.Marshal(r.model)
	return fmt.Appendf(nil, `{"id":%q,"object":"chat.completion","created":%d,"model":%s,`+
		`"choices":[{"index":0,"message":{"role":"assistant","content":"%s"},"finish_reason":"stop"}],"usage":%s}`,
		r.id, r.created, model, text, r.usageJSON())
}
