package mcp

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
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// maxMessage bounds one message of a server, in bytes.
	maxMessage = 32 << 20
	// maxSaid bounds a line, and what is remembered, of a server's error output.
	maxSaid = 2 << 10
	// writeTimeout is how long a server may take to read what it is told.
	writeTimeout = 10 * time.Second
)

// errTooLong is the end of a connection whose server says too much at once.
var errTooLong = fmt.Errorf("a message of the server is longer than %d MiB", maxMessage>>20)

// stdioLink is a child process in a process group of its own.
type stdioLink struct {
	config Config
	grace  time.Duration
	log    *slog.Logger

	cmd                   atomic.Pointer[exec.Cmd] // nil: it was never started
	stdin, stdout, stderr *os.File
	exited                chan struct{} // closed when the process has ended
	err                   error         // how it ended; read after exited
	said                  chan struct{} // closed when its error output is read to the end
	lastWords             tail
	tooLong               atomic.Bool
	closing               sync.Once
}

func newStdioLink(c Config, grace time.Duration, log *slog.Logger) *stdioLink {
	return &stdioLink{config: c, grace: grace, log: log, exited: make(chan struct{}), said: make(chan struct{})}
}

// Connect starts the process.
func (l *stdioLink) Connect(ctx context.Context) (sdk.Connection, error) {
	if err := l.start(); err != nil {
		return nil, err
	}
	transport := &sdk.IOTransport{
		Reader: &lines{from: bufio.NewReaderSize(l.stdout, 64<<10), close: l.stdout.Close, tooLong: &l.tooLong, log: l.log},
		Writer: hasty{l.stdin, l.cut}, MaxLineLength: -1, // lines bounds it
	}
	return transport.Connect(ctx)
}

func (l *stdioLink) start() error {
	env, err := l.config.environment()
	if err != nil {
		return err
	}
	cmd := exec.Command(l.config.Command[0], l.config.Command[1:]...) //nolint:gosec,noctx // the operator's command; close ends it
	cmd.Env, cmd.Dir = env, l.config.Dir
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}()
	pipe := func(in bool) (ours *os.File) {
		if err != nil {
			return nil
		}
		r, w, failed := os.Pipe()
		if err = failed; err != nil {
			return nil
		}
		if in {
			theirs, cmd.Stdin = append(theirs, r), r
			return w
		}
		theirs = append(theirs, w)
		if cmd.Stdout == nil {
			cmd.Stdout = w
		} else {
			cmd.Stderr = w
		}
		return r
	}
	l.stdin, l.stdout, l.stderr = pipe(true), pipe(false), pipe(false)
	if err == nil {
		own(cmd)
		err = l.launch(cmd)
	}
	if err != nil {
		for _, f := range []*os.File{l.stdin, l.stdout, l.stderr} {
			if f != nil {
				_ = f.Close()
			}
		}
		return fmt.Errorf("start %s: %w", l.config.where(), err)
	}
	l.cmd.Store(cmd)
	go l.listen()
	return nil
}

// launch starts the process and waits for its end. Both are one thread's work:
// on Linux the process is killed when the thread that started it ends, so that
// it does not outlive this process, however that ends.
func (l *stdioLink) launch(cmd *exec.Cmd) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		l.err = cmd.Wait()
		kill(cmd) // whoever it left behind
		close(l.exited)
	}()
	return <-started
}

// listen reads what the server says beside the protocol.
func (l *stdioLink) listen() {
	defer close(l.said)
	reader := bufio.NewReaderSize(l.stderr, maxSaid)
	for {
		line, _, err := reader.ReadLine() // longer lines come in pieces
		if err != nil {
			return
		}
		text := visible(string(line))
		l.lastWords.add(text)
		l.log.Debug("an MCP server says", slog.String("text", text))
	}
}

func (l *stdioLink) gone() <-chan struct{} { return l.exited }

func (l *stdioLink) cut() { l.signal(kill) }

// signal sends a signal to the process, if there is one.
func (l *stdioLink) signal(send func(*exec.Cmd)) {
	cmd := l.cmd.Load()
	if cmd == nil {
		return
	}
	select {
	case <-l.exited:
	default:
		send(cmd)
	}
}

