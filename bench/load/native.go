package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-run/holdfast/bench/internal/workload"
)

// native is Holdfast's own API: commands as requests, and the log of a session
// as an event stream with a cursor.
type native struct{ door }

func (n native) ask(chat, text string, deadline time.Time) (*stream, error) {
	c, err := n.dial(deadline)
	if err != nil {
		return nil, err
	}
	if err := n.submit(c, chat, "msg_1", text, false); err != nil {
		c.Close()
		return nil, err
	}
	return n.events(c, chat, 0)
}

// submit says something in a session.
func (native) submit(c *connection, chat, message, text string, background bool) error {
	res, err := c.do("POST", "/v1/sessions/"+chat+"/messages", "", map[string]any{
		"id": message, "background": background, "parts": []any{map[string]any{"type": "text", "text": text}},
	}, http.StatusAccepted)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, res.Body)
	return err
}

// events reads a session's log on a connection.
func (native) events(c *connection, chat string, after int64) (*stream, error) {
	res, err := c.do("GET", "/v1/sessions/"+chat+"/events", "after="+strconv.FormatInt(after, 10), nil, http.StatusOK)
	if err != nil {
		c.Close()
		return nil, err
	}
	return newStream(c, res, after, readEvent), nil
}

func (n native) follow(chat string, after int64, deadline time.Time) (*stream, error) {
	c, err := n.dial(deadline)
	if err != nil {
		return nil, err
	}
	return n.events(c, chat, after)
}

// fill has many runs say something side by side, each slowly: a delta a token.
func (n native) fill(chat string, events int) (after, end int64, err error) {
	const tokens, most = 250, 20 // of a run, and at once
	deadline := time.Now().Add(2 * time.Minute)
	for made := 0; end < int64(events); {
		c, err := n.dial(deadline)
		if err != nil {
			return 0, 0, err
		}
		want := workload.Response{Tokens: min(tokens, events), Rate: 50}
		runs := min(most, events/want.Tokens)
		for range runs {
			made++
			if err := n.submit(c, chat, "msg_"+strconv.Itoa(made), want.Prompt(), true); err != nil {
				c.Close()
				return 0, 0, err
			}
		}
		s, err := n.events(c, chat, end)
		if err != nil {
			return 0, 0, err
		}
		for runs > 0 {
			if _, err = s.next(); errors.Is(err, io.EOF) {
				runs--
			} else if err != nil {
				s.close()
				return 0, 0, err
			}
		}
		end = s.cursor
		s.close()
	}
	return end - int64(events), end, nil
}

var (
	idField       = []byte("id: ")
	dataField     = []byte("data: ")
	nativeDelta   = []byte(`"type":"text.delta"`)
	nativeText    = []byte(`"text":"`)
	nativeFolded  = []byte(`"type":"folded"`)
	nativeReset   = []byte(`"type":"reset"`)
	nativeDeleted = []byte(`"type":"deleted"`)
	runCompleted  = []byte(`"type":"run.completed"`)
	runFailed     = []byte(`"type":"run.failed"`)
	runCancelled  = []byte(`"type":"run.cancelled"`)
)

var errGap = errors.New("the log has a gap or a repetition")

// readEvent reads a line of a native event stream: each id follows the one before.
func readEvent(s *stream, line []byte) ([]byte, error) {
	if id, ok := bytes.CutPrefix(line, idField); ok {
		seq, err := strconv.ParseInt(string(bytes.TrimSpace(id)), 10, 64)
		if err != nil || seq != s.cursor+1 {
			return nil, fmt.Errorf("%w: %s after %d", errGap, id, s.cursor)
		}
		s.cursor = seq
		return nil, nil
	}
	data, ok := bytes.CutPrefix(line, dataField)
	if !ok {
		return nil, nil
	}
	envelope := data[:min(len(data), 250)] // ids are short here: the type is in it
	switch {
	case bytes.Contains(envelope, nativeDelta):
		return textAfter(data, nativeText), nil
	case bytes.Contains(envelope, runCompleted):
		return nil, io.EOF
	case bytes.Contains(envelope, runFailed), bytes.Contains(envelope, runCancelled),
		bytes.Contains(envelope, nativeReset), bytes.Contains(envelope, nativeDeleted), bytes.Contains(envelope, nativeFolded):
		return nil, fmt.Errorf("unexpected frame %.200s", data)
	}
	return nil, nil
}
