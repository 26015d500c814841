// Package httptool makes tools of a team's own HTTP endpoints: each call is a
// POST with a JSON body, signed as Standard Webhooks says, under a key that is the same
// for every try.
//
//	call ──> POST ──> 200  the result
//	              ──> 202  deferred: the result is posted to the callback URL later
//	              ──> 4xx  an error that the model reads
//	              ──> 408 425 429 5xx, broken connections: sent again if the effects allow it
//
// What cannot be sent again and may have been received has an unknown outcome
// ([tool.ErrOutcomeUnknown]), unless the service itself said how it ended.
package httptool

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/holdfast-run/holdfast/internal/netguard"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

// Options are what a tool needs beside its configuration.
type Options struct {
	// Callback gives the URL that ends a call. Needed for a tool that is Async.
	Callback func(tool.Call) string
	// Version is what this program calls itself to services. Default: "dev".
	Version string
}

// New makes the tool. The configuration passed [Config.Check]. The error says that a variable
// is missing or cannot be used.
func New(name string, c Config, opts Options) (tool.Tool, error) {
	parameters, err := c.parameters()
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(c.URL)
	if err != nil {
		return nil, fmt.Errorf("the tool %s has no URL", name)
	}
	t := &endpoint{
		url: target, agent: "holdfast/" + cmp.Or(opts.Version, "dev"), tryTimeout: c.TryTimeout, callback: opts.Callback,
		spec: tool.Spec{
			Name: name, Description: c.Description, Parameters: parameters, Effects: cmp.Or(c.Effects, session.Unsafe),
			Approval: tool.UnlessReadOnly, Timeout: cmp.Or(c.Timeout, tool.DefaultTimeout),
		},
		first: 500 * time.Millisecond,
	}
	if c.Approval != nil {
		t.spec.Approval = *c.Approval
	}
	if c.Async != nil {
		if opts.Callback == nil {
			return nil, fmt.Errorf("the tool %s is async, but there are no callback URLs here", name)
		}
		t.later = cmp.Or(c.Async.Timeout, defaultAsync)
	}
	if t.secret, err = c.secret(); err != nil {
		return nil, err
	}
	if t.headers, err = c.headers(); err != nil {
		return nil, err
	}
	var trusted []string
	if c.AllowPrivate {
		trusted = []string{target.Hostname()}
	}
	guard, err := netguard.New(trusted)
	if err != nil {
		return nil, err
	}
	t.client = &http.Client{
		CheckRedirect: sameHost,
		Transport: &http.Transport{
			DialContext:            guard.Dial,
			DisableKeepAlives:      true, // a connection that went away unseen would leave the outcome unknown
			ForceAttemptHTTP2:      true,
			TLSHandshakeTimeout:    10 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
		},
	}
	return t, nil
}

// endpoint is a tool.
type endpoint struct {
	spec       tool.Spec
	url        *url.URL
	client     *http.Client
	agent      string
	headers    http.Header
	secret     []byte        // nil: requests are not signed
	later      time.Duration // how long a deferred result may take; 0: there is none
	callback   func(tool.Call) string
	tryTimeout time.Duration // 0: only the call's
	first      time.Duration // the pause before the second try
}

// Spec describes the tool.
func (t *endpoint) Spec() tool.Spec { return t.spec }

// request is the body of a POST.
type request struct {
	Call      string          `json:"call"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Session   string          `json:"session"`
	Run       string          `json:"run"`
	// Attempt counts how often the call was begun, from 1. What is sent again
	// within an attempt is the same, byte for byte.
	Attempt  int      `json:"attempt"`
	Callback *promise `json:"callback,omitempty"`
}

// promise is where and until when a result may come later.
type promise struct {
	URL   string    `json:"url"`
	Until time.Time `json:"until"`
}

// Call makes the call.
func (t *endpoint) Call(ctx context.Context, call tool.Call) (tool.Result, error) {
	r := request{
		Call: call.ID, Tool: t.spec.Name, Arguments: call.Arguments, Session: call.Session, Run: call.Run, Attempt: call.Attempt,
	}
	if t.later > 0 {
		r.Callback = &promise{URL: t.callback(call), Until: time.Now().Add(t.later).UTC().Truncate(time.Millisecond)}
	}
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false) // arguments stay as they are
	if err := enc.Encode(r); err != nil {
		return tool.Result{}, fmt.Errorf("write the request: %w", err)
	}
	return t.tries(ctx, call, bytes.TrimSuffix(body.Bytes(), []byte("\n")), r.Callback)
}

// newRequest is one request, signed for this moment.
func (t *endpoint) newRequest(ctx context.Context, key string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	req.Header = t.headers.Clone()
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", t.agent)
	}
	req.Header.Set("Content-Type", "application/json")
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", "application/json, text/*;q=0.9, */*;q=0.8")
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("Webhook-Id", key)
	req.Header.Set("Webhook-Timestamp", now)
	if t.secret != nil {
		req.Header.Set("Webhook-Signature", sign(t.secret, key, now, body))
	}
	return req, nil
}

// sign is a signature as Standard Webhooks has it.
func sign(secret []byte, id, timestamp string, body []byte) string {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(id + "." + timestamp + "."))
	h.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// sameHost follows a redirect only if the same POST goes to the same host: it
// carries secrets, and what the service points at may be a machine that only this one
// can reach. Any other redirect is the answer.
func sameHost(req *http.Request, via []*http.Request) error {
	if first := via[0].URL; req.Method != http.MethodPost || req.URL.Host != first.Host || req.URL.Scheme != first.Scheme || len(via) > 5 {
		return http.ErrUseLastResponse
	}
	req.Header.Del("Referer")
	return nil
}
