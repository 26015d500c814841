package main

import (
	"bytes"
	"errors"
	"io"
	"time"
)

// provider is the model's provider itself, read by the load client: what the
// harness costs when there is no server.
type provider struct{ door }

func (p provider) ask(_, text string, deadline time.Time) (*stream, error) {
	return p.open("POST", "/v1/chat/completions", map[string]any{
		"model": "fake", "stream": true,
		"messages": []any{map[string]any{"role": "user", "content": text}},
	}, deadline, readChunk)
}

var errNoHistory = errors.New("a provider keeps nothing")

func (provider) follow(string, int64, time.Time) (*stream, error) { return nil, errNoHistory }
func (provider) fill(string, int) (after, end int64, err error)   { return 0, 0, errNoHistory }

var chunkText = []byte(`"content":"`)

// readChunk reads a line of a chat completion.
func readChunk(_ *stream, line []byte) ([]byte, error) {
	data, ok := bytes.CutPrefix(line, dataField)
	if !ok {
		return nil, nil
	}
	if bytes.Equal(bytes.TrimSpace(data), doneMark) {
		return nil, io.EOF
	}
	return textAfter(data, chunkText), nil
}
