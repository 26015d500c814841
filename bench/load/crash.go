package main

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-run/holdfast/bench/internal/hist"
)

// crashReport says what of the runs was left after the server was killed.
type crashReport struct {
	Chats     int64        `json:"chats"`     // running when the server died
	Recovered int64        `json:"recovered"` // whose stream could be read again
	Finished  int64        `json:"finished"`  // that came to an end mark with all tokens
	Seen      int64        `json:"tokens_seen"`
	Kept      int64        `json:"tokens_kept"` // of those seen before, read again afterwards
	Again     int64        `json:"restarts"`    // streams in which the model's answer began anew
	BackAfter hist.Summary `json:"back_after"`  // kill to the first token read again
	OnAfter   hist.Summary `json:"on_after"`    // kill to the first token that was emitted after it
}

const (
	crashAfter = 5 * time.Second
	retryEvery = 50 * time.Millisecond
	giveUp     = 30 * time.Second // after the crash, without a stream
	silence    = 10 * time.Second // a recovered stream that says nothing for so long is left
)

// crash: n chats; the server is killed without warning in the middle (whoever
// started it starts it again), and every client comes back until its stream is
// there. What a client has seen must not be gone.
func crash(c config, t *tally, r *report) {
	pid := c.probe.pids["sut"]
	var (
		killed    atomic.Int64 // Unix nanoseconds
		out       crashReport
		mu        sync.Mutex
		backAfter hist.Hist
		onAfter   hist.Hist
	)
	time.AfterFunc(c.ramp+crashAfter, func() {
		killed.Store(time.Now().UnixNano())
		if syscall.Kill(-pid, syscall.SIGKILL) != nil { // its process group, or else the process alone
			syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	c.each(func(i int) {
		t.readers.Add(1)
		seen := make([]int64, c.want.Tokens)
		s, err := c.to.ask(c.chat(i), c.want.Prompt(), time.Now().Add(c.length()+c.grace))
		if err == nil {
			err = s.tokens(func(i int, emitted int64, _ time.Time) bool {
				seen[i] = emitted
				return true
			})
			s.close()
		}
		if killed.Load() == 0 {
			t.fail(errors.Join(errors.New("ended before the crash"), err))
			return
		}
		died := time.Unix(0, killed.Load())
		back := c.comeBack(i, died)
		mu.Lock()
		defer mu.Unlock()
		out.Chats++
		for i, emitted := range seen {
			if emitted == 0 {
				continue
			}
			out.Seen++
			if back.all[token{i, emitted}] {
				out.Kept++
			}
		}
		if back.first.IsZero() {
			t.fail(back.err)
			return
		}
		backAfter.Add(back.first.Sub(died))
		if !back.on.IsZero() {
			onAfter.Add(back.on.Sub(died))
		}
		out.Recovered++
		if back.again {
			out.Again++
		}
		if back.err == nil && back.highest == c.want.Tokens-1 {
			out.Finished++
			t.completed.Add(1)
		}
	})
	out.BackAfter, out.OnAfter = backAfter.Summary(), onAfter.Summary()
	r.Crash = &out
}

type token struct {
	i       int
	emitted int64
}

// comeback is what a client reads after the crash.
type comeback struct {
	all     map[token]bool
	first   time.Time
	on      time.Time // when the first token came that was emitted after the crash
	highest int
	again   bool // the index went back to 0
	err     error
}

func (c config) comeBack(chat int, died time.Time) comeback {
	b := comeback{all: map[token]bool{}, highest: -1}
	for time.Since(died) < giveUp {
		s, err := c.to.follow(c.chat(chat), 0, time.Now().Add(silence))
		if err != nil {
			b.err = err
			pause(retryEvery)
			continue
		}
		b.err = s.tokens(func(i int, emitted int64, at time.Time) bool {
			if b.first.IsZero() {
				b.first = at
			}
			if b.on.IsZero() && emitted > died.UnixNano() {
				b.on = at
			}
			b.again = b.again || i < b.highest
			b.highest = max(b.highest, i)
			b.all[token{i, emitted}] = true
			_ = s.conn.SetDeadline(time.Now().Add(silence)) // fails only on a closed connection
			return true
		})
		s.close()
		if !b.first.IsZero() {
			return b
		}
		pause(retryEvery)
	}
	if b.err == nil {
		b.err = errors.New("stream without a token")
	}
	return b
}
