package main

import (
	"container/heap"
	"errors"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-run/holdfast/bench/internal/workload"
)

const responseHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n" +
	"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"

// retryBlocked is how soon a stream whose reader is slow is tried again.
const retryBlocked = 5 * time.Millisecond

// stream is one response on its way. Writes never wait: like a model, the
// provider goes on emitting on schedule, and what the reader's socket does not
// take yet is kept in pending.
type stream struct {
	conn    net.Conn
	raw     syscall.RawConn
	res     response
	head    string
	stats   *stats
	first   time.Time // scheduled emission of token 0
	next    int       // next token to emit
	due     time.Time // when to look at this stream again
	pending []byte
	ended   bool // the tail was queued
	scratch []byte
}

func newStream(conn net.Conn, res response, stats *stats) (*stream, error) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, errors.New("not a TCP connection")
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	first := time.Now().Add(res.want.Think)
	s := &stream{conn: conn, raw: raw, res: res, head: res.head(), stats: stats, first: first, due: first}
	s.pending = append(s.pending, responseHead...)
	s.queue([]byte(s.head + roleChoice))
	return s, s.flush()
}

// queue appends one HTTP chunk to what waits to be written.
func (s *stream) queue(event []byte) {
	s.pending = strconv.AppendInt(s.pending, int64(len(event)), 16)
	s.pending = append(s.pending, "\r\n"...)
	s.pending = append(s.pending, event...)
	s.pending = append(s.pending, "\r\n"...)
}

// flush writes what the socket takes now.
func (s *stream) flush() error {
	if len(s.pending) == 0 {
		return nil
	}
	var n int
	var werr error
	err := s.raw.Write(func(fd uintptr) bool {
		n, werr = syscall.Write(int(fd), s.pending)
		return true
	})
	if err == nil {
		err = werr
	}
	if errors.Is(err, syscall.EAGAIN) {
		s.stats.blocked.Add(1)
		return nil
	}
	if err != nil {
		return err
	}
	s.pending = s.pending[:copy(s.pending, s.pending[n:])]
	return nil
}

func (s *stream) scheduled(token int) time.Time {
	return s.first.Add(time.Duration(float64(token) / s.res.want.Rate * float64(time.Second)))
}

func (s *stream) emit(now time.Time) {
	b := append(s.scratch[:0], s.head...)
	b = append(b, contentOpen...)
	b = workload.AppendToken(b, s.next, now.UnixNano(), s.res.want.Size)
	b = append(b, contentClose...)
	s.queue(b)
	s.scratch = b
	s.next++
	s.stats.tokens.Add(1)
}

func (s *stream) end() {
	s.queue(s.res.tail())
	s.pending = append(s.pending, "0\r\n\r\n"...)
	s.ended = true
}

// step does what is due and reports whether the stream goes on.
func (s *stream) step() bool {
	if now := time.Now(); !s.ended && s.next < s.res.want.Tokens && !now.Before(s.scheduled(s.next)) {
		s.stats.late.Add(now.Sub(s.scheduled(s.next)))
		s.emit(now)
	}
	if s.next >= s.res.want.Tokens && !s.ended {
		s.end()
	}
	if err := s.flush(); err != nil {
		s.stats.canceled.Add(1)
		s.conn.Close()
		return false
	}
	switch {
	case s.ended && len(s.pending) == 0:
		s.stats.finished.Add(1)
		s.conn.Close()
		return false
	case s.ended:
		s.due = time.Now().Add(retryBlocked)
	default:
		s.due = s.scheduled(s.next)
	}
	return true
}

// flood sends the whole response as fast as the reader takes it, one write per token.
func (s *stream) flood() {
	defer s.conn.Close()
	for !s.ended {
		if s.next < s.res.want.Tokens {
			s.emit(time.Now())
		} else {
			s.end()
		}
		if _, err := s.conn.Write(s.pending); err != nil {
			s.stats.canceled.Add(1)
			return
		}
		s.pending = s.pending[:0]
	}
	s.stats.finished.Add(1)
}

// clock drives many streams from one goroutine and one timer.
type clock struct {
	mu   sync.Mutex
	new  []*stream
	wake chan struct{}
	due  dueHeap
}

func newClock() *clock { return &clock{wake: make(chan struct{}, 1)} }

func (c *clock) add(s *stream) {
	c.mu.Lock()
	c.new = append(c.new, s)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *clock) run() {
	timer := time.NewTimer(time.Hour)
	for {
		c.mu.Lock()
		added := c.new
		c.new = nil
		c.mu.Unlock()
		for _, s := range added {
			heap.Push(&c.due, s)
		}
		wait := time.Hour
		for len(c.due) > 0 {
			s := c.due[0]
			if wait = time.Until(s.due); wait > 0 {
				break
			}
			if s.step() {
				heap.Fix(&c.due, 0)
			} else {
				heap.Pop(&c.due)
			}
		}
		if len(c.due) == 0 {
			wait = time.Hour
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-c.wake:
		}
	}
}

type dueHeap []*stream

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)        { *h = append(*h, x.(*stream)) }
func (h *dueHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}