// close closes the process's input, which tells it to end; then it is told, then killed.
func (l *stdioLink) close() {
	if l.cmd.Load() == nil {
		return
	}
	l.closing.Do(func() {
		_ = l.stdin.Close()
		if !l.ends() {
			l.signal(terminate)
			if !l.ends() {
				l.signal(kill)
			}
		}
		<-l.exited
		_ = l.stdout.Close()
		_ = l.stderr.Close()
		<-l.said
	})
}

func (l *stdioLink) ends() bool {
	timer := time.NewTimer(l.grace)
	defer timer.Stop()
	select {
	case <-l.exited:
		return true
	case <-timer.C:
		return false
	}
}

// lost tells how the process ended, if it did.
func (l *stdioLink) lost(err error) error {
	if l.tooLong.Load() {
		return errTooLong
	}
	if l.cmd.Load() == nil {
		return err
	}
	// An end of its output is most often its own end, a moment before.
	timer := time.NewTimer(100 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-l.exited:
	case <-timer.C:
		return err
	}
	ended := &endedError{how: "its process ended", words: l.lastWords.String()}
	if l.err != nil {
		ended.how += ": " + l.err.Error()
	}
	return ended
}

// endedError is the end of a process.
type endedError struct {
	how   string
	words string // what it said last, which is for the log only: there may be secrets in it
}

func (e *endedError) Error() string {
	if e.words == "" {
		return e.how
	}
	return e.how + "; it said last: " + e.words
}

// brief is an error as a model is told it.
func brief(err error) string {
	if ended := (*endedError)(nil); errors.As(err, &ended) {
		return ended.how
	}
	return bounded(err.Error(), 500)
}

// hasty is a pipe to a server that must read what it is told, or is cut off.
type hasty struct {
	*os.File
	cut func()
}

func (h hasty) Write(p []byte) (int, error) {
	if err := h.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil && !errors.Is(err, os.ErrNoDeadline) {
		return 0, err
	}
	n, err := h.File.Write(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		h.cut()
	}
	return n, err
}

// lines reads a server's output: whole lines of valid UTF-8 that may be JSON.
// What else a server prints there, greetings and logs, is no reason to break.
type lines struct {
	from    *bufio.Reader
	close   func() error
	tooLong *atomic.Bool
	log     *slog.Logger
	line    []byte // what is left of the line that is being read
	noisy   bool
}

func (l *lines) Close() error { return l.close() }

func (l *lines) Read(p []byte) (int, error) {
	for len(l.line) == 0 {
		line, err := l.next()
		if err != nil {
			return 0, err
		}
		switch trimmed := bytes.TrimSpace(line); {
		case len(trimmed) == 0:
		case trimmed[0] == '{' || trimmed[0] == '[':
			l.line = append(bytes.ToValidUTF8(trimmed, []byte("\uFFFD")), '\n')
		case !l.noisy:
			l.noisy = true
			l.log.Warn("an MCP server prints to its output what is no protocol; it is ignored", slog.String("text", bounded(string(trimmed), 200)))
		}
	}
	n := copy(p, l.line)
	l.line = l.line[n:]
	return n, nil
}

func (l *lines) next() ([]byte, error) {
	var line []byte
	for {
		piece, err := l.from.ReadSlice('\n')
		line = append(line, piece...)
		switch {
		case len(line) > maxMessage:
			l.tooLong.Store(true)
			return nil, errTooLong
		case err == nil:
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(bytes.TrimSpace(line)) > 0:
			return line, nil // the end comes with the next read
		default:
			return nil, err
		}
	}
}

// tail is the end of what a server said.
type tail struct {
	mu   sync.Mutex
	text []byte // guarded by mu
}

func (t *tail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.text) > 0 {
		t.text = append(t.text, " | "...)
	}
	t.text = append(t.text, line...)
	if over := len(t.text) - maxSaid; over > 0 {
		t.text = append([]byte(nil), t.text[over:]...)
	}
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bounded(string(t.text[max(0, len(t.text)-500):]), 500)
}
