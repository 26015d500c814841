// Package client talks to a Holdfast server: its commands and reads as Go
// calls, and a session's log as a sequence that outlives connections and servers.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
)

// callTimeout bounds a command or a read, the wait of a long poll not counted.
const callTimeout = 30 * time.Second

// maxAnswer bounds what is read of one answer, in bytes.
const maxAnswer = 256 << 20

// Client talks to one server. It is safe for concurrent use.
//
// Every call gives a *[api.Problem] when the server refused, an *[UnreachableError]
// when there was no answer, and the cause of ctx when that ended first. A
// command that was cut short may have been done: repeating it is how to find out.
type Client struct {
	base *url.URL
	http *http.Client
}

// New is a client of the server at a URL such as "http://127.0.0.1:8787".
// Nothing is asked yet.
func New(server string) (*Client, error) {
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	base, err := url.Parse(server)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the server's URL: %w", err)
	case base.Scheme != "http" && base.Scheme != "https", base.Host == "":
		return nil, fmt.Errorf("the server's URL %q is not like http://127.0.0.1:8787", server)
	}
	return &Client{base: base, http: &http.Client{Transport: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		ResponseHeaderTimeout: 90 * time.Second, // longer than the longest poll
		IdleConnTimeout:       30 * time.Second,
	}}}, nil
}

// URL is where the server is.
func (c *Client) URL() string { return strings.TrimSuffix(c.base.String(), "/") }

// Close drops the connections that are kept open.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// UnreachableError says that the server gave no answer, or half of one.
type UnreachableError struct {
	URL string
	Err error
}

// Error says why in few words.
func (e *UnreachableError) Error() string {
	return fmt.Sprintf("no answer from %s: %s", e.URL, reason(e.Err))
}

// Unwrap gives the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// reason is the telling end of a network error.
func reason(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection broke"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "it took too long"
	}
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	return err.Error()
}

// Passing says whether the same request may succeed later: the server was not
// there, or said that it is not able to answer now.
func Passing(err error) bool {
	var p *api.Problem
	if errors.As(err, &p) {
		return p.Status >= 500 || p.Code == api.RequestTimeout
	}
	var gone *UnreachableError
	return errors.As(err, &gone)
}

// Is says whether err is a refusal with this code.
func Is(err error, code api.Code) bool {
	var p *api.Problem
	return errors.As(err, &p) && p.Code == code
}

// call makes a request and reads its answer into out, unless that is nil.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, context.DeadlineExceeded)
	defer cancel()
	body, err := c.send(ctx, method, path, query, in)
	if err != nil {
		return err
	}
	defer body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(out); err != nil {
		return c.broken(ctx, fmt.Errorf("read the answer: %w", err))
	}
	return nil
}

// send makes a request and gives the body of its answer if that is no problem.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, in any) (io.ReadCloser, error) {
	var body io.Reader
	if in != nil {
		raw, err := encode(in)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.at(path, query), body)
	if err != nil {
		return nil, err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return c.do(req)
}

func (c *Client) do(req *http.Request) (io.ReadCloser, error) {
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.broken(req.Context(), err)
	}
	if res.StatusCode < 400 {
		return res.Body, nil
	}
	defer res.Body.Close()
	return nil, problemOf(res)
}

// broken is the error of a request without an answer.
func (c *Client) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return context.Cause(ctx)
	}
	return &UnreachableError{URL: c.URL(), Err: err}
}

// problemOf reads a refusal. What is no problem document came from something
// between us and the server.
func problemOf(res *http.Response) *api.Problem {
	raw, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20)) // half of it is no document
	p := &api.Problem{}
	if json.Unmarshal(raw, p) == nil && p.Code != "" {
		return p
	}
	return &api.Problem{
		Title: http.StatusText(res.StatusCode), Status: res.StatusCode,
		Detail: fmt.Sprintf("the answer was %s, and not from a Holdfast server", res.Status), Code: "not_holdfast",
	}
}

func (c *Client) at(path string, query url.Values) string {
	u := c.base.JoinPath(path)
	u.RawQuery = query.Encode()
	return u.String()
}

// encode is JSON without HTML escapes: what is passed on stays byte for byte.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}

// id is a path segment.
func id(s string) string { return url.PathEscape(s) }

// Page is a page of a list to ask for. The zero value is the first, of the server's usual size.
type Page struct {
	Cursor string
	Limit  int // at most 200
}

func (p Page) values() url.Values {
	v := url.Values{}
	set(v, "cursor", p.Cursor)
	if p.Limit > 0 {
		v.Set("limit", strconv.Itoa(p.Limit))
	}
	return v
}

func set(v url.Values, name, value string) {
	if value != "" {
		v.Set(name, value)
	}
}

// Agents lists what can be asked.
func (c *Client) Agents(ctx context.Context) (list api.AgentList, err error) {
	return list, c.call(ctx, http.MethodGet, "/v1/agents", nil, nil, &list)
}

// Sessions lists sessions, the last changed first. search is part of a title.
func (c *Client) Sessions(ctx context.Context, search string, p Page) (list api.SessionList, err error) {
	v := p.values()
	set(v, "search", search)
	return list, c.call(ctx, http.MethodGet, "/v1/sessions", v, nil, &list)
}

