package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast/feed"
	"github.com/holdfast-run/holdfast/server"
	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/memory"
)

// block is one block of an event stream.
type block struct{ id, data, comment, retry string }

// sse is an open event stream.
type sse struct {
	t    testing.TB
	res  *http.Response
	read *bufio.Scanner
	stop context.CancelFunc
}

// watch opens the event stream of a session.
func (w *world) watch(path string, headers ...string) *sse {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", w.url+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := w.client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	s := &sse{t: w.t, res: res, read: bufio.NewScanner(res.Body), stop: stop}
	s.read.Buffer(nil, 16<<20)
	w.t.Cleanup(s.close)
	return s
}

func (s *sse) close() {
	s.stop()
	s.res.Body.Close()
}

// next reads a block. ok is false at the end of the stream.
func (s *sse) next() (b block, ok bool) {
	s.t.Helper()
	for s.read.Scan() {
		line := s.read.Text()
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			return b, true
		case name == "":
			b.comment = value
		case name == "id":
			b.id = value
		case name == "data":
			b.data = value
		case name == "retry":
			b.retry = value
		default:
			s.t.Errorf("a block has the line %q", line)
		}
	}
	return b, false
}

// seqs reads events until seq, and checks that they join after the cursor.
func (s *sse) seqs(after, until int64) {
	s.t.Helper()
	for after < until {
		b, ok := s.next()
		if !ok {
			s.t.Fatalf("the stream ended at %d: %v", after, s.read.Err())
		}
		if b.id == "" {
			continue
		}
		var e session.Event
		if err := json.Unmarshal([]byte(b.data), &e); err != nil {
			s.t.Fatal(err)
		}
		if e.Seq != after+1 || b.id != strconv.FormatInt(e.Seq, 10) {
			s.t.Fatalf("after %d came %d with the id %s", after, e.Seq, b.id)
		}
		after = e.Seq
	}
}

// bothWays runs a test against a handler in net/http's hands, and against
// Serve, which takes the connections of streams over. The second has its store
// in SQLite unless the store is to have faults.
func bothWays(t *testing.T, opts worldOptions, test func(*testing.T, *world)) {
	t.Helper()
	t.Run("handler", func(t *testing.T) { test(t, newWorld(t, opts)) })
	t.Run("taken over", func(t *testing.T) {
		opts.sqlite = opts.faults.BeforeCall == nil
		w := newWorld(t, opts)
		w.serve()
		test(t, w)
	})
}

// fill makes a session of n events in all.
func (w *world) fill(id string, n int) {
	w.t.Helper()
	w.say(id, "msg_1", "hello")
	run := w.claim().Run
	r, err := w.store.Run(w.t.Context(), run)
	if err != nil {
		w.t.Fatal(err)
	}
	w.append(id, session.Event{Run: run, Step: 1, Attempt: 1, Data: session.StepStarted{Message: r.Message}})
	var events []session.Event
	for i := len(w.events(id)); i < n; i++ {
		events = append(events, session.Event{Run: run, Step: 1, Attempt: 1, Data: session.TextDelta{Message: r.Message, Text: fmt.Sprint(i)}})
	}
	w.append(id, events...)
}

