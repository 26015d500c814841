package feed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/session"
)

const writeBytes = 32 << 10 // one write; larger only for a single frame

// SSE writes one response of Server-Sent Events. Every write has a deadline
// and is flushed. It is for one goroutine at a time.
type SSE struct {
	hub   *Hub
	w     http.ResponseWriter
	rc    *http.ResponseController
	clear bool // the deadline must not stand between writes
}

// OpenSSE answers a request with an event stream and sends the headers at once.
// An error means that the ResponseWriter cannot flush or has no write deadlines,
// or that the client is gone. What is wrong with the request must have been
// refused before.
func (h *Hub) OpenSSE(w http.ResponseWriter, r *http.Request) (*SSE, error) {
	s := &SSE{hub: h, w: w, rc: http.NewResponseController(w), clear: r.ProtoMajor > 1}
	header := w.Header()
	header.Set("Content-Type", "text/event-stream; charset=utf-8")
	header.Set("Cache-Control", "no-cache, no-transform")
	header.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	retry := jitter(h.opts.Retry, 0.5).Milliseconds()
	return s, s.write(fmt.Appendf(nil, "retry: %d\n\n", retry))
}

// Follow sends what the reader has until there will be no more, and comments
// whenever that is nothing for a heartbeat. At the end it tells the client why
// with a control frame, where that can help. The error is nil when the client
// left, and for an end in good order: drained, deleted, reset.
func (s *SSE) Follow(ctx context.Context, r *Reader) error {
	err := s.follow(ctx, r)
	if c, ok := farewell(r.Session(), err); ok {
		if err := s.Control(c); err != nil {
			return err
		}
		if c.Reason != "unavailable" {
			return nil
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (s *SSE) follow(ctx context.Context, r *Reader) error {
	for {
		frames, more, err := r.ready(ctx, batchBytes)
		if err != nil {
			return err
		}
		if len(frames) > 0 {
			if err := s.Send(frames); err != nil {
				return err
			}
			continue
		}
		select {
		case <-more:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.hub.wheel.beat():
			if err := s.write(heartbeat); err != nil {
				return err
			}
		}
	}
}

var heartbeat = []byte(": heartbeat\n\n")

// Send writes frames: each an event whose id is its last seq, as many together as fit.
func (s *SSE) Send(frames []session.Frame) error {
	pooled := buffers.Get().(*[]byte)
	b := (*pooled)[:0]
	var err error
	for _, f := range frames {
		b = append(b, "id: "...)
		b = strconv.AppendInt(b, f.To, 10)
		b = append(b, "\ndata: "...)
		b = append(b, f.JSON...)
		b = append(b, "\n\n"...)
		if len(b) >= writeBytes {
			if err = s.write(b); err != nil {
				break
			}
			b = b[:0]
		}
	}
	if err == nil && len(b) > 0 {
		err = s.write(b)
	}
	if cap(b) <= 4*writeBytes {
		*pooled = b
		buffers.Put(pooled)
	}
	return err
}

// Control writes a control frame: an event without an id.
func (s *SSE) Control(c Control) error {
	return s.write(fmt.Appendf(nil, "event: %s\ndata: %s\n\n", c.Type, c.line()))
}

var buffers = sync.Pool{New: func() any {
	b := make([]byte, 0, writeBytes+writeBytes/4)
	return &b
}}

func (s *SSE) write(b []byte) error {
	if err := s.rc.SetWriteDeadline(time.Now().Add(s.hub.opts.WriteTimeout)); err != nil {
		return fmt.Errorf("set write deadline: %w", err)
	}
	_, err := s.w.Write(b)
	if err == nil {
		err = s.rc.Flush()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: no write in %v: %w", ErrSlow, s.hub.opts.WriteTimeout, err)
	}
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if s.clear {
		// An HTTP/2 stream is reset when its deadline passes, even between writes.
		if err := s.rc.SetWriteDeadline(time.Time{}); err != nil {
			return fmt.Errorf("clear write deadline: %w", err)
		}
	}
	return nil
}
