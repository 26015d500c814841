package feed

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-run/holdfast/session"
)

const (
	// PageLimit is how many frames a page has unless told otherwise. A page of
	// large frames, over 1 MiB, has fewer.
	PageLimit = 1000
	// PageMost is how many frames a page can have.
	PageMost = 10_000
	// WaitMost is how long a long poll can wait.
	WaitMost = 60 * time.Second

	pageBytes = 1 << 20
)

// Page is a piece of a log: the frames after a cursor.
type Page struct {
	Session string
	After   int64
	Frames  []session.Frame
	// Head is the last seq there is.
	Head int64
	// More says that the log goes on behind the last frame.
	More bool
	// Reset says that the cursor was ahead of the log.
	Reset bool
}

// Page reads the log of a session after a cursor: at most limit frames (0 means
// PageLimit). When there are none it waits for some, up to wait; none after that
// is no error. A cursor ahead of the log gives a page that says Reset.
// store.ErrNotFound if there is no such session, ErrClosing when the hub is closed.
func (h *Hub) Page(ctx context.Context, id string, after int64, limit int, wait time.Duration) (Page, error) {
	if limit <= 0 {
		limit = PageLimit
	}
	p := Page{Session: id, After: after}
	var ahead *AheadError
	reader, err := h.Follow(ctx, id, after)
	if errors.As(err, &ahead) {
		p.Reset, p.Head = true, ahead.Head
		return p, nil
	}
	if err != nil {
		return Page{}, err
	}
	defer reader.Close()
	if err := p.fill(ctx, reader, min(limit, PageMost), min(wait, WaitMost)); errors.As(err, &ahead) {
		return Page{Session: id, After: after, Head: ahead.Head, Reset: true}, nil
	} else if err != nil {
		return Page{}, fmt.Errorf("page of session %s after %d: %w", id, after, err)
	}
	p.Head = reader.head()
	end := after
	if n := len(p.Frames); n > 0 {
		end = p.Frames[n-1].To
	}
	p.More = end < p.Head
	return p, nil
}

// fill reads frames until the page is full or the log ends. It waits only for the first.
func (p *Page) fill(ctx context.Context, r *Reader, limit int, wait time.Duration) error {
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	for left := pageBytes; len(p.Frames) < limit && left > 0; {
		frames, err := r.take(ctx, left)
		if err != nil {
			return err
		}
		if len(frames) == 0 {
			if len(p.Frames) > 0 || wait <= 0 {
				return nil
			}
			more, err := r.waiting()
			if err != nil {
				return err
			}
			if more == nil {
				continue
			}
			select {
			case <-more:
				continue
			case <-timeout.C:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		frames = frames[:min(len(frames), limit-len(p.Frames))]
		p.Frames = append(p.Frames, frames...)
		for _, f := range frames {
			left -= len(f.JSON)
		}
	}
	return nil
}

// AppendJSON appends the page's JSON to b, the frames as they are.
func (p Page) AppendJSON(b []byte) []byte {
	b = append(b, `{"session":`...)
	b = append(b, line(p.Session)...)
	b = append(b, `,"after":`...)
	b = strconv.AppendInt(b, p.After, 10)
	b = append(b, `,"frames":`...)
	b = appendFrames(b, p.Frames)
	b = append(b, `,"head":`...)
	b = strconv.AppendInt(b, p.Head, 10)
	b = append(b, `,"more":`...)
	b = strconv.AppendBool(b, p.More)
	if p.Reset {
		b = append(b, `,"reset":true`...)
	}
	return append(b, '}')
}

// MarshalJSON gives the page's wire form.
func (p Page) MarshalJSON() ([]byte, error) { return p.AppendJSON(nil), nil }

func appendFrames(b []byte, frames []session.Frame) []byte {
	b = append(b, '[')
	for i, f := range frames {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, f.JSON...)
	}
	return append(b, ']')
}
