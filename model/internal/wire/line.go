// Package wire is what the providers that speak HTTP and server-sent events
// have in common: the client, what an error answer means, the bound on an event,
// and the joining of tool call fragments.
package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/model"
)

// Line is the way to one provider. It is safe for concurrent use.
type Line struct {
	// Client has no timeout of its own: how long silence may last is for
	// [model.Watch] to say, and a context ends everything at once.
	Client  *http.Client
	secrets []string
}

// NewLine gives a line for the provider that cfg describes. What cfg holds as
// key and headers will not appear in any error of the line.
func NewLine(cfg model.ProviderConfig) *Line {
	l := &Line{Client: &http.Client{
		Transport: transport(),
		// A redirect would carry the key to a place that nobody configured, and
		// most turn the POST into a GET. Status says what to do instead.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	for _, secret := range append([]string{cfg.APIKey}, values(cfg.Headers)...) {
		// Anything shorter is no secret, and cutting it out would garble messages.
		if len(secret) >= 6 {
			l.secrets = append(l.secrets, secret)
		}
	}
	return l
}

func values(m map[string]string) []string {
	var all []string
	for _, v := range m {
		all = append(all, v, strings.TrimPrefix(v, "Bearer "))
	}
	return all
}

func transport() *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout: 15 * time.Second,
		ForceAttemptHTTP2:   true,
		// Pings find a connection that a middlebox dropped, so that the retry of
		// a stalled call does not go down the same dead connection.
		HTTP2:               &http.HTTP2Config{SendPingTimeout: 20 * time.Second, PingTimeout: 15 * time.Second},
		MaxIdleConns:        512,
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     90 * time.Second,
		// A compressor between us and the provider could hold tokens back.
		DisableCompression: true,
	}
}

// Check is a middleware for both SDKs. It answers with an *[model.Error] for
// every status but 200, and for a 200 that is no stream, so that the SDK neither
// reads an endless error body nor prints it, whatever it holds, in its error.
func (l *Line) Check(req *http.Request, next func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	res, err := next(req)
	if err != nil || res.StatusCode == http.StatusOK && streams(res) {
		return res, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	if err != nil && req.Context().Err() != nil {
		return nil, err
	}
	return nil, l.status(res, body)
}

// maxErrorBody is how much of an error answer is read.
const maxErrorBody = 64 << 10

// streams reports whether the answer may be an event stream. Some compatible
// servers do not say what they send.
func streams(res *http.Response) bool {
	kind := strings.ToLower(res.Header.Get("Content-Type"))
	return !strings.HasPrefix(kind, "application/json") && !strings.HasPrefix(kind, "text/html")
}

// Failed turns what ended a call before its stream into the error to yield.
func (l *Line) Failed(ctx context.Context, err error) error {
	if done := cancelled(ctx); done != nil {
		return done
	}
	var known *model.Error
	if errors.As(err, &known) {
		return known
	}
	var named *url.Error // It holds the URL, which may hold a key.
	if errors.As(err, &named) {
		err = named.Err
	}
	return l.Fail(model.CodeUnavailable, "the provider could not be reached: "+reason(err), err)
}

// Broke turns what ended a stream in its middle into the error to yield. A nil
// err is a stream that closed as if it were complete.
func (l *Line) Broke(ctx context.Context, err error) error {
	if done := cancelled(ctx); done != nil {
		return done
	}
	switch {
	case err == nil:
		return l.Fail(model.CodeIncomplete, "the stream closed without a finish reason", nil)
	case tooLarge(err):
		return l.Fail(model.CodeTooLarge, fmt.Sprintf("one event of the stream is over %d MiB", MaxEvent>>20), err)
	}
	return l.Fail(model.CodeIncomplete, "the stream was cut off: "+reason(err), err)
}

// Fail gives an error with the code's own retry rule and a message free of
// secrets. Cause may be nil.
func (l *Line) Fail(code model.Code, message string, cause error) *model.Error {
	return &model.Error{Code: code, Message: l.clean(message), Retryable: retryable(code), Err: cause}
}

// cancelled gives the error of a call whose context is over, or nil.
func cancelled(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("model: call stopped: %w", context.Cause(ctx))
}

// reason is the innermost cause in words.
func reason(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// clean cuts out secrets that a provider echoed and bounds the length.
func (l *Line) clean(message string) string {
	for _, secret := range l.secrets {
		message = strings.ReplaceAll(message, secret, "[redacted]")
	}
	const most = 1000
	if len(message) > most {
		message = message[:most] + "…"
	}
	return strings.ToValidUTF8(message, "\uFFFD")
}
