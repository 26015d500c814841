package feed_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/feed"
	"github.com/holdfast-run/holdfast/store"
)

func TestStreamsThatComeWhileEventsAreWrittenCarryEachOnce(t *testing.T) {
	w := newWorld(t, feed.Options{})
	server := w.serve(feed.SocketOptions{})
	comeAndGo(w, 2000, func(ctx context.Context, after, to int64) error {
		s, err := openStream(ctx, server.URL, after)
		if err != nil {
			return err
		}
		defer s.body.Close()
		return s.readTo(after, to)
	})
}

// paper is a ResponseWriter that remembers what was written when, and can stop
// taking anything, as a client does that does not read.
type paper struct {
	header http.Header

	mu       sync.Mutex
	status   int
	writes   []write
	flushes  int
	deadline time.Time
	full     chan struct{} // nothing is taken before it is closed
}

type write struct {
	at   time.Time
	text string
}

func (w write) String() string { return strconv.Quote(w.text) }

func (p *paper) Header() http.Header { return p.header }

func (p *paper) WriteHeader(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status = status
}

func (p *paper) Write(b []byte) (int, error) {
	p.mu.Lock()
	full, deadline := p.full, p.deadline
	p.mu.Unlock()
	if full != nil {
		select {
		case <-full:
		case <-time.After(time.Until(deadline)):
			return 0, os.ErrDeadlineExceeded
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writes = append(p.writes, write{time.Now(), string(b)})
	return len(b), nil
}

func (p *paper) FlushError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flushes++
	return nil
}

func (p *paper) SetWriteDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadline = t
	return nil
}

// since gives what was written after the first n writes, each of which was flushed.
func (p *paper) since(n int) []write {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.flushes != len(p.writes) {
		panic(fmt.Sprintf("%d writes and %d flushes", len(p.writes), p.flushes))
	}
	return append([]write(nil), p.writes[n:]...)
}

// onPaper serves a stream of session s in a bubble.
func (w *world) onPaper(ctx context.Context, after int64) (p *paper, ended chan error) {
	p, ended = &paper{header: http.Header{}}, make(chan error, 1)
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	go func() { ended <- w.hub.ServeSSE(p, r, "s", after) }()
	synctest.Wait()
	return p, ended
}

func TestAStreamSendsItsHeadersAtOnceAndForbidsBuffering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feed.Options{})
		w.write("s", 1)
		p, _ := w.onPaper(t.Context(), 1)
		for name, want := range map[string]string{
			"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no",
		} {
			if got := p.header.Get(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		writes := p.since(0)
		if p.status != http.StatusOK || len(writes) != 1 || !regexp.MustCompile(`^retry: \d+\n\n$`).MatchString(writes[0].text) {
			t.Fatalf("status %d, %v", p.status, writes)
		}
		var ms int
		if _, err := fmt.Sscanf(writes[0].text, "retry: %d", &ms); err != nil || ms < 1000 || ms > 6000 {
			t.Errorf("retry is %d", ms)
		}
	})
}

func TestAStreamWritesWhatIsThereTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feed.Options{})
		w.write("s", 3)
		p, _ := w.onPaper(t.Context(), 1)
		writes := p.since(1)
		if len(writes) != 1 {
			t.Fatalf("%d writes", len(writes))
		}
		frames, err := w.store.Read(t.Context(), "s", 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("id: 2\ndata: %s\n\nid: 3\ndata: %s\n\n", frames[0].JSON, frames[1].JSON)
		if writes[0].text != want {
			t.Errorf("got  %q\nwant %q", writes[0].text, want)
		}
		w.write("s", 1)
		synctest.Wait()
		if writes := p.since(2); len(writes) != 1 || writes[0].at != time.Now() {
			t.Errorf("the next event came as %v", writes)
		}
	})
}

func TestAStreamCarriesFoldedRangesWithTheirLastSeqAsID(t *testing.T) {
	w := newWorld(t, feed.Options{})
	w.src.read = folded
	w.write("s", 12)
	s := mustStream(t, w.serve(feed.SocketOptions{}), 4)
	for {
		b, err := s.next()
		if err != nil {
			t.Fatal(err)
		}
		if b.data != "" {
			if want := `{"type":"folded","session":"s","from":5,"to":8,"into":"msg_1"}`; b.id != "8" || b.data != want {
				t.Errorf("got %+v", b)
			}
			break
		}
	}
	if err := s.readTo(8, 12); err != nil {
		t.Error(err)
	}
}

// TP-02, RG-06
func TestAQuietStreamHasHeartbeatsThatMoveNoCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feed.Options{})
		w.write("s", 5)
		p, _ := w.onPaper(t.Context(), 5)
		last := p.since(0)[0].at
		time.Sleep(time.Minute)
		w.write("s", 1)
		time.Sleep(time.Minute)
		beats := 0
		for _, one := range p.since(1) {
			if quiet := one.at.Sub(last); quiet > 15*time.Second {
				t.Errorf("%v without anything", quiet)
			}
			if one.text == ": hb\n\n" {
				beats++
				if quiet := one.at.Sub(last); quiet < 12*time.Second {
					t.Errorf("a heartbeat after %v", quiet)
				}
			} else if !strings.HasPrefix(one.text, "id: 6\ndata: ") {
				t.Errorf("got %q", one.text)
			}
			last = one.at
		}
		if beats < 8 || beats > 10 {
			t.Errorf("%d heartbeats in two minutes", beats)
		}
	})
}

func TestHeartbeatsOfManyStreamsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feed.Options{})
		w.write("s", 5)
		papers := make([]*paper, 100)
		for i := range papers {
			papers[i], _ = w.onPaper(t.Context(), 5)
		}
		time.Sleep(16 * time.Second)
		moments := map[time.Time]int{}
		for _, p := range papers {
			writes := p.since(1)
			if len(writes) == 0 {
				t.Fatal("a stream has no heartbeat")
			}
			moments[writes[0].at]++
		}
		if len(moments) < 4 {
			t.Errorf("all at once: %v", moments)
		}
	})
}

func TestACursorAheadOfTheLogGetsAResetAndTheWholeLog(t *testing.T) {
	w := newWorld(t, feed.Options{})
	w.write("s", 5)
	s := mustStream(t, w.serve(feed.SocketOptions{}), 900)
	if b, err := s.next(); err != nil || b.retry == "" {
		t.Fatalf("got %+v, %v", b, err)
	}
	if b, err := s.next(); err != nil || b != (block{data: `{"type":"reset","session":"s","head":5}`}) {
		t.Fatalf("got %+v, %v", b, err)
	}
	w.write("s", 5)
	if err := s.readTo(0, 10); err != nil {
		t.Error(err)
	}
}

func TestAStreamOfALogThatIsReplacedStartsAgainAfterAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feed.Options{})
		w.write("s", 5)
		p, _ := w.onPaper(t.Context(), 5)
		w.losing(func(store.Commit) bool { return true })
		if err := w.store.Delete(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		w.write("s", 2)
		time.Sleep(3 * time.Second)
		writes := p.since(1)
		if len(writes) != 2 || writes[0].text != "data: {\"type\":\"reset\",\"session\":\"s\",\"head\":2}\n\n" ||
			!strings.HasPrefix(writes[1].text, "id: 1\n") {
			t.Errorf("got %v", writes)
		}
	})
}

func TestAStreamOfADeletedSessionSaysSoAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feed.Options{})
		w.write("s", 5)
		p, ended := w.onPaper(t.Context(), 5)
		if err := w.store.Delete(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		writes := p.since(1)
		if len(writes) != 1 || writes[0].text != "data: {\"type\":\"deleted\",\"session\":\"s\"}\n\n" {
			t.Errorf("got %v", writes)
		}
	})
}

func TestCloseSaysGoodbyeToEveryStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feed.Options{})
		w.write("s", 5)
		p, ended := w.onPaper(t.Context(), 0)
		w.hub.Close(nil)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		writes := p.since(2)
		if len(writes) != 1 || !regexp.MustCompile(`^retry: [1-6]\d{3}\n: goodbye\n\n$`).MatchString(writes[0].text) {
			t.Errorf("got %v", writes)
		}
		if got := w.hub.Stats().Readers; got != 0 {
			t.Errorf("%d readers are left", got)
		}
	})
}

func TestAStreamEndsWhenItsClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feed.Options{})
		w.write("s", 5)
		ctx, leave := context.WithCancel(t.Context())
		p, ended := w.onPaper(ctx, 5)
		leave()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if writes := p.since(1); len(writes) != 0 {
			t.Errorf("got %v", writes)
		}
	})
}

func TestAStreamThatTakesNothingIsCutOffAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feed.Options{WriteTimeout: 30 * time.Second})
		w.write("s", 5)
		p, ended := w.onPaper(t.Context(), 5)
		p.mu.Lock()
		p.full = make(chan struct{})
		p.mu.Unlock()
		w.write("s", 1)
		began := time.Now()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestWhatIsWrongBeforeAStreamBeginsIsTheCallers(t *testing.T) {
	w := newWorld(t, feed.Options{})
	w.write("other", 1)
	p := &paper{header: http.Header{}}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	if err := w.hub.ServeSSE(p, r, "s", 0); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("unknown session: %v", err)
	}
	bare := httptest.NewRecorder()
	if err := w.hub.ServeSSE(bare, r, "other", 0); !errors.Is(err, http.ErrNotSupported) {
		t.Errorf("no deadlines: %v", err)
	}
	w.hub.Close(nil)
	if err := w.hub.ServeSSE(p, r, "other", 0); !errors.Is(err, feed.ErrClosing) {
		t.Errorf("closed: %v", err)
	}
	if len(p.header)+len(bare.Header()) > 0 || p.status != 0 || len(p.writes) > 0 || bare.Body.Len() > 0 {
		t.Error("something was sent")
	}
}

// SM-01
func TestAClientThatDoesNotReadIsCutOffAndMissesNothing(t *testing.T) {
	w := newWorld(t, feed.Options{WriteTimeout: 200 * time.Millisecond})
	w.large("s", 501, 20<<10)
	server := w.serve(feed.SocketOptions{})
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetReadBuffer(8 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET /sse HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	w.awaitEnd(ctx)
	// What it can still read joins from 1 on.
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	s := &stream{resp.Body, bufio.NewReader(resp.Body)}
	cursor := int64(0)
	for {
		b, err := s.next()
		if err != nil {
			break
		}
		if b.id == "" {
			continue
		}
		id, err := strconv.ParseInt(b.id, 10, 64)
		if err != nil || id != cursor+1 {
			t.Fatalf("after %d comes %+v", cursor, b)
		}
		cursor = id
	}
	if cursor == 0 || cursor == 501 {
		t.Fatalf("it got %d events: the test shows nothing", cursor)
	}
	if err := mustStream(t, server, cursor).readTo(cursor, 501); err != nil {
		t.Error(err)
	}
}

func TestAnHTTP2StreamOutlivesItsWriteDeadline(t *testing.T) {
	w := newWorld(t, feed.Options{WriteTimeout: 100 * time.Millisecond, Heartbeat: 300 * time.Millisecond})
	w.write("s", 1)
	server := httptest.NewUnstartedServer(w.handler(feed.SocketOptions{}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	defer w.hub.Close(nil)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/sse?after=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.ProtoMajor != 2 {
		t.Fatal(resp.Proto)
	}
	s := &stream{resp.Body, bufio.NewReader(resp.Body)}
	for beats := 0; beats < 2; {
		b, err := s.next()
		if err != nil {
			t.Fatal(err)
		}
		if b.comment == "hb" {
			beats++
		}
	}
}
