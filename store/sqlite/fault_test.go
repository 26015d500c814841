package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/sqlite"
	"github.com/holdfast-run/holdfast/store/storetest"
)

// foreign is another program that has the database open.
func foreign(t *testing.T, dir string) *sql.Conn {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "holdfast.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	conn, err := db.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func execSQL(t *testing.T, conn *sql.Conn, query string) {
	t.Helper()
	if _, err := conn.ExecContext(context.Background(), query); err != nil {
		t.Fatal(err)
	}
}

func TestWritesWaitForAnotherProcessThatHoldsTheDatabaseAWhile(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, sqlite.Options{})
	leases := carried(t, s, 4)
	other := foreign(t, dir)
	execSQL(t, other, "BEGIN IMMEDIATE")
	var wg sync.WaitGroup
	for _, lease := range leases {
		wg.Go(func() {
			if _, err := s.Append(t.Context(), lease.Session, storetest.Say(lease, 1, "waits")); err != nil {
				t.Errorf("an append while another process held the database: %v", err)
			}
		})
	}
	readable(t, s, leases)
	execSQL(t, other, "COMMIT")
	wg.Wait()
	for _, lease := range leases {
		storetest.Sound(t, s, lease.Session)
	}
}

func TestWritesAreRefusedWhileTheDatabaseStaysLockedAndRecoverAlone(t *testing.T) {
	dir := t.TempDir()
	const busy = 50 * time.Millisecond
	s := open(t, dir, sqlite.Options{BusyTimeout: busy})
	leases := carried(t, s, 4)
	other := foreign(t, dir)
	execSQL(t, other, "BEGIN IMMEDIATE")
	began := time.Now()
	var wg sync.WaitGroup
	for _, lease := range leases {
		wg.Go(func() {
			_, err := s.Append(t.Context(), lease.Session, storetest.Say(lease, 1, "is lost"))
			refusedAs(t, err, sqlite.ErrLocked)
			if waited := time.Since(began); waited < busy {
				t.Errorf("it was refused after %s", waited)
			}
		})
	}
	wg.Wait()
	refusedAs(t, s.Ready(t.Context()), sqlite.ErrLocked)
	_, err := s.Claim(t.Context(), "wrk_1", time.Minute, 1)
	if err != nil {
		t.Errorf("nothing is due, and claiming gave %v", err)
	}
	readable(t, s, leases)
	execSQL(t, other, "ROLLBACK")
	for _, lease := range leases {
		if _, err := s.Append(t.Context(), lease.Session, storetest.Say(lease, 1, "is kept")); err != nil {
			t.Errorf("after the other process let go: %v", err)
		}
		messages, err := s.Messages(t.Context(), lease.Session, []string{"out_msg" + lease.Run[3:]})
		if err != nil || len(messages) != 1 || messages[0].Text() != "is kept" {
			t.Errorf("the message is %+v, %v", messages, err)
		}
		storetest.Sound(t, s, lease.Session)
	}
}

// readable checks that every kind of read answers.
func readable(t *testing.T, s *sqlite.Store, leases []store.Lease) {
	t.Helper()
	for _, lease := range leases {
		if _, err := storetest.WholeLog(s, lease.Session); err != nil {
			t.Errorf("read: %v", err)
		}
		if err := s.View(t.Context(), lease.Session, func(*session.State) {}); err != nil {
			t.Errorf("view: %v", err)
		}
		if _, err := s.Run(t.Context(), lease.Run); err != nil {
			t.Errorf("run: %v", err)
		}
	}
	if page, err := s.Sessions(t.Context(), store.SessionQuery{Tenant: "t", Owner: "o"}); err != nil || len(page.Items) != len(leases) {
		t.Errorf("sessions: %d of %d, %v", len(page.Items), len(leases), err)
	}
}

