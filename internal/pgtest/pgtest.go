//go:build unix

// Package pgtest gives tests a real PostgreSQL: one server for the test binary,
// a fresh database for each test that asks.
//
// A server ends with the test binary, however that ends: a shell beside it
// waits for the end of a pipe that only the binary holds. Where PostgreSQL is
// not installed tests fail and say how to install it.
//
// Servers run with fsync=off unless they are told otherwise: the tests kill
// processes, not machines, and what a killed process has written the system
// still has. A benchmark wants [Durable].
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Durable are the settings of a server whose commits survive a power cut.
var Durable = []string{"fsync=on", "full_page_writes=on"}

// Server is a PostgreSQL server of a test.
type Server struct {
	dir, bin string
	port     int
	settings []string
	run      *exec.Cmd
	hold     *os.File // the pipe: the server runs until it is closed
}

var shared = sync.OnceValues(func() (*Server, error) { return newServer(nil) })

// New gives the URL of a fresh database on the test binary's server. It goes
// when the test ends.
func New(tb testing.TB) string {
	tb.Helper()
	s, err := shared()
	if err != nil {
		tb.Fatal(err)
	}
	return s.New(tb)
}

// Start gives a server for this test alone, which may stop and start it.
// Settings are written as in postgresql.conf, such as "fsync=on".
func Start(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	s, err := newServer(settings)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.end("") })
	return s
}

var databases atomic.Int64

// New gives the URL of a fresh database on the server. It goes when the test ends.
func (s *Server) New(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("test_%d", databases.Add(1))
	s.do(tb, "CREATE DATABASE "+name)
	tb.Cleanup(func() {
		if s.run != nil {
			s.do(tb, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
		}
	})
	return s.url(name)
}

// Stop ends the server at once, as a crash does: transactions under way are lost, what is committed is kept.
func (s *Server) Stop(tb testing.TB) {
	tb.Helper()
	if err := s.end("keep\n"); err != nil {
		tb.Fatalf("stop PostgreSQL: %v", err)
	}
}

// Start starts a server that was stopped, on the same port.
func (s *Server) Start(tb testing.TB) {
	tb.Helper()
	if err := s.start(); err != nil {
		tb.Fatal(err)
	}
}

// Freeze stops the server in its tracks: connections stay, and nothing is answered.
func (s *Server) Freeze(tb testing.TB) { s.signal(tb, syscall.SIGSTOP) }

// Thaw lets a frozen server go on.
func (s *Server) Thaw(tb testing.TB) { s.signal(tb, syscall.SIGCONT) }

// signal reaches the server and its processes, one for each connection.
func (s *Server) signal(tb testing.TB, signal syscall.Signal) {
	tb.Helper()
	raw, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		tb.Fatal(err)
	}
	first, _, _ := strings.Cut(string(raw), "\n")
	parent, err := strconv.Atoi(first)
	if err != nil {
		tb.Fatal(err)
	}
	out, _ := exec.Command("pgrep", "-P", first).Output() //nolint:noctx // an error says that there are none
	if err := syscall.Kill(parent, signal); err != nil {
		tb.Fatal(err)
	}
	for pid := range strings.FieldsSeq(string(out)) {
		if n, err := strconv.Atoi(pid); err == nil {
			_ = syscall.Kill(n, signal) // it may have ended
		}
	}
}

func (s *Server) url(database string) string {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)), Path: "/" + database}
	return u.String()
}

func (s *Server) do(tb testing.TB, query string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	db, err := pgx.Connect(ctx, s.url("postgres"))
	if err != nil {
		tb.Fatalf("connect to PostgreSQL: %v\n%s", err, s.log())
	}
	defer func() { _ = db.Close(ctx) }()
	if _, err := db.Exec(ctx, query); err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
}

func newServer(settings []string) (*Server, error) {
	bin, err := installed()
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, settings: settings}
	if s.dir, err = os.MkdirTemp("", "pgtest"); err != nil {
		return nil, err
	}
	if id := who(); id != nil {
		if err := os.Chown(s.dir, int(id.Uid), int(id.Gid)); err != nil {
			return nil, err
		}
	}
	initdb := s.command(filepath.Join(bin, "initdb"), "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return s, s.start()
}

// installed finds PostgreSQL's programs, the newest that Debian has if they are not on the path.
func installed() (dir string, err error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path), nil
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", errors.New("PostgreSQL is not installed, and these tests need a real one: apt-get install -y postgresql")
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(strings.Split(path, "/")[4])
		return n
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })), nil
}

// who PostgreSQL runs as: it refuses root. nil: as this user.
func who() *syscall.Credential {
	if os.Getuid() != 0 {
		return nil
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		return &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	uid, _ := strconv.ParseUint(nobody.Uid, 10, 32)
	gid, _ := strconv.ParseUint(nobody.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...) //nolint:noctx // it lives as long as the test binary
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who(), Setpgid: true}
	return cmd
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// untilTheEnd runs a server until its input ends, and then removes the folder unless it was told to keep it.
const untilTheEnd = `
dir=$1; shift
"$@" >>"$dir/log" 2>&1 &
pid=$!
read word
kill -QUIT $pid 2>/dev/null
wait $pid
[ "$word" = keep ] || rm -rf "$dir"`

func (s *Server) start() error {
	var err error
	for range 3 { // a free port may be taken before the server has it
		if s.port == 0 {
			if s.port, err = freePort(); err != nil {
				return err
			}
		}
		if err = s.launch(); err == nil {
			return nil
		}
		s.port = 0
	}
	return fmt.Errorf("start PostgreSQL: %w\n%s", err, s.log())
}

func (s *Server) launch() error {
	args := []string{"-c", untilTheEnd, "sh", s.dir, filepath.Join(s.bin, "postgres"), "-D", s.data(), "-p", strconv.Itoa(s.port)}
	for _, setting := range append([]string{
		"listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=200", "shared_buffers=64MB",
		"fsync=off", "full_page_writes=off", "logging_collector=off",
	}, s.settings...) {
		args = append(args, "-c", setting)
	}
	cmd := s.command("/bin/sh", args...)
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdin = read
	err = cmd.Start()
	read.Close()
	if err != nil {
		write.Close()
		return err
	}
	s.run, s.hold = cmd, write
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		db, err := pgx.Connect(ctx, s.url("postgres"))
		if err == nil {
			return db.Close(ctx)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(err, s.end("keep\n"))
		}
	}
}

// end ends the server and waits until it is gone.
func (s *Server) end(word string) error {
	if s.run == nil {
		return nil
	}
	_, err := s.hold.WriteString(word)
	err = errors.Join(err, s.hold.Close())
	_ = s.run.Wait() // the shell's exit code says nothing of use
	s.run = nil
	return err
}

func (s *Server) log() string {
	raw, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return string(raw[max(0, len(raw)-4000):])
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
