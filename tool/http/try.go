package httptool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast/internal/netguard"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

// The codes of failures that the service did not name itself.
const (
	// CodeUnavailable is a service that gave no answer.
	CodeUnavailable = "unavailable"
	// CodeBlocked is an address that is not on the public internet.
	CodeBlocked = "blocked_address"
)

const (
	maxTries = 5
	maxPause = 30 * time.Second
)

// trouble is a try without a result.
type trouble struct {
	err error
	// again says that another try may do better.
	again bool
	// unsure says that the service may have acted, and did not say how it ended.
	unsure bool
	// after is when the service wants to be asked again. 0: it did not say.
	after time.Duration
}

// tries sends the request until there is an answer, as often as its effects allow.
func (t *endpoint) tries(ctx context.Context, call tool.Call, body []byte, later *promise) (tool.Result, error) {
	repeatable := t.spec.Effects == session.ReadOnly || t.spec.Effects == session.Idempotent
	for try := 1; ; try++ {
		result, bad := t.try(ctx, call, body, later)
		if bad == nil {
			return result, nil
		}
		if !repeatable {
			if bad.unsure {
				return tool.Result{}, fmt.Errorf("%w: %w", tool.ErrOutcomeUnknown, bad.err)
			}
			return tool.Result{}, bad.err
		}
		if ctx.Err() != nil {
			return tool.Result{}, context.Cause(ctx)
		}
		pause := max(bad.after, t.pause(try))
		if end, bounded := ctx.Deadline(); !bad.again || try == maxTries || bounded && time.Until(end) < pause {
			return tool.Result{}, bad.err
		}
		if call.Progress != nil {
			call.Progress(session.Progress{Message: fmt.Sprintf("try %d failed: %s", try, bad.err)})
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return tool.Result{}, context.Cause(ctx)
		}
	}
}

// pause is how long to wait after a try: it doubles, and differs from one call to another.
func (t *endpoint) pause(try int) time.Duration {
	whole := min(t.first<<(try-1), maxPause)
	return whole/2 + rand.N(whole/2+1)
}

// try sends the request once.
func (t *endpoint) try(ctx context.Context, call tool.Call, body []byte, later *promise) (tool.Result, *trouble) {
	var sent atomic.Bool // the request may have been received
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }})
	if t.tryTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t.tryTimeout)
		defer cancel()
	}
	req, err := t.newRequest(ctx, call.IdempotencyKey, body)
	if err != nil {
		return tool.Result{}, &trouble{err: err}
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return tool.Result{}, t.unanswered(err, sent.Load())
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusAccepted && later != nil {
		return tool.Result{Deferred: &tool.Deferred{Until: later.Until}}, nil
	}
	content, err := readBody(resp)
	switch status := resp.StatusCode; {
	case status/100 != 2: // it is the answer, with or without its words
		return tool.Result{}, t.refused(resp, content)
	case errors.Is(err, errTooLong):
		return tool.Result{}, &trouble{err: tool.Errorf(tool.CodeInvalidResult, "The service did what was asked, but its answer cannot be used: %s.", err)}
	case err != nil:
		return tool.Result{}, &trouble{
			err:   tool.Errorf(CodeUnavailable, "The service answered HTTP %d, but its answer broke off: %s.", status, brief(err)),
			again: true, unsure: true,
		}
	}
	result, err := resultOf(resp, content)
	if err != nil {
		return tool.Result{}, &trouble{err: err}
	}
	return result, nil
}

// unanswered is a request without an answer.
func (t *endpoint) unanswered(err error, sent bool) *trouble {
	var whole *url.Error
	if errors.As(err, &whole) {
		err = whole.Err // it would show the URL, which may be a secret
	}
	if errors.Is(err, netguard.ErrBlocked) {
		return &trouble{err: tool.Errorf(CodeBlocked, "The service is at an address that is not used: %s. Nothing was done.", brief(err))}
	}
	if !sent {
		return &trouble{err: tool.Errorf(CodeUnavailable, "The service cannot be reached: %s. Nothing was done.", brief(err)), again: true}
	}
	return &trouble{err: tool.Errorf(CodeUnavailable, "The service gave no answer: %s. It may have acted.", brief(err)), again: true, unsure: true}
}

// refused is an answer that is no success.
func (t *endpoint) refused(resp *http.Response, content []byte) *trouble {
	status := resp.StatusCode
	bad := &trouble{err: problemOf(resp, content), after: retryAfter(resp)}
	switch {
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests, status >= 500:
		bad.again = true
	}
	// A gateway that lost the service behind it does not know what that did.
	bad.unsure = status == http.StatusBadGateway || status == http.StatusGatewayTimeout || status >= 520 && status <= 527
	return bad
}

// retryAfter is what the service asks for, as seconds or a date.
func retryAfter(resp *http.Response) time.Duration {
	text := resp.Header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// brief is an error in a few words that show no address behind a name.
func brief(err error) string {
	var noHost *net.DNSError
	var network *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return "it took too long"
	case errors.Is(err, context.Canceled):
		return "it was stopped"
	case errors.As(err, &noHost):
		return "the host " + noHost.Name + " was not found"
	case errors.As(err, &network) && network.Err != nil:
		err = network.Err
	}
	return session.TrimText(session.CleanText(cmp.Or(err.Error(), "it is not known why")), 300)
}

func isTimeout(err error) bool {
	var slow net.Error
	return errors.As(err, &slow) && slow.Timeout()
}
