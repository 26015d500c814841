package sqlite

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// lockFile is locked while a process owns the directory. The operating system
// drops the lock when the process ends, however it ends.
const lockFile = "holdfast.lock"

// holder is what the owner writes into the lock file, for people.
type holder struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
}

// own takes the directory for this process, or says with a *HeldError who has it.
func own(dir string) (*flock.Flock, error) {
	path := filepath.Join(dir, lockFile)
	lock := flock.New(path)
	got, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if !got {
		return nil, held(dir)
	}
	host, _ := os.Hostname()
	raw, err := json.Marshal(holder{PID: os.Getpid(), Host: host, Since: time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		panic(err) // numbers, strings and times always marshal
	}
	// The name in the file helps people and decides nothing: on a full disk the lock still holds.
	_ = os.WriteFile(path, append(raw, '\n'), 0o600)
	return lock, nil
}

func held(dir string) error {
	e := &HeldError{Dir: dir}
	raw, err := os.ReadFile(filepath.Join(dir, lockFile))
	if err != nil {
		return e
	}
	var h holder
	if json.Unmarshal(raw, &h) == nil {
		e.PID, e.Host, e.Since = h.PID, h.Host, h.Since
	}
	return e
}

// Exclusive says that this process owns the store alone: whoever held a lease
// when it was opened is gone. See [store.Exclusive].
func (s *Store) Exclusive() bool { return !s.opts.ReadOnly }
