package server_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
)

// BenchmarkIdleWatchers says what a watcher of an idle session costs in heap
// and stacks, the client's end of the connection included.
func BenchmarkIdleWatchers(b *testing.B) {
	const watchers = 2000
	w := newWorld(b, worldOptions{})
	w.serve()
	w.say("ses_1", "msg_1", "hello")
	addr := strings.TrimPrefix(w.url, "http://")
	for b.Loop() {
		before := inUse()
		conns := make([]net.Conn, watchers)
		for i := range conns {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				b.Fatal(err)
			}
			conns[i] = conn
			fmt.Fprintf(conn, "GET /v1/sessions/ses_1/events?after=3 HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
			if _, err := conn.Read(make([]byte, 1)); err != nil {
				b.Fatal(err)
			}
		}
		w.waitForStreams(watchers)
		after := inUse()
		b.ReportMetric(float64(after-before)/watchers, "B/watcher")
		b.ReportMetric(float64(runtime.NumGoroutine())/watchers, "goroutines/watcher")
		for _, conn := range conns {
			conn.Close()
		}
		w.waitForStreams(0)
	}
}

// BenchmarkIdleSockets says the same of a WebSocket that follows one session.
func BenchmarkIdleSockets(b *testing.B) {
	const sockets = 1000
	w := newWorld(b, worldOptions{})
	w.serve()
	w.say("ses_1", "msg_1", "hello")
	addr := strings.TrimPrefix(w.url, "http://")
	// One masked text frame, with a mask of zeros.
	subscribe := `{"type":"subscribe","id":"a","session":"ses_1","after":3}`
	frame := append([]byte{0x81, 0x80 | byte(len(subscribe)), 0, 0, 0, 0}, subscribe...)
	for b.Loop() {
		before := inUse()
		conns := make([]net.Conn, sockets)
		for i := range conns {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				b.Fatal(err)
			}
			conns[i] = conn
			fmt.Fprintf(conn, "GET /v1/connect HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n%s", frame)
			answer := make([]byte, 0, 1024)
			for !strings.Contains(string(answer), "subscribed") {
				n, err := conn.Read(answer[len(answer):cap(answer)])
				if err != nil {
					b.Fatal(err)
				}
				answer = answer[:len(answer)+n]
			}
		}
		b.ReportMetric(float64(inUse()-before)/sockets, "B/socket")
		b.ReportMetric(float64(runtime.NumGoroutine())/sockets, "goroutines/socket")
		for _, conn := range conns {
			conn.Close()
		}
		w.waitForStreams(0)
	}
}

// BenchmarkIdleChats says what a page costs that waits for the answer to what it
// sent, the client's end of the connection included.
func BenchmarkIdleChats(b *testing.B) {
	const pages = 1000
	w := newWorld(b, worldOptions{})
	w.serve()
	w.chat(user("c1", "u1", "hello"))
	addr := strings.TrimPrefix(w.url, "http://")
	body := user("c1", "u1", "hello")
	for b.Loop() {
		before := inUse()
		conns := make([]net.Conn, pages)
		for i := range conns {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				b.Fatal(err)
			}
			conns[i] = conn
			fmt.Fprintf(conn, "POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			if _, err := conn.Read(make([]byte, 1)); err != nil {
				b.Fatal(err)
			}
		}
		w.waitForStreams(pages + 1)
		b.ReportMetric(float64(inUse()-before)/pages, "B/page")
		b.ReportMetric(float64(runtime.NumGoroutine())/pages, "goroutines/page")
		for _, conn := range conns {
			conn.Close()
		}
		w.waitForStreams(1)
	}
}

func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// BenchmarkSendMessage says what a message costs the server over a kept
// connection, its store in memory.
func BenchmarkSendMessage(b *testing.B) {
	w := newWorld(b, worldOptions{})
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	read := bufio.NewReader(conn)
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		body := fmt.Sprintf(`{"id":"msg_%d","parts":[{"type":"text","text":"hello there"}]}`, n)
		fmt.Fprintf(conn, "POST /v1/sessions/ses_%d/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", n, len(body), body)
		res, err := http.ReadResponse(read, nil)
		if err != nil || res.StatusCode != 202 {
			b.Fatal(res, err)
		}
		if _, err := read.Discard(int(res.ContentLength)); err != nil {
			b.Fatal(err)
		}
		n++
	}
}

// BenchmarkSnapshot says what the snapshot of a session of 10,000 messages
// costs, its store in memory.
func BenchmarkSnapshot(b *testing.B) {
	w := newWorld(b, worldOptions{})
	var events []session.Event
	w.do("POST", "/v1/sessions", api.CreateSession{ID: "ses_1"}).is(201)
	parent := ""
	for i := range 10_000 {
		id := fmt.Sprintf("msg_%d", i)
		events = append(events, session.Event{Data: session.MessageCreated{Message: session.Message{
			ID: id, Role: session.RoleUser, Parent: parent, Status: session.MessageWhole,
			Parts: []session.Part{{Type: session.PartText, Text: strings.Repeat("words ", 50)}},
		}}})
		parent = id
	}
	w.append("ses_1", events...)
	w.doc = nil // checking the answer costs more than making it
	b.ReportAllocs()
	for b.Loop() {
		w.do("GET", "/v1/sessions/ses_1", nil).is(200)
	}
}
