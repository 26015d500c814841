package sqlite

import (
	"fmt"

	"github.com/klauspost/compress/s2"
)

// Rows of the tail are stored packed where that saves pages: each event repeats
// its envelope, so a row becomes a fifth, and with it what a commit writes and
// what a checkpoint copies. They are read once, when the store is opened.
//
// A packed row begins with a zero, which a row as it is does not: it begins
// with the length of a session's id.
const (
	packedMark = 0
	// packFrom is the size from which packing is worth its time: a smaller row hardly needs more pages as it is.
	packFrom = 1 << 10
)

// packer packs rows, one after the other.
type packer struct{ scratch []byte }

// pack gives a row as it is stored, until the next call.
func (p *packer) pack(row []byte) []byte {
	if len(row) < packFrom {
		return row
	}
	if most := 1 + s2.MaxEncodedLen(len(row)); cap(p.scratch) < most {
		p.scratch = make([]byte, most)
	}
	p.scratch = p.scratch[:cap(p.scratch)]
	p.scratch[0] = packedMark
	return p.scratch[:1+len(s2.Encode(p.scratch[1:], row))]
}

// unpack gives a row that was stored.
func unpack(stored []byte) ([]byte, error) {
	if len(stored) == 0 || stored[0] != packedMark {
		return stored, nil
	}
	row, err := s2.Decode(nil, stored[1:])
	if err != nil {
		return nil, fmt.Errorf("%w: %w: %w", ErrDamaged, errTailRow, err)
	}
	return row, nil
}
