package fakellm

import "net/http"

// An encoder writes an answer in one wire's words. Each method returns whole SSE
// frames, or nothing where the wire has nothing to say. An encoder serves one
// response.
type encoder interface {
	begin() []byte
	open(b *block) []byte // not for calls
	delta(b *block, piece escaped) []byte
	fragment(b *block, f Fragment, first bool) []byte // a delta of a call
	close(b *block) []byte
	finish(a *answer, reason string, u Usage) []byte
	end(a *answer, reason string, u Usage) []byte
	ping() []byte
	fail(e providerError) []byte

	// Without a stream.
	whole(a *answer, reason string, u Usage) []byte
	errorBody(e providerError) []byte
}

// providerError is an error in a provider's words.
type providerError struct {
	status  int
	kind    string // Anthropic's or OpenAI's word for it
	code    string // OpenAI only
	param   string // OpenAI only
	message string
}

// errorOfStatus is what the real providers say with a status.
func errorOfStatus(status int, wire Wire) providerError {
	e := providerError{status: status}
	if wire == Messages {
		switch status {
		case 400:
			e.kind, e.message = "invalid_request_error", "Invalid request"
		case 401:
			e.kind, e.message = "authentication_error", "invalid x-api-key"
		case 403:
			e.kind, e.message = "permission_error", "Your API key does not have permission to use the specified resource."
		case 404:
			e.kind, e.message = "not_found_error", "Not found"
		case 413:
			e.kind, e.message = "request_too_large", "Request exceeds the maximum size"
		case 429:
			e.kind, e.message = "rate_limit_error", "This request would exceed your account's rate limit. Please try again later."
		case 504:
			e.kind, e.message = "timeout_error", "Request timed out"
		case 529:
			e.kind, e.message = "overloaded_error", "Overloaded"
		default:
			e.kind, e.message = "api_error", "Internal server error"
		}
		return e
	}
	switch status {
	case 400:
		e.kind, e.message = "invalid_request_error", "Invalid request."
	case 401:
		e.kind, e.code, e.message = "invalid_request_error", "invalid_api_key", "Incorrect API key provided."
	case 403:
		e.kind, e.message = "invalid_request_error", "You are not allowed to use this model."
	case 404:
		e.kind, e.code, e.message = "invalid_request_error", "model_not_found", "The model does not exist or you do not have access to it."
	case 429:
		e.kind, e.code, e.message = "requests", "rate_limit_exceeded", "Rate limit reached. Please try again later."
	case 503, 529:
		e.kind, e.message = "server_error", "The server is currently overloaded. Please try again later."
	default:
		e.kind, e.message = "server_error", "The server had an error while processing your request."
	}
	return e
}

// inWordsOf says an error type of the other provider in the words of wire; a
// type that is nobody's is kept.
func inWordsOf(wire Wire, kind, message string) providerError {
	e := providerError{status: statusOfError(kind), kind: kind, message: message}
	if wire == Messages {
		switch kind {
		case "server_error":
			e.kind = "api_error"
		case "rate_limit_exceeded":
			e.kind = "rate_limit_error"
		}
		return e
	}
	switch kind {
	case "overloaded_error":
		e.kind, e.code = "server_error", "server_is_overloaded"
	case "api_error", "timeout_error":
		e.kind, e.code = "server_error", "server_error"
	case "rate_limit_error", "rate_limit_exceeded":
		e.kind, e.code = "tokens", "rate_limit_exceeded"
	case "authentication_error":
		e.kind, e.code = "invalid_request_error", "invalid_api_key"
	case "permission_error", "not_found_error", "request_too_large":
		e.kind = "invalid_request_error"
	}
	return e
}

// statusOfError is the status with which an error type comes when it is not
// reported in band.
func statusOfError(kind string) int {
	switch kind {
	case "invalid_request_error":
		return http.StatusBadRequest
	case "authentication_error":
		return http.StatusUnauthorized
	case "permission_error":
		return http.StatusForbidden
	case "not_found_error":
		return http.StatusNotFound
	case "request_too_large":
		return http.StatusRequestEntityTooLarge
	case "rate_limit_error", "rate_limit_exceeded", "insufficient_quota":
		return http.StatusTooManyRequests
	case "timeout_error":
		return http.StatusGatewayTimeout
	case "overloaded_error":
		return 529
	}
	return http.StatusInternalServerError
}

func frame(data raw) []byte {
	b := make([]byte, 0, len(data)+8)
	b = append(b, "data: "...)
	b = append(b, data...)
	return append(b, "\n\n"...)
}

func eventFrame(event string, data raw) []byte {
	b := make([]byte, 0, len(data)+len(event)+16)
	b = append(b, "event: "...)
	b = append(b, event...)
	b = append(b, '\n')
	return append(b, frame(data)...)
}

// orNull is text, or null where a wire says nothing so.
func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}
