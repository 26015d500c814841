package sqlite_test

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-run/holdfast/store/sqlite"
	"github.com/holdfast-run/holdfast/store/storetest"
)

func TestAFullDiskIsSaidAndNothingAcknowledgedIsLost(t *testing.T) {
	disk := newSmallDisk(t)
	s := open(t, disk.dir, sqlite.Options{TailBytes: 256 << 10})
	leases := carried(t, s, 4)
	heads := map[string]int64{}
	// fill appends until nothing of that size fits.
	fill := func(size int) error {
		for i := 0; ; i++ {
			lease := leases[i%len(leases)]
			a, err := s.Append(t.Context(), lease.Session, storetest.Say(lease, 4, strings.Repeat("x", size)))
			if err != nil {
				return err
			}
			heads[lease.Session] = a.Last
		}
	}
	for range 3 {
		for size := 4096; size > 0; size /= 4 {
			refusedAs(t, fill(size), disk.reason)
		}
		for range 100 { // until not even what Ready writes fits
			if s.Ready(t.Context()) != nil {
				break
			}
			refusedAs(t, fill(1), disk.reason)
		}
		refusedAs(t, s.Ready(t.Context()), disk.reason)
		_, err := s.PutBlob(t.Context(), "ses_0000", "text/plain", strings.NewReader(strings.Repeat("x", 16<<20)))
		refusedAs(t, err, disk.reason)
		for _, lease := range leases {
			head, err := s.Head(t.Context(), lease.Session)
			if err != nil || head != heads[lease.Session] {
				t.Errorf("session %s ends at seq %d and %d was acknowledged, %v", lease.Session, head, heads[lease.Session], err)
			}
			storetest.Sound(t, s, lease.Session)
		}
		disk.grow()
		if err := s.Ready(t.Context()); err != nil {
			t.Errorf("with room again: %v", err)
		}
		for _, lease := range leases {
			a, err := s.Append(t.Context(), lease.Session, storetest.Say(lease, 1, "again"))
			if err != nil || a.First != heads[lease.Session]+1 {
				t.Errorf("with room again an append gave seq %d after %d, %v", a.First, heads[lease.Session], err)
			}
			heads[lease.Session] = a.Last
		}
	}
	if left, _ := filepath.Glob(filepath.Join(disk.dir, "blobs", "temp", "*")); len(left) > 0 {
		t.Errorf("blobs that did not fit have left %v", left)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, disk.dir, sqlite.Options{})
	for _, lease := range leases {
		storetest.Sound(t, s, lease.Session)
		if head, err := s.Head(t.Context(), lease.Session); err != nil || head != heads[lease.Session] {
			t.Errorf("opened again, session %s ends at seq %d, not %d: %v", lease.Session, head, heads[lease.Session], err)
		}
	}
}

func TestADirectoryThatCannotBeWrittenIsSaid(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, sqlite.Options{})
	carried(t, s, 2)
	s.Close()
	frozen := freeze(t, dir)
	if _, err := sqlite.Open(t.Context(), frozen, sqlite.Options{}); !errors.Is(err, sqlite.ErrReadOnly) {
		t.Errorf("opening it to write gave %v", err)
	}
	s = open(t, frozen, sqlite.Options{ReadOnly: true})
	storetest.Sound(t, s, "ses_0001")
}

// smallDisk is a directory with little room.
type smallDisk struct {
	dir    string
	reason error  // what a write without room is refused for; nil: not known
	grow   func() // makes some room
}

// newSmallDisk mounts a small file system. Who may not do that gets a bound on
// the size of files in its place.
func newSmallDisk(t *testing.T) smallDisk {
	t.Helper()
	dir := t.TempDir()
	const size = 4 << 20
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m,mode=0700"); err == nil {
		t.Cleanup(func() {
			if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		var ballast []string
		for _, name := range []string{"1", "2", "3"} {
			ballast = append(ballast, filepath.Join(dir, "ballast"+name))
			if err := os.WriteFile(ballast[len(ballast)-1], make([]byte, size/8), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return smallDisk{dir, sqlite.ErrFull, func() {
			if err := os.Remove(ballast[0]); err != nil {
				t.Fatal(err)
			}
			ballast = ballast[1:]
		}}
	}
	signal.Ignore(syscall.SIGXFSZ)
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	limit := was
	grow := func() {
		limit.Cur += size / 4
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			t.Fatal(err)
		}
	}
	limit.Cur = 0
	grow()
	t.Cleanup(func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
			t.Error(err)
		}
	})
	return smallDisk{dir, nil, grow}
}

// freeze gives a directory with the content of dir that cannot be written.
func freeze(t *testing.T, dir string) string {
	t.Helper()
	frozen := t.TempDir()
	if err := syscall.Mount(dir, frozen, "", syscall.MS_BIND, ""); err == nil {
		t.Cleanup(func() {
			if err := syscall.Unmount(frozen, syscall.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		if err := syscall.Mount("", frozen, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
		return frozen
	} else if os.Getuid() == 0 {
		t.Skipf("root can write everywhere, and may not mount here: %v", err)
	}
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	return dir
}
