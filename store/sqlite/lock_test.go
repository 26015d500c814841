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
	"github.com/holdfast-run/holdfast/store/storetest"
)

// owner is a child process that owns a directory until its standard input is closed.
func owner(t *testing.T, dir string) (cmd *exec.Cmd, stdin io.Closer) {
	t.Helper()
	cmd = exec.Command(os.Args[0], dir)
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
	return cmd, stdin
}

func TestASecondProcessIsToldWhoOwnsTheDirectory(t *testing.T) {
	dir := t.TempDir()
	cmd, stdin := owner(t, dir)
	_, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
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

func TestWhatAKilledOwnerHasLeftCanBeReadBeforeAnybodyOwnsItAgain(t *testing.T) {
	dir := t.TempDir()
	cmd, _ := owner(t, dir)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	s := open(t, dir, sqlite.Options{ReadOnly: true})
	if head, err := s.Head(t.Context(), "ses_1"); err != nil || head == 0 {
		t.Errorf("the log ends at seq %d, %v", head, err)
	}
	storetest.Sound(t, s, "ses_1")
}

// holdChild writes a session and owns the directory until its standard input ends.
func holdChild(args []string) int {
	s, err := sqlite.Open(context.Background(), args[0], sqlite.Options{})
	if err != nil {
		return 1
	}
	defer s.Close()
	if _, err := s.Append(context.Background(), "ses_1", storetest.Submit("msg_1", "run_1").Decide); err != nil {
		return 1
	}
	_, _ = os.Stdout.WriteString("open\n")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}
