// Package redis rings through Redis, and carries what was committed: the newest
// part of each busy session's log is a Redis stream, so that a node hears and
// reads what another one commits without asking the store.
//
//	Ring ─▶ gathered by session ─▶ one script: XADD, PEXPIRE, PUBLISH
//	                                        ║ publish/subscribe: who has more, how far
//	heard ◀─ XRANGE from what is known ◀════╝ for the sessions that are followed here
//
// Redis is never the truth. A stream holds frames that join, or is begun anew,
// and a node believes it only as far as it was told since it listens, so that
// nothing of an older log is ever read. Whatever is missing, trimmed, flushed or late is a ring without
// frames: the reader asks the store. While Redis is down or stalled, nobody waits for it.
//
// A process has one connection that listens, and few that write and read,
// however many sessions are watched.
package redis

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast/feed/doorbell"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// Options of [New]. The zero value works.
type Options struct {
	// Prefix is before every key, and is the channel's name. Default: "holdfast".
	Prefix string
	// Length is about how many commits of a session are kept, and Linger how long
	// after its last one. Default: 1000, and 1 minute.
	Length int64
	Linger time.Duration
	// Patience is how long Redis may take for an answer. Default: 250 ms.
	Patience time.Duration
	// Log is told when the bell is out of order. Default: slog.Default().
	Log *slog.Logger
}

// Bell is a [doorbell.Tail] through Redis.
type Bell struct {
	opts     Options
	client   *redis.Client
	self     string // tells rings of this process from others'
	out      outbox
	followed func(string) (int64, bool)
}

var _ doorbell.Tail = (*Bell)(nil)

// New makes a bell for the server that a URL names, such as redis://localhost:6379/0.
func New(url string, opts Options) (*Bell, error) {
	config, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("this is no Redis URL, such as redis://host:6379/0: %w", err)
	}
	opts.Prefix = cmp.Or(opts.Prefix, "holdfast")
	opts.Length = cmp.Or(opts.Length, 1000)
	opts.Linger = cmp.Or(opts.Linger, time.Minute)
	opts.Patience = cmp.Or(opts.Patience, 250*time.Millisecond)
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	quiet() // what is wrong is said here, once
	config.DialTimeout, config.ReadTimeout, config.WriteTimeout = opts.Patience, opts.Patience, opts.Patience
	config.DialerRetries = 1
	config.MaxRetries = -1 // what is late is dropped
	config.PoolSize = 4
	config.ContextTimeoutEnabled = true
	config.DisableIdentity = true
	return &Bell{
		opts: opts, client: redis.NewClient(config), self: rand.Text()[:12], out: newOutbox(),
		followed: func(string) (int64, bool) { return 0, false },
	}, nil
}

// quiet keeps the library from logging: its log is of the whole process, and on the error output.
var quiet = sync.OnceFunc(logging.Disable)

// Followed says which sessions are followed here, and how far each is known.
func (b *Bell) Followed(followed func(session string) (head int64, ok bool)) { b.followed = followed }

// Ring tells the others of a commit, and gives them its frames.
func (b *Bell) Ring(c store.Commit) { b.out.put(c) }

// Run listens and rings until ctx ends.
func (b *Bell) Run(ctx context.Context, heard func(doorbell.Ring)) error {
	defer func() { _ = b.client.Close() }()
	var g errgroup.Group
	g.Go(func() error { b.listen(ctx, heard); return nil })
	g.Go(func() error { b.ring(ctx); return nil })
	return g.Wait()
}

// message is what a process publishes of a commit.
type message struct {
	From    string `json:"from"`
	Session string `json:"session"` // empty: look at everything
	Head    int64  `json:"head,omitempty"`
	Facts   bool   `json:"facts,omitempty"`
	Work    []work `json:"work,omitempty"`
}

type work struct {
	Run    string `json:"run"`
	Due    bool   `json:"due,omitempty"`
	Cancel bool   `json:"cancel,omitempty"`
}

// add makes a commit the newest entry of a session's stream, whose id is its
// last seq, and tells of it. A stream that does not end just before is begun anew.
//
//	KEYS: stream. ARGV: seq before, last seq, first seq, frames, length, milliseconds, channel, message
var add = redis.NewScript(`
local top = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
if top[1] and top[1][1] ~= ARGV[1] .. '-0' then redis.call('DEL', KEYS[1]) end
redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[5], ARGV[2] .. '-0', 'first', ARGV[3], 'frames', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[6])
return redis.call('PUBLISH', ARGV[7], ARGV[8])`)

// mostEntries bounds what is read of one session at once; one that is further behind is read from the store.
const mostEntries = 200

// pauseAfterFailure is how long nobody asks a Redis that does not answer.
const pauseAfterFailure = 500 * time.Millisecond

// ring sends what gathers.
func (b *Bell) ring(ctx context.Context) {
	failing := false
	for {
		select {
		case <-b.out.some:
		case <-ctx.Done():
			return
		}
		err := b.send(ctx, b.out.take())
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !failing {
				b.opts.Log.Warn("the doorbell is out of order: other processes hear of commits at their next poll", slog.Any("error", err))
			}
			failing = true
			b.out.forget() // frames that are late are worth nothing; that there are some is still told
			if !pause(ctx, pauseAfterFailure) {
				return
			}
		case failing:
			failing = false
			b.opts.Log.Info("the doorbell rings again")
		}
	}
}

