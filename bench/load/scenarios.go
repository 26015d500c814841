package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/bench/internal/workload"
)

// config is one run's wish, from the command line.
type config struct {
	to     api
	base   string // URL of the server under test
	n      int    // chats, watchers or connections
	want   workload.Response
	ramp   time.Duration // over which the readers start
	grace  time.Duration // past the response's length, until a reader gives up
	drop   int           // resume: tokens after which a client drops
	gap    time.Duration // resume: how long it stays away
	prefix string        // of chat ids
	probe  *probe
}

func (c config) chat(i int) string { return fmt.Sprintf("%s-%d", c.prefix, i) }

// length is how long the provider takes for one response.
func (c config) length() time.Duration {
	if c.want.Rate == 0 {
		return c.want.Think
	}
	return c.want.Think + time.Duration(float64(c.want.Tokens)/c.want.Rate*float64(time.Second))
}

// each runs f for every reader, started evenly over the ramp, and waits for all.
func (c config) each(f func(i int)) {
	var wg sync.WaitGroup
	for i := range c.n {
		wg.Go(func() {
			pause(c.ramp * time.Duration(i) / time.Duration(c.n))
			f(i)
		})
	}
	wg.Wait()
}

// steady: n chats at once, each read live to its end.
func steady(c config, t *tally, _ *report) {
	c.each(func(i int) {
		t.read(c.to, c.chat(i), c.want, time.Now().Add(c.length()+c.grace))
	})
}

// resume: every client drops after some tokens, stays away, comes back with
// its cursor and must end up with the whole text, each token once.
func resume(c config, t *tally, _ *report) {
	c.each(func(i int) {
		deadline := time.Now().Add(c.length() + c.gap + c.grace)
		var tr transcript
		var cursor int64
		s, err := c.to.ask(c.chat(i), c.want.Prompt(), deadline)
		if err == nil {
			err = s.tokens(func(i int, _ int64, _ time.Time) bool {
				tr.see(i)
				return i+1 < c.drop
			})
			cursor = s.cursor
			s.close()
		}
		if !errors.Is(err, errStop) {
			t.readers.Add(1)
			t.finish(fmt.Errorf("before the drop: %w", err), &tr, c.want.Tokens)
			return
		}
		pause(c.gap)
		t.watch(c.to, c.chat(i), cursor, c.want, &tr, deadline)
	})
}

// fanout: one chat, read by n watchers.
func fanout(c config, t *tally, r *report) {
	deadline := time.Now().Add(c.length() + c.grace)
	var writer tally
	var wg sync.WaitGroup
	wg.Go(func() { writer.read(c.to, c.chat(0), c.want, deadline) })
	pause(time.Second)
	c.each(func(int) {
		var tr transcript
		t.watch(c.to, c.chat(0), 0, c.want, &tr, deadline)
	})
	wg.Wait()
	r.Note = "starter: " + orText(writer.errorList(), "complete") +
		fmt.Sprintf(", p99 %.1f ms", writer.latency.Summary().P99)
}

// idle: n open connections on which nothing happens until the end, when a few
// tokens prove that each is alive. Memory per connection is the growth of the
// server's resident set while it holds them.
func idle(c config, t *tally, r *report, open func(i int)) {
	before := c.probe.rss()
	var wg sync.WaitGroup
	wg.Go(func() { c.each(open) })
	pause(c.ramp + (c.want.Think-c.ramp)*3/4)
	r.IdleBytesPerConn = map[string]int64{}
	for name, after := range c.probe.rss() {
		r.IdleBytesPerConn[name] = (after - before[name]) / int64(c.n)
	}
	wg.Wait()
	_ = t
}

// idleChats: every connection is a chat of its own whose model thinks.
func idleChats(c config, t *tally, r *report) {
	idle(c, t, r, func(i int) {
		t.read(c.to, c.chat(i), c.want, time.Now().Add(c.length()+c.grace))
	})
}

// idleWatchers: one chat whose model thinks, watched by all.
func idleWatchers(c config, t *tally, r *report) {
	deadline := time.Now().Add(c.length() + c.grace)
	var writer tally
	var wg sync.WaitGroup
	wg.Go(func() { writer.read(c.to, c.chat(0), c.want, deadline) })
	pause(time.Second)
	idle(c, t, r, func(int) {
		var tr transcript
		t.watch(c.to, c.chat(0), 0, c.want, &tr, deadline)
	})
	wg.Wait()
}

func orText(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// pause waits for a time: load comes on a schedule, whatever the server does.
func pause(d time.Duration) { <-time.After(d) }
