package faults

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binary is faultsd, built once for all tests.
var binary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "faults")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "faultsd")
		build := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "./faultsd")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "build faultsd:", err)
			return 1
		}
		return m.Run()
	}())
}

// process is one run of the binary.
type process struct {
	cmd  *exec.Cmd
	url  string
	done chan struct{} // closed when it has ended
	err  error         // how it ended; read after done
	mu   sync.Mutex
	log  strings.Builder // its log, guarded by mu
}

// What a process says when it is ready: a server where it listens, a worker that it carries.
var listening = regexp.MustCompile(`(http://127\.0\.0\.1:\d+|Holdfast carries runs)`)

// start starts a server over dir on the given port (0: a free one).
func start(t *testing.T, dir, config string, port int, env ...string) *process {
	t.Helper()
	return launch(t, dir, config, env, "serve", "--listen", fmt.Sprintf("127.0.0.1:%d", port))
}

// launch starts the binary over dir.
func launch(t *testing.T, dir, config string, env []string, args ...string) *process {
	t.Helper()
	p := &process{done: make(chan struct{})}
	p.cmd = exec.Command(binary, append(args, "--data", filepath.Join(dir, "data"), "--config", config, "--log-level", "info")...)
	p.cmd.Env = append(os.Environ(), append([]string{"LEDGER=" + filepath.Join(dir, "ledger"), "FAKE_KEY=sk-fake-secret", "HTTP_SECRET=whsec_" + httpSecret}, env...)...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan string, 1)
	var readers sync.WaitGroup
	readers.Go(func() {
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			if m := listening.FindString(lines.Text()); m != "" {
				select {
				case ready <- m:
				default:
				}
			}
		}
	})
	readers.Go(func() { _, _ = io.Copy(writerFunc(p.write), stderr) })
	go func() {
		readers.Wait()
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	select {
	case p.url = <-ready:
	case <-p.done:
		t.Fatalf("the server ended at once: %v\n%s", p.err, p.logged())
	case <-timer.C:
		t.Fatalf("the server does not start\n%s", p.logged())
	}
	t.Cleanup(func() {
		p.signal(syscall.SIGCONT)
		p.kill()
		if t.Failed() {
			t.Logf("the log of the server:\n%s", tail(p.logged(), 12_000))
		}
	})
	return p
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func (p *process) write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *process) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// kill is a crash, and waits until it is over.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// stop asks the process to shut down, and waits until it has.
func (p *process) stop(t *testing.T) {
	t.Helper()
	p.signal(syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	select {
	case <-p.done:
		if p.err != nil {
			t.Errorf("the server shut down with %v", p.err)
		}
	case <-ctx.Done():
		t.Fatal("the server does not shut down")
	}
}

// ended waits until the process has ended by itself.
func (p *process) ended(t *testing.T) {
	t.Helper()
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		t.Fatal("the server did not end")
	}
}
