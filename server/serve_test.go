package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast-run/holdfast/feed"
	"github.com/holdfast-run/holdfast/server"
	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
)

// serve lets the world's server serve a listener of its own, as a program does.
// stop ends that, and gives what Serve returned.
func (w *world) serve() (stop func() error) {
	w.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.srv.Serve(ctx, listener) }()
	transport := &http.Transport{}
	w.url, w.client = "http://"+listener.Addr().String(), &http.Client{Transport: transport}
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		err := <-done
		transport.CloseIdleConnections()
		return err
	}
	w.t.Cleanup(func() {
		if err := stop(); err != nil {
			w.t.Error(err)
		}
	})
	return stop
}

func TestADrainEndsStreamsWithAGoodbyeWhileCommandsGoOn(t *testing.T) {
	w := newWorld(t, worldOptions{})
	stop := w.serve()
	out := w.say("ses_1", "msg_1", "hello")
	stream, ws := w.watch("/v1/sessions/ses_1/events"), w.socket()
	stream.seqs(0, 3)
	poll := make(chan answer)
	go func() { poll <- w.do("GET", "/v1/sessions/ses_1/events?after=3&wait=60s", nil) }()
	w.waitForStreams(3)

	w.srv.Drain()

	var last block
	for {
		b, ok := stream.next()
		if !ok {
			break
		}
		last = b
	}
	if last.comment != "goodbye" || last.retry == "" || last.id != "" || stream.read.Err() != nil {
		t.Errorf("the stream ended with %+v, %v", last, stream.read.Err())
	}
	if f := ws.next(); f.Type != "goodbye" || f.RetryAfterMs <= 0 {
		t.Errorf("the socket was told %+v", f)
	}
	_, _, err := ws.conn.Read(t.Context())
	if websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("the socket ended with %v", err)
	}
	(<-poll).problem(503, api.Unavailable)
	w.waitForStreams(0)

	w.do("GET", "/readyz", nil).problem(503, api.Unavailable)
	w.do("GET", "/healthz", nil).is(200)
	p := w.do("GET", "/v1/sessions/ses_1/events", nil, "Accept", "text/event-stream").problem(503, api.Unavailable)
	if p.RetryAfterMs <= 0 {
		t.Errorf("a new stream is told %+v", p)
	}
	if _, res, err := websocket.Dial(t.Context(), w.url+"/v1/connect", nil); err == nil || res.StatusCode != 503 {
		t.Errorf("a new socket: %v %v", res, err)
	}
	w.say("ses_1", "msg_2", "still there?")
	w.do("GET", "/v1/sessions/ses_1", nil).is(200)
	w.do("POST", "/v1/runs/"+out.Run.ID+"/cancel", nil).is(200)

	if err := stop(); err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://")); err == nil {
		conn.Close()
		t.Error("the listener is still open")
	}
}

func TestServeEndsByItselfWhenItsContextDoes(t *testing.T) {
	w := newWorld(t, worldOptions{})
	stop := w.serve()
	w.say("ses_1", "msg_1", "hello")
	stream, ws := w.watch("/v1/sessions/ses_1/events"), w.socket()
	stream.seqs(0, 3)
	read := make(chan error, 1)
	go func() {
		for {
			if _, _, err := ws.conn.Read(context.WithoutCancel(t.Context())); err != nil {
				read <- err
				return
			}
		}
	}()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := <-read; websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("the socket ended with %v", err)
	}
	if _, err := io.Copy(io.Discard, stream.res.Body); err != nil {
		t.Errorf("the stream was cut: %v", err)
	}
	if got := w.srv.Streams(); got != 0 {
		t.Errorf("%d streams are left", got)
	}
}

func TestServeSaysWhatBrokeTheListener(t *testing.T) {
	w := newWorld(t, worldOptions{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	if err := w.srv.Serve(t.Context(), listener); !errors.Is(err, net.ErrClosed) {
		t.Errorf("told %v", err)
	}
}

func TestAClientThatSendsNoHeadIsNotWaitedForWhenTheServerEnds(t *testing.T) {
	w := newWorld(t, worldOptions{server: server.Options{ShutdownTimeout: 50 * time.Millisecond}})
	stop := w.serve()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET /healthz HTTP/1.1\r\nHost: lo")); err != nil {
		t.Fatal(err)
	}
	w.do("GET", "/healthz", nil).is(200) // so that the connection before is accepted
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestServeDoesNotWaitForAReaderThatTakesNothing(t *testing.T) {
	w := newWorld(t, worldOptions{
		server: server.Options{ShutdownTimeout: 10 * time.Millisecond},
		feed:   feed.Options{WriteTimeout: time.Minute},
	})
	stop := w.serve()
	w.say("ses_1", "msg_1", "hello")
	big := strings.Repeat("x", 16<<20) // more than sockets hold
	w.append("ses_1", session.Event{Data: session.Unknown{Name: "big.thing", Raw: json.RawMessage(fmt.Sprintf("%q", big))}})
	s := w.watch("/v1/sessions/ses_1/events?after=3")
	if _, err := io.ReadFull(s.res.Body, make([]byte, 1<<20)); err != nil { // and reads no more
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if got := w.srv.Streams(); got != 1 {
		t.Errorf("Serve waited: %d streams are open", got)
	}
	s.close()
	w.waitForStreams(0)
}

func TestHeadersAreBounded(t *testing.T) {
	w := newWorld(t, worldOptions{})
	w.serve()
	a := w.sendRaw("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Big: " + strings.Repeat("x", 64<<10) + "\r\n\r\n")
	if a.status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("64 KiB of headers are answered with %d", a.status)
	}
}

func TestListeningElsewhereNeedsAWord(t *testing.T) {
	for addr, allowed := range map[string]bool{
		"127.0.0.1:8787": true, "127.9.9.9:0": true, "[::1]:8787": true, "localhost:8787": true,
		"0.0.0.0:8787": false, ":8787": false, "[::]:8787": false, "192.168.1.5:80": false, "example.com:80": false,
		"localhost.example.com:80": false, "[::ffff:127.0.0.1]:80": true,
	} {
		if err := server.CheckListen(addr, false); (err == nil) != allowed {
			t.Errorf("%s: %v", addr, err)
		}
		if err := server.CheckListen(addr, true); err != nil {
			t.Errorf("%s, although it was said: %v", addr, err)
		}
	}
	if err := server.CheckListen("8787", true); err == nil {
		t.Error("an address without a port is taken")
	}
}

func TestARunGoesOnWhenItsWatchersAreSentAway(t *testing.T) {
	w := newWorld(t, worldOptions{})
	w.say("ses_1", "msg_1", "hello")
	lease := w.claim()
	s := w.watch("/v1/sessions/ses_1/events")
	s.seqs(0, 5)
	w.srv.Drain()
	w.end(lease, session.RunCompleted{})
	var run session.Run
	w.do("GET", "/v1/runs/"+lease.Run, nil).into(200, &run)
	if run.Status != session.Completed {
		t.Errorf("the run is %+v", run)
	}
}
