package feed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// ServeSSE answers a request with the log of a session after a cursor, as
// Server-Sent Events, until the client goes, the session is deleted or the hub
// is closed. A cursor that is ahead of the log is answered with a reset and the
// whole log.
//
// An error means that nothing has been sent and the caller answers:
// store.ErrNotFound, ErrClosing, an error of the store, or a ResponseWriter
// that has no write deadlines. What goes wrong later is logged, and the client
// comes back with its cursor.
func (h *Hub) ServeSSE(w http.ResponseWriter, r *http.Request, id string, after int64) error {
	ctx := r.Context()
	var ahead *AheadError
	reader, err := h.Follow(ctx, id, after)
	if errors.As(err, &ahead) {
		reader, err = h.Follow(ctx, id, 0)
	}
	if err != nil {
		return err
	}
	defer func() { reader.Close() }()
	s := newSSE(h, w, r, asItIs)
	if err := s.open(); err != nil {
		return err
	}
	err = s.write(fmt.Appendf(nil, "retry: %d\n\n", h.retry().Milliseconds()))
	for err == nil {
		if ahead != nil {
			if err = s.data(resetFrame(id, ahead.Head)); err != nil {
				break
			}
			ahead = nil
		}
		err = s.follow(ctx, reader)
		if errors.As(err, &ahead) { // the log was replaced while it was read
			var whole *Reader
			if whole, err = h.Follow(ctx, id, 0); err == nil {
				reader.Close()
				reader = whole
			}
		}
	}
	s.end(ctx, id, err)
	return nil
}

// Tell appends to b what a stream sends for the next frame of a log. io.EOF ends
// the stream behind that in good order, any other error breaks it off.
type Tell func(b []byte, f session.Frame) ([]byte, error)

// ServeTold answers a request with what tell makes of the log of a session after
// a cursor, which must not be ahead of it, until tell says that it is the end.
// Headers beside those of every stream are the caller's to set before.
//
// An error means that nothing has been sent and the caller answers, as with
// [Hub.ServeSSE]. What breaks the stream off later, but for the client's leaving,
// also breaks the connection, by a panic with [http.ErrAbortHandler]: what was cut must not
// look whole.
func (h *Hub) ServeTold(w http.ResponseWriter, r *http.Request, id string, after int64, tell Tell) error {
	reader, err := h.Follow(r.Context(), id, after)
	if err != nil {
		return err
	}
	defer reader.Close()
	s := newSSE(h, w, r, tell)
	if err := s.open(); err != nil {
		return err
	}
	if err = s.write([]byte(": open\n\n")); err == nil {
		err = s.follow(r.Context(), reader)
	}
	switch {
	case errors.Is(err, io.EOF), r.Context().Err() != nil, errors.Is(err, errWrite):
		return nil
	case !errors.Is(err, ErrClosing) && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, ErrCut):
		h.opts.Log.Warn("stream broke off", slog.String("session", id), slog.Any("error", err))
	}
	panic(http.ErrAbortHandler)
}

// asItIs writes a frame as an event whose id is its last seq.
func asItIs(b []byte, f session.Frame) ([]byte, error) {
	b = append(b, "id: "...)
	b = strconv.AppendInt(b, f.To, 10)
	b = append(b, "\ndata: "...)
	b = append(b, f.JSON...)
	return append(b, "\n\n"...), nil
}

// sse writes one event stream. Every write has a deadline and is flushed.
type sse struct {
	hub   *Hub
	tell  Tell
	w     http.ResponseWriter
	rc    *http.ResponseController
	clear bool // the deadline must not stand between writes

	wrote   time.Time // when the last write began
	bounded time.Time // when the deadline was set that stands
}

func newSSE(h *Hub, w http.ResponseWriter, r *http.Request, tell Tell) *sse {
	return &sse{hub: h, tell: tell, w: w, rc: http.NewResponseController(w), clear: r.ProtoMajor > 1}
}

const pieceBytes = 32 << 10 // one write, unless a single frame is larger

var heartbeat = []byte(": hb\n\n")

