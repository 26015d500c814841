package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
)

// logServer plays a server that holds a log of so many events, without a network.
type logServer struct {
	// connect plays one connection, counted from 1: it writes to the stream, and
	// the connection ends when it returns. An error refuses the connection.
	connect func(ctx context.Context, n int, after int64, stream io.Writer) error

	mu     sync.Mutex
	n      int         // guarded by mu
	afters []int64     // guarded by mu
	at     []time.Time // guarded by mu
}

func (s *logServer) RoundTrip(r *http.Request) (*http.Response, error) {
	after, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.n++
	n := s.n
	s.afters, s.at = append(s.afters, after), append(s.at, time.Now())
	s.mu.Unlock()
	stream, w := io.Pipe()
	ready := make(chan error, 1)
	go func() {
		first := &firstWrite{w: w, ready: ready}
		err := s.connect(r.Context(), n, after, first)
		first.once.Do(func() { ready <- err })
		w.CloseWithError(err)
	}()
	select {
	case <-r.Context().Done():
		stream.Close()
		return nil, r.Context().Err()
	case err := <-ready:
		var p *api.Problem
		if errors.As(err, &p) {
			raw, _ := json.Marshal(p)
			return &http.Response{StatusCode: p.Status, Status: strconv.Itoa(p.Status), Header: http.Header{}, Body: io.NopCloser(strings.NewReader(string(raw)))}, nil
		}
		if err != nil {
			return nil, err
		}
	}
	body := &cutBody{stream, context.AfterFunc(r.Context(), func() { stream.CloseWithError(r.Context().Err()) })}
	return &http.Response{StatusCode: 200, Status: "200 OK", Header: http.Header{}, Body: body}, nil
}

// firstWrite answers the request with the first byte of the stream.
type firstWrite struct {
	w     io.Writer
	once  sync.Once
	ready chan<- error
}

func (f *firstWrite) Write(p []byte) (int, error) {
	f.once.Do(func() { f.ready <- nil })
	return f.w.Write(p)
}

type cutBody struct {
	*io.PipeReader
	stop func() bool
}

func (b *cutBody) Close() error {
	b.stop()
	return b.PipeReader.Close()
}

// events writes the events from..to.
func events(w io.Writer, from, to int64) {
	for seq := from; seq <= to; seq++ {
		raw, _ := json.Marshal(session.Event{Session: "ses_1", Seq: seq, Run: "run_1", Data: session.TextDelta{Message: "m", Text: fmt.Sprint(seq)}})
		fmt.Fprintf(w, "id: %d\ndata: %s\n\n", seq, raw)
	}
}

func (s *logServer) client(t *testing.T) *Client {
	t.Helper()
	c, err := New("http://holdfast.test")
	if err != nil {
		t.Fatal(err)
	}
	c.http = &http.Client{Transport: s}
	return c
}

// follow follows from a cursor until the event with the seq last, or to the end.
func follow(t *testing.T, c *Client, after, last int64) []Update {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	var got []Update
	for u := range c.Follow(ctx, "ses_1", after) {
		got = append(got, u)
		if e, ok := u.(Event); ok && e.Seq == last {
			break
		}
	}
	if ctx.Err() != nil {
		t.Fatal("it did not come to its end")
	}
	return got
}

// seqs are the seqs of the events among updates, which must join from after on.
func seqs(t *testing.T, after int64, updates []Update) (last int64) {
	t.Helper()
	for _, u := range updates {
		switch u := u.(type) {
		case Event:
			if u.Seq != after+1 {
				t.Fatalf("%d came after %d", u.Seq, after)
			}
			after = u.Seq
		case Folded:
			after = u.To
		}
	}
	return after
}

func TestEveryEventIsGivenOnceHoweverOftenTheConnectionBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const head = 40
		// Each connection breaks after n more events, in the middle of the next frame.
		s := &logServer{connect: func(_ context.Context, n int, after int64, w io.Writer) error {
			to := min(after+int64(n), head)
			events(w, after+1, to)
			_, _ = io.WriteString(w, `data: {"session":"ses_1","se`)
			return syscall.ECONNRESET
		}}
		got := follow(t, s.client(t), 3, head)
		if last := seqs(t, 3, got); last != head {
			t.Errorf("it ended at %d", last)
		}
		lost, back := 0, 0
		for _, u := range got {
			switch u.(type) {
			case Lost:
				lost++
			case Back:
				back++
			}
		}
		if lost == 0 || lost != back {
			t.Errorf("lost %d times and back %d times", lost, back)
		}
	})
}

func TestRepeatedFramesAreGivenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &logServer{connect: func(ctx context.Context, _ int, after int64, w io.Writer) error {
			events(w, 1, after+2) // from the beginning, whatever was asked
			events(w, after+1, 9)
			<-ctx.Done()
			return ctx.Err()
		}}
		if last := seqs(t, 4, follow(t, s.client(t), 4, 9)); last != 9 {
			t.Errorf("it ended at %d", last)
		}
	})
}

func TestAGapSendsTheReaderBackWithItsCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &logServer{connect: func(ctx context.Context, n int, after int64, w io.Writer) error {
			if n == 1 {
				events(w, 1, 2)
				events(w, 4, 5)
			} else {
				events(w, after+1, 5)
			}
			<-ctx.Done()
			return ctx.Err()
		}}
		if last := seqs(t, 0, follow(t, s.client(t), 0, 5)); last != 5 {
			t.Errorf("it ended at %d", last)
		}
		if got := fmt.Sprint(s.afters); got != "[0 2]" {
			t.Errorf("it asked after %s", got)
		}
	})
}

func TestFoldedRangesMoveTheCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &logServer{connect: func(_ context.Context, n int, after int64, w io.Writer) error {
			if n == 1 {
				events(w, 1, 1)
				fmt.Fprintf(w, "id: 7\ndata: {\"type\":\"folded\",\"session\":\"ses_1\",\"from\":2,\"to\":7,\"into\":\"m\"}\n\n")
				return io.EOF
			}
			events(w, after+1, 8)
			return io.EOF
		}}
		if last := seqs(t, 0, follow(t, s.client(t), 0, 8)); last != 8 {
			t.Errorf("it ended at %d", last)
		}
		if got := fmt.Sprint(s.afters); got != "[0 7]" {
			t.Errorf("it asked after %s", got)
		}
	})
}

func TestAResetBeginsAgainAtOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &logServer{connect: func(ctx context.Context, _ int, _ int64, w io.Writer) error {
			fmt.Fprintf(w, "data: {\"type\":\"reset\",\"session\":\"ses_1\",\"head\":2}\n\n")
			events(w, 1, 2)
			<-ctx.Done()
			return ctx.Err()
		}}
		got := follow(t, s.client(t), 100, 2)
		if r, ok := got[0].(Reset); !ok || r.Head != 2 || len(got) != 3 {
			t.Errorf("got %v", got)
		}
	})
}

func TestADeletedSessionIsNotSoughtAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &logServer{connect: func(_ context.Context, _ int, _ int64, w io.Writer) error {
			_, err := fmt.Fprintf(w, "data: {\"type\":\"deleted\",\"session\":\"ses_1\"}\n\n")
			return err
		}}
		got := follow(t, s.client(t), 0, 0)
		if _, ok := got[len(got)-1].(Deleted); !ok || s.n != 1 {
			t.Errorf("after %d connections: %v", s.n, got)
		}
	})
}

func TestARefusalEndsTheFollowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &logServer{connect: func(context.Context, int, int64, io.Writer) error {
			return &api.Problem{Status: 404, Code: api.NotFound, Detail: "it does not exist"}
		}}
		got := follow(t, s.client(t), 0, 0)
		refused, ok := got[0].(Refused)
		if !ok || !Is(refused.Err, api.NotFound) || len(got) != 1 {
			t.Errorf("got %v", got)
		}
	})
}

func TestAServerThatIsAwayIsSoughtLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const away = 12
		s := &logServer{connect: func(ctx context.Context, n int, _ int64, w io.Writer) error {
			switch {
			case n <= away:
				return syscall.ECONNREFUSED
			case n == away+1:
				return &api.Problem{Status: 503, Code: api.Unavailable, RetryAfterMs: 20_000}
			}
			events(w, 1, 1)
			<-ctx.Done()
			return ctx.Err()
		}}
		got := follow(t, s.client(t), 0, 1)
		for i := 1; i < away; i++ {
			wait := s.at[i].Sub(s.at[i-1])
			most := min(firstWait<<(i-1), lastWait)
			if wait < most/2 || wait > most {
				t.Errorf("the wait after %d failures is %v, of at most %v", i, wait, most)
			}
		}
		if wait := s.at[away+1].Sub(s.at[away]); wait < 20*time.Second {
			t.Errorf("the server asked for 20s and got %v", wait)
		}
		last := got[len(got)-2]
		if back, ok := last.(Back); !ok || back.After < 20*time.Second {
			t.Errorf("before the event came %v", last)
		}
	})
}

func TestAGoodbyeNamesTheTimeToComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &logServer{connect: func(ctx context.Context, n int, after int64, w io.Writer) error {
			fmt.Fprintf(w, "retry: 1000\n\n")
			if n == 1 {
				events(w, 1, 1)
				fmt.Fprintf(w, "retry: 5000\n: goodbye\n\n")
				return io.EOF
			}
			events(w, after+1, 2)
			<-ctx.Done()
			return ctx.Err()
		}}
		follow(t, s.client(t), 0, 2)
		if wait := s.at[1].Sub(s.at[0]); wait != 5*time.Second {
			t.Errorf("it came back after %v", wait)
		}
	})
}

func TestSilenceIsABrokenConnectionAndHeartbeatsAreLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &logServer{connect: func(ctx context.Context, n int, after int64, w io.Writer) error {
			if n == 1 { // heartbeats for five minutes, then nothing
				for range 20 {
					fmt.Fprintf(w, ": hb\n\n")
					time.Sleep(15 * time.Second) // virtual
				}
				<-ctx.Done()
				return ctx.Err()
			}
			events(w, after+1, 1)
			<-ctx.Done()
			return ctx.Err()
		}}
		began := time.Now()
		got := follow(t, s.client(t), 0, 1)
		lost, ok := got[0].(Lost)
		if !ok || !errors.Is(lost.Err, errSilent) {
			t.Fatalf("got %v", got)
		}
		if held := s.at[1].Sub(began) - lost.Wait; held < 5*time.Minute || held > 5*time.Minute+silence {
			t.Errorf("the connection was held for %v", held)
		}
	})
}

func TestALeavingReaderLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, away := range []bool{false, true} {
			ctx, cancel := context.WithCancel(t.Context())
			s := &logServer{connect: func(ctx context.Context, _ int, _ int64, w io.Writer) error {
				if away {
					return syscall.ECONNREFUSED
				}
				events(w, 1, 1)
				<-ctx.Done()
				return ctx.Err()
			}}
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range s.client(t).Follow(ctx, "ses_1", 0) {
				}
			}()
			synctest.Wait()
			cancel()
			<-done
		}
	})
}
