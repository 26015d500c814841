package client

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"
)

// maxLine bounds a line of a stream, in bytes: events carry at most what a
// request may hold, and some that a tool gave.
const maxLine = 16 << 20

// block is what stands between two blank lines of an event stream.
type block struct {
	data    []byte
	retry   time.Duration // 0: it says nothing of that
	comment string
}

// blocks reads an event stream as the HTML standard has it: lines end with LF,
// CR or CRLF, one space behind a colon is dropped, unknown fields are ignored.
// Our frames say their own seqs, so the field id is not looked at. A block that the
// stream does not end is dropped. The data of a block is valid until the next.
func blocks(stream io.Reader) iter.Seq2[block, error] {
	return func(yield func(block, error) bool) {
		lines := bufio.NewScanner(stream)
		lines.Buffer(make([]byte, 0, 64<<10), maxLine)
		lines.Split(splitLines())
		var b block
		var data bytes.Buffer
		some := false
		first := true
		for lines.Scan() {
			line := lines.Bytes()
			if first {
				line, first = bytes.TrimPrefix(line, []byte("\uFEFF")), false
			}
			if len(line) == 0 {
				if b.data = bytes.TrimSuffix(data.Bytes(), []byte("\n")); some && !yield(b, nil) {
					return
				}
				b, some = block{}, false
				data.Reset()
				continue
			}
			some = true
			field, value, _ := bytes.Cut(line, []byte(":"))
			value = bytes.TrimPrefix(value, []byte(" "))
			switch string(field) {
			case "data":
				if data.Len()+len(value) > maxLine {
					yield(block{}, fmt.Errorf("a frame over %d bytes", maxLine))
					return
				}
				data.Write(value)
				data.WriteByte('\n')
			case "retry":
				if ms, err := strconv.ParseUint(string(value), 10, 32); err == nil {
					b.retry = time.Duration(ms) * time.Millisecond
				}
			case "": // a comment
				b.comment = strings.TrimSpace(string(value))
			}
		}
		err := lines.Err()
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("a line over %d bytes", maxLine)
		}
		if err != nil {
			yield(block{}, err)
		}
	}
}

// splitLines splits at LF, CR and CRLF without waiting for what follows a CR.
func splitLines() bufio.SplitFunc {
	afterCR := false
	return func(data []byte, atEOF bool) (int, []byte, error) {
		skip := 0
		if afterCR && len(data) > 0 {
			if data[0] == '\n' {
				skip = 1
			}
			afterCR = false
		}
		end := bytes.IndexAny(data[skip:], "\r\n")
		if end < 0 {
			// What the stream does not end is no line.
			if atEOF {
				return len(data), nil, nil
			}
			return skip, nil, nil
		}
		afterCR = data[skip+end] == '\r'
		return skip + end + 1, data[skip : skip+end : skip+end], nil
	}
}
