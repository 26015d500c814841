package server

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/server/api"
)

// net/http keeps 4 KiB to read, 6 KiB to write, the parsed request and the deep
// stack of a handler for as long as an answer takes: 27 KB for a watcher that
// mostly waits. A stream needs none of that once its request is read. So Serve
// takes the connections of its event streams over and writes the same bytes
// from a goroutine of its own, which costs about a third.
//
// Only connections of [Server.Serve] are taken over: behind another server's
// middleware a handler that returns before its answer ends would surprise.

// ownConn is the context key of the connections that may be taken over.
type ownConn struct{}

func markOwn(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, ownConn{}, true)
}

// takeOver runs serve on the connection under w, in a goroutine, until serve
// returns; the request's context is then that of the connection. It says false,
// with nothing done, if the connection cannot be taken. An error of serve means
// that nothing was sent.
func (s *Server) takeOver(w http.ResponseWriter, r *http.Request, serve func(http.ResponseWriter, *http.Request) error) bool {
	if r.Context().Value(ownConn{}) == nil || !r.ProtoAtLeast(1, 1) || r.ProtoMajor != 1 || r.ContentLength != 0 {
		return false
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return false
	}
	if logged, ok := w.(*response); ok {
		logged.status = http.StatusOK // as far as anyone here will know
	}
	out := &leanResponse{conn: conn, header: w.Header().Clone()}
	id := requestOf(r.Context())
	go func() {
		defer s.streams.leave()
		defer s.survive(conn, id)
		ctx, cancel := context.WithCancel(context.WithValue(context.Background(), requestID{}, id))
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			defer cancel()
			awaitEnd(conn)
		}()
		req := (&http.Request{Method: http.MethodGet, ProtoMajor: 1, ProtoMinor: 1}).WithContext(ctx)
		if err := serve(out, req); err != nil {
			out.refuse(s.problem(ctx, err))
		}
		out.end()
		cancel()
		conn.Close()
		<-gone
	}()
	return true
}

// survive keeps a panic of one stream from ending the process, as net/http does.
func (s *Server) survive(conn net.Conn, request string) {
	if broken := recover(); broken != nil {
		s.opts.Log.Error("stream panicked", slog.String("request", request),
			slog.String("panic", fmt.Sprint(broken)), slog.String("stack", string(debug.Stack())))
		conn.Close()
	}
}

// awaitEnd returns when the client is gone, or the connection closed. What a
// client sends after its request is nothing that a stream could use.
func awaitEnd(conn net.Conn) {
	var b [16]byte
	for {
		if _, err := conn.Read(b[:]); err != nil {
			return
		}
	}
}

// leanResponse writes an HTTP/1.1 answer in chunks on a connection, each Write
// a chunk that is sent at once. It is for one goroutine.
type leanResponse struct {
	conn   net.Conn
	header http.Header // nil once it is sent
	head   []byte      // to be sent with the first chunk
	broken bool        // a write failed: the answer stays cut
	sent   bool
}

func (w *leanResponse) Header() http.Header {
	if w.header == nil {
		return http.Header{} // too late to matter
	}
	return w.header
}

func (w *leanResponse) WriteHeader(status int) {
	if w.header == nil {
		return
	}
	w.header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	w.header.Set("Transfer-Encoding", "chunked")
	w.header.Set("Connection", "close")
	head := bytes.NewBufferString("HTTP/1.1 " + strconv.Itoa(status) + " " + http.StatusText(status) + "\r\n")
	_ = w.header.Write(head) // a buffer takes everything
	head.WriteString("\r\n")
	w.head, w.header = head.Bytes(), nil
}

var chunks = sync.Pool{New: func() any { return new([]byte) }}

func (w *leanResponse) Write(b []byte) (int, error) {
	if w.header != nil {
		w.WriteHeader(http.StatusOK)
	}
	if len(b) == 0 {
		return 0, nil // an empty chunk would end the answer
	}
	pooled := chunks.Get().(*[]byte)
	chunk := append((*pooled)[:0], w.head...)
	chunk = strconv.AppendInt(chunk, int64(len(b)), 16)
	chunk = append(chunk, "\r\n"...)
	chunk = append(chunk, b...)
	chunk = append(chunk, "\r\n"...)
	w.head, w.sent = nil, true
	_, err := w.conn.Write(chunk)
	if cap(chunk) <= 128<<10 {
		*pooled = chunk
		chunks.Put(pooled)
	}
	if err != nil {
		w.broken = true
		return 0, err
	}
	return len(b), nil
}

// SetWriteDeadline bounds the writes that follow.
func (w *leanResponse) SetWriteDeadline(t time.Time) error { return w.conn.SetWriteDeadline(t) }

// FlushError has nothing to do: each Write is sent at once.
func (w *leanResponse) FlushError() error { return nil }

// refuse answers with a problem in the place of what was not sent.
func (w *leanResponse) refuse(p *api.Problem) {
	if !w.sent && w.header != nil {
		_ = w.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		writeProblem(w, p)
	}
}

// end ends the answer in good order, unless it was cut.
func (w *leanResponse) end() {
	if w.broken || !w.sent {
		return
	}
	_ = w.conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = w.conn.Write([]byte("0\r\n\r\n")) // an error here is the client's absence
}
