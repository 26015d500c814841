package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// api is how a server under test is spoken to. Every stream has a connection of its own.
type api interface {
	// ask opens a new chat whose prompt is text, and reads the answer live.
	ask(chat, text string, deadline time.Time) (*stream, error)
	// follow reads a chat that exists after a cursor that one of its streams had; 0 is
	// its beginning. A server without cursors begins at the beginning in any case.
	follow(chat string, after int64, deadline time.Time) (*stream, error)
	// fill makes a chat with a history of at least so many events (or tokens, where
	// there are no events), and gives the cursor that is so many before its end, and
	// the end; an end of 0 means that a stream of it ends by itself.
	fill(chat string, events int) (after, end int64, err error)
}

// errNoStream says that the server knows of no stream to read.
var errNoStream = errors.New("204: no active stream")

// apiOf gives the api of a name, for the server at base.
func apiOf(name, base string) (api, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	d := door{u}
	switch name {
	case "native":
		return native{d}, nil
	case "ui":
		return ui{d}, nil
	case "provider":
		return provider{d}, nil
	}
	return nil, fmt.Errorf("there is no api %q", name)
}

// door is where a server listens.
type door struct{ base *url.URL }

// connection is one connection, for one request after the other.
type connection struct {
	net.Conn
	host *url.URL
	read *bufio.Reader
}

func (d door) dial(deadline time.Time) (*connection, error) {
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).Dial("tcp", d.base.Host)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(deadline); err != nil {
		conn.Close()
		return nil, err
	}
	return &connection{Conn: conn, host: d.base, read: bufio.NewReaderSize(conn, 4096)}, nil
}

// do sends one request and reads the response's head. Another status than want is an error.
func (c *connection) do(method, path, query string, body any, want int) (*http.Response, error) {
	var payload []byte
	if body != nil {
		payload, _ = json.Marshal(body)
	}
	u := c.host.JoinPath(path)
	u.RawQuery = query
	req, err := http.NewRequest(method, u.String(), bytes.NewReader(payload))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	} else {
		req.Header.Set("Accept", "text/event-stream")
	}
	if err := req.Write(c); err != nil {
		return nil, err
	}
	res, err := http.ReadResponse(c.read, req)
	if err != nil {
		return nil, fmt.Errorf("response head: %w", err)
	}
	switch res.StatusCode {
	case want:
		return res, nil
	case http.StatusNoContent:
		return nil, errNoStream
	}
	said, _ := io.ReadAll(io.LimitReader(res.Body, 300))
	return nil, fmt.Errorf("%s answered %s: %s", method, res.Status, said)
}

// stream reads the events of one chat.
type stream struct {
	conn net.Conn
	body *bufio.Reader
	long []byte // a line longer than the reader's buffer
	// cursor is the last event seen; 0 where there are no cursors.
	cursor int64
	// line reads one line. text is what it adds to the answer; io.EOF is the answer's end.
	line func(s *stream, line []byte) (text []byte, err error)
}

func newStream(c *connection, res *http.Response, after int64, line func(*stream, []byte) ([]byte, error)) *stream {
	return &stream{conn: c, body: bufio.NewReaderSize(res.Body, 4096), cursor: after, line: line}
}

func (s *stream) close() { s.conn.Close() }

// next gives the next text of the answer; io.EOF after its end. The text is
// valid until the next call.
func (s *stream) next() ([]byte, error) {
	for {
		text, err := s.step()
		if len(text) > 0 || err != nil {
			return text, err
		}
	}
}

// step reads one line.
func (s *stream) step() ([]byte, error) {
	line, err := s.body.ReadSlice('\n')
	s.long = s.long[:0]
	for errors.Is(err, bufio.ErrBufferFull) {
		s.long = append(s.long, line...)
		line, err = s.body.ReadSlice('\n')
	}
	if err == io.EOF {
		return nil, io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	if len(s.long) > 0 {
		s.long = append(s.long, line...)
		line = s.long
	}
	return s.line(s, line)
}

// textAfter is the JSON string that follows key, as it stands: the tokens of
// the benchmark need no escapes.
func textAfter(data, key []byte) []byte {
	_, rest, ok := bytes.Cut(data, key)
	if !ok {
		return nil
	}
	return rest[:max(bytes.IndexByte(rest, '"'), 0)]
}
