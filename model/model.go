// Package model is who answers: one small streaming interface in front of every model provider.
//
// A [Model] turns a [Request] into a stream of [Chunk]s that ends in exactly one
// finish chunk, or in an error. Providers never retry by themselves: a retry is
// a fact in the session's log, so the caller decides it. The error that ends a
// stream is an *[Error], whose Retryable and RetryAfter say what the caller may do.
package model

import (
	"context"
	"encoding/json"
	"iter"
)

// Model answers requests. Implementations are safe for concurrent use.
type Model interface {
	// Stream asks once and yields the answer as it arrives.
	//
	// The sequence yields chunks with a nil error, in the provider's order, and
	// ends in one of two ways: after a chunk whose Finish is set, or with one
	// (Chunk{}, err). If ctx is over, err wraps its cause and is no *Error; else it
	// is an *Error. A stream that stops without a finish reason is an error with
	// code [CodeIncomplete], never a short answer. Breaking out of the loop, or cancelling ctx, closes the
	// provider's connection at once. The sequence can be ranged over once.
	Stream(ctx context.Context, req Request) iter.Seq2[Chunk, error]
}

// Provider gives models by their provider-side name, such as "gpt-5-mini".
// It does no network I/O. An unknown name is reported by the first Stream.
type Provider interface {
	Model(name string) (Model, error)
}

// Request is one model call: everything the model sees.
type Request struct {
	// System is the instruction text. Empty means none.
	System string
	// Messages is the conversation, oldest first, in a form that strict
	// providers accept: see agent.Context.
	Messages []Message
	// Tools the model may call. Empty means none.
	Tools []Tool
	// MaxTokens bounds the answer. 0 leaves it to the provider, or 8192 where the
	// provider's API requires a number.
	MaxTokens int
	// Temperature is passed on when not nil.
	Temperature *float64
	// Reasoning is the effort wanted of models that think: "", "low", "medium" or
	// "high". Empty leaves it to the provider.
	Reasoning string
}

// Role says who speaks in a [Message].
type Role string

// The roles. Tool carries only tool results.
const (
	User      Role = "user"
	Assistant Role = "assistant"
	ToolRole  Role = "tool"
)

// Message is one turn of the conversation as the model sees it.
type Message struct {
	Role  Role
	Parts []Part
}

// PartKind says which fields of a [Part] are set.
type PartKind string

// The kinds of part.
const (
	TextPart      PartKind = "text"      // Text
	ReasoningPart PartKind = "reasoning" // Text and, where the provider gave one, Signature
	FilePart      PartKind = "file"      // MediaType and Data or URL
	CallPart      PartKind = "call"      // Call, Name, Arguments
	ResultPart    PartKind = "result"    // Call, Name, Text, Failed, Files
)

// Part is one piece of a message.
type Part struct {
	Kind PartKind
	Text string
	// Signature is opaque proof that a provider wants back with its own
	// reasoning, as a chunk of the block carried it. It says who issued it:
	// reasoning goes back to that server only, so a session may change its model.
	Signature string
	// Call is the id that joins a call to its result.
	Call string
	Name string
	// Arguments is a JSON object, byte for byte as the model wrote it, and is sent
	// so, but for halves of surrogate pairs. Empty means {}.
	Arguments json.RawMessage
	// Failed marks a result that tells of an error.
	Failed bool
	// Files are file parts that came with a result: pictures, for models that see.
	Files     []Part
	MediaType string
	Data      []byte
	URL       string
}

// Tool is what the model is told of a tool.
type Tool struct {
	Name        string
	Description string
	// Parameters is a JSON Schema whose type is object.
	Parameters json.RawMessage
}

// Chunk is one piece of an answer as it streams.
//
// Block numbers the content blocks of the answer from 0 in the order in which
// they began; all chunks with one Block belong together. Parallel blocks may
// interleave.
type Chunk struct {
	Kind  ChunkKind
	Block int
	// Text is what was added: prose, reasoning, or a fragment of the raw
	// argument text of a call, which may turn out to be no JSON. It is valid UTF-8.
	// It is empty where a chunk only announces a call or carries a signature.
	Text string
	// Call and Name are set on every CallChunk of a block. Call is the provider's
	// own id and may repeat between answers.
	Call string
	Name string
	// Signature is set on the reasoning chunk that carries it (Text may be empty).
	Signature string
	// Finish is set on the last chunk, and only there.
	Finish *Finish
}

// ChunkKind says what a [Chunk] adds to.
type ChunkKind string

// The kinds of chunk.
const (
	TextChunk      ChunkKind = "text"
	ReasoningChunk ChunkKind = "reasoning"
	CallChunk      ChunkKind = "call"
	FinishChunk    ChunkKind = "finish"
)

// Finish says how an answer ended.
type Finish struct {
	Reason FinishReason
	Usage  Usage
}

// FinishReason is why the model stopped.
type FinishReason string

// The finish reasons. ContentFilter means the provider withheld the rest.
const (
	Stop          FinishReason = "stop"
	Length        FinishReason = "length"
	ToolCalls     FinishReason = "tool_calls"
	ContentFilter FinishReason = "content_filter"
)

// Usage counts tokens of one answer, 0 where the provider does not say.
// InputTokens includes CachedTokens.
type Usage struct {
	InputTokens     int `json:"inputTokens"`
	OutputTokens    int `json:"outputTokens"`
	ReasoningTokens int `json:"reasoningTokens,omitempty"`
	CachedTokens    int `json:"cachedTokens,omitempty"`
}
