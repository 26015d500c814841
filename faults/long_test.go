package faults

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/postgres"
	"github.com/holdfast-run/holdfast/store/sqlite"
)

// longSession writes a session of n turns with deltas into a folder or a database that no server has yet.
func longSession(t *testing.T, dir, url, id string, turns, perTurn int) {
	t.Helper()
	open := sqlite.At(filepath.Join(dir, "data"))
	if url != "" {
		open = postgres.At(url)
	}
	st, err := open(t.Context(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	parent := ""
	for first := 0; first < turns; first += 100 {
		_, err := st.Append(t.Context(), id, func(*session.State) ([]session.Event, error) {
			var events []session.Event
			if first == 0 {
				events = append(events, session.Event{Data: session.Created{Tenant: "local", Owner: "local", Agent: "tester", Title: "long"}})
			}
			p := parent
			for i := first; i < min(first+100, turns); i++ {
				run, in, out := fmt.Sprintf("run_%d", i), fmt.Sprintf("in_%d", i), fmt.Sprintf("out_%d", i)
				add := func(step int, d session.Data) {
					events = append(events, session.Event{Run: run, Step: step, Attempt: step, Data: d})
				}
				add(0, session.RunQueued{Agent: "tester", Input: in, Message: out})
				add(0, session.MessageCreated{Digest: "d", Message: session.Message{
					ID: in, Role: session.RoleUser, Parent: p, Run: run,
					Status: session.MessageWhole, Parts: []session.Part{{Type: session.PartText, Text: fmt.Sprint("question ", i)}},
				}})
				add(0, session.RunStarted{Worker: "w", Fence: 1})
				add(0, session.MessageCreated{Message: session.Message{ID: out, Role: session.RoleAssistant, Parent: in, Run: run, Status: session.MessageStreaming, Parts: []session.Part{}}})
				add(1, session.StepStarted{Message: out})
				text := ""
				for k := range perTurn {
					piece := fmt.Sprintf("word%d ", k)
					text += piece
					add(1, session.TextDelta{Message: out, Text: piece})
				}
				add(1, session.ModelCompleted{Message: out, Finish: "stop", Parts: []session.Part{{Type: session.PartText, Text: text}}})
				add(1, session.StepCompleted{})
				add(1, session.MessageCompleted{Message: out})
				add(0, session.RunCompleted{})
				p = out
			}
			return events, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		parent = fmt.Sprintf("out_%d", min(first+100, turns)-1)
	}
}

func TestSM03AVeryLongSessionOpensAtOnce(t *testing.T) {
	dir := t.TempDir()
	const turns, perTurn = 5000, 32
	url := usualStore(t)
	longSession(t, dir, url, "ses_long", turns, perTurn)
	w := newWorldIn(t, dir, settings{retention: -1, store: url})
	begun := time.Now()
	a := w.ask("GET", "/v1/sessions/ses_long", nil)
	cold := time.Since(begun)
	if len(a.raw) > 1<<20 {
		t.Errorf("the first page has %d bytes", len(a.raw))
	}
	begun = time.Now()
	snap := w.snapshot("ses_long")
	t.Logf("a session of %d messages and %d events opens in %s cold, %s warm, with %d bytes", 2*turns, snap.Seq, cold, time.Since(begun), len(a.raw))
	if cold > 10*time.Second {
		t.Errorf("it takes %s to open", cold)
	}
	// A reader that was nearly there gets what it lacks, and no more.
	s := w.follow("ses_long", snap.Seq-10)
	frames, err := s.read(func(f frame) bool { return f.Seq == snap.Seq })
	if err != nil || len(frames) != 10 {
		t.Errorf("ten events behind it gets %d (%v)", len(frames), err)
	}
	// Pages join back to the first message while new ones come.
	run := w.submit("ses_long", "one more")
	seen := map[string]bool{}
	first := snap.Messages[0].ID
	for _, m := range snap.Messages {
		seen[m.ID] = true
	}
	for more := snap.HasMore; more; {
		var page struct {
			Messages []session.Message
			HasMore  bool
		}
		w.ask("GET", "/v1/sessions/ses_long/messages?limit=200&before="+first, nil).into(t, &page)
		for i, m := range page.Messages {
			if seen[m.ID] {
				t.Fatalf("%s is on two pages", m.ID)
			}
			seen[m.ID] = true
			if i+1 < len(page.Messages) && page.Messages[i+1].Parent != m.ID {
				t.Fatalf("after %s comes %s", m.ID, page.Messages[i+1].ID)
			}
		}
		if n := len(page.Messages); n == 0 {
			t.Fatal("an empty page in the middle")
		}
		first, more = page.Messages[0].ID, page.HasMore
	}
	if len(seen) != 2*turns {
		t.Errorf("the pages have %d messages", len(seen))
	}
	w.ends(run)
	// Twenty tabs at once.
	before := w.memory()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	done := make(chan error, 20)
	for range 20 {
		go func() {
			_, err := w.try(ctx, "GET", "/v1/sessions/ses_long", nil)
			done <- err
		}()
	}
	for range 20 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if grown := w.memory() - before; grown > 200<<20 {
		t.Errorf("twenty tabs took %d MB", grown>>20)
	}
	delete(w.seen, "ses_long") // the oracles read whole logs in pieces of seven
}
