package model

import (
	"fmt"
	"time"
)

// Error is why a model call failed, in terms the caller can act on.
type Error struct {
	Code Code
	// Message is for people. It never holds a key, a header or a request body.
	Message string
	// Status is the HTTP status, 0 when the failure came in the stream or below HTTP.
	Status int
	// Retryable says that the same request may succeed later. The provider's own
	// word on it (X-Should-Retry, an exhausted quota) goes before the code's rule.
	Retryable bool
	// RetryAfter is the least wait the provider asked for, 0 when it did not.
	RetryAfter time.Duration
	// Err is the cause, if any.
	Err error
}

// Code is a stable name for a kind of failure. It appears in the log and on the wire.
type Code string

// The codes. Those marked retryable are so by default.
const (
	CodeRateLimited    Code = "rate_limited"     // 429; retryable
	CodeOverloaded     Code = "overloaded"       // 529, 503, or said inside a stream; retryable
	CodeUnavailable    Code = "unavailable"      // other 5xx, 408, 409, refused or reset connections; retryable
	CodeStalled        Code = "stalled"          // nothing came for the idle limit; retryable
	CodeIncomplete     Code = "incomplete"       // the stream ended, or was cut, without a finish reason; retryable
	CodeProtocol       Code = "protocol"         // the answer breaks the provider's own protocol; retryable
	CodePanic          Code = "panic"            // the provider's own code panicked; retryable
	CodeTooLarge       Code = "too_large"        // the answer is over a stated bound; final
	CodeInvalidRequest Code = "invalid_request"  // 400, 404, 413, 422, or said inside a stream; final
	CodeContextTooLong Code = "context_too_long" // the request is over the model's window; final, a smaller one may do
	CodeUnauthorized   Code = "unauthorized"     // 401, 403; final
)

// Error says the code, the status if any, and the message.
func (e *Error) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("model: %s (HTTP %d): %s", e.Code, e.Status, e.Message)
	}
	return fmt.Sprintf("model: %s: %s", e.Code, e.Message)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }
