//go:build unix

// Package redistest gives tests a real Redis that they may kill, freeze and
// start again. Where redis-server is not installed tests fail and say how to
// install it. A server ends with the test binary, however that ends.
package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Server is a Redis server of a test.
type Server struct {
	dir  string
	port int
	run  *exec.Cmd // nil: it does not run
	// guard kills the server when hold is closed, which is when this process ends.
	guard *exec.Cmd
	hold  io.Closer
}

// Start starts a server for this test.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{dir: tb.TempDir()}
	tb.Cleanup(s.Kill)
	if err := s.begin(); err != nil {
		tb.Fatal(err)
	}
	return s
}

// begin starts a server on a free port.
func (s *Server) begin() (err error) {
	for range 5 { // another process may take the port
		if s.port, err = freePort(); err == nil {
			if err = s.start(); err == nil {
				return nil
			}
		}
	}
	return err
}

var shared = sync.OnceValues(func() (*Server, error) {
	s := &Server{dir: os.TempDir()} // nothing is written there
	return s, s.begin()
})

// Shared gives the URL of the test binary's server, which nobody kills.
func Shared(tb testing.TB) string {
	tb.Helper()
	s, err := shared()
	if err != nil {
		tb.Fatal(err)
	}
	return s.URL()
}

// URL is where the server listens, also after it was started again.
func (s *Server) URL() string { return fmt.Sprintf("redis://127.0.0.1:%d/0", s.port) }

// Start starts a server that was killed, empty, on the same port.
func (s *Server) Start(tb testing.TB) {
	tb.Helper()
	if err := s.start(); err != nil {
		tb.Fatal(err)
	}
}

// Kill ends the server at once, with all that it holds.
func (s *Server) Kill() {
	if s.run == nil {
		return
	}
	_ = s.run.Process.Kill() // it may have ended
	_ = s.run.Wait()
	_ = s.hold.Close()
	_ = s.guard.Wait()
	s.run = nil
}

// Freeze stops the server in its tracks: connections stay, and nothing is answered.
func (s *Server) Freeze(tb testing.TB) { s.signal(tb, syscall.SIGSTOP) }

// Thaw lets a frozen server go on.
func (s *Server) Thaw(tb testing.TB) { s.signal(tb, syscall.SIGCONT) }

func (s *Server) signal(tb testing.TB, signal syscall.Signal) {
	tb.Helper()
	if err := s.run.Process.Signal(signal); err != nil {
		tb.Fatal(err)
	}
}

func (s *Server) start() error {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return fmt.Errorf("these tests need Redis (apt-get install redis-server): %w", err)
	}
	run := exec.Command(program, "--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.dir) //nolint:noctx // it lives as long as the test binary
	out, err := run.StdoutPipe()
	if err != nil {
		return err
	}
	if err := run.Start(); err != nil {
		return err
	}
	guard := exec.Command("sh", "-c", "read -r _; kill -9 $0", strconv.Itoa(run.Process.Pid)) //nolint:noctx // it lives as long as the test binary
	hold, err := guard.StdinPipe()
	if err == nil {
		err = guard.Start()
	}
	if err != nil {
		return errors.Join(err, run.Process.Kill(), run.Wait())
	}
	s.run, s.guard, s.hold = run, guard, hold
	var said strings.Builder
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		said.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "Ready to accept connections") {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return nil
		}
	}
	s.Kill()
	return fmt.Errorf("redis did not start:\n%s", &said)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
