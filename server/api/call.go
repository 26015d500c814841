package api

import "encoding/json"

// CompleteCall is how a call ended that a service worked on: one of its members.
type CompleteCall struct {
	Result json.RawMessage `json:"result,omitempty" doc:"the JSON value that the model reads, byte for byte"`
	Error  *CallError      `json:"error,omitempty" doc:"why the call failed"`
}

// CallError is why a call failed.
type CallError struct {
	Code    string `json:"code,omitempty" pattern:"^[A-Za-z0-9_.-]{1,100}$" patternDescription:"1 to 100 letters, digits, _, . or -" doc:"a short stable name; default: tool_failed"`
	Message string `json:"message" minLength:"1" maxLength:"8192" doc:"what the model reads; at most 8,192 bytes"`
}

// CallDone is the answer of a call's end.
type CallDone struct {
	Call string `json:"call" doc:"the call"`
	Seq  int64  `json:"seq" doc:"the session's seq when it was done"`
}