// open sets the headers, or finds that this is no writer for a stream.
func (s *sse) open() error {
	if err := s.rc.SetWriteDeadline(time.Now().Add(s.hub.opts.WriteTimeout)); err != nil {
		return fmt.Errorf("a stream needs write deadlines: %w", err)
	}
	header := s.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-cache, no-transform")
	header.Set("X-Accel-Buffering", "no")
	s.w.WriteHeader(http.StatusOK)
	return nil
}

// follow sends what there is and what comes, and a comment for every heartbeat of silence.
func (s *sse) follow(ctx context.Context, r *Reader) error {
	beat := s.hub.wheel.beat(time.Since(s.wrote))
	for {
		frames, err := r.take(ctx, batchBytes)
		if err != nil {
			return err
		}
		if len(frames) > 0 {
			if err := s.frames(frames); err != nil {
				return err
			}
			continue
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
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-beat: // it was set long ago: something may have been written since
			if time.Since(s.wrote) >= s.hub.opts.Heartbeat*13/16 {
				if err := s.write(heartbeat); err != nil {
					return err
				}
			}
			beat = s.hub.wheel.beat(time.Since(s.wrote))
		}
	}
}

// frames writes what each frame is told as, as much together as fits.
func (s *sse) frames(frames []session.Frame) (err error) {
	b, done := buffer()
	defer func() { done(b) }()
	for _, f := range frames {
		var end error
		b, end = s.tell(b, f)
		if len(b) >= pieceBytes || end != nil && len(b) > 0 {
			if err := s.write(b); err != nil {
				return err
			}
			b = b[:0]
		}
		if end != nil {
			return end
		}
	}
	if len(b) == 0 {
		return nil
	}
	return s.write(b)
}

// data writes a control frame: an event without an id.
func (s *sse) data(json []byte) error {
	return s.write(fmt.Appendf(nil, "data: %s\n\n", json))
}

// end tells the client why the stream ends, where that can help.
func (s *sse) end(ctx context.Context, id string, err error) {
	log := s.hub.opts.Log.With(slog.String("session", id))
	switch {
	case errors.Is(err, store.ErrNotFound):
		err = s.data(deletedFrame(id))
	case errors.Is(err, ErrClosing):
		err = s.write(fmt.Appendf(nil, "retry: %d\n: goodbye\n\n", s.hub.retry().Milliseconds()))
	case errors.Is(err, errSlow):
		log.Info("cut off a reader that does not read")
		return
	case ctx.Err() != nil, errors.Is(err, errWrite):
		return // the client left
	}
	if err != nil && ctx.Err() == nil {
		log.Warn("stream broke off", slog.Any("error", err))
	}
}

// Why a stream or socket cannot be written any more: the client does not take
// what is sent, or is gone.
var (
	errSlow  = errors.New("feed: client too slow")
	errWrite = errors.New("feed: write to the client")
)

func (s *sse) write(b []byte) error {
	s.wrote = time.Now()
	// A deadline costs as much as a tenth of a write, so one that has hardly begun serves again.
	if s.clear || s.wrote.Sub(s.bounded) > s.hub.opts.WriteTimeout/16 {
		if err := s.rc.SetWriteDeadline(s.wrote.Add(s.hub.opts.WriteTimeout)); err != nil {
			return fmt.Errorf("%w: set deadline: %w", errWrite, err)
		}
		s.bounded = s.wrote
	}
	_, err := s.w.Write(b)
	if err == nil {
		err = s.rc.Flush()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: a write took over %v", errSlow, s.hub.opts.WriteTimeout)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errWrite, err)
	}
	if s.clear {
		// An HTTP/2 stream is reset when its deadline passes, even between writes.
		if err := s.rc.SetWriteDeadline(time.Time{}); err != nil {
			return fmt.Errorf("%w: clear deadline: %w", errWrite, err)
		}
	}
	return nil
}

var buffers = sync.Pool{New: func() any {
	b := make([]byte, 0, pieceBytes+pieceBytes/4)
	return &b
}}

// buffer gives an empty buffer; done takes it back, grown or not.
func buffer() (b []byte, done func([]byte)) {
	pooled := buffers.Get().(*[]byte)
	return (*pooled)[:0], func(b []byte) {
		if cap(b) <= 4*pieceBytes {
			*pooled = b
			buffers.Put(pooled)
		}
	}
}
