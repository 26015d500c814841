package redis_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast/feed/doorbell"
	"github.com/holdfast-run/holdfast/feed/doorbell/doorbelltest"
	bell "github.com/holdfast-run/holdfast/feed/doorbell/redis"
	"github.com/holdfast-run/holdfast/internal/redistest"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newBell(t *testing.T, url string, change ...func(*bell.Options)) *bell.Bell {
	t.Helper()
	opts := bell.Options{Log: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&opts)
	}
	b, err := bell.New(url, opts)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTheContractOfADoorbell(t *testing.T) {
	server := redistest.Start(t)
	doorbelltest.Exercise(t, func(t *testing.T) doorbell.Bell { return newBell(t, server.URL()) })
}

// node is a process that follows one session.
type node struct {
	*testing.T
	bell  *bell.Bell
	rings chan doorbell.Ring

	mu   sync.Mutex
	head int64 // known of ses_1; guarded by mu
}

func newNode(t *testing.T, url string, change ...func(*bell.Options)) *node {
	t.Helper()
	n := &node{T: t, bell: newBell(t, url, change...), rings: make(chan doorbell.Ring, 10_000)}
	n.bell.Followed(func(id string) (int64, bool) {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.head, id == "ses_1"
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- n.bell.Run(ctx, func(r doorbell.Ring) {
			if len(r.Frames) > 0 {
				n.mu.Lock()
				n.head = r.Frames[len(r.Frames)-1].To
				n.mu.Unlock()
			}
			n.rings <- r
		})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	n.missed()
	return n
}

// missed waits for a ring that says that rings may have been missed.
func (n *node) missed() {
	n.Helper()
	n.await("that rings may have been missed", func(r doorbell.Ring) bool { return r.Session == "" })
}

func (n *node) await(what string, is func(doorbell.Ring) bool) doorbell.Ring {
	n.Helper()
	limit := time.After(30 * time.Second)
	for {
		select {
		case r := <-n.rings:
			if is(r) {
				return r
			}
		case <-limit:
			n.Fatalf("waited in vain for a ring that says %s", what)
		}
	}
}

// frames waits for a ring of the session with frames, and gives them as text.
func (n *node) frames() string {
	n.Helper()
	return text(n.await("what was committed", func(r doorbell.Ring) bool { return len(r.Frames) > 0 }).Frames)
}

func text(frames []session.Frame) string {
	all := ""
	for _, f := range frames {
		all += fmt.Sprintf("%d-%d %s ", f.From, f.To, f.JSON)
	}
	return all
}

// commit is a commit of the events from..to of ses_1.
func commit(from, to int64, word string) store.Commit {
	return store.Commit{Session: "ses_1", Frames: []session.Frame{{From: from, To: to, JSON: []byte(`"` + word + `"`)}}}
}

func TestWhatOneNodeCommitsAnotherHears(t *testing.T) {
	server := redistest.Start(t)
	a, b := newNode(t, server.URL()), newNode(t, server.URL())
	a.bell.Ring(commit(1, 1, "one"))
	if got := b.frames(); got != `1-1 "one" ` {
		t.Errorf("it heard %s", got)
	}
	a.bell.Ring(commit(2, 4, "two to four"))
	if got := b.frames(); got != `2-4 "two to four" ` {
		t.Errorf("it heard %s", got)
	}
	b.bell.Ring(commit(5, 5, "five")) // from the other side
	if got := a.await("five", func(r doorbell.Ring) bool { return r.Session == "ses_1" }); len(got.Frames) == 0 || got.Frames[len(got.Frames)-1].To != 5 {
		t.Errorf("it heard %+v", got)
	}
}

// A node that knows less than the stream begins at gets a ring without frames: the store has them.
func TestRG08AReaderBeforeATrimmedStreamAsksTheStore(t *testing.T) {
	server := redistest.Start(t)
	a, b := newNode(t, server.URL(), func(o *bell.Options) { o.Length = 1 }), newNode(t, server.URL())
	b.mu.Lock()
	b.head = 10
	b.mu.Unlock()
	for i := int64(20); i < 400; i++ { // trimming is by the hundred
		a.bell.Ring(commit(i, i, "x"))
	}
	b.await("no frames", func(r doorbell.Ring) bool { return r.Session == "ses_1" && len(r.Frames) == 0 })
}

// What another log than the present one left in Redis is never read: the log was
// restored from a backup, or its id is used again.
func TestWhatAnOlderLogLeftIsNeverRead(t *testing.T) {
	server := redistest.Start(t)
	a, witness := newNode(t, server.URL()), newNode(t, server.URL())
	for i := int64(1); i <= 9; i++ {
		a.bell.Ring(commit(i, i, "old"))
	}
	witness.await("all of the old log", func(r doorbell.Ring) bool { n := len(r.Frames); return n > 0 && r.Frames[n-1].To == 9 })
	b := newNode(t, server.URL())
	b.mu.Lock()
	b.head = 5 // as the restored log
	b.mu.Unlock()
	a.bell.Ring(commit(6, 8, "new"))
	if got := b.frames(); got != `6-8 "new" ` {
		t.Errorf("it heard %s", got)
	}
	a.bell.Ring(commit(9, 9, "newer"))
	if got := b.frames(); got != `9-9 "newer" ` {
		t.Errorf("it heard %s", got)
	}
}

func TestAFlushedRedisCostsNothing(t *testing.T) {
	server := redistest.Start(t)
	a, b := newNode(t, server.URL()), newNode(t, server.URL())
	a.bell.Ring(commit(1, 1, "one"))
	b.frames()
	config, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(config)
	defer client.Close()
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	a.bell.Ring(commit(2, 2, "two"))
	if got := b.frames(); got != `2-2 "two" ` {
		t.Errorf("it heard %s", got)
	}
	ttl, err := client.PTTL(t.Context(), "holdfast:{ses_1}").Result()
	if err != nil || ttl <= 0 || ttl > time.Minute {
		t.Errorf("the stream expires in %v, %v", ttl, err)
	}
	entries, err := client.XRange(t.Context(), "holdfast:{ses_1}", "-", "+").Result()
	if err != nil || len(entries) != 1 || entries[0].ID != "2-0" {
		t.Errorf("the stream has %v, %v: its ids are the seqs", entries, err)
	}
}

func TestARedisThatDiesAndComesBackIsUsedAgain(t *testing.T) {
	server := redistest.Start(t)
	a, b := newNode(t, server.URL()), newNode(t, server.URL())
	a.bell.Ring(commit(1, 1, "one"))
	b.frames()
	server.Kill()
	a.bell.Ring(commit(2, 2, "two")) // nobody hears it
	server.Start(t)
	b.missed()
	ringUntilHeard(a, b, 3)
}

func TestAFrozenRedisHoldsNobodyAndIsUsedAgain(t *testing.T) {
	server := redistest.Start(t)
	a, b := newNode(t, server.URL()), newNode(t, server.URL())
	a.bell.Ring(commit(1, 1, "one"))
	b.frames()
	server.Freeze(t)
	began := time.Now()
	for i := int64(2); i < 50_000; i++ {
		a.bell.Ring(commit(i, i, "while it is frozen"))
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("who commits waited %v", took)
	}
	server.Thaw(t)
	ringUntilHeard(a, b, 50_000)
}

// ringUntilHeard commits from seq on until the other node has heard all of a commit.
func ringUntilHeard(from, to *node, seq int64) {
	from.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(30 * time.Second)
	to.mu.Lock()
	to.head = seq - 1 // read from the store meanwhile
	to.mu.Unlock()
	for {
		from.bell.Ring(commit(seq, seq, "again"))
		seq++
		select {
		case r := <-to.rings:
			if len(r.Frames) > 0 {
				return
			}
			to.mu.Lock()
			to.head = max(to.head, seq-2)
			to.mu.Unlock()
		case <-tick.C:
		case <-limit:
			from.Fatal("no frame came through any more")
		}
	}
}

func TestABellWithoutAServerRunsAndEnds(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	b := newBell(t, server.URL())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx, func(doorbell.Ring) {}) }()
	b.Ring(commit(1, 1, "one"))
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAURLThatIsNoneIsRefused(t *testing.T) {
	if _, err := bell.New("http://localhost", bell.Options{}); err == nil {
		t.Error("it was taken")
	}
}
