package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/store/sqlite"
)

func TestASecondProcessIsToldWhoOwnsTheDirectory(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], dir)
	cmd.Env = append(os.Environ(), childEnv+"=hold")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "open\n" {
		t.Fatalf("the child said %q, %v", line, err)
	}
	_, err = sqlite.Open(t.Context(), dir, sqlite.Options{})
	var held *sqlite.HeldError
	if !errors.As(err, &held) || !errors.Is(err, sqlite.ErrLocked) {
		t.Fatalf("a second process got %v", err)
	}
	if held.PID != cmd.Process.Pid || held.Dir != dir || held.Host == "" || held.Since.IsZero() {
		t.Errorf("the holder is said to be %+v, and is process %d", held, cmd.Process.Pid)
	}
	if !strings.Contains(err.Error(), "stop it, or choose another directory") {
		t.Errorf("the error does not say what to do: %v", err)
	}
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	open(t, dir, sqlite.Options{})
}

// holdChild owns a directory until its standard input ends.
func holdChild(args []string) int {
	s, err := sqlite.Open(context.Background(), args[0], sqlite.Options{})
	if err != nil {
		return 1
	}
	defer s.Close()
	_, _ = os.Stdout.WriteString("open\n")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}