func TestACursorIsReadByARuleBeforeTheFirstByte(t *testing.T) {
	bothWays(t, worldOptions{}, func(t *testing.T, w *world) {
		w.fill("ses_1", 10)
		const refused = -1
		for _, c := range []struct {
			name, header, query string
			hasHeader           bool
			begins              int64 // the first seq, or refused, or 0 for a reset
		}{
			{name: "none", begins: 1},
			{name: "an empty header", hasHeader: true, begins: 1},
			{name: "zero", header: "0", begins: 1},
			{name: "five", header: "5", begins: 6},
			{name: "the head", header: "10", begins: 11},
			{name: "ahead", header: "11", begins: 0},
			{name: "far ahead", header: "9007199254740991", begins: 0},
			{name: "negative", header: "-1", begins: refused},
			{name: "a sign", header: "+5", begins: refused},
			{name: "a word", header: "abc", begins: refused},
			{name: "an exponent", header: "1e3", begins: refused},
			{name: "a fraction", header: "1.0", begins: refused},
			{name: "a leading zero", header: "05", begins: refused},
			{name: "beyond 2^53", header: "9007199254740992", begins: refused},
			{name: "far beyond 2^53", header: "9007199254740993", begins: refused},
			{name: "beyond 64 bits", header: "18446744073709551616", begins: refused},
			{name: "NaN", header: "NaN", begins: refused},
			{name: "null", header: "null", begins: refused},
			{name: "an escaped NUL", header: "5%00", begins: refused},
			{name: "another session", header: "otherSession:5", begins: refused},
			{name: "other digits", header: "٥", begins: refused},
			{name: "10,000 digits", header: strings.Repeat("9", 10_000), begins: refused},
			{name: "query", query: "?after=5", begins: 6},
			{name: "an empty query", query: "?after=", begins: refused},
			{name: "a space in the query", query: "?after=%205", begins: refused},
			{name: "a NUL in the query", query: "?after=5%00", begins: refused},
			{name: "two in the query", query: "?after=5&after=6", begins: refused},
			{name: "the header wins", header: "5", query: "?after=2", begins: 6},
			{name: "a good header wins over a bad query", header: "5", query: "?after=x", begins: 6},
			{name: "a bad header wins over a good query", header: "x", query: "?after=2", begins: refused},
			{name: "an empty header does not win", hasHeader: true, query: "?after=2", begins: 3},
		} {
			t.Run(c.name, func(t *testing.T) {
				var headers []string
				if c.header != "" || c.hasHeader {
					headers = []string{"Last-Event-ID", c.header}
				}
				page := w.do("GET", "/v1/sessions/ses_1/events"+c.query, nil, headers...)
				s := w.watch("/v1/sessions/ses_1/events"+c.query, headers...)
				if c.begins == refused {
					page.problem(400, api.InvalidCursor)
					raw, err := io.ReadAll(s.res.Body)
					if err != nil {
						t.Fatal(err)
					}
					answer{t, s.res.StatusCode, s.res.Header, raw}.problem(400, api.InvalidCursor)
					return
				}
				var p api.EventPage
				page.into(200, &p)
				if s.res.StatusCode != 200 {
					t.Fatalf("the stream has the status %d", s.res.StatusCode)
				}
				switch {
				case c.begins == 0:
					if !p.Reset || len(p.Frames) != 0 || p.Head != 10 {
						t.Errorf("the page is %+v, not a reset", p)
					}
					if b, _ := s.next(); b.retry == "" {
						t.Errorf("begins with %+v", b)
					}
					if b, _ := s.next(); b.id != "" || b.data != `{"type":"reset","session":"ses_1","head":10}` {
						t.Errorf("not a reset: %+v", b)
					}
					s.seqs(0, 10)
				case c.begins <= 10:
					var e session.Event
					if err := json.Unmarshal(p.Frames[0], &e); err != nil || e.Seq != c.begins {
						t.Errorf("the page begins at %d, want %d: %v", e.Seq, c.begins, err)
					}
					s.seqs(c.begins-1, 10)
				default:
					if p.Reset || len(p.Frames) != 0 || p.More {
						t.Errorf("the page is %+v, not empty", p)
					}
				}
			})
		}
	})
}

