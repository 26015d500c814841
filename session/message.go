package session

import (
	"encoding/json"
	"iter"
	"strings"
	"time"
)

// Role says who a message is from.
type Role string

// The roles.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
)

// MessageStatus says whether a message can still change.
type MessageStatus string

// The message statuses. A user message is completed from the start.
const (
	MessageStreaming MessageStatus = "streaming"
	MessageWhole     MessageStatus = "completed"
	MessageCut       MessageStatus = "interrupted"
)

// Message is what a person or the assistant said. Messages form a tree through
// Parent; the session's head chooses the active branch.
type Message struct {
	ID     string        `json:"id"`
	Role   Role          `json:"role"`
	Parent string        `json:"parent,omitempty"` // empty for a root
	Parts  []Part        `json:"parts"`
	Status MessageStatus `json:"status"`
	// Reason says why an interrupted message ended: "cancelled" or "failed".
	Reason string `json:"reason,omitempty"`
	// Run answers a user message, or wrote an assistant message.
	Run string `json:"run,omitempty"`
	// Background says that this tells how a background run ended: nobody said it in this conversation.
	Background *Background `json:"background,omitempty"`
	// Seq is the event that created it.
	Seq       int64     `json:"seq,omitempty"`
	CreatedAt time.Time `json:"createdAt,omitzero"`
	// Siblings are the messages with the same parent and role, this one
	// included, oldest first, when there is more than one. Only snapshots set it.
	Siblings []string `json:"siblings,omitempty"`
}

// PartType says which fields of a [Part] are set.
type PartType string

// The part types. PartStep marks the beginning of a step.
const (
	PartText      PartType = "text"
	PartReasoning PartType = "reasoning"
	PartTool      PartType = "tool"
	PartFile      PartType = "file"
	PartSource    PartType = "source"
	PartData      PartType = "data"
	PartStep      PartType = "step"
)

// PartState says how far a part of an assistant message is. The zero value
// means whole.
type PartState string

// The part states. A failed part was streamed by an attempt that gave no
// answer; the next attempt replaces it.
const (
	PartStreaming PartState = "streaming"
	PartFailed    PartState = "failed"
)

