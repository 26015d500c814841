package feed_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/feed"
)

// serve runs a server with two of the feed's faces: /sse and /socket.
func (w *world) serve(opts feed.SocketOptions) *httptest.Server {
	server := httptest.NewUnstartedServer(w.handler(opts))
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if tcp, ok := c.(*net.TCPConn); ok { // a reader that does not read is soon found
			_ = tcp.SetWriteBuffer(16 << 10)
		}
		return ctx
	}
	server.Start()
	w.t.Cleanup(server.Close)
	w.t.Cleanup(func() { w.hub.Close(nil) }) // before the server, which waits for its streams
	return server
}

func (w *world) handler(opts feed.SocketOptions) http.Handler {
	refuse := func(rw http.ResponseWriter, err error) {
		if err != nil {
			http.Error(rw, err.Error(), http.StatusTeapot)
		}
	}
	end := func() { w.ended <- struct{}{} }
	mux := http.NewServeMux()
	mux.HandleFunc("/sse", func(rw http.ResponseWriter, r *http.Request) {
		defer end()
		after, err := feed.RequestCursor(r)
		if err == nil {
			err = w.hub.ServeSSE(rw, r, "s", after)
		}
		refuse(rw, err)
	})
	mux.HandleFunc("/socket", func(rw http.ResponseWriter, r *http.Request) {
		defer end()
		w.hub.ServeSocket(rw, r, opts)
	})
	return mux
}

// awaitEnd waits until one stream or socket has been served to its end.
func (w *world) awaitEnd(ctx context.Context) {
	w.t.Helper()
	select {
	case <-w.ended:
	case <-ctx.Done():
		w.t.Fatal("it was not ended")
	}
}

// block is one event of a stream, or a comment.
type block struct{ id, data, comment, retry, other string }

// stream reads the blocks of an event stream.
type stream struct {
	body  io.ReadCloser
	lines *bufio.Reader
}

func openStream(ctx context.Context, url string, after int64) (*stream, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/sse", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Last-Event-ID", strconv.FormatInt(after, 10))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return nil, fmt.Errorf("%s: %s", resp.Status, body)
	}
	return &stream{resp.Body, bufio.NewReader(resp.Body)}, nil
}

func (s *stream) next() (block, error) {
	var b block
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			return b, err
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			return b, nil
		case name == "":
			b.comment = value
		case name == "id":
			b.id = value
		case name == "data":
			b.data += value
		case name == "retry":
			b.retry = value
		default:
			b.other = line
		}
	}
}

// frame is what a block's data says of itself.
type frame struct {
	Type    string `json:"type"`
	Session string `json:"session"`
	Seq     int64  `json:"seq"`
	From    int64  `json:"from"`
	To      int64  `json:"to"`
	Head    int64  `json:"head"`
}

func (f frame) covers() (from, to int64) {
	if f.Type == "folded" {
		return f.From, f.To
	}
	return f.Seq, f.Seq
}

// readTo reads events that join from a cursor on up to the given seq, and no other data.
func (s *stream) readTo(after, to int64) error {
	c := chain{after}
	for c.seq < to {
		b, err := s.next()
		if err != nil {
			return fmt.Errorf("after %d: %w", c.seq, err)
		}
		if b.data == "" {
			continue
		}
		var f frame
		if err := json.Unmarshal([]byte(b.data), &f); err != nil {
			return fmt.Errorf("%q: %w", b.data, err)
		}
		if err := c.add(f.covers()); err != nil {
			return err
		}
		if b.id != strconv.FormatInt(c.seq, 10) || b.other != "" {
			return fmt.Errorf("seq %d came as %+v", c.seq, b)
		}
	}
	return nil
}

// mustStream opens a stream that ends with the test.
func mustStream(t *testing.T, server *httptest.Server, after int64) *stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	t.Cleanup(cancel)
	s, err := openStream(ctx, server.URL, after)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.body.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return s
}