func TestAStreamHasTheHeadersThatKeepProxiesFromHoldingIt(t *testing.T) {
	bothWays(t, worldOptions{}, func(t *testing.T, w *world) {
		w.say("ses_1", "msg_1", "hello")
		s := w.watch("/v1/sessions/ses_1/events?after=3", "Accept-Encoding", "gzip, br")
		for name, want := range map[string]string{
			"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform",
			"X-Accel-Buffering": "no", "Content-Encoding": "", "X-Content-Type-Options": "nosniff",
		} {
			if got := s.res.Header.Get(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		if b, _ := s.next(); b.retry == "" || b.id != "" {
			t.Errorf("the first block is %+v", b)
		}
	})
}

func TestOnlyWhatIsDurableMovesTheCursor(t *testing.T) {
	bothWays(t, worldOptions{feed: feed.Options{Heartbeat: 5 * time.Millisecond}}, func(t *testing.T, w *world) {
		w.fill("ses_1", 10)
		s := w.watch("/v1/sessions/ses_1/events")
		heartbeats := 0
		for last := ""; heartbeats < 3; {
			b, ok := s.next()
			if !ok {
				t.Fatal("the stream ended")
			}
			switch {
			case b.comment != "":
				heartbeats++
				if b.id != "" || b.data != "" {
					t.Errorf("a heartbeat carries %+v", b)
				}
				if last != "10" {
					t.Errorf("a heartbeat came after %s", last)
				}
			case b.id != "":
				last = b.id
			}
		}
	})
}

func TestReadersOfEveryFormSeeEveryEventOnce(t *testing.T) {
	bothWays(t, worldOptions{}, func(t *testing.T, w *world) {
		w.say("ses_1", "msg_1", "hello")
		lease := w.claim()
		run, err := w.store.Run(t.Context(), lease.Run)
		if err != nil {
			t.Fatal(err)
		}
		const last = 1500
		var all sync.WaitGroup
		all.Go(func() {
			for seq := len(w.events("ses_1")); seq < last; seq++ {
				w.append("ses_1", session.Event{Run: run.ID, Step: 1, Attempt: 1, Data: session.TextDelta{Message: run.Message, Text: fmt.Sprint(seq)}})
			}
		})
		for i := range 10 {
			after := int64(i % 4)
			all.Go(func() {
				w.watch(fmt.Sprintf("/v1/sessions/ses_1/events?after=%d", after)).seqs(after, last)
			})
			all.Go(func() { w.poll("ses_1", after, last) })
			all.Go(func() { w.socket().follow("ses_1", after, last) })
		}
		all.Wait()
	})
}

// poll reads pages, waiting for each, and checks that they join.
func (w *world) poll(id string, after, until int64) {
	w.t.Helper()
	for after < until {
		var page api.EventPage
		w.do("GET", fmt.Sprintf("/v1/sessions/%s/events?after=%d&limit=97&wait=10s", id, after), nil).into(200, &page)
		if page.After != after || len(page.Frames) > 97 {
			w.t.Errorf("the page after %d is after %d with %d frames", after, page.After, len(page.Frames))
			return
		}
		for _, raw := range page.Frames {
			var e session.Event
			if err := json.Unmarshal(raw, &e); err != nil || e.Seq != after+1 {
				w.t.Errorf("after %d came %d: %v", after, e.Seq, err)
				return
			}
			after = e.Seq
		}
		if page.More != (after < page.Head) {
			w.t.Errorf("more is %v at %d of %d", page.More, after, page.Head)
		}
	}
}

func TestALongPollWaitsForSomethingOrItsTime(t *testing.T) {
	w := newWorld(t, worldOptions{})
	w.say("ses_1", "msg_1", "hello")
	var page api.EventPage
	w.do("GET", "/v1/sessions/ses_1/events?after=3&wait=20ms", nil).into(200, &page)
	if len(page.Frames) != 0 || page.More || page.Head != 3 || page.Frames == nil {
		t.Errorf("waited for %+v", page)
	}
	done := make(chan api.EventPage)
	go func() {
		var page api.EventPage
		w.do("GET", "/v1/sessions/ses_1/events?after=3&wait=60s", nil).into(200, &page)
		done <- page
	}()
	w.waitForStreams(1)
	title := "new"
	w.do("PATCH", "/v1/sessions/ses_1", api.UpdateSession{Title: &title}).is(200)
	if page = <-done; len(page.Frames) != 1 || page.Head != 4 {
		t.Errorf("woke to %+v", page)
	}
	w.waitForStreams(0)
}

func TestAcceptChoosesTheForm(t *testing.T) {
	bothWays(t, worldOptions{}, func(t *testing.T, w *world) {
		w.say("ses_1", "msg_1", "hello")
		for accept, want := range map[string]string{
			"text/event-stream":                            "text/event-stream",
			"Text/Event-Stream; charset=utf-8":             "text/event-stream",
			"text/event-stream, application/json":          "text/event-stream",
			"application/json;q=0.5, text/event-stream":    "text/event-stream",
			"application/json, text/event-stream;q=0.5":    "application/json",
			"application/json":                             "application/json",
			"*/*":                                          "application/json",
			"text/html,application/xhtml+xml,*/*;q=0.8":    "application/json",
			"text/event-stream;q=0, application/json;q=.1": "application/json",
		} {
			s := w.watch("/v1/sessions/ses_1/events", "Accept", accept)
			if got := s.res.Header.Get("Content-Type"); got != want {
				t.Errorf("%s gets %s, want %s", accept, got, want)
			}
			s.close()
		}
		a := w.do("HEAD", "/v1/sessions/ses_1/events?wait=60s", nil, "Accept", "text/event-stream").is(200)
		if len(a.body) != 0 {
			t.Errorf("HEAD has a body: %s", a.body)
		}
	})
}

func TestAStreamOfADeletedSessionSaysSoAndEnds(t *testing.T) {
	bothWays(t, worldOptions{}, func(t *testing.T, w *world) {
		w.say("ses_1", "msg_1", "hello")
		w.end(w.claim(), session.RunCompleted{})
		head := int64(len(w.events("ses_1")))
		s := w.watch("/v1/sessions/ses_1/events")
		s.seqs(0, head)
		w.do("DELETE", "/v1/sessions/ses_1", nil).is(204)
		if b, ok := s.next(); !ok || b.id != "" || b.data != `{"type":"deleted","session":"ses_1"}` {
			t.Errorf("told %+v", b)
		}
		if b, ok := s.next(); ok {
			t.Errorf("went on with %+v", b)
		}
	})
}

func TestStreamsOverTheLimitAreRefusedAndThoseOpenStay(t *testing.T) {
	bothWays(t, worldOptions{server: server.Options{MaxStreams: 2}}, func(t *testing.T, w *world) {
		w.say("ses_1", "msg_1", "hello")
		first, second := w.watch("/v1/sessions/ses_1/events"), w.socket()
		first.seqs(0, 3)
		for range 20 {
			a := w.do("GET", "/v1/sessions/ses_1/events", nil, "Accept", "text/event-stream")
			p := a.problem(503, api.TooManyStreams)
			if p.RetryAfterMs < 1500 || p.RetryAfterMs > 4500 || a.header.Get("Retry-After") == "" {
				t.Errorf("told %+v", p)
			}
		}
		w.do("GET", "/v1/sessions/ses_1/events?after=3&wait=1s", nil).problem(503, api.TooManyStreams)
		w.do("GET", "/v1/sessions/ses_1/events?after=3", nil).is(200)
		_, res, err := websocket.Dial(t.Context(), w.url+"/v1/connect", nil)
		if err == nil || res.StatusCode != 503 {
			t.Errorf("a socket over the limit: %v %v", res, err)
		}
		second.conn.CloseNow()
		w.waitForStreams(1)
		w.watch("/v1/sessions/ses_1/events").seqs(0, 3)
		title := "still here"
		w.do("PATCH", "/v1/sessions/ses_1", api.UpdateSession{Title: &title}).is(200)
		first.seqs(3, 4)
	})
}

func TestAClosedTabLeavesNothingBehindAndCancelsNothing(t *testing.T) {
	bothWays(t, worldOptions{}, func(t *testing.T, w *world) {
		out := w.say("ses_1", "msg_1", "hello")
		var open []*sse
		for range 10 {
			s := w.watch("/v1/sessions/ses_1/events")
			s.seqs(0, 3)
			open = append(open, s)
		}
		if got := w.srv.Streams(); got != 10 {
			t.Errorf("%d streams are open", got)
		}
		for _, s := range open {
			s.close()
		}
		w.waitForStreams(0)
		var run session.Run
		w.do("GET", "/v1/runs/"+out.Run.ID, nil).into(200, &run)
		if run.Status != session.Queued || run.CancelRequestedAt != nil {
			t.Errorf("the run is %+v", run)
		}
	})
}

// waitForStreams waits until so many streams are open.
func (w *world) waitForStreams(n int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	if err := w.srv.AwaitStreams(ctx, n); err != nil {
		w.t.Fatal(err)
	}
}

func TestAReaderThatDoesNotReadIsCutOff(t *testing.T) {
	bothWays(t, worldOptions{feed: feed.Options{WriteTimeout: 50 * time.Millisecond}}, func(t *testing.T, w *world) {
		w.say("ses_1", "msg_1", "hello")
		big := strings.Repeat("x", 1<<20)
		for i := range 24 {
			w.append("ses_1", session.Event{Data: session.Unknown{Name: "big.thing", Raw: json.RawMessage(fmt.Sprintf(`{"n":%d,"x":%q}`, i, big))}})
		}
		s := w.watch("/v1/sessions/ses_1/events") // and does not read
		w.waitForStreams(0)
		_, err := io.Copy(io.Discard, s.res.Body)
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the cut stream ended with %v", err)
		}
	})
}

func TestAStreamThatCannotBeginIsRefused(t *testing.T) {
	var away atomic.Bool
	bothWays(t, worldOptions{faults: memory.Options{BeforeCall: func(method string) error {
		if method == "Head" && away.Load() {
			return store.ErrUnavailable
		}
		return nil
	}}}, func(t *testing.T, w *world) {
		w.say("ses_1", "msg_1", "hello")
		away.Store(true)
		defer away.Store(false)
		w.do("GET", "/v1/sessions/ses_1/events", nil, "Accept", "text/event-stream").problem(503, api.Unavailable)
		w.waitForStreams(0)
	})
}

func TestATakenOverStreamHasTheSameHead(t *testing.T) {
	w := newWorld(t, worldOptions{})
	w.say("ses_1", "msg_1", "hello")
	head := func() map[string][]string {
		s := w.watch("/v1/sessions/ses_1/events")
		h := fixed(s.res.Header)
		h["Transfer-Encoding"] = s.res.TransferEncoding
		h["Proto"] = []string{s.res.Proto, s.res.Status}
		s.close()
		return h
	}
	handler := head()
	w.serve()
	taken := head()
	delete(taken, "Connection")
	if diff := cmp.Diff(handler, taken); diff != "" {
		t.Error(diff)
	}
}
