package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/session"
)

func TestTP01NothingHoldsTheStreamBack(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(fakellm.Reply(fakellm.Paced(300*time.Millisecond, "1 ", "2 ", "3 ", "4 ", "5 ")))
	run := w.submit("ses", "go")
	req, err := http.NewRequestWithContext(w.ctx, "GET", w.srv.url+"/v1/sessions/ses/events?after=0", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Accept-Encoding", "gzip, br")
	asked := time.Now()
	res, err := w.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if took := time.Since(asked); took > 300*time.Millisecond {
		t.Errorf("the headers took %s", took)
	}
	for name, want := range map[string]string{"X-Accel-Buffering": "no", "Cache-Control": "no-cache, no-transform", "Content-Encoding": ""} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	s := &stream{res: res, lines: bufio.NewReader(res.Body), cancel: func() {}}
	if _, err := s.read(func(f frame) bool {
		if f.Type == "text.delta" {
			if late := time.Since(f.event.At); late > 300*time.Millisecond {
				t.Errorf("seq %d came %s after it happened", f.Seq, late)
			}
		}
		return f.Type == "run.completed"
	}); err != nil {
		t.Fatal(err)
	}
	w.ends(run)
}

func TestTP02AQuietStreamIsKeptAliveByHeartbeats(t *testing.T) {
	w := newWorld(t, settings{heartbeat: time.Second})
	_, _ = w.asked("ses") // it waits for a person: nothing is to be told
	proxy := newProxy(t, w.srv.url, 2500*time.Millisecond)
	ctx, cancel := context.WithTimeout(w.ctx, 6*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", proxy.url+"/v1/sessions/ses/events?after=0", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if ctx.Err() == nil {
		t.Errorf("the stream ended early: %v", err)
	}
	if n := strings.Count(string(raw), "\n:"); n < 3 {
		t.Errorf("there were %d heartbeats", n)
	}
	if err := w.quietSocket(6*time.Second, strings.Replace(proxy.url, "http", "ws", 1)); err != nil {
		t.Errorf("the socket: %v", err)
	}
	w.cancel(w.snapshot("ses").Runs[0].ID)
}

func TestTP04ACleanEndInTheMiddleIsNotTheEnd(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(fakellm.Reply(deltas(60, 50*time.Millisecond)...))
	run := w.submit("ses", "go")
	cursor, connects := int64(0), 0
	var seen []frame
	for done := false; !done; connects++ {
		ctx, cancel := context.WithTimeout(w.ctx, 400*time.Millisecond)
		s, err := w.tryFollow(ctx, "ses", "", fmt.Sprint(cursor))
		if err == nil {
			for {
				f, err := s.nextFrame()
				if err != nil {
					break
				}
				seen, cursor = append(seen, f), f.to()
				done = done || f.Type == "run.completed"
			}
			s.close()
		}
		cancel()
	}
	joins(t.Errorf, seen, 0)
	text := ""
	for _, f := range seen {
		if d, ok := f.event.Data.(session.TextDelta); ok {
			text += d.Text
		}
	}
	if w.ends(run); text != w.text("ses") || connects < 3 {
		t.Errorf("after %d connections the text is %q", connects, text)
	}
}

func TestTP07OverTheCapAReaderIsToldWhenToComeBack(t *testing.T) {
	w := newWorld(t, settings{streams: 10})
	w.ends(w.submit("ses", "go"))
	var open []*stream
	refused := 0
	for range 14 {
		s, err := w.tryFollow(w.ctx, "ses", "after=0", "")
		if err != nil {
			t.Fatal(err)
		}
		if s.res.StatusCode == http.StatusOK {
			open = append(open, s)
			continue
		}
		refused++
		body, _ := io.ReadAll(s.res.Body)
		if s.res.StatusCode != http.StatusServiceUnavailable || s.res.Header.Get("Retry-After") == "" || !strings.Contains(string(body), "too_many_streams") {
			t.Errorf("over the cap it is answered %d: %s", s.res.StatusCode, body)
		}
		s.close()
	}
	if len(open) != 10 || refused != 4 {
		t.Errorf("%d streams are open, %d were refused", len(open), refused)
	}
	// Those that are open are not evicted, and a place that comes free is taken.
	if _, err := open[0].nextFrame(); err != nil {
		t.Errorf("an open stream was evicted: %v", err)
	}
	for _, s := range open {
		s.close()
	}
	w.within(10*time.Second, "taking a free place", func(ctx context.Context) error {
		for {
			s, err := w.tryFollow(ctx, "ses", "after=0", "")
			if err != nil {
				return err
			}
			s.close()
			if s.res.StatusCode == http.StatusOK {
				return nil
			}
		}
	})
}

func TestTP07AShutdownTellsClientsWhenToComeBack(t *testing.T) {
	w := newWorld(t, settings{})
	w.ends(w.submit("ses", "go"))
	retries := map[string]bool{}
	var mu sync.Mutex
	var readers sync.WaitGroup
	for range 20 {
		s := w.follow("ses", 0)
		readers.Go(func() {
			raw, _ := io.ReadAll(s.lines)
			i := strings.LastIndex(string(raw), "retry:")
			if i < 0 || !strings.Contains(string(raw[i:]), "goodbye") {
				t.Errorf("the stream ends with %.200q", tail(string(raw), 200))
				return
			}
			mu.Lock()
			retries[strings.Fields(string(raw[i+6:]))[0]] = true
			mu.Unlock()
		})
	}
	w.srv.stop(t)
	readers.Wait()
	if len(retries) < 10 {
		t.Errorf("20 clients are told only %d different times", len(retries))
	}
}

func TestSM01ReadersThatDoNotReadCostNobodyAnything(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(fakellm.Reply(fakellm.Text(fakellm.Filler(1000)), fakellm.Paced(time.Millisecond, longPieces(3000, 4000)...)))
	run := w.submit("ses", "go")
	before := w.memory()
	var d net.Dialer
	for range 100 {
		c, err := d.DialContext(w.ctx, "tcp", strings.TrimPrefix(w.srv.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if raw, ok := c.(*net.TCPConn); ok {
			_ = raw.SetReadBuffer(4096)
		}
		fmt.Fprintf(c, "GET /v1/sessions/ses/events?after=0 HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\n\r\n", strings.TrimPrefix(w.srv.url, "http://"))
	}
	s := w.follow("ses", 0)
	worst := time.Duration(0)
	if _, err := s.read(func(f frame) bool {
		if f.Type == "text.delta" {
			worst = max(worst, time.Since(f.event.At))
		}
		return f.Type == "run.completed"
	}); err != nil {
		t.Fatal(err)
	}
	w.ends(run)
	if grown := w.memory() - before; grown > 200<<20 {
		t.Errorf("the server grew by %d MB", grown>>20)
	}
	t.Logf("12 MB were told past 100 readers that do not read; the healthy one was at most %s late", worst)
}

func longPieces(n, size int) []string {
	pieces := make([]string, n)
	for i := range pieces {
		pieces[i] = strings.Repeat("x", size)
	}
	return pieces
}

func TestHostAndOriginOfOthersAreRefused(t *testing.T) {
	w := newWorld(t, settings{})
	for name, set := range map[string]func(*http.Request){
		"host":   func(r *http.Request) { r.Host = "evil.example" },
		"origin": func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
	} {
		raw, _ := json.Marshal(say("m", "x"))
		req, err := http.NewRequestWithContext(w.ctx, "POST", w.srv.url+"/v1/sessions/ses/messages", strings.NewReader(string(raw)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		set(req)
		res, err := w.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != http.StatusForbidden || !strings.Contains(string(body), "forbidden_"+name) {
			t.Errorf("a foreign %s is answered %d: %s", name, res.StatusCode, body)
		}
	}
}

// proxy is a TCP proxy that cuts a connection on which nothing comes for a while.
type proxy struct{ url string }

func newProxy(t *testing.T, target string, idle time.Duration) *proxy {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	t.Cleanup(func() { l.Close(); conns.Wait() })
	pump := func(dst, src net.Conn) {
		buf := make([]byte, 32<<10)
		for {
			_ = src.SetReadDeadline(time.Now().Add(idle))
			n, err := src.Read(buf)
			if n > 0 {
				if _, err := dst.Write(buf[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer c.Close()
				var d net.Dialer
				up, err := d.DialContext(context.Background(), "tcp", strings.TrimPrefix(target, "http://"))
				if err != nil {
					return
				}
				defer up.Close()
				go func() { _, _ = io.Copy(up, c); up.Close() }()
				pump(c, up) // only what the server says keeps it open
			})
		}
	})
	return &proxy{url: "http://" + l.Addr().String()}
}
