package fakellm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast/internal/fakellm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var wires = []fakellm.Wire{fakellm.Chat, fakellm.Responses, fakellm.Messages}

var paths = map[fakellm.Wire]string{
	fakellm.Chat:      "/v1/chat/completions",
	fakellm.Responses: "/v1/responses",
	fakellm.Messages:  "/v1/messages",
}

// eachWire runs a test on every wire, with a fresh server.
func eachWire(t *testing.T, test func(t *testing.T, wire fakellm.Wire, llm *fakellm.Server)) {
	for _, wire := range wires {
		t.Run(string(wire), func(t *testing.T) {
			t.Parallel()
			test(t, wire, fakellm.Start(t, fakellm.Options{}))
		})
	}
}

// ask is the smallest well-formed request that says text.
func ask(wire fakellm.Wire, text string, stream bool) string {
	quoted, _ := json.Marshal(text)
	switch wire {
	case fakellm.Chat:
		options := ""
		if stream {
			options = `,"stream_options":{"include_usage":true}`
		}
		return fmt.Sprintf(`{"model":"fake-model","stream":%v%s,"messages":[{"role":"user","content":%s}]}`, stream, options, quoted)
	case fakellm.Responses:
		return fmt.Sprintf(`{"model":"fake-model","stream":%v,"input":[{"role":"user","content":%s}]}`, stream, quoted)
	default:
		return fmt.Sprintf(`{"model":"fake-model","max_tokens":1000,"stream":%v,"messages":[{"role":"user","content":%s}]}`, stream, quoted)
	}
}

// client keeps no connection, so that none outlives its test.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}

func send(ctx context.Context, llm *fakellm.Server, wire fakellm.Wire, body string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, llm.URL()+paths[wire], strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer any-key")
	if wire == fakellm.Messages {
		request.Header.Set("Anthropic-Version", "2023-06-01")
	}
	return client.Do(request)
}

// open starts a streamed request and returns its response; the body is closed at
// the test's end.
func open(t *testing.T, llm *fakellm.Server, wire fakellm.Wire, body string) *http.Response {
	t.Helper()
	response, err := send(t.Context(), llm, wire, body)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response
}

// exchange reads a whole response. The error is how reading ended, nil for a
// clean end.
func exchange(t *testing.T, llm *fakellm.Server, wire fakellm.Wire, body string) (status int, text string, err error) {
	t.Helper()
	response := open(t, llm, wire, body)
	all, err := io.ReadAll(response.Body)
	return response.StatusCode, string(all), err
}

// stream asks on wire with streaming and wants a clean end.
func stream(t *testing.T, llm *fakellm.Server, wire fakellm.Wire) string {
	t.Helper()
	status, text, err := exchange(t, llm, wire, ask(wire, "hi", true))
	if status != http.StatusOK || err != nil {
		t.Fatalf("status %d, error %v, body %s", status, err, text)
	}
	return text
}

// readUntil reads byte by byte until what was read ends with mark.
func readUntil(t *testing.T, r io.Reader, mark string) string {
	t.Helper()
	var read bytes.Buffer
	one := make([]byte, 1)
	for !bytes.HasSuffix(read.Bytes(), []byte(mark)) {
		if _, err := io.ReadFull(r, one); err != nil {
			t.Fatalf("after %q: %v", read.String(), err)
		}
		read.Write(one)
	}
	return read.String()
}

// event is one SSE frame.
type event struct {
	name string
	data string
}

// events splits a stream into its frames and leaves comments out. A frame that
// is not ended by a blank line is no event.
func events(stream string) []event {
	var all []event
	frames := strings.Split(stream, "\n\n")
	for _, frame := range frames[:len(frames)-1] {
		var e event
		for line := range strings.SplitSeq(frame, "\n") {
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				e.data += data
			}
			if name, ok := strings.CutPrefix(line, "event: "); ok {
				e.name = name
			}
		}
		if e.data != "" {
			all = append(all, e)
		}
	}
	return all
}

// heard is what a client makes of a stream.
type heard struct {
	text      string
	reasoning string
	signature string
	calls     map[string]string // by name: the arguments
	reason    string
	ended     bool
	failure   string
	input     int
	output    int
}

