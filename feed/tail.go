package feed

import (
	"sort"

	"github.com/holdfast-run/holdfast/session"
)

// tail is the recent end of a log: frames that join, oldest first. Frames are
// shared with readers, so elements are never changed and trimming copies.
type tail struct {
	frames []session.Frame
	bytes  int // of the frames, JSON and bookkeeping
}

// add appends what is new of frames. If they leave a hole the tail begins with them.
func (t *tail) add(frames []session.Frame) {
	if n := len(t.frames); n > 0 {
		end := t.frames[n-1].To
		for len(frames) > 0 && frames[0].To <= end {
			frames = frames[1:]
		}
		if len(frames) == 0 {
			return
		}
		if frames[0].From != end+1 {
			*t = tail{}
		}
	}
	t.frames = append(t.frames, frames...)
	for _, f := range frames {
		t.bytes += weigh(f)
	}
}

// trim lets go of the oldest frames when either bound is passed, a quarter more
// than it must so that it need not copy soon again.
func (t *tail) trim(bytes, frames int) {
	if t.bytes <= bytes && len(t.frames) <= frames {
		return
	}
	bytes, frames = bytes-bytes/4, frames-frames/4
	drop, left := 0, t.bytes
	for drop < len(t.frames) && (left > bytes || len(t.frames)-drop > frames) {
		left -= weigh(t.frames[drop])
		drop++
	}
	t.frames, t.bytes = append([]session.Frame(nil), t.frames[drop:]...), left
}

// cut gives the frames after a cursor, about limit bytes at most but at least
// one frame. Nothing: the tail does not hold the frame that begins at after+1.
func (t *tail) cut(after int64, limit int) []session.Frame {
	n := len(t.frames)
	if n == 0 || after+1 < t.frames[0].From || after >= t.frames[n-1].To {
		return nil
	}
	// Mostly each frame is one event, and the last ones are wanted.
	i := n - int(t.frames[n-1].To-after)
	if i < 0 || t.frames[i].From != after+1 {
		i = sort.Search(n, func(i int) bool { return t.frames[i].From > after })
		if i == n || t.frames[i].From != after+1 {
			return nil
		}
	}
	return clip(t.frames[i:], limit)
}

// clip gives as many of the frames as fit in limit bytes, at least one.
func clip(frames []session.Frame, limit int) []session.Frame {
	size := 0
	for i, f := range frames {
		size += len(f.JSON)
		if size > limit && i > 0 {
			return frames[:i:i]
		}
	}
	return frames[:len(frames):len(frames)]
}

// joined says whether frames cover a range without hole or overlap.
func joined(frames []session.Frame) bool {
	for i, f := range frames {
		if f.To < f.From || i > 0 && f.From != frames[i-1].To+1 {
			return false
		}
	}
	return true
}

func weigh(f session.Frame) int { return len(f.JSON) + frameWeight }
