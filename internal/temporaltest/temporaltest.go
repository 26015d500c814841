// Package temporaltest gives tests a real Temporal server: one for the test
// binary, or one that a test may kill and start again.
//
// The server is bin/temporal, which "make bin/temporal" builds from
// tools/temporal. Where it is missing tests fail and say so. It ends with the
// test binary, however that ends.
package temporaltest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	temporallog "go.temporal.io/sdk/log"
)

// startTime is more than a start takes.
const startTime = time.Minute

// Server is a Temporal server of a test.
type Server struct {
	file, address string // file: where its state is kept; empty: nowhere, after its end
	run           *exec.Cmd
	hold          io.Closer // its standard input: it runs until that ends
	said          *bytes.Buffer
}

var shared = sync.OnceValues(func() (*Server, error) { return newServer("") })

// Address is where the test binary's server listens.
func Address(tb testing.TB) string {
	tb.Helper()
	s, err := shared()
	if err != nil {
		tb.Fatal(err)
	}
	return s.address
}

// Start gives a server for this test alone, which may kill and start it.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s, err := newServer(filepath.Join(tb.TempDir(), "temporal.db"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Kill)
	return s
}

// Address is where the server listens, also after it was started again.
func (s *Server) Address() string { return s.address }

// Kill ends the server at once.
func (s *Server) Kill() {
	if s.run == nil {
		return
	}
	_ = s.run.Process.Kill()
	_ = s.run.Wait()
	_ = s.hold.Close()
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

// Start starts a server that was killed, at the same address.
func (s *Server) Start(tb testing.TB) {
	tb.Helper()
	if err := s.start(); err != nil {
		tb.Fatal(err)
	}
}

// Dial gives a client of the server at an address. It is closed when the test ends.
func Dial(tb testing.TB, address string) client.Client {
	tb.Helper()
	c, err := client.Dial(client.Options{
		HostPort: address, Logger: temporallog.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

func newServer(file string) (s *Server, err error) {
	s = &Server{file: file}
	for range 3 { // another process may have taken a port
		if err = s.start(); err == nil {
			return s, nil
		}
	}
	return nil, err
}

func (s *Server) start() error {
	_, here, _, _ := runtime.Caller(0)
	binary := filepath.Join(filepath.Dir(here), "../../bin/temporal")
	if _, err := os.Stat(binary); err != nil {
		return fmt.Errorf("these tests need a Temporal server, which \"make bin/temporal\" builds: %w", err)
	}
	port := "0"
	if _, p, ok := strings.Cut(s.address, ":"); ok {
		port = p
	}
	run := exec.Command(binary, "-held", "-port", port, "-db", s.file, "-log", "warn") //nolint:noctx // it lives as long as the test binary
	hold, err := run.StdinPipe()
	if err != nil {
		return err
	}
	out, err := run.StdoutPipe()
	if err != nil {
		return err
	}
	s.said = &bytes.Buffer{}
	run.Stderr = s.said
	if err := run.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = run.Process.Kill() })
	defer stop()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if address, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			s.address, s.run, s.hold = address, run, hold
			return nil
		}
	}
	err = errors.Join(context.Cause(ctx), run.Wait())
	return fmt.Errorf("the Temporal server did not start: %w\n%s", err, s.said)
}
