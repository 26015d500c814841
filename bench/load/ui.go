package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/holdfast-run/holdfast/bench/internal/workload"
)

// ui is the AI SDK's UI message stream: one request asks and streams, another
// reads the running stream again from its start.
type ui struct{ door }

func (u ui) ask(chat, text string, deadline time.Time) (*stream, error) {
	return u.open("POST", "/api/chat", map[string]any{
		"id": chat, "trigger": "submit-message",
		"messages": []any{map[string]any{
			"id": chat + "-u1", "role": "user",
			"parts": []any{map[string]any{"type": "text", "text": text}},
		}},
	}, deadline, readFrame)
}

func (u ui) follow(chat string, _ int64, deadline time.Time) (*stream, error) {
	return u.open("GET", "/api/chat/"+url.PathEscape(chat)+"/stream", nil, deadline, readFrame)
}

func (u ui) fill(chat string, tokens int) (after, end int64, err error) {
	s, err := u.ask(chat, workload.Response{Tokens: tokens, Rate: 1000}.Prompt(), time.Now().Add(2*time.Minute))
	if err != nil {
		return 0, 0, err
	}
	defer s.close()
	for err == nil {
		_, err = s.next()
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return 0, 0, err
}

// open sends one request on a connection of its own and reads what it streams.
func (d door) open(method, path string, body any, deadline time.Time, line func(*stream, []byte) ([]byte, error)) (*stream, error) {
	c, err := d.dial(deadline)
	if err != nil {
		return nil, err
	}
	res, err := c.do(method, path, "", body, http.StatusOK)
	if err != nil {
		c.Close()
		return nil, err
	}
	return newStream(c, res, 0, line), nil
}

var (
	doneMark  = []byte("[DONE]")
	errorType = []byte(`"type":"error"`)
	abortType = []byte(`"type":"abort"`)
	uiDelta   = []byte(`"type":"text-delta"`)
	uiText    = []byte(`"delta":"`)
)

// readFrame reads a line of a UI message stream.
func readFrame(_ *stream, line []byte) ([]byte, error) {
	data, ok := bytes.CutPrefix(line, dataField)
	if !ok {
		return nil, nil
	}
	data = bytes.TrimSpace(data)
	switch {
	case bytes.Equal(data, doneMark):
		return nil, io.EOF
	case bytes.Contains(data, uiDelta):
		return textAfter(data, uiText), nil
	case bytes.Contains(data, errorType), bytes.Contains(data, abortType):
		return nil, fmt.Errorf("error frame %.80s", data)
	}
	return nil, nil
}
