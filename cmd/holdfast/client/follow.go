package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
)

// Update is what a follower is told: an [Event], [Folded], [Reset], [Deleted],
// [Lost], [Back] or [Refused].
type Update interface{ update() }

// Event is the next event of the log. JSON is its line as it came, valid for good.
type Event struct {
	session.Event
	JSON json.RawMessage
}

// Folded is a range of deltas that retention dropped.
type Folded struct {
	session.Folded
	JSON json.RawMessage
}

// Reset says that the log is not the one that the cursor was of: it ends at Head,
// before the cursor. What follows begins at seq 1.
type Reset struct{ Head int64 }

// Deleted says that the session is gone. Nothing follows.
type Deleted struct{}

// Lost says that the connection is gone and is sought again, after Wait.
type Lost struct {
	Err error
	// Failures counts the tries in a row that led to nothing.
	Failures int
	Wait     time.Duration
}

// Back says that the connection stands, after it was lost. Nothing was missed.
type Back struct{ After time.Duration }

// Refused says why the session cannot be followed. Nothing follows.
type Refused struct{ Err error }

func (Event) update()   {}
func (Folded) update()  {}
func (Reset) update()   {}
func (Deleted) update() {}
func (Lost) update()    {}
func (Back) update()    {}
func (Refused) update() {}

const (
	// silence is how long a stream may say nothing, heartbeats included.
	silence = 45 * time.Second
	// The waits before a lost connection is sought again double from the first
	// to the last, and a random half is taken off. A person watches: a server that
	// was killed is found soon after it is back. A server that says goodbye names a time.
	firstWait = 400 * time.Millisecond
	lastWait  = 8 * time.Second
)

// Backoff is how long to wait after so many failures in a row: doubling, half of it by chance.
func Backoff(failures int) time.Duration {
	wait := min(firstWait<<min(max(failures-1, 0), 10), lastWait)
	return wait/2 + rand.N(wait/2)
}

// Follow gives the log of a session after a cursor, then what is added to it,
// each event once and in order, until ctx ends or the reader stops. It
// connects again by itself, for as long as it takes.
func (c *Client) Follow(ctx context.Context, sessionID string, after int64) iter.Seq[Update] {
	return func(yield func(Update) bool) {
		f := follower{Client: c, session: sessionID, cursor: after, yield: yield}
		for ctx.Err() == nil && !f.done {
			err := f.connect(ctx)
			if ctx.Err() != nil || f.done {
				return
			}
			if err != nil && !Passing(err) {
				yield(Refused{Err: err})
				return
			}
			if !f.lose(ctx, err) {
				return
			}
		}
	}
}

// follower is one Follow.
type follower struct {
	*Client
	session string
	cursor  int64
	yield   func(Update) bool
	done    bool // the reader stopped, or nothing more can come

	failures int
	lost     time.Time     // since when; zero while connected
	retry    time.Duration // what a goodbye asked for
}

// tell gives an update to the reader.
func (f *follower) tell(u Update) {
	if !f.done && !f.yield(u) {
		f.done = true
	}
}

// lose tells of a lost connection and waits; false means that ctx ended.
func (f *follower) lose(ctx context.Context, err error) bool {
	if f.lost.IsZero() {
		f.lost = time.Now()
	}
	f.failures++
	wait := max(Backoff(f.failures), f.retry)
	var p *api.Problem
	if errors.As(err, &p) {
		wait = max(wait, time.Duration(p.RetryAfterMs)*time.Millisecond)
	}
	f.retry = 0
	if f.tell(Lost{Err: err, Failures: f.failures, Wait: wait}); f.done {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// connect follows until the connection ends.
func (f *follower) connect(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		f.at("/v1/sessions/"+id(f.session)+"/events", url.Values{"after": {strconv.FormatInt(f.cursor, 10)}}), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	// Until the answer comes, too, silence is a broken connection.
	quiet := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer quiet.Stop()
	body, err := f.do(req)
	if err != nil {
		return f.unlessSilent(ctx, err)
	}
	defer body.Close()
	for b, err := range blocks(&alive{body, quiet}) {
		if err != nil {
			return f.unlessSilent(ctx, &UnreachableError{URL: f.URL(), Err: err})
		}
		if !f.lost.IsZero() {
			f.tell(Back{After: time.Since(f.lost)})
			f.lost, f.failures = time.Time{}, 0
		}
		if b.comment == "goodbye" {
			f.retry = b.retry
		}
		if len(b.data) > 0 {
			if err := f.frame(b.data); err != nil {
				return err
			}
		}
		if f.done {
			return nil
		}
	}
	return &UnreachableError{URL: f.URL(), Err: io.EOF}
}

var errSilent = fmt.Errorf("nothing was heard for %v", silence)

func (f *follower) unlessSilent(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errSilent) {
		return &UnreachableError{URL: f.URL(), Err: errSilent}
	}
	return err
}

// alive puts off the end of a connection with all that is read.
type alive struct {
	io.Reader
	quiet *time.Timer
}

func (a *alive) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	if n > 0 {
		a.quiet.Reset(silence)
	}
	return n, err
}

// frame takes one frame, if it is the next.
func (f *follower) frame(data []byte) error {
	raw := json.RawMessage(append([]byte(nil), data...))
	u, from, to, err := ParseFrame(raw)
	if err != nil {
		return &UnreachableError{URL: f.URL(), Err: err}
	}
	switch u := u.(type) {
	case Reset:
		f.cursor = 0
		f.tell(u)
		return nil
	case Deleted:
		f.tell(u)
		f.done = true
		return nil
	}
	switch {
	case to <= f.cursor:
		return nil // seen
	case from > f.cursor+1:
		return &UnreachableError{URL: f.URL(), Err: fmt.Errorf("frame %d..%d came after %d", from, to, f.cursor)}
	}
	f.cursor = to
	f.tell(u)
	return nil
}

// ParseFrame reads one frame of a stream or a page, and the seqs that it covers.
func ParseFrame(raw json.RawMessage) (u Update, from, to int64, err error) {
	var kind struct {
		Type string `json:"type"`
		Seq  int64  `json:"seq"`
		From int64  `json:"from"`
		To   int64  `json:"to"`
		Head int64  `json:"head"`
	}
	if err := json.Unmarshal(raw, &kind); err != nil {
		return nil, 0, 0, fmt.Errorf("read a frame: %w", err)
	}
	switch {
	case kind.Seq > 0:
		e := Event{JSON: raw}
		if err := json.Unmarshal(raw, &e.Event); err != nil {
			return nil, 0, 0, err
		}
		return e, kind.Seq, kind.Seq, nil
	case kind.Type == "folded":
		folded := Folded{JSON: raw}
		if err := json.Unmarshal(raw, &folded.Folded); err != nil {
			return nil, 0, 0, fmt.Errorf("read a frame: %w", err)
		}
		return folded, kind.From, kind.To, nil
	case kind.Type == "reset":
		return Reset{Head: kind.Head}, 0, 0, nil
	case kind.Type == "deleted":
		return Deleted{}, 0, 0, nil
	}
	return nil, 0, 0, fmt.Errorf("a frame of the unknown type %q", kind.Type)
}
