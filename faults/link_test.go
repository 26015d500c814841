package faults

import (
	"context"
	"net"
	"sync"
	"testing"
)

// link is a TCP proxy between a node and a service, which a drill cuts or lets stall.
type link struct {
	listener net.Listener
	to       string
	work     sync.WaitGroup

	mu    sync.Mutex
	down  bool
	flows chan struct{} // closed while bytes pass
	conns map[net.Conn]bool
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	var lc net.ListenConfig
	listener, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener, to: to, flows: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(l.flows)
	l.work.Go(l.serve)
	t.Cleanup(func() { listener.Close(); l.mend(); l.cut(); l.work.Wait() })
	return l
}

// addr is where the service is reached over the link.
func (l *link) addr() string { return l.listener.Addr().String() }

// cut ends every connection, and every new one at once, until the link is mended.
// It gives how many there were.
func (l *link) cut() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	for c := range l.conns {
		c.Close()
	}
	return len(l.conns)
}

// stall lets connections stand and no byte pass, as when packets are dropped.
func (l *link) stall() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flows = make(chan struct{})
}

// mend ends a cut or a stall. What was held back arrives.
func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
	select {
	case <-l.flows:
	default:
		close(l.flows)
	}
}

func (l *link) serve() {
	for {
		c, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.work.Go(func() { l.carry(c) })
	}
}

func (l *link) carry(c net.Conn) {
	defer c.Close()
	if !l.hold(c) {
		return
	}
	defer l.release(c)
	var d net.Dialer
	up, err := d.DialContext(context.Background(), "tcp", l.to)
	if err != nil {
		return
	}
	defer up.Close()
	back := make(chan struct{})
	go func() { defer close(back); l.pump(c, up); c.Close() }()
	l.pump(up, c)
	up.Close()
	<-back
}

func (l *link) hold(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.down {
		l.conns[c] = true
	}
	return !l.down
}

func (l *link) release(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// pump passes bytes on in one direction, while they may pass.
func (l *link) pump(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			l.mu.Lock()
			flows := l.flows
			l.mu.Unlock()
			<-flows
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