// Snapshot gives a session with its last window messages (0: 50).
func (c *Client) Snapshot(ctx context.Context, sessionID string, window int) (snap holdfast.Snapshot, err error) {
	v := url.Values{}
	if window > 0 {
		v.Set("window", strconv.Itoa(window))
	}
	return snap, c.call(ctx, http.MethodGet, "/v1/sessions/"+id(sessionID), v, nil, &snap)
}

// DeleteSession deletes a session and all that is in it.
func (c *Client) DeleteSession(ctx context.Context, sessionID string) error {
	return c.call(ctx, http.MethodDelete, "/v1/sessions/"+id(sessionID), nil, nil, nil)
}

// Send says something in a session.
func (c *Client) Send(ctx context.Context, sessionID string, m api.SendMessage) (done api.MessageAccepted, err error) {
	return done, c.call(ctx, http.MethodPost, "/v1/sessions/"+id(sessionID)+"/messages", nil, m, &done)
}

// RunFilter chooses runs. The zero value is all.
type RunFilter struct {
	Session string
	Status  []session.Status
	Reason  session.WaitingReason
}

// Runs lists runs, the last queued first, without steps.
func (c *Client) Runs(ctx context.Context, f RunFilter, p Page) (list api.RunList, err error) {
	v := p.values()
	set(v, "session", f.Session)
	set(v, "reason", string(f.Reason))
	var statuses []string
	for _, s := range f.Status {
		statuses = append(statuses, string(s))
	}
	set(v, "status", strings.Join(statuses, ","))
	return list, c.call(ctx, http.MethodGet, "/v1/runs", v, nil, &list)
}

// Run gives a run with its steps.
func (c *Client) Run(ctx context.Context, runID string) (run session.Run, err error) {
	return run, c.call(ctx, http.MethodGet, "/v1/runs/"+id(runID), nil, nil, &run)
}

// Context gives what the model saw at an attempt of a step; 0 is its last.
func (c *Client) Context(ctx context.Context, runID string, step, attempt int) (seen holdfast.Context, err error) {
	query := url.Values{}
	if attempt > 0 {
		query.Set("attempt", strconv.Itoa(attempt))
	}
	return seen, c.call(ctx, http.MethodGet, "/v1/runs/"+id(runID)+"/steps/"+strconv.Itoa(step)+"/context", query, nil, &seen)
}

// Cancel asks for the end of a run.
func (c *Client) Cancel(ctx context.Context, runID, reason string) (done api.RunDone, err error) {
	return done, c.call(ctx, http.MethodPost, "/v1/runs/"+id(runID)+"/cancel", nil, api.CancelRun{Reason: reason}, &done)
}

// Fork begins a session with a copy of a branch.
func (c *Client) Fork(ctx context.Context, sessionID string, f api.ForkSession) (done api.SessionDone, err error) {
	return done, c.call(ctx, http.MethodPost, "/v1/sessions/"+id(sessionID)+"/fork", nil, f, &done)
}

// Retry goes on from where a run failed or was cancelled, as a run with an id of its own.
func (c *Client) Retry(ctx context.Context, runID string, how api.RetryRun) (done api.RunDone, err error) {
	return done, c.call(ctx, http.MethodPost, "/v1/runs/"+id(runID)+"/retry", nil, how, &done)
}

// Resolve says what a call did whose outcome is unknown.
func (c *Client) Resolve(ctx context.Context, runID, call string, word api.ResolveTool) (done api.RunDone, err error) {
	return done, c.call(ctx, http.MethodPost, "/v1/runs/"+id(runID)+"/tools/"+id(call), nil, word, &done)
}

// Approvals lists approvals over all sessions, the last requested first.
func (c *Client) Approvals(ctx context.Context, status session.ApprovalStatus, p Page) (list api.ApprovalList, err error) {
	v := p.values()
	set(v, "status", string(status))
	return list, c.call(ctx, http.MethodGet, "/v1/approvals", v, nil, &list)
}

// Decide decides an approval.
func (c *Client) Decide(ctx context.Context, approvalID string, d api.DecideApproval) (done api.ApprovalDone, err error) {
	return done, c.call(ctx, http.MethodPost, "/v1/approvals/"+id(approvalID), nil, d, &done)
}

// Blob gives a large value of a session, at most 256 MiB.
func (c *Client) Blob(ctx context.Context, sessionID, hash string) ([]byte, error) {
	body, err := c.send(ctx, http.MethodGet, "/v1/sessions/"+id(sessionID)+"/blobs/"+id(hash), nil, nil)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	raw, err := io.ReadAll(io.LimitReader(body, maxAnswer))
	if err != nil {
		return nil, c.broken(ctx, err)
	}
	return raw, nil
}

// Events reads a page of the log after a cursor: at most limit frames (0: 1,000).
// With a wait, of at most a minute, it waits that long for something.
func (c *Client) Events(ctx context.Context, sessionID string, after int64, limit int, wait time.Duration) (page api.EventPage, err error) {
	v := url.Values{"after": {strconv.FormatInt(after, 10)}}
	if limit > 0 {
		v.Set("limit", strconv.Itoa(limit))
	}
	if wait > 0 {
		v.Set("wait", wait.String())
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait+callTimeout, context.DeadlineExceeded)
	defer cancel()
	body, err := c.send(ctx, http.MethodGet, "/v1/sessions/"+id(sessionID)+"/events", v, nil)
	if err != nil {
		return page, err
	}
	defer body.Close()
	if err := json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(&page); err != nil {
		return page, c.broken(ctx, fmt.Errorf("read the answer: %w", err))
	}
	return page, nil
}
