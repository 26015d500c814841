package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/internal/models"
)

func reopen(t *testing.T, s *Store, opts Options) *Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	opts.Log = slog.New(slog.DiscardHandler)
	again, err := Open(context.Background(), s.dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.Close() })
	return again
}

// corrupt changes the database as no request would.
func corrupt(t *testing.T, s *Store, query string, args ...any) {
	t.Helper()
	err := s.writer.submit(t.Context(), nil, func(b *batch) error {
		n, err := b.exec(query, args...)
		if err == nil && n == 0 {
			return errors.New("nothing was there to corrupt")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func queue(id string) session.Decide {
	c := session.Submit{
		ID: "msg_" + id, Run: "run_" + id, Output: "out_" + id, Tenant: "t", Owner: "o", DefaultAgent: "demo",
		Parts: []session.Part{{Type: session.PartText, Text: "hello"}},
	}
	return c.Decide
}

func TestASessionThatCannotBeLoadedDoesNotKeepOthersFromBeingClaimed(t *testing.T) {
	s := openQuiet(t, Options{TailBytes: 1})
	for _, id := range []string{"1", "2", "3"} {
		if _, err := s.Append(t.Context(), "ses_"+id, queue(id)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Append(t.Context(), "ses_4", create("o")); err != nil { // settles the others
		t.Fatal(err)
	}
	for _, id := range []string{"ses_1", "ses_2"} {
		corrupt(t, s, `UPDATE log SET body = CAST(replace(body, '"type":', '"type"') AS BLOB) WHERE session = ?`, id)
	}
	s = reopen(t, s, Options{})
	leases, err := s.Claim(t.Context(), "wrk_1", time.Minute, 1)
	if err != nil || len(leases) != 1 || leases[0].Run != "run_3" {
		t.Fatalf("claimed %+v, %v", leases, err)
	}
	if _, err := s.Claim(t.Context(), "wrk_1", time.Minute, 1); !errors.Is(err, ErrDamaged) || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("with nothing else due, claiming gave %v", err)
	}
}

func TestWorkThatTheLogDoesNotKnowIsForgotten(t *testing.T) {
	s := openQuiet(t, Options{})
	if _, err := s.Append(t.Context(), "ses_1", queue("1")); err != nil {
		t.Fatal(err)
	}
	corrupt(t, s, `INSERT INTO work (run, session, due_at, turn, fence) VALUES ('run_ghost', 'ses_1', 0, 0, 0)`)
	if findings, err := s.Check(t.Context(), "ses_1"); err != nil || len(findings) != 1 || !strings.Contains(findings[0], "run_ghost") {
		t.Errorf("%q, %v", findings, err)
	}
	leases, err := s.Claim(t.Context(), "wrk_1", time.Minute, 1)
	if err != nil || len(leases) != 1 || leases[0].Run != "run_1" {
		t.Errorf("claimed %+v, %v", leases, err)
	}
	if findings, err := s.Check(t.Context(), "ses_1"); err != nil || len(findings) != 0 {
		t.Errorf("%q, %v", findings, err)
	}
}

func TestBlobsWithoutASessionGoWhenTheStoreIsOpened(t *testing.T) {
	s := openQuiet(t, Options{})
	create := session.Create{Tenant: "t", Owner: "ann"}
	if _, err := s.Append(t.Context(), "ses_1", create.Decide); err != nil {
		t.Fatal(err)
	}
	put := func(id, content string) session.Blob {
		blob, err := s.PutBlob(t.Context(), id, "text/plain", strings.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		return blob
	}
	refused := put("ses_2", "of a message that was refused")
	if err := s.Delete(t.Context(), "ses_1"); err != nil {
		t.Fatal(err)
	}
	late := put("ses_1", "a worker was not told yet")
	if _, err := s.Append(t.Context(), "ses_3", create.Decide); err != nil {
		t.Fatal(err)
	}
	kept := put("ses_3", "kept")
	s = reopen(t, s, Options{})
	for _, blob := range []session.Blob{refused, late} {
		if _, err := os.Stat(s.blobs.path(blob.Hash)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the file of a blob without a session: %v", err)
		}
	}
	if _, r, err := s.Blob(t.Context(), "ses_3", kept.Hash); err != nil {
		t.Errorf("a blob with a session: %v", err)
	} else if err := r.Close(); err != nil {
		t.Error(err)
	}
	if n := count(t, s, `SELECT count(*) FROM blobs`); n != 1 {
		t.Errorf("%d blobs are known", n)
	}
}

func TestFilesOfDeletedSessionsThatACrashHasLeftGoWhenTheStoreIsOpened(t *testing.T) {
	s := openQuiet(t, Options{})
	var hashes []string
	for i := range 2 {
		blob, err := s.PutBlob(t.Context(), "ses_1", "text/plain", strings.NewReader(fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, blob.Hash)
	}
	// The crash came after the commit that deleted the session; another session has put the second since.
	corrupt(t, s, `INSERT INTO blob_trash SELECT hash FROM blobs`)
	corrupt(t, s, `DELETE FROM blobs`)
	create := session.Create{Tenant: "t", Owner: "ann"}
	if _, err := s.Append(t.Context(), "ses_2", create.Decide); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutBlob(t.Context(), "ses_2", "text/plain", strings.NewReader("1")); err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(s.blobs.temp(), "put-1")
	if err := os.WriteFile(cut, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, s, Options{})
	for i, there := range []bool{false, true} {
		if _, err := os.Stat(s.blobs.path(hashes[i])); (err == nil) != there {
			t.Errorf("the file of blob %d: %v", i, err)
		}
	}
	if _, err := os.Stat(cut); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a put had left: %v", err)
	}
	if n := count(t, s, `SELECT count(*) FROM blob_trash`); n != 0 {
		t.Errorf("%d files are still to be removed", n)
	}
}

func TestCheckFindsWhatIsWrongWithALog(t *testing.T) {
	for damage, query := range map[string]string{
		"a row is gone":            `DELETE FROM log WHERE session = ? AND first = (SELECT first FROM log WHERE session = 'ses_1' ORDER BY first LIMIT 1 OFFSET 1)`,
		"a row is cut short":       `UPDATE log SET body = CAST(substr(body, 1, length(body) - 40) AS BLOB) WHERE session = ? AND last > first`,
		"an event is another's":    `UPDATE log SET body = CAST(replace(body, '"session":"ses_1"', '"session":"ses_2"') AS BLOB) WHERE session = ?`,
		"an event says else":       `UPDATE log SET body = CAST(replace(body, '"title":"7"', '"title":"x"') AS BLOB) WHERE session = ?`,
		"a seq is another":         `UPDATE log SET body = CAST(replace(body, '"seq":2', '"seq":3') AS BLOB) WHERE session = ?`,
		"a row ends too late":      `UPDATE log SET last = last + 1 WHERE session = ?`,
		"the snapshot says else":   `UPDATE snapshots SET body = CAST(replace(body, '"title":"', '"title":"x') AS BLOB) WHERE session = ?`,
		"the snapshot is ahead":    `UPDATE snapshots SET seq = 1000 WHERE session = ?`,
		"the session is in no row": `DELETE FROM sessions WHERE id = ?`,
		"a blob changed":           `UPDATE blobs SET size = size + 1 WHERE session = ?`,
	} {
		t.Run(damage, func(t *testing.T) {
			s := openQuiet(t, Options{TailBytes: 1})
			if _, err := s.Append(t.Context(), "ses_1", create("o")); err != nil {
				t.Fatal(err)
			}
			for i := range 8 {
				both := func(state *session.State) ([]session.Event, error) {
					events, err := entitle(fmt.Sprint(i))(state)
					return append(events, session.Event{Data: session.TextDelta{Message: "m"}}), err
				}
				if _, err := s.Append(t.Context(), "ses_1", both); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.Append(t.Context(), "ses_2", create("o")); err != nil { // settles the other
				t.Fatal(err)
			}
			if _, err := s.PutBlob(t.Context(), "ses_1", "text/plain", strings.NewReader("content")); err != nil {
				t.Fatal(err)
			}
			err := s.View(t.Context(), "ses_1", func(state *session.State) {
				raw, err := models.Marshal(state)
				if err != nil {
					t.Fatal(err)
				}
				corrupt(t, s, upsertSnapshot, "ses_1", models.SnapshotVersion, state.Seq, raw)
			})
			if err != nil {
				t.Fatal(err)
			}
			if findings, err := s.Check(t.Context(), "ses_1"); err != nil || len(findings) > 0 {
				t.Fatalf("before: %q, %v", findings, err)
			}
			corrupt(t, s, query, "ses_1")
			if findings, err := s.Check(t.Context(), "ses_1"); err != nil || len(findings) == 0 {
				t.Errorf("it found %q, %v", findings, err)
			}
		})
	}
}

func TestALongLogFoldsWindowByWindow(t *testing.T) {
	s := openQuiet(t, Options{TailBytes: 64 << 10})
	if _, err := s.Append(t.Context(), "ses_1", queue("1")); err != nil {
		t.Fatal(err)
	}
	leases, err := s.Claim(t.Context(), "wrk_1", time.Minute, 1)
	if err != nil {
		t.Fatal(err)
	}
	lease := leases[0]
	var want bytes.Buffer
	const deltas = 400
	for i := range deltas { // some 4 MB
		text := strings.Repeat(fmt.Sprintf("%03d ", i), 2500)
		want.WriteString(text)
		_, err := s.Append(t.Context(), "ses_1", session.Carry(lease.Run, lease.Fence, func(_ *session.State, run *session.Run) ([]session.Event, error) {
			return []session.Event{{Step: 1, Attempt: 1, Data: session.TextDelta{Message: run.Message, Text: text}}}, nil
		}))
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Append(t.Context(), "ses_1", session.Carry(lease.Run, lease.Fence, func(s *session.State, run *session.Run) ([]session.Event, error) {
		return s.End(run, session.RunCancelled{By: "o"}), nil
	})); err != nil {
		t.Fatal(err)
	}
	dropped, err := s.Fold(t.Context(), time.Now().Add(time.Hour))
	if err != nil || dropped != deltas {
		t.Fatalf("dropped %d of %d deltas, %v", dropped, deltas, err)
	}
	if again, err := s.Fold(t.Context(), time.Now().Add(time.Hour)); err != nil || again != 0 {
		t.Errorf("again dropped %d, %v", again, err)
	}
	// What is left is what the end of the message says once more, and little else.
	if kept := count(t, s, `SELECT sum(length(body)) FROM log`); kept > want.Len()*11/10 {
		t.Errorf("%d bytes are kept of a message of %d", kept, want.Len())
	}
	messages, err := s.Messages(t.Context(), "ses_1", []string{"out_1"})
	if err != nil || len(messages) != 1 || messages[0].Text() != want.String() {
		t.Errorf("the message is not what was streamed, %v", err)
	}
	if findings, err := s.Check(t.Context(), "ses_1"); err != nil || len(findings) > 0 {
		t.Errorf("%q, %v", findings, err)
	}
}

func TestFoldingBringsBackNothingOfASessionThatWasDeletedMeanwhile(t *testing.T) {
	s := openQuiet(t, Options{TailBytes: 1})
	if _, err := s.Append(t.Context(), "ses_1", queue("1")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), "ses_2", create("o")); err != nil { // settles the first
		t.Fatal(err)
	}
	deletions := s.deletions.Load()
	old, err := s.window(t.Context(), "ses_1", 1, 1)
	if err != nil || len(old) != 1 {
		t.Fatal(old, err)
	}
	if err := s.Delete(t.Context(), "ses_1"); err != nil {
		t.Fatal(err)
	}
	if err := s.replace(t.Context(), "ses_1", old, old, deletions); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("replacing rows of a deleted session gave %v", err)
	}
	if n := count(t, s, `SELECT count(*) FROM log WHERE session = 'ses_1'`); n != 0 {
		t.Errorf("%d rows are back", n)
	}
}