// send tells of commits, in order.
func (b *Bell) send(ctx context.Context, notes []note) error {
	for len(notes) > 0 {
		some := notes[:min(len(notes), 256)]
		notes = notes[len(some):]
		if err := b.sendSome(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bell) sendSome(ctx context.Context, notes []note) error {
	pipe := b.client.Pipeline()
	for _, n := range notes {
		m := message{From: b.self, Session: n.ring.Session, Head: n.head, Facts: n.ring.Facts}
		for _, w := range n.ring.Work {
			m.Work = append(m.Work, work{Run: w.Run, Due: w.Work.Due, Cancel: w.Cancel})
		}
		text, err := json.Marshal(m)
		if err != nil {
			return err // strings and numbers: it never fails
		}
		if len(n.frames) == 0 {
			pipe.Publish(ctx, b.opts.Prefix, text)
			continue
		}
		first := n.frames[0].From
		add.Eval(ctx, pipe, []string{b.key(n.ring.Session)},
			first-1, n.head, first, encode(n.frames), b.opts.Length, b.opts.Linger.Milliseconds(), b.opts.Prefix, text)
	}
	_, err := pipe.Exec(ctx)
	return err
}

func (b *Bell) key(session string) string { return b.opts.Prefix + ":{" + session + "}" }

// listen hears rings until ctx ends. The library makes a lost connection again.
func (b *Bell) listen(ctx context.Context, heard func(doorbell.Ring)) {
	sub := b.client.Subscribe(ctx, b.opts.Prefix)
	defer func() { _ = sub.Close() }()
	messages := sub.ChannelWithSubscriptions(redis.WithChannelHealthCheckInterval(time.Second), redis.WithChannelSize(10_000))
	for {
		var got []message
		select {
		case <-ctx.Done():
			return
		case m, ok := <-messages:
			if !ok {
				return
			}
			got = b.take(got, m)
		}
		for more := true; more && len(got) < 256; { // what has come meanwhile is read together
			select {
			case m, ok := <-messages:
				if more = ok; ok {
					got = b.take(got, m)
				}
			default:
				more = false
			}
		}
		b.tell(ctx, got, heard)
	}
}

// take reads what came. A subscription means that the connection is new: rings may have been missed.
func (b *Bell) take(got []message, came any) []message {
	switch came := came.(type) {
	case *redis.Subscription:
		return append(got, message{})
	case *redis.Message:
		var m message
		if json.Unmarshal([]byte(came.Payload), &m) != nil {
			return append(got, message{}) // of a version that says it otherwise
		}
		if m.From != b.self {
			return append(got, m)
		}
	}
	return got
}

// tell passes rings on, with the frames of sessions that are followed here.
func (b *Bell) tell(ctx context.Context, got []message, heard func(doorbell.Ring)) {
	frames := b.read(ctx, got)
	for _, m := range got {
		r := doorbell.Ring{Session: m.Session, Facts: m.Facts, Frames: frames[m.Session]}
		delete(frames, m.Session) // all of them come with the first
		for _, w := range m.Work {
			r.Work = append(r.Work, store.RunWork{Run: w.Run, Cancel: w.Cancel, Work: session.Work{Due: w.Due}})
		}
		heard(r)
	}
}

// read gives what followed sessions have after what is known of them, as far as
// it was told. A session that is left out is to be read from the store.
func (b *Bell) read(ctx context.Context, got []message) map[string][]session.Frame {
	type want struct{ after, head int64 }
	wants := map[string]want{}
	for _, m := range got {
		if after, ok := b.followed(m.Session); ok && m.Head > after {
			wants[m.Session] = want{after, max(m.Head, wants[m.Session].head)}
		}
	}
	if len(wants) == 0 {
		return nil
	}
	pipe := b.client.Pipeline()
	entries := map[string]*redis.XMessageSliceCmd{}
	for id, w := range wants {
		entries[id] = pipe.XRangeN(ctx, b.key(id), strconv.FormatInt(w.after+1, 10), strconv.FormatInt(w.head, 10), mostEntries)
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil
	}
	frames := map[string][]session.Frame{}
	for id, w := range wants {
		if read := join(entries[id].Val(), w.after, w.head); len(read) > 0 {
			frames[id] = read
		}
	}
	return frames
}

// join gives the frames of entries that go on after a seq and end at head, or none.
func join(entries []redis.XMessage, after, head int64) []session.Frame {
	var all []session.Frame
	for _, e := range entries {
		text, _ := e.Values["frames"].(string)
		for f := range decode(text) {
			switch {
			case f.To <= after: // a commit that is known in part
			case f.From != after+1:
				return nil
			default:
				all, after = append(all, f), f.To
			}
		}
	}
	if after != head {
		return nil
	}
	return all
}

// encode gives frames as text, a line each: its seqs and its JSON.
func encode(frames []session.Frame) []byte {
	var b []byte
	for _, f := range frames {
		b = strconv.AppendInt(b, f.From, 10)
		b = append(b, ' ')
		b = strconv.AppendInt(b, f.To, 10)
		b = append(b, ' ')
		b = append(append(b, f.JSON...), '\n')
	}
	return b
}

// decode gives the frames of a text. What is no frame is one that joins nothing.
func decode(text string) iter.Seq[session.Frame] {
	return func(yield func(session.Frame) bool) {
		for line := range strings.Lines(text) {
			var f session.Frame
			from, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			to, body, _ := strings.Cut(rest, " ")
			f.From, _ = strconv.ParseInt(from, 10, 64)
			f.To, _ = strconv.ParseInt(to, 10, 64)
			f.JSON = []byte(body)
			if f.From < 1 || f.To < f.From || body == "" {
				f = session.Frame{From: -1, To: math.MaxInt64}
			}
			if !yield(f) {
				return
			}
		}
	}
}

// pause waits; false means that ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
