package holdfast_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/engine"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/model/modeltest"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/memory"
)

// byHand is an engine that carries what a test tells it to.
type byHand struct{ *engine.Carrier }

func (byHand) Run(ctx context.Context) error { <-ctx.Done(); return nil }
func (byHand) Notify(store.Commit)           {}
func (byHand) Carrying() int                 { return 0 }
func (byHand) Carries(string) bool           { return false }

// open makes a runtime over a store in memory whose agent's model is script.
func open(t *testing.T, script *modeltest.Script) (*holdfast.Runtime, byHand) {
	t.Helper()
	var hand byHand
	rt, err := holdfast.Open(t.Context(), holdfast.Options{
		Store:  func(_ context.Context, o store.Options) (store.Store, error) { return memory.New(o), nil },
		Engine: func(c *engine.Carrier) engine.Engine { hand = byHand{c}; return hand },
		Agents: []agent.Agent{{Name: "a", Model: "script"}},
		Models: func(string) (model.Model, error) { return script, nil },
		Log:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(); err != nil {
			t.Error(err)
		}
	})
	return rt, hand
}

func TestWhatIsTooLargeForAMessageIsShelvedAndTheModelSeesItWhole(t *testing.T) {
	script := modeltest.NewScript(modeltest.Reply(modeltest.Text("read")))
	rt, hand := open(t, script)
	text := strings.Repeat("é", 100<<10)
	picture := strings.Repeat("\x00\xff", 100<<10)
	url := "data:image/png;base64," + base64.StdEncoding.EncodeToString([]byte(picture))
	submission := holdfast.Submission{ID: "msg_1", Parts: []session.Part{
		{Type: session.PartText, Text: text},
		{Type: session.PartFile, File: &session.File{Name: "p.png", MediaType: "image/png", URL: url}},
		{Type: session.PartText, Text: "small"},
	}}
	done, err := rt.Submit(t.Context(), holdfast.Local, "ses_1", submission)
	if err != nil {
		t.Fatal(err)
	}
	parts := done.Message.Parts
	if len(parts) != 3 || parts[0].Blob == nil || parts[1].File.Blob == nil || parts[1].File.URL != "" || parts[2].Text != "small" {
		t.Fatalf("became %+v", done.Message)
	}
	if len(parts[0].Text) > 4<<10 || !strings.HasPrefix(text, parts[0].Text) {
		t.Errorf("the preview has %d bytes", len(parts[0].Text))
	}
	for hash, want := range map[string]string{parts[0].Blob.Hash: text, parts[1].File.Blob.Hash: picture} {
		_, r, err := rt.Blob(t.Context(), holdfast.Local, "ses_1", hash)
		if err != nil {
			t.Fatal(err)
		}
		if raw, err := io.ReadAll(r); err != nil || string(raw) != want {
			t.Errorf("the blob has %d bytes, want %d: %v", len(raw), len(want), err)
		}
		r.Close()
	}

	again, err := rt.Submit(t.Context(), holdfast.Local, "ses_1", submission)
	if err != nil || !again.Repeated || again.Run.ID != done.Run.ID {
		t.Errorf("sent again: %+v, %v", again, err)
	}
	submission.Parts[0].Text += "!"
	if _, err = rt.Submit(t.Context(), holdfast.Local, "ses_1", submission); !errors.Is(err, &session.Error{Code: session.Conflict}) {
		t.Errorf("sent again with one more letter: %v", err)
	}

	leases, err := hand.Store.Claim(t.Context(), "w", time.Minute, 1)
	if err != nil || len(leases) != 1 {
		t.Fatal(leases, err)
	}
	if err := hand.Carry(t.Context(), leases[0], engine.Signals{}); err != nil {
		t.Fatal(err)
	}
	seen := script.Requests()[0].Messages[0].Parts
	if len(seen) != 3 || seen[0].Text != text || string(seen[1].Data) != picture {
		t.Errorf("the model saw %d parts, a text of %d bytes", len(seen), len(seen[0].Text))
	}
}

func TestAnotherOwnersSessionTakesNothingIn(t *testing.T) {
	rt, hand := open(t, modeltest.NewScript())
	if _, err := rt.CreateSession(t.Context(), holdfast.Local, "ses_1", session.Create{}); err != nil {
		t.Fatal(err)
	}
	other := holdfast.Principal{Tenant: "local", Owner: "other"}
	large := []session.Part{{Type: session.PartText, Text: strings.Repeat("x", 100<<10)}}
	_, err := rt.Submit(t.Context(), other, "ses_1", holdfast.Submission{ID: "msg_1", Parts: large})
	if !errors.Is(err, store.ErrNotFound) {
		t.Errorf("told %v", err)
	}
	sum := sha256.Sum256([]byte(large[0].Text))
	if _, _, err := hand.Store.Blob(t.Context(), "ses_1", hex.EncodeToString(sum[:])); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a blob is there: %v", err)
	}
}

func TestAFileThatCannotBeShelvedIsRefusedByItsField(t *testing.T) {
	rt, _ := open(t, modeltest.NewScript())
	for _, url := range []string{
		"data:image/png;base64," + strings.Repeat("*", 100<<10),
		"data:text/plain,%" + strings.Repeat("z", 100<<10),
		"https://example.com/" + strings.Repeat("x", 100<<10),
	} {
		_, err := rt.Submit(t.Context(), holdfast.Local, "ses_1", holdfast.Submission{ID: "msg_1", Parts: []session.Part{
			{Type: session.PartFile, File: &session.File{MediaType: "image/png", URL: url}},
		}})
		var refused *session.Error
		if !errors.As(err, &refused) || refused.Code != session.Invalid || refused.Field != "parts[0].file.url" {
			t.Errorf("%.30s: %v", url, err)
		}
	}
}
