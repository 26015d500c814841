package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// httpLink is an endpoint that is spoken to over HTTP.
type httpLink struct {
	config Config
	base   *http.Transport
	life   context.Context // of all its requests
	end    context.CancelCauseFunc
	// headers are set by Connect.
	headers map[string]string
	tooLong atomic.Bool
}

func newHTTPLink(c Config) *httpLink {
	l := &httpLink{config: c, base: &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 256 << 10, MaxIdleConnsPerHost: 8,
		IdleConnTimeout: 30 * time.Second, // sooner than most servers close them: a call should not meet that
	}}
	l.life, l.end = context.WithCancelCause(context.Background()) // until close
	return l
}

// Connect prepares the connection; the first request is the handshake.
func (l *httpLink) Connect(ctx context.Context) (sdk.Connection, error) {
	var err error
	if l.headers, err = l.config.headers(); err != nil {
		return nil, err
	}
	transport := &sdk.StreamableClientTransport{
		Endpoint: l.config.URL, HTTPClient: &http.Client{Transport: l, CheckRedirect: sameHost}, MaxEventSize: 2 * maxMessage,
	}
	return transport.Connect(ctx)
}

// sameHost lets a server redirect only to itself: requests carry its secrets,
// and what it points at may be a machine that only this one can reach.
func sameHost(req *http.Request, via []*http.Request) error {
	if first := via[0].URL; req.URL.Host != first.Host || req.URL.Scheme != first.Scheme {
		return fmt.Errorf("it redirects to another host, %s", bounded(req.URL.Host, 200))
	}
	if len(via) >= 5 {
		return errors.New("it redirects again and again")
	}
	return nil
}

// refusedError is an HTTP status that says that nothing was done.
type refusedError struct{ status int }

func (e *refusedError) Error() string {
	return fmt.Sprintf("it answers HTTP %d %s", e.status, http.StatusText(e.status))
}

// RoundTrip makes a request that ends with the link and whose answer is bounded.
func (l *httpLink) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	stop := context.AfterFunc(l.life, func() { cancel(errClosing) })
	req = req.Clone(ctx)
	for name, value := range l.headers {
		req.Header.Set(name, value)
	}
	res, err := l.base.RoundTrip(req)
	if err != nil {
		stop()
		cancel(nil)
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	body := &boundedBody{ReadCloser: res.Body, link: l, stream: kind == "text/event-stream", done: func() { stop(); cancel(nil) }}
	res.Body = body
	if req.Method != http.MethodPost {
		return res, nil // it offers no stream: it need not
	}
	switch res.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		_ = body.Close() // only the status is wanted
		return nil, &refusedError{res.StatusCode}
	}
	return res, nil
}

// boundedBody is the body of an answer: bounded as a whole or, if it is a
// stream of events, line by line.
type boundedBody struct {
	io.ReadCloser
	link   *httpLink
	stream bool
	size   int64
	done   func()
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.size += int64(n)
	if end := bytes.LastIndexByte(p[:n], '\n'); b.stream && end >= 0 {
		b.size = int64(n - end - 1)
	}
	if b.size > maxMessage {
		b.link.tooLong.Store(true)
		return 0, errTooLong
	}
	return n, err
}

func (b *boundedBody) Close() error {
	b.done()
	return b.ReadCloser.Close()
}

func (l *httpLink) gone() <-chan struct{} { return nil }

func (l *httpLink) cut() { l.end(errClosing) }

func (l *httpLink) close() {
	l.end(errClosing)
	l.base.CloseIdleConnections()
}

func (l *httpLink) lost(err error) error {
	if l.tooLong.Load() {
		return errTooLong
	}
	if u, bad := url.Parse(l.config.URL); bad == nil && u.RawQuery != "" { // it may be a key
		return errors.New(strings.ReplaceAll(err.Error(), u.RawQuery, "…"))
	}
	return err
}

// notSent says that the server did nothing, since it never got the request or says so.
func notSent(err error) bool {
	var refused *refusedError
	var network *net.OpError
	return errors.As(err, &refused) || errors.Is(err, sdk.ErrSessionMissing) ||
		errors.As(err, &network) && (network.Op == "dial" || network.Op == "proxyconnect")
}
