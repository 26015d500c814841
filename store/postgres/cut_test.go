package postgres_test

import (
	"context"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/pgtest"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/postgres"
	"github.com/holdfast-run/holdfast/store/storetest"
)

// wire is a proxy before the database that cuts connections at a given point of the talk.
type wire struct {
	listener net.Listener
	server   string
	work     sync.WaitGroup

	mu    sync.Mutex
	trips int    // how many more messages pass before the cut; negative: no cut
	how   string // what becomes of the message after them
}

// What becomes of the message at which a connection is cut.
const (
	askLost    = "it is not delivered"
	answerLost = "it is delivered and the answer is not"
	silence    = "it is delivered and the answer does not come, but the connection stays"
)

func newWire(t *testing.T, database string) (*wire, string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: l, server: u.Host, trips: -1}
	ctx, cancel := context.WithCancel(context.Background())
	w.work.Go(func() { w.serve(ctx) })
	t.Cleanup(func() { cancel(); l.Close(); w.work.Wait() })
	u.Host = l.Addr().String()
	return w, u.String()
}

// cut cuts the connection that asks next, after so many messages.
func (w *wire) cut(trips int, how string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trips, w.how = trips, how
}

// passes says what becomes of a message.
func (w *wire) passes() (how string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.trips < 0 {
		return ""
	}
	w.trips--
	if w.trips >= 0 {
		return ""
	}
	return w.how
}

func (w *wire) serve(ctx context.Context) {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.work.Go(func() { w.carry(ctx, client) })
	}
}

func (w *wire) carry(ctx context.Context, client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", w.server)
	if err != nil {
		return
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() { client.Close(); server.Close() })
	defer stop()
	var lost atomic.Bool // answers are
	answered := make(chan struct{}, 1)
	var group sync.WaitGroup
	group.Go(func() {
		defer client.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			if err != nil {
				return
			}
			if lost.Load() { // the server has done what it was asked for
				select {
				case answered <- struct{}{}:
				default:
				}
			} else if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
	})
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			break
		}
		how := w.passes()
		if how == askLost {
			break
		}
		if how != "" {
			lost.Store(true)
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			break
		}
		if how == answerLost {
			<-answered
			break
		}
	}
	if !lost.Load() {
		server.Close() // else it is as if nobody told the server
	}
	client.Close()
	group.Wait()
}

func TestAnAppendWhoseConnectionIsCutIsThereOnce(t *testing.T) {
	database := pgtest.New(t)
	w, url := newWire(t, database)
	l := newLedger()
	s := open(t, url, postgres.Options{
		Options: store.Options{OnCommit: l.hear}, Patience: 20 * time.Second,
		StatementTimeout: 500 * time.Millisecond, LockTimeout: 500 * time.Millisecond, // when silence is too long
	})
	var want []string
	for range 2 { // the first prepares the statements, so that from then on an append takes two messages
		want = append(want, "before")
		if _, err := s.Append(t.Context(), "ses_1", note("before")); err != nil {
			t.Fatal(err)
		}
	}
	for _, trips := range []int{0, 1} {
		for _, how := range []string{askLost, answerLost, silence} {
			text := strings.ReplaceAll(how, " ", "_")
			w.cut(trips, how)
			if _, err := s.Append(t.Context(), "ses_1", note(text)); err != nil {
				t.Errorf("cut at message %d so that %s: %v", trips+1, how, err)
			}
			w.cut(-1, "")
			want = append(want, text)
			// Twice: the statements must be prepared on the new connection.
			for range 2 {
				want = append(want, "then")
				if _, err := s.Append(t.Context(), "ses_1", note("then")); err != nil {
					t.Error(err)
				}
			}
		}
	}
	if got := titles(t, s, "ses_1"); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the log says\n%s\nand not\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for seq := int64(1); seq <= int64(len(want)); seq++ {
		if l.told[seq] != 1 {
			t.Errorf("OnCommit was told of seq %d %d times", seq, l.told[seq])
		}
	}
	storetest.Sound(t, s, "ses_1")
}
