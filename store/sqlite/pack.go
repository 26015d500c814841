package sqlite

import (
	"fmt"

	"github.com/klauspost/compress/s2"
)

// Bodies of events are stored packed where that saves something: each event
// repeats its envelope, so a row becomes a fifth, and with it what is written
// to the disk four times over (the tail, the log, and the WAL before each).
// Reading unpacks a row in less time than it takes to read what was saved.
//
// A packed body begins with a zero, which neither JSON nor a row of the tail
// begins with; what does not is stored as it is.

const (
	packedMark = 0
	// packFrom is the size from which packing is worth its time: below, the same pages are written.
	packFrom = 1 << 10
)

// pack gives a body as it is stored, in scratch if it is large enough, or the
// body itself.
func pack(scratch, body []byte) []byte {
	if len(body) < packFrom {
		return body
	}
	if most := s2.MaxEncodedLen(len(body)) + 1; cap(scratch) < most {
		scratch = make([]byte, most)
	}
	scratch = scratch[:cap(scratch)]
	scratch[0] = packedMark
	packed := s2.Encode(scratch[1:], body)
	return scratch[:1+len(packed)]
}

// unpack gives a body that was stored.
func unpack(stored []byte) ([]byte, error) {
	if len(stored) == 0 || stored[0] != packedMark {
		return stored, nil
	}
	body, err := s2.Decode(nil, stored[1:])
	if err != nil {
		return nil, fmt.Errorf("%w: unpack: %w", ErrDamaged, err)
	}
	return body, nil
}

// scan reads a row of (first, last, body).
func (c *chunk) scan(row scanner) (err error) {
	if err := row.Scan(&c.first, &c.last, &c.body); err != nil {
		return err
	}
	c.body, err = unpack(c.body)
	return err
}
