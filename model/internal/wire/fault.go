package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/model"
)

func retryable(code model.Code) bool {
	switch code {
	case model.CodeTooLarge, model.CodeInvalidRequest, model.CodeUnauthorized, model.CodeContextTooLong:
		return false
	}
	return true
}

// codeOf says what an HTTP status of at least 300 means for the caller.
func codeOf(status int) model.Code {
	switch status {
	case http.StatusTooManyRequests:
		return model.CodeRateLimited
	case http.StatusServiceUnavailable, 529:
		return model.CodeOverloaded
	case http.StatusRequestTimeout, http.StatusConflict:
		return model.CodeUnavailable
	case http.StatusUnauthorized, http.StatusForbidden:
		return model.CodeUnauthorized
	}
	if status >= 500 {
		return model.CodeUnavailable
	}
	return model.CodeInvalidRequest
}

// status is the error of an answer that is not an event stream.
func (l *Line) status(res *http.Response, body []byte) *model.Error {
	said := parseFault(body)
	switch {
	case res.StatusCode == http.StatusOK && said.message != "":
		return l.InBand(body)
	case res.StatusCode < 300:
		return l.Fail(model.CodeProtocol, fmt.Sprintf("the answer is %s with status %d in place of an event stream: is the base URL right?",
			or(res.Header.Get("Content-Type"), "of no type"), res.StatusCode), nil)
	case res.StatusCode < 400:
		said.message = "the provider redirects elsewhere: set its base URL to the new place"
	case res.StatusCode == http.StatusNotFound && said.message == "":
		said.message = "there is no such path: is the base URL right?"
	}
	code := codeOf(res.StatusCode)
	if code == model.CodeInvalidRequest && said.tooLong() {
		code = model.CodeContextTooLong
	}
	err := l.Fail(code, or(said.message, http.StatusText(res.StatusCode)), nil)
	err.Status = res.StatusCode
	err.RetryAfter = retryAfter(res.Header)
	switch res.Header.Get("X-Should-Retry") {
	case "true":
		err.Retryable = true
	case "false":
		err.Retryable = false
	}
	if said.unpaid() {
		err.Retryable = false
	}
	return err
}

// InBand is the error that a provider reported inside its stream.
func (l *Line) InBand(body []byte) *model.Error {
	said := parseFault(body)
	err := l.Fail(said.code(), or(said.message, said.kind, "the provider reported an error inside the stream"), nil)
	if said.unpaid() {
		err.Retryable = false
	}
	return err
}

// fault is what a provider says of an error, whatever shape it chose.
type fault struct {
	kind, number, message string
}

// unpaid tells the 429 that waiting does not cure.
func (f fault) unpaid() bool {
	return strings.Contains(f.kind, "insufficient_quota") || strings.Contains(f.kind, "billing")
}

// tooLong tells a request that is over the model's window. Some providers have
// a code for it, others only say so.
func (f fault) tooLong() bool {
	for _, word := range []string{"context_length", "exceed_context_size", "model_context_window"} {
		if strings.Contains(f.kind, word) {
			return true
		}
	}
	said := strings.ToLower(f.message)
	for _, words := range []string{
		"prompt is too long", "maximum context length", "context window", "context length", "available context size", "input token count",
	} {
		if strings.Contains(said, words) && (strings.Contains(said, "exceed") || strings.Contains(said, "too long") || strings.Contains(said, "maximum")) {
			return true
		}
	}
	return false
}

// code sorts an error that has no HTTP status. What nobody knows may pass.
func (f fault) code() model.Code {
	if status, err := strconv.Atoi(f.number); err == nil && status >= 400 && status < 600 {
		code := codeOf(status)
		if code == model.CodeInvalidRequest && f.tooLong() {
			return model.CodeContextTooLong
		}
		return code
	}
	if f.tooLong() {
		return model.CodeContextTooLong
	}
	for _, k := range faultWords {
		for _, word := range k.words {
			if strings.Contains(f.kind, word) {
				return k.code
			}
		}
	}
	return model.CodeUnavailable
}

// faultWords are searched in this order in a fault's type and code.
var faultWords = []struct {
	code  model.Code
	words []string
}{
	{model.CodeRateLimited, []string{"rate_limit", "too_many_requests", "resource_exhausted", "throttl", "insufficient_quota", "billing"}},
	{model.CodeOverloaded, []string{"overload", "capacity"}},
	{model.CodeUnauthorized, []string{"authentication", "unauthorized", "permission", "forbidden", "invalid_api_key"}},
	{model.CodeInvalidRequest, []string{"invalid", "not_found", "too_large", "too_long", "badrequest", "bad_request", "unprocessable", "content_policy"}},
}

// parseFault reads {"error": {"type", "code", "message"}} and its relatives:
// an error that is a string, no envelope at all, an array of one, FastAPI's
// detail. Text that is no JSON is not repeated: nobody knows what it holds.
func parseFault(body []byte) fault {
	body = bytes.TrimSpace(body)
	var list []json.RawMessage
	if json.Unmarshal(body, &list) == nil && len(list) > 0 {
		body = list[0]
	}
	var text string
	if json.Unmarshal(body, &text) == nil {
		return fault{message: text}
	}
	var f struct {
		Error   json.RawMessage `json:"error"`
		Type    json.RawMessage `json:"type"`
		Code    json.RawMessage `json:"code"`
		Status  json.RawMessage `json:"status"`
		Message json.RawMessage `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &f) != nil {
		return fault{}
	}
	if len(f.Error) > 0 && string(f.Error) != "null" {
		return parseFault(f.Error)
	}
	kind := strings.ToLower(word(f.Type) + " " + word(f.Code) + " " + word(f.Status))
	return fault{
		kind:    strings.TrimSpace(kind),
		number:  word(f.Code),
		message: or(word(f.Message), detail(f.Detail)),
	}
}

// word is a JSON string or number as text, "" for anything else.
func word(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var n json.Number
	if json.Unmarshal(raw, &n) == nil {
		return n.String()
	}
	return ""
}

// detail is the text of FastAPI's detail: a string, or a list whose entries also
// hold the request's own values, which are left out.
func detail(raw json.RawMessage) string {
	if s := word(raw); s != "" {
		return s
	}
	var list []struct {
		Message string `json:"msg"`
	}
	if json.Unmarshal(raw, &list) != nil || len(list) == 0 {
		return ""
	}
	return list[0].Message
}

// retryAfter reads how long the provider asks us to wait: milliseconds, seconds
// or a date. A date is measured against the provider's own clock.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return wait(ms * float64(time.Millisecond))
	}
	value := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(value, 64); err == nil {
		return wait(s * float64(time.Second))
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return wait(float64(at.Sub(now)))
}

// wait keeps a duration between nothing and a year, whatever was sent.
func wait(nanoseconds float64) time.Duration {
	const year = float64(365 * 24 * time.Hour)
	if !(nanoseconds > 0) { // also NaN
		return 0
	}
	return time.Duration(min(nanoseconds, year))
}

func or(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
