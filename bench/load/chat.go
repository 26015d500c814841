package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast/bench/internal/hist"
	"github.com/holdfast-run/holdfast/bench/internal/workload"
)

// tally is what all readers of one run found, together.
type tally struct {
	readers, completed atomic.Int64
	expected, received atomic.Int64
	lost, duplicate    atomic.Int64
	latency            hist.Hist // emission to receipt, tokens that were read live
	firstToken         hist.Hist // request sent to first token; the provider does not wait
	catchUp            hist.Hist // reconnect to having everything emitted before it

	mu     sync.Mutex
	errors map[string]int
}

func (t *tally) fail(err error) {
	msg := err.Error()
	var op *net.OpError // names both ends, so no two would be alike
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		msg = "deadline exceeded"
	case errors.As(err, &op):
		msg = op.Op + ": " + op.Err.Error()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.errors == nil {
		t.errors = map[string]int{}
	}
	t.errors[msg]++
}

func (t *tally) fill(r *report) {
	r.Readers, r.Completed = t.readers.Load(), t.completed.Load()
	r.Expected, r.Received = t.expected.Load(), t.received.Load()
	r.Lost, r.Duplicate = t.lost.Load(), t.duplicate.Load()
	r.Latency, r.FirstToken, r.CatchUp = t.latency.Summary(), t.firstToken.Summary(), t.catchUp.Summary()
	r.Errors = maps.Clone(t.errors)
}

func (t *tally) errorList() string {
	var list []string
	for _, msg := range slices.Sorted(maps.Keys(t.errors)) {
		list = append(list, fmt.Sprintf("%d× %s", t.errors[msg], msg))
	}
	return strings.Join(list, "; ")
}

// transcript checks that tokens come once each and in order.
type transcript struct {
	next            int
	lost, duplicate int
}

func (t *transcript) see(i int) {
	switch {
	case i < t.next:
		t.duplicate++
		return
	case i > t.next:
		t.lost += i - t.next
	}
	t.next = i + 1
}

// close counts what a whole text of n tokens still lacks and adds all to the tally.
func (t *transcript) close(n int, to *tally) {
	if t.next < n {
		t.lost += n - t.next
	}
	to.expected.Add(int64(n))
	to.received.Add(int64(n - t.lost))
	to.lost.Add(int64(t.lost))
	to.duplicate.Add(int64(t.duplicate))
}

var errStop = errors.New("reader stops here")

// tokens reads a stream to the answer's end, or until token returns false (then errStop).
func (s *stream) tokens(token func(i int, emitted int64, at time.Time) bool) error {
	var scan workload.Scanner
	for {
		text, err := s.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		at, goOn := time.Now(), true
		err = scan.Feed(text, func(i int, emitted int64) {
			if goOn {
				goOn = token(i, emitted, at)
			}
		})
		if err != nil {
			return err
		}
		if !goOn {
			return errStop
		}
	}
}

// finish books how a reader ended.
func (t *tally) finish(err error, tr *transcript, n int) {
	tr.close(n, t)
	switch {
	case err != nil:
		t.fail(err)
	case tr.lost > 0 || tr.duplicate > 0:
		t.fail(errors.New("text is not whole"))
	default:
		t.completed.Add(1)
	}
}

// read opens a chat and reads its whole answer live.
func (t *tally) read(to api, chat string, want workload.Response, deadline time.Time) {
	t.readers.Add(1)
	var tr transcript
	sent := time.Now()
	s, err := to.ask(chat, want.Prompt(), deadline)
	if err == nil {
		defer s.close()
		err = s.tokens(func(i int, emitted int64, at time.Time) bool {
			if i == 0 {
				t.firstToken.Add(at.Sub(sent) - want.Think)
			}
			t.latency.Add(time.Duration(at.UnixNano() - emitted))
			tr.see(i)
			return true
		})
	}
	t.finish(err, &tr, want.Tokens)
}

// watch follows a running chat after a cursor. Tokens emitted before the reader
// came are history: they count for the text and for the catch-up time, not for latency.
func (t *tally) watch(to api, chat string, after int64, want workload.Response, tr *transcript, deadline time.Time) {
	t.readers.Add(1)
	sent := time.Now()
	s, err := to.follow(chat, after, deadline)
	if err != nil {
		t.finish(err, tr, want.Tokens)
		return
	}
	defer s.close()
	seen, live := 0, false
	caughtUp := sent
	err = s.tokens(func(i int, emitted int64, at time.Time) bool {
		if seen == 0 && i == 0 { // the server replays the answer from its start
			*tr = transcript{}
		}
		seen++
		tr.see(i)
		if emitted < sent.UnixNano() {
			caughtUp = at
			return true
		}
		if !live {
			live = true
			t.catchUp.Add(caughtUp.Sub(sent))
		}
		t.latency.Add(time.Duration(at.UnixNano() - emitted))
		return true
	})
	t.finish(err, tr, want.Tokens)
}
