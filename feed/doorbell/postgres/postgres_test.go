package postgres_test

import (
	"context"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast/feed/doorbell"
	"github.com/holdfast-run/holdfast/feed/doorbell/doorbelltest"
	"github.com/holdfast-run/holdfast/feed/doorbell/postgres"
	"github.com/holdfast-run/holdfast/internal/pgtest"
	"github.com/holdfast-run/holdfast/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newBell(t *testing.T, url string, probe time.Duration) *postgres.Bell {
	t.Helper()
	b, err := postgres.New(url, postgres.Options{Probe: probe, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTheContractOfADoorbell(t *testing.T) {
	url := pgtest.New(t)
	doorbelltest.Exercise(t, func(t *testing.T) doorbell.Bell { return newBell(t, url, 0) })
}

// hear runs a bell until the test ends.
func hear(t *testing.T, b *postgres.Bell) <-chan doorbell.Ring {
	rings := make(chan doorbell.Ring, 10_000)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx, func(r doorbell.Ring) { rings <- r }) }()
	t.Cleanup(func() { cancel(); <-ended })
	if r := <-rings; r.Session != "" {
		t.Errorf("the first ring is %+v", r)
	}
	return rings
}

// ringUntil rings until the other bell hears it, and gives how long that took.
func ringUntil(t *testing.T, from *postgres.Bell, to <-chan doorbell.Ring) time.Duration {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for time.Since(began) < 30*time.Second {
		from.Ring(store.Commit{Session: "ses_1"})
		select {
		case r := <-to:
			if r.Session == "ses_1" {
				return time.Since(began)
			}
		case <-tick.C:
		}
	}
	t.Fatal("no ring came through any more")
	return 0
}

func TestST03ABellWhoseConnectionsAreKilledRingsAgain(t *testing.T) {
	url := pgtest.New(t)
	a, b := newBell(t, url, 0), newBell(t, url, 0)
	hear(t, a)
	rings := hear(t, b)
	killer, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer killer.Close(context.Background())
	for range 5 {
		ringUntil(t, a, rings)
		var killed int
		if err := killer.QueryRow(t.Context(), `
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'holdfast doorbell' AND datname = current_database()`).Scan(&killed); err != nil {
			t.Fatal(err)
		}
		if killed < 2 {
			t.Errorf("only %d connections were killed", killed)
		}
		for missed := false; !missed; { // that rings may have been missed is said
			r := <-rings
			missed = r.Session == ""
		}
		if took := ringUntil(t, a, rings); took > 5*time.Second {
			t.Errorf("it was out of order for %v", took)
		}
	}
}

func TestST03AConnectionThatDiesWithoutAWordIsFound(t *testing.T) {
	url := pgtest.New(t)
	wire, through := newWire(t, url)
	a, b := newBell(t, url, 0), newBell(t, through, 50*time.Millisecond)
	hear(t, a)
	rings := hear(t, b)
	ringUntil(t, a, rings)
	wire.silence() // as a firewall that forgets a connection
	for missed := false; !missed; {
		r := <-rings
		missed = r.Session == ""
	}
	ringUntil(t, a, rings)
}

// wire is a proxy before the database. Connections of an earlier age bring nothing more.
type wire struct{ age atomic.Int64 }

func newWire(t *testing.T, database string) (*wire, string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	server := u.Host
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u.Host = l.Addr().String()
	w := &wire{}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() { w.carry(client, server) })
		}
	})
	t.Cleanup(func() { l.Close(); work.Wait() }) // the bells have ended before, and with them their connections
	return w, u.String()
}

func (w *wire) silence() { w.age.Add(1) }

func (w *wire) carry(client net.Conn, database string) {
	defer client.Close()
	server, err := net.Dial("tcp", database)
	if err != nil {
		return
	}
	defer server.Close()
	age := w.age.Load()
	pass := func(to, from net.Conn) {
		buffer := make([]byte, 32<<10)
		for {
			n, err := from.Read(buffer)
			if err != nil {
				break
			}
			if w.age.Load() != age {
				continue
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				break
			}
		}
		to.Close()
	}
	var group sync.WaitGroup
	group.Go(func() { pass(client, server) })
	pass(server, client)
	group.Wait()
}

func TestST03ABellComesBackWithTheServer(t *testing.T) {
	server := pgtest.Start(t)
	url := server.New(t)
	a, b := newBell(t, url, 0), newBell(t, url, 0)
	hear(t, a)
	rings := hear(t, b)
	ringUntil(t, a, rings)
	server.Stop(t)
	server.Start(t)
	ringUntil(t, a, rings)
}
