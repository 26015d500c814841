// Package lines is how backends keep a log: events as JSON lines, many to a
// chunk, in the order of their seqs. An event repeats its envelope, and a row of
// a table has a price of its own, so what belongs together is kept together.
package lines

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast/session"
)

const (
	// PackedBytes is the size to which chunks are packed: large enough to save
	// rows, small enough that the chunk of a cursor is read quickly.
	PackedBytes = 64 << 10
	// MostBytes bounds a chunk of more than one event.
	MostBytes = 1 << 20
)

// ErrDamaged says that what is stored cannot be read.
var ErrDamaged = errors.New("what is stored is damaged")

var newline = []byte{'\n'}

// Chunk is a piece of a log: JSON lines joined by line breaks, each an event or
// a folded range. A chunk never changes.
type Chunk struct {
	First, Last int64
	Body        []byte
}

// Encode makes events the ones after head of a session's log and gives their
// lines in one buffer, and a frame for each. scratch is overwritten; what is given back may be used as the next.
func Encode(scratch []byte, id string, head int64, at time.Time, events []session.Event) (body []byte, frames []session.Frame, _ []byte, err error) {
	line := scratch[:0]
	ends := make([]int, len(events))
	for i := range events {
		e := &events[i]
		e.Session, e.Seq, e.At = id, head+1+int64(i), at
		if i > 0 {
			line = append(line, '\n')
		}
		if line, err = e.AppendJSON(line); err != nil {
			return nil, nil, scratch, err
		}
		ends[i] = len(line)
	}
	body = append(make([]byte, 0, len(line)), line...)
	frames = make([]session.Frame, len(events))
	start := 0
	for i, end := range ends {
		seq := events[i].Seq
		frames[i] = session.Frame{From: seq, To: seq, JSON: body[start:end:end]}
		start = end + 1
	}
	if cap(line) > MostBytes {
		line = nil
	}
	return body, frames, line, nil
}

var foldedPrefix = []byte(`{"type":"folded"`)

// Each gives the lines of a chunk as frames.
func (c Chunk) Each(each func(session.Frame) error) error {
	seq, body := c.First, c.Body
	for len(body) > 0 {
		line := body
		if i := bytes.IndexByte(body, '\n'); i >= 0 {
			line, body = body[:i:i], body[i+1:]
		} else {
			body = nil
		}
		f := session.Frame{From: seq, To: seq, JSON: line}
		if bytes.HasPrefix(line, foldedPrefix) {
			var folded session.Folded
			if err := json.Unmarshal(line, &folded); err != nil {
				return fmt.Errorf("%w: the folded range at seq %d: %w", ErrDamaged, seq, err)
			}
			f.From, f.To = folded.From, folded.To
		}
		if err := each(f); err != nil {
			return err
		}
		seq = f.To + 1
	}
	if seq != c.Last+1 {
		return fmt.Errorf("%w: the row %d..%d ends at seq %d", ErrDamaged, c.First, c.Last, seq-1)
	}
	return nil
}

// foldedInto names the message that says what a folded range said.
func foldedInto(f session.Frame) (string, error) {
	var folded session.Folded
	if err := json.Unmarshal(f.JSON, &folded); err != nil {
		return "", fmt.Errorf("%w: the folded range at seq %d: %w", ErrDamaged, f.From, err)
	}
	return folded.Into, nil
}

// Pack joins chunks that follow each other into chunks of about PackedBytes.
func Pack(chunks []Chunk) []Chunk {
	var packed []Chunk
	for i := 0; i < len(chunks); {
		n, size := i+1, len(chunks[i].Body)
		for n < len(chunks) && size+len(chunks[n].Body) < PackedBytes {
			size += len(chunks[n].Body) + 1
			n++
		}
		c := Chunk{First: chunks[i].First, Last: chunks[n-1].Last, Body: chunks[i].Body}
		if n > i+1 {
			c.Body = make([]byte, 0, size)
			for _, piece := range chunks[i:n] {
				if len(c.Body) > 0 {
					c.Body = append(c.Body, '\n')
				}
				c.Body = append(c.Body, piece.Body...)
			}
		}
		packed = append(packed, c)
		i = n
	}
	return packed
}

// Split makes chunks of frames that follow each other, of at most MostBytes
// but for a frame that is larger by itself. body is the lines of all of them.
func Split(frames []session.Frame, body []byte) []Chunk {
	if len(body) <= MostBytes {
		return []Chunk{{First: frames[0].From, Last: frames[len(frames)-1].To, Body: body}}
	}
	var chunks []Chunk
	start, size := 0, 0
	for i := range frames {
		if i > start && size+len(frames[i].JSON) > MostBytes {
			chunks = append(chunks, join(frames[start:i]))
			start, size = i, 0
		}
		size += len(frames[i].JSON) + 1
	}
	return append(chunks, join(frames[start:]))
}

func join(frames []session.Frame) Chunk {
	all := make([][]byte, len(frames))
	for i, f := range frames {
		all[i] = f.JSON
	}
	return Chunk{First: frames[0].From, Last: frames[len(frames)-1].To, Body: bytes.Join(all, newline)}
}
