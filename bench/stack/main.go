// Command stack starts what a server stands on beside its own process, and then the server:
//
//	bin/bench/stack -on redis bin/holdfast serve …
//
// PostgreSQL makes its commits durable, as SQLite does. All of it ends with the program.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"testing"

	"github.com/holdfast-run/holdfast/internal/pgtest"
	"github.com/holdfast-run/holdfast/internal/redistest"
	"github.com/holdfast-run/holdfast/internal/temporaltest"
)

func main() {
	log.SetFlags(0)
	on := flag.String("on", "postgres", "postgres, redis (with PostgreSQL), or temporal (with both)")
	flag.Parse()
	code, err := run(*on, flag.Args())
	if err != nil {
		log.Print(err)
	}
	os.Exit(code)
}

func run(on string, server []string) (code int, err error) {
	if len(server) == 0 || !slices.Contains([]string{"postgres", "redis", "temporal"}, on) {
		return 2, errors.New("usage: stack -on postgres|redis|temporal COMMAND ARGUMENT…")
	}
	parts := &parts{}
	defer parts.end()
	defer func() {
		if broken := recover(); broken != nil {
			code, err = 1, fmt.Errorf("start what the server stands on: %v", broken)
		}
	}()
	env := append(os.Environ(), "HOLDFAST_STORE="+pgtest.Start(parts, pgtest.Durable...).New(parts))
	if on != "postgres" {
		env = append(env, "HOLDFAST_REDIS="+redistest.Start(parts).URL())
	}
	if on == "temporal" {
		env = append(env, "HOLDFAST_ENGINE=temporal", "TEMPORAL_ADDRESS="+temporaltest.Start(parts).Address())
	}
	cmd := exec.Command(server[0], server[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, os.Stdout, os.Stderr
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	go func() {
		for s := range stop {
			_ = cmd.Process.Signal(s) // it may have ended
		}
	}()
	err = cmd.Wait()
	return cmd.ProcessState.ExitCode(), err
}

// parts stands in for a test, which is what the services are made for. What
// fails panics.
type parts struct {
	testing.TB
	cleanups []func()
}

func (*parts) Helper()             {}
func (*parts) Name() string        { return "stack" }
func (*parts) Logf(string, ...any) {}
func (*parts) Fatal(args ...any)   { panic(fmt.Sprint(args...)) }
func (*parts) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

func (p *parts) Cleanup(f func()) { p.cleanups = append(p.cleanups, f) }

func (p *parts) TempDir() string {
	dir, err := os.MkdirTemp("", "stack")
	if err != nil {
		panic(err)
	}
	p.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (p *parts) end() {
	for _, f := range slices.Backward(p.cleanups) {
		f()
	}
}