func TestADamagedPageLosesOnlyWhatWasOnIt(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, sqlite.Options{TailBytes: 1})
	leases := carried(t, s, 2)
	for _, lease := range leases {
		for i := range 100 {
			if _, err := s.Append(t.Context(), lease.Session, storetest.Say(lease, 8, fmt.Sprintf("%s says %03d %s", lease.Session, i, strings.Repeat("x", 500)))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	overwrite(t, filepath.Join(dir, "holdfast.db"), []byte("ses_0000 says 050"))
	s = open(t, dir, sqlite.Options{})
	if _, err := storetest.WholeLog(s, "ses_0000"); !errors.Is(err, sqlite.ErrDamaged) || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("reading what is damaged gave %v", err)
	}
	if findings, err := s.Check(t.Context(), "ses_0000"); len(findings) == 0 && !errors.Is(err, sqlite.ErrDamaged) {
		t.Errorf("checking what is damaged gave %q, %v", findings, err)
	}
	if err := s.View(t.Context(), "ses_0000", func(*session.State) {}); !errors.Is(err, sqlite.ErrDamaged) {
		t.Errorf("looking at what is damaged gave %v", err)
	}
	_, err := s.Append(t.Context(), "ses_0000", storetest.Say(leases[0], 1, "on"))
	refusedAs(t, err, sqlite.ErrDamaged)
	if frames, err := s.Read(t.Context(), "ses_0000", 0, 10); err != nil || len(frames) != 10 {
		t.Errorf("reading before the damage gave %d frames, %v", len(frames), err)
	}
	storetest.Sound(t, s, "ses_0001")
	if _, err := s.Append(t.Context(), "ses_0001", storetest.Say(leases[1], 1, "on")); err != nil {
		t.Errorf("appending to another session gave %v", err)
	}
	if _, err := s.Run(t.Context(), "run_0000"); err != nil {
		t.Errorf("reading the run gave %v", err)
	}
}

// overwrite destroys every page of the file that holds mark.
func overwrite(t *testing.T, path string, mark []byte) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	pages := 0
	for at := 0; at+page <= len(raw); at += page {
		if bytes.Contains(raw[at:at+page], mark) {
			copy(raw[at:at+page], bytes.Repeat([]byte{0xA5}, page))
			pages++
		}
	}
	if pages == 0 {
		t.Fatalf("%s is on no page", mark)
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAFileThatIsNoDatabaseIsDamaged(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "holdfast.db"), bytes.Repeat([]byte("no database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, opts := range []sqlite.Options{{}, {ReadOnly: true}} {
		if _, err := sqlite.Open(t.Context(), dir, opts); !errors.Is(err, sqlite.ErrDamaged) {
			t.Errorf("opening it, read-only %v, gave %v", opts.ReadOnly, err)
		}
	}
}

func TestTablesOfANewerProgramAreRefused(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, sqlite.Options{}).Close()
	execSQL(t, foreign(t, dir), `INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, 1)`)
	for _, opts := range []sqlite.Options{{}, {ReadOnly: true}} {
		if _, err := sqlite.Open(t.Context(), dir, opts); err == nil || !strings.Contains(err.Error(), "version 99") {
			t.Errorf("opening them, read-only %v, gave %v", opts.ReadOnly, err)
		}
	}
}

func TestAReadOnlyStoreIsAPictureOfOneMoment(t *testing.T) {
	dir := t.TempDir()
	owner := open(t, dir, sqlite.Options{TailBytes: 1})
	leases := carried(t, owner, 2)
	s := open(t, dir, sqlite.Options{ReadOnly: true})
	head, err := s.Head(t.Context(), "ses_0000")
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := owner.Append(t.Context(), "ses_0000", storetest.Say(leases[0], 10, "more")); err != nil {
			t.Fatal(err)
		}
	}
	storetest.Sound(t, s, "ses_0000")
	if now, err := s.Head(t.Context(), "ses_0000"); err != nil || now != head {
		t.Errorf("the head went from %d to %d, %v", head, now, err)
	}
	_, err = s.Append(t.Context(), "ses_0000", storetest.Say(leases[0], 1, "mine"))
	refusedAs(t, err, sqlite.ErrReadOnly)
	_, err = s.Claim(t.Context(), "wrk_2", time.Minute, 1)
	refusedAs(t, err, sqlite.ErrReadOnly)
	_, err = s.Renew(t.Context(), leases[0], time.Minute)
	refusedAs(t, err, sqlite.ErrReadOnly)
	_, err = s.Fold(t.Context(), time.Now())
	refusedAs(t, err, sqlite.ErrReadOnly)
	_, err = s.PutBlob(t.Context(), "ses_0000", "text/plain", strings.NewReader("x"))
	refusedAs(t, err, sqlite.ErrReadOnly)
	refusedAs(t, s.Delete(t.Context(), "ses_0000"), sqlite.ErrReadOnly)
	refusedAs(t, s.Ready(t.Context()), sqlite.ErrReadOnly)
	storetest.Sound(t, owner, "ses_0000")
}

func TestThereIsNothingToReadWhereNoStoreIs(t *testing.T) {
	dir := t.TempDir()
	if _, err := sqlite.Open(t.Context(), dir, sqlite.Options{ReadOnly: true}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("opening an empty directory to read gave %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("it has left %v", left)
	}
}