// Part is one piece of a message.
type Part struct {
	Type PartType `json:"type"`
	// Text is the text of a text or reasoning part. With Blob set it is a preview.
	Text string `json:"text,omitempty"`
	// Blob holds a text too large to carry.
	Blob *Blob `json:"blob,omitempty"`
	// Signature is a provider's opaque proof of its own reasoning.
	Signature string          `json:"signature,omitempty"`
	Tool      *ToolCall       `json:"tool,omitempty"`
	File      *File           `json:"file,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	// Step and Part place it: the Part-th part of that step's attempt.
	Step  int       `json:"step,omitempty"`
	Part  int       `json:"part,omitempty"`
	State PartState `json:"state,omitempty"`

	// grow backs Text while it streams, so that appending stays cheap.
	grow *strings.Builder
}

// appendText adds s to the part's text in amortised constant time per byte.
func (p *Part) appendText(s string) {
	if p.grow == nil {
		p.grow = &strings.Builder{}
		p.grow.WriteString(p.Text)
	}
	p.grow.WriteString(s)
	p.Text = p.grow.String()
}

// File is a file that a message carries, by content or by reference.
type File struct {
	Name      string `json:"name,omitempty"`
	MediaType string `json:"mediaType"`
	URL       string `json:"url,omitempty"`
	Blob      *Blob  `json:"blob,omitempty"`
}

// Blob names a large value kept beside the log by the SHA-256 of its content.
type Blob struct {
	Hash      string `json:"hash"` // lower-case hex
	Size      int64  `json:"size"` // bytes
	MediaType string `json:"mediaType"`
}

// ToolCall is the life of one call:
// called → [approval] → started → [deferred] → completed | failed | denied | cancelled | unknown.
type ToolCall struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// RawArguments is the text as streamed, or as it came when it was not a JSON object.
	RawArguments string `json:"rawArguments,omitempty"`
	// ArgumentsBlob holds arguments too large to carry.
	ArgumentsBlob *Blob           `json:"argumentsBlob,omitempty"`
	Effects       Effects         `json:"effects,omitempty"`
	Status        CallStatus      `json:"status"`
	Approval      string          `json:"approval,omitempty"`
	Try           int             `json:"try,omitempty"`
	Key           string          `json:"key,omitempty"`
	Progress      *Progress       `json:"progress,omitempty"`
	Result        json.RawMessage `json:"result,omitempty"`
	Blob          *Blob           `json:"blob,omitempty"` // the whole result, when Result is a preview
	Files         []File          `json:"files,omitempty"`
	Cut           int64           `json:"cut,omitempty"`
	Error         *Failure        `json:"error,omitempty"`
	Child         *Child          `json:"child,omitempty"` // the subagent's run that does its work
	Until         *time.Time      `json:"until,omitempty"` // when a deferred call is given up
	By            string          `json:"by,omitempty"`    // who denied or resolved it
	Note          string          `json:"note,omitempty"`  // what they said
	StartedAt     *time.Time      `json:"startedAt,omitempty"`
	EndedAt       *time.Time      `json:"endedAt,omitempty"`
}

// CallStatus is where a tool call is in its life.
type CallStatus string

// The call statuses. Writing is before the model has finished the call.
const (
	CallWriting   CallStatus = "writing"
	CallCalled    CallStatus = "called"
	CallStarted   CallStatus = "started"
	CallDeferred  CallStatus = "deferred" // others work on it: its result comes from outside the worker
	CallCompleted CallStatus = "completed"
	CallFailed    CallStatus = "failed"
	CallDenied    CallStatus = "denied"
	CallCancelled CallStatus = "cancelled"
	CallUnknown   CallStatus = "unknown"
)

// Settled says that the call has a result the model can read.
func (c CallStatus) Settled() bool {
	switch c {
	case CallCompleted, CallFailed, CallDenied, CallCancelled:
		return true
	}
	return false
}

// Effects says what a tool does to the world, and so whether a call may be made
// again when nobody knows whether it happened.
type Effects string

// The effects. Unsafe is the default.
const (
	ReadOnly   Effects = "read_only"  // changes nothing
	Idempotent Effects = "idempotent" // the same key has the effect once
	Unsafe     Effects = "unsafe"     // doing it twice is worse than asking
)

// Outcome is a person's word on a call whose outcome is unknown.
type Outcome string

// The outcomes.
const (
	Happened    Outcome = "happened" // it did; a result may be given
	DidNot      Outcome = "did_not"  // it did not: run it
	OutcomeFail Outcome = "failed"   // treat it as failed
)

// Progress is how far a running call is.
type Progress struct {
	Message  string          `json:"message,omitempty"`
	Fraction float64         `json:"fraction,omitempty"` // 0..1
	Data     json.RawMessage `json:"data,omitempty"`
}

// Text is the text of all text parts, joined.
func (m *Message) Text() string {
	var b strings.Builder
	for _, p := range m.Parts {
		if p.Type == PartText {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

// Streamed is what attempts without an answer have streamed so far and no fact
// carries yet, without calls that are still being written: what the fact that
// ends the attempt must keep.
func (m *Message) Streamed() []Part {
	var parts []Part
	for _, p := range m.Parts {
		if p.State == PartStreaming && p.Type != PartTool {
			parts = append(parts, Part{Type: p.Type, Text: p.Text, Step: p.Step, Part: p.Part})
		}
	}
	return parts
}

// Blobs are the large values that the message names.
func (m *Message) Blobs() iter.Seq[*Blob] {
	return func(yield func(*Blob) bool) {
		for i := range m.Parts {
			p := &m.Parts[i]
			all := []*Blob{p.Blob}
			if p.File != nil {
				all = append(all, p.File.Blob)
			}
			if t := p.Tool; t != nil {
				all = append(all, t.ArgumentsBlob, t.Blob)
				for j := range t.Files {
					all = append(all, t.Files[j].Blob)
				}
			}
			for _, b := range all {
				if b != nil && !yield(b) {
					return
				}
			}
		}
	}
}

// Call finds the tool call with the given id, or gives nil.
func (m *Message) Call(id string) *ToolCall {
	for i := range m.Parts {
		if t := m.Parts[i].Tool; t != nil && t.ID == id {
			return t
		}
	}
	return nil
}
