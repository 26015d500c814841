package api

import (
	"net/http"
	"strconv"

	"github.com/holdfast-run/holdfast/session"
)

// ProblemType is the media type of every answer of 400 and above.
const ProblemType = "application/problem+json"

// Problem is a refusal or a failure, as RFC 9457 has it. A refused command has
// changed nothing. It is an error, so that clients can return it.
type Problem struct {
	Type   string `json:"type" doc:"always about:blank"`
	Title  string `json:"title" doc:"the status in words"`
	Status int    `json:"status"`
	// Detail is for people and may change.
	Detail string `json:"detail,omitempty" doc:"what is wrong and what to do, for people; may change"`
	// Code is for programs and stable.
	Code Code `json:"code" doc:"what is wrong, for programs; stable"`
	// Errors names the fields at fault.
	Errors []FieldError `json:"errors,omitempty"`
	// Run and Approval are what the refusal is about.
	Run      *session.Run      `json:"run,omitempty" doc:"the run that the refusal is about"`
	Approval *session.Approval `json:"approval,omitempty" doc:"the approval as it was decided"`
	// RetryAfterMs is when to try again, in milliseconds from now.
	RetryAfterMs int64 `json:"retryAfterMs,omitempty" doc:"when to try again, in milliseconds; also as Retry-After"`
}

// FieldError says what is wrong with one field.
type FieldError struct {
	// Field is where it is: "onBusy", or "parts.0.text".
	Field   string `json:"field"`
	Message string `json:"message"`
}

// Code is a stable name for a kind of refusal or failure. The codes of package
// session are among them.
type Code string

// The codes that are the server's own.
const (
	Malformed            Code = "malformed"
	InvalidID            Code = "invalid_id"
	InvalidCursor        Code = "invalid_cursor"
	Unauthenticated      Code = "unauthenticated"
	ForbiddenHost        Code = "forbidden_host"
	ForbiddenOrigin      Code = "forbidden_origin"
	NotFound             Code = "not_found"
	MethodNotAllowed     Code = "method_not_allowed"
	RequestTimeout       Code = "request_timeout"
	TooLarge             Code = "too_large"
	UnsupportedMediaType Code = "unsupported_media_type"
	RangeNotSatisfiable  Code = "range_not_satisfiable"
	Invalid              Code = "invalid"
	UpgradeRequired      Code = "upgrade_required"
	Internal             Code = "internal"
	TooManyStreams       Code = "too_many_streams"
	Unavailable          Code = "unavailable"
)

// Error gives the detail and the code.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return p.Title + " (" + string(p.Code) + ")"
	}
	return p.Detail + " (" + string(p.Code) + ")"
}

// GetStatus is the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType is [ProblemType].
func (p *Problem) ContentType(string) string { return ProblemType }

// GetHeaders gives Retry-After, in whole seconds rounded up, if there is a time to retry.
func (p *Problem) GetHeaders() http.Header {
	if p.RetryAfterMs <= 0 {
		return nil
	}
	return http.Header{"Retry-After": {strconv.FormatInt((p.RetryAfterMs+999)/1000, 10)}}
}
