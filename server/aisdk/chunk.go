package aisdk

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/holdfast-run/holdfast/session"
)

// Chunk is one event of a UI message stream. Which fields are set follows from
// Type. A client refuses a whole answer for one field that is null or not known
// to it, so what is not set is absent.
type Chunk struct {
	Type string `json:"type"`

	ID        string          `json:"id,omitempty"`        // of a text, reasoning or data part
	Delta     string          `json:"delta,omitempty"`     // text-delta, reasoning-delta
	Data      json.RawMessage `json:"data,omitempty"`      // data-*
	Transient bool            `json:"transient,omitempty"` // data-*: told to the page, no part of the message

	MessageID       string    `json:"messageId,omitempty"`
	MessageMetadata *Metadata `json:"messageMetadata,omitempty"`
	FinishReason    string    `json:"finishReason,omitempty"`

	ToolCallID       string          `json:"toolCallId,omitempty"`
	ToolName         string          `json:"toolName,omitempty"`
	InputTextDelta   string          `json:"inputTextDelta,omitempty"`
	Input            json.RawMessage `json:"input,omitempty"`
	Output           json.RawMessage `json:"output,omitempty"`
	ErrorText        string          `json:"errorText,omitempty"`
	ProviderExecuted bool            `json:"providerExecuted,omitempty"`

	ApprovalID string `json:"approvalId,omitempty"`
	Approved   *bool  `json:"approved,omitempty"`
	Reason     string `json:"reason,omitempty"`

	SourceID  string `json:"sourceId,omitempty"`
	URL       string `json:"url,omitempty"`
	Title     string `json:"title,omitempty"`
	MediaType string `json:"mediaType,omitempty"`
}

// Metadata is what a message says of the run that wrote it.
type Metadata struct {
	RunID string `json:"runId"`
	// Status is the run's: running, waiting (for an approval), completed, failed or cancelled.
	Status session.Status   `json:"status"`
	Usage  *Usage           `json:"usage,omitempty"` // once the run has ended
	Error  *session.Failure `json:"error,omitempty"` // why it failed
}

// Usage counts tokens in the SDK's words.
type Usage struct {
	InputTokens       int `json:"inputTokens"`
	OutputTokens      int `json:"outputTokens"`
	TotalTokens       int `json:"totalTokens"`
	ReasoningTokens   int `json:"reasoningTokens,omitempty"`
	CachedInputTokens int `json:"cachedInputTokens,omitempty"`
}

func usageOf(u session.Usage) *Usage {
	return &Usage{
		InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, TotalTokens: u.InputTokens + u.OutputTokens,
		ReasoningTokens: u.ReasoningTokens, CachedInputTokens: u.CachedTokens,
	}
}

// The types of chunks.
const (
	start              = "start"
	startStep          = "start-step"
	finishStep         = "finish-step"
	finish             = "finish"
	abort              = "abort"
	failure            = "error"
	messageMetadata    = "message-metadata"
	textDelta          = "text-delta"
	reasoningDelta     = "reasoning-delta"
	toolInputStart     = "tool-input-start"
	toolInputDelta     = "tool-input-delta"
	toolInputAvailable = "tool-input-available"
	toolInputError     = "tool-input-error"
	approvalRequest    = "tool-approval-request"
	approvalResponse   = "tool-approval-response"
	outputAvailable    = "tool-output-available"
	outputError        = "tool-output-error"
	outputDenied       = "tool-output-denied"
	resetStep          = "reset-step"
	sourceURL          = "source-url"
	filePart           = "file"
	dataProgress       = "data-tool-progress"
	dataApproval       = "data-approval"
	dataPart           = "data-part"
)

// AppendEvent appends the chunk as one server-sent event.
func (c Chunk) AppendEvent(b []byte) []byte {
	b = append(b, "data: "...)
	if c.Type == textDelta || c.Type == reasoningDelta { // nearly all of a stream: written without reflection
		b = append(b, `{"type":"`...)
		b = append(b, c.Type...)
		b = append(b, `","id":`...)
		b = strconv.AppendQuote(b, c.ID) // of our own making: it has nothing to escape
		b = append(b, `,"delta":`...)
		b = append(b, session.JSONString(c.Delta)...)
		b = append(b, '}')
	} else {
		b = append(b, marshal(c)...)
	}
	return append(b, "\n\n"...)
}

// BeginsStep says that a client can begin to read at this chunk.
func (c Chunk) BeginsStep() bool { return c.Type == startStep }

// Nothing is the whole stream of a chat in which nothing was said yet.
const Nothing = `data: {"type":"finish"}` + "\n\n" + DoneEvent

// DoneEvent ends a stream that is whole.
const DoneEvent = "data: [DONE]\n\n"

// marshal is json.Marshal without HTML escapes.
func marshal(v any) json.RawMessage {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // strings, numbers and JSON that was checked when it entered
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}
