package lines

import (
	"fmt"

	"github.com/holdfast-run/holdfast/session"
)

const (
	// PageFrames is how many frames a page has unless it is told otherwise.
	PageFrames = 1000
	// PageBytes bounds what a page has, by at most one chunk more.
	PageBytes = 1 << 20
)

// Page gathers the frames of a log after a seq until it is full.
type Page struct {
	Session string
	After   int64 // the last seq it has
	Limit   int
	Frames  []session.Frame
	bytes   int
}

// Full says that nothing more is wanted.
func (p *Page) Full() bool { return len(p.Frames) >= p.Limit || p.bytes >= PageBytes }

// Add takes what is new of a chunk.
func (p *Page) Add(c Chunk) error {
	if c.Last <= p.After {
		return nil
	}
	if p.Frames == nil {
		p.Frames = make([]session.Frame, 0, min(p.Limit, max(16, int(c.Last-p.After))))
	}
	return c.Each(func(f session.Frame) error {
		switch {
		case f.To <= p.After || p.Full():
			return nil
		case f.From <= p.After: // the cursor lies inside a folded range
			into, err := foldedInto(f)
			if err != nil {
				return err
			}
			f = session.FoldedFrame(p.Session, p.After+1, f.To, into)
		case f.From != p.After+1:
			return fmt.Errorf("%w: the seqs %d..%d are missing", ErrDamaged, p.After+1, f.From-1)
		}
		p.Frames = append(p.Frames, f)
		p.bytes += len(f.JSON)
		p.After = f.To
		return nil
	})
}
