package faults

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite" // to hold the database from outside

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/session"
)

// hold takes the database's write lock from another process's point of view, until release.
func (w *world) hold() (release func()) {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(w.dir, "data", "*.db"))
	if err != nil || len(files) != 1 {
		w.t.Fatalf("the database: %v, %v", files, err)
	}
	db, err := sql.Open("sqlite", "file:"+files[0]+"?_pragma=busy_timeout(10000)")
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := db.Conn(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := c.ExecContext(w.ctx, "BEGIN IMMEDIATE"); err != nil {
		w.t.Fatal(err)
	}
	return func() {
		if _, err := c.ExecContext(w.ctx, "ROLLBACK"); err != nil {
			w.t.Error(err)
		}
		c.Close()
		db.Close()
	}
}

func TestST04AForeignLockLosesNothing(t *testing.T) {
	onSQLite(t)
	w := newWorld(t, settings{})
	w.llm.Script(fakellm.Reply(deltas(200, 25*time.Millisecond)...).On(fakellm.Match{LastUser: "long"}))
	run := w.submit("ses_long", "long")
	w.arrives(1)
	release := w.hold()
	type posted struct {
		a   answer
		err error
	}
	answers := make(chan posted, 30)
	for i := range 30 {
		id := fmt.Sprintf("ses_%d", i)
		w.seen[id] = true
		go func() {
			a, err := w.try(w.ctx, "POST", "/v1/sessions/"+id+"/messages", say("msg_"+id, "hello"))
			answers <- posted{a, err}
		}()
	}
	pause(t, 3*time.Second) // the subject: a lock held for three seconds
	release()
	for range 30 {
		p := <-answers
		if p.err != nil || p.a.status != http.StatusAccepted {
			t.Errorf("under a short lock a message is answered %d, %v: %s", p.a.status, p.err, p.a.raw)
		}
	}
	if got := w.ends(run); got.Status != session.Completed {
		t.Errorf("the run is %s: %+v", got.Status, got.Error)
	}
	for i := range 30 {
		id := fmt.Sprintf("ses_%d", i)
		w.ends(w.send(id, say("msg_"+id, "hello")).Run)
	}
}

func TestST04ALongForeignLockIsToldAndHealsByItself(t *testing.T) {
	onSQLite(t)
	w := newWorld(t, settings{})
	w.ends(w.submit("ses", "before"))
	release := w.hold()
	a := w.post("ses", say("msg_during", "during"))
	if a.status != http.StatusServiceUnavailable || a.problem(t).Code != "unavailable" || a.header.Get("Retry-After") == "" {
		t.Errorf("under a long lock a message is answered %d: %s", a.status, a.raw)
	}
	if got := w.snapshot("ses"); len(got.Messages) != 2 {
		t.Errorf("reads under the lock give %d messages", len(got.Messages))
	}
	release()
	out := w.send("ses", say("msg_during", "during"))
	if got := w.ends(out.Run); got.Status != session.Completed {
		t.Errorf("after the lock the run is %s", got.Status)
	}
}

