package sqlite_test

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/sqlite"
	"github.com/holdfast-run/holdfast/store/storetest"
)

func TestNothingAcknowledgedIsLostWhenTheProcessIsKilled(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 20
	}
	dir := t.TempDir()
	storetest.Crash(t, rounds, func(args ...string) *exec.Cmd {
		cmd := exec.Command(os.Args[0], append([]string{dir}, args...)...)
		cmd.Env = append(os.Environ(), childEnv+"=crash")
		return cmd
	}, func(t *testing.T) store.Store { return open(t, dir, sqlite.Options{}) })
}

func crashChild(args []string) int {
	return storetest.CrashChild(func(opts store.Options) (store.Store, error) {
		return sqlite.Open(context.Background(), args[0], sqlite.Options{
			Options:   opts,
			TailBytes: 32 << 10, // so that events settle all the time
			// Fewer than there are, so that sessions are thrown out and loaded again.
			CachedSessions: storetest.CrashSessions - 2,
		})
	}, args[1:])
}