// listen understands the stream of any wire, in the plainest way.
func listen(t *testing.T, wire fakellm.Wire, stream string) heard {
	t.Helper()
	h := heard{calls: map[string]string{}}
	names := map[string]string{} // of calls, by index or item
	for _, e := range events(stream) {
		if e.data == "[DONE]" {
			h.ended = true
			continue
		}
		var d struct {
			Type    string
			Choices []struct {
				Delta struct {
					Content          string
					ReasoningContent string `json:"reasoning_content"`
					ToolCalls        []struct {
						Index    int
						Function struct{ Name, Arguments string }
					} `json:"tool_calls"`
				}
				FinishReason string `json:"finish_reason"`
			}
			Usage *struct {
				PromptTokens     int `json:"prompt_tokens"`
				CompletionTokens int `json:"completion_tokens"`
				InputTokens      int `json:"input_tokens"`
				OutputTokens     int `json:"output_tokens"`
			}
			Index        int
			ContentBlock struct{ Type, Name string } `json:"content_block"`
			Delta        json.RawMessage
			Item         struct{ Type, ID, Name string }
			ItemID       string `json:"item_id"`
			Response     struct {
				Status string
				Usage  struct {
					InputTokens  int `json:"input_tokens"`
					OutputTokens int `json:"output_tokens"`
				}
				IncompleteDetails struct{ Reason string } `json:"incomplete_details"`
			}
			Error struct{ Type, Code, Message string }
		}
		if err := json.Unmarshal([]byte(e.data), &d); err != nil {
			t.Fatalf("frame %q: %v", e.data, err)
		}
		if e.name != d.Type {
			t.Errorf("event %q has type %q", e.name, d.Type)
		}
		if d.Error.Message != "" {
			h.failure = d.Error.Message
		}
		if wire == fakellm.Chat {
			if d.Usage != nil {
				h.input, h.output = d.Usage.PromptTokens, d.Usage.CompletionTokens
			}
			for _, c := range d.Choices {
				h.text += c.Delta.Content
				h.reasoning += c.Delta.ReasoningContent
				for _, call := range c.Delta.ToolCalls {
					key := fmt.Sprint(call.Index)
					if call.Function.Name != "" {
						names[key] = call.Function.Name
					}
					h.calls[names[key]] += call.Function.Arguments
				}
				if c.FinishReason != "" {
					h.reason = c.FinishReason
				}
			}
			continue
		}
		switch d.Type {
		case "content_block_start":
			if d.ContentBlock.Type == "tool_use" {
				names[fmt.Sprint(d.Index)] = d.ContentBlock.Name
				h.calls[d.ContentBlock.Name] += ""
			}
		case "content_block_delta", "message_delta":
			var delta struct {
				Text, Thinking, Signature string
				PartialJSON               string `json:"partial_json"`
				StopReason                string `json:"stop_reason"`
			}
			if err := json.Unmarshal(d.Delta, &delta); err != nil {
				t.Fatal(err)
			}
			h.text += delta.Text
			h.reasoning += delta.Thinking
			h.signature += delta.Signature
			if delta.PartialJSON != "" {
				h.calls[names[fmt.Sprint(d.Index)]] += delta.PartialJSON
			}
			if d.Type == "message_delta" {
				h.reason, h.input, h.output = delta.StopReason, d.Usage.InputTokens, d.Usage.OutputTokens
			}
		case "message_stop":
			h.ended = true
		case "response.output_item.added":
			if d.Item.Type == "function_call" {
				names[d.Item.ID] = d.Item.Name
				h.calls[d.Item.Name] += ""
			}
		case "response.output_text.delta", "response.reasoning_summary_text.delta", "response.function_call_arguments.delta":
			var piece string
			if err := json.Unmarshal(d.Delta, &piece); err != nil {
				t.Fatal(err)
			}
			switch d.Type {
			case "response.output_text.delta":
				h.text += piece
			case "response.reasoning_summary_text.delta":
				h.reasoning += piece
			default:
				h.calls[names[d.ItemID]] += piece
			}
		case "response.completed", "response.incomplete":
			h.ended = true
			h.reason = d.Response.Status
			if d.Response.IncompleteDetails.Reason != "" {
				h.reason = d.Response.IncompleteDetails.Reason
			}
			h.input, h.output = d.Response.Usage.InputTokens, d.Response.Usage.OutputTokens
		}
	}
	return h
}

// soon is a limit for waits that should end at once.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Second, errors.New("not within 20 s"))
	t.Cleanup(cancel)
	return ctx
}