func TestST06NoSeqIsGivenOutAgainAfterACrash(t *testing.T) {
	w := newWorld(t, settings{})
	type mark [sha256.Size]byte
	seen := map[string]map[int64]mark{}
	rounds := 15
	if testing.Short() {
		rounds = 3
	}
	for round := range rounds {
		id := fmt.Sprintf("ses_%d", round%3)
		w.llm.DropScript()
		w.llm.Script(fakellm.Reply(deltas(2000, time.Millisecond)...).Times(fakellm.Forever))
		w.submit(id, fmt.Sprintf("round %d", round))
		var mu sync.Mutex
		var readers sync.WaitGroup
		for name := range w.seen {
			if seen[name] == nil {
				seen[name] = map[int64]mark{}
			}
			marks := seen[name]
			s, err := w.tryFollow(w.ctx, name, "after=0", "")
			if err != nil {
				t.Fatal(err)
			}
			readers.Go(func() {
				defer s.close()
				for {
					f, err := s.nextFrame()
					if err != nil {
						return
					}
					sum := sha256.Sum256([]byte(f.raw))
					mu.Lock()
					if before, ok := marks[f.Seq]; ok && before != sum {
						t.Errorf("%s: seq %d was something else before", name, f.Seq)
					}
					marks[f.Seq] = sum
					mu.Unlock()
				}
			})
		}
		pause(t, time.Duration(100+rand.IntN(400))*time.Millisecond)
		w.srv.kill()
		readers.Wait()
		w.http.CloseIdleConnections()
		w.again()
	}
	w.llm.DropScript()
	for name, marks := range seen {
		for _, r := range w.snapshot(name).Runs {
			if !r.Status.Terminal() {
				w.cancel(r.ID)
				w.ends(r)
			}
		}
		kept := map[int64]mark{}
		for _, f := range w.log(name, 0, 10_000) {
			kept[f.Seq] = sha256.Sum256([]byte(f.raw))
		}
		for seq, sum := range marks {
			if kept[seq] != sum {
				t.Errorf("%s: seq %d was seen, and the log has something else", name, seq)
			}
		}
	}
}

func TestADiskThatIsFullLosesNothingThatWasAcknowledged(t *testing.T) {
	onSQLite(t)
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", data, "tmpfs", 0, "size=8m"); errors.Is(err, syscall.EPERM) {
		t.Skip("who tests may not mount a small file system here; the store's own tests fill another")
	} else if err != nil {
		t.Fatalf("mount a small file system: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(data, syscall.MNT_DETACH) })
	w := newWorldIn(t, dir, settings{attempts: 1})
	w.ends(w.submit("ses", "before"))
	filler := filepath.Join(data, "filler")
	fill(t, filler)
	a := w.post("ses", say("msg_full", strings.Repeat("x", 60_000)))
	if a.status != http.StatusServiceUnavailable || a.problem(t).Code != "unavailable" {
		t.Errorf("on a full disk a message is answered %d: %.300s", a.status, a.raw)
	}
	if got := w.snapshot("ses"); len(got.Messages) != 2 {
		t.Errorf("reads on a full disk give %d messages", len(got.Messages))
	}
	if ready := w.ask("GET", "/readyz", nil); ready.status == http.StatusOK {
		t.Log("the full disk is not told by /readyz")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	w.within(30*time.Second, "coming back after the disk was full", func(ctx context.Context) error {
		for {
			a, err := w.try(ctx, "POST", "/v1/sessions/ses/messages", say("msg_after", "after"))
			if err != nil || a.status/100 == 2 {
				return err
			}
		}
	})
	w.ends(w.send("ses", say("msg_after", "after")).Run)
}

// fill writes until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 64<<10)
	for len(block) > 0 {
		if _, err := f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
}

func TestTheDoctorFindsADatabaseOfManyCrashesSound(t *testing.T) {
	w := newWorld(t, settings{})
	for round := range 5 {
		w.llm.DropScript()
		w.llm.Script(fakellm.Reply(deltas(500, time.Millisecond)...), fakellm.Reply(fakellm.Text("again")))
		w.submit(fmt.Sprintf("ses_%d", round%2), fmt.Sprintf("round %d", round))
		pause(t, time.Duration(rand.IntN(200))*time.Millisecond)
		w.crash()
	}
	w.doctor()
	for id := range w.seen {
		for _, r := range w.snapshot(id).Runs {
			w.ends(r)
		}
	}
}

func TestASecondProcessOnOneFolderIsRefused(t *testing.T) {
	onSQLite(t)
	w := newWorld(t, settings{})
	out, err := exec.CommandContext(w.ctx, binary, "serve", "--listen", "127.0.0.1:0",
		"--data", filepath.Join(w.dir, "data"), "--config", w.config).CombinedOutput()
	if err == nil {
		t.Errorf("a second process was let in:\n%s", out)
	}
}
