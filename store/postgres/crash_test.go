package postgres_test

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/holdfast-run/holdfast/internal/pgtest"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/postgres"
	"github.com/holdfast-run/holdfast/store/storetest"
)

func TestNothingAcknowledgedIsLostWhenTheProcessIsKilled(t *testing.T) {
	rounds := 100
	if testing.Short() {
		rounds = 10
	}
	url := pgtest.New(t)
	storetest.Crash(t, rounds, func(args ...string) *exec.Cmd { return child("crash", append([]string{url}, args...)...) },
		func(t *testing.T) store.Store { return open(t, url, postgres.Options{}) })
}

func crashChild(args []string) int {
	return storetest.CrashChild(func(opts store.Options) (store.Store, error) {
		// Fewer than there are, so that sessions are thrown out and loaded again.
		return postgres.Open(context.Background(), args[0], postgres.Options{Options: opts, CachedSessions: storetest.CrashSessions - 2})
	}, args[1:])
}

// child is this binary as a process of its own.
func child(role string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), childEnv+"="+role)
	return cmd
}
