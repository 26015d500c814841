package protocol_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast/feed"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// stream is one entry of cases/sse.json.
type stream struct {
	Name  string            `json:"name"`
	About string            `json:"about"`
	Log   []json.RawMessage `json:"log"`
	After int64             `json:"after"`
	// Then is what happens when the reader has everything: "silence" for one
	// heartbeat, "deleted" or "shutdown".
	Then string `json:"then"`
	// Bytes is the whole stream. Its retry times, which go by chance, are 2317 here.
	Bytes string `json:"bytes"`
	// Messages is what a reader of event streams makes of the bytes.
	Messages []message `json:"messages"`
}

type message struct {
	// ID is the last event id after the message: what a reader comes back with.
	ID   string          `json:"id"`
	Data json.RawMessage `json:"data"`
}

// log is a store that holds one session, until it is gone.
type log struct {
	mu     sync.Mutex
	frames []session.Frame
	gone   bool
}

func (l *log) Read(_ context.Context, _ string, after int64, _ int) ([]session.Frame, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone {
		return nil, store.ErrNotFound
	}
	for i, f := range l.frames {
		if f.To > after {
			rest := append([]session.Frame(nil), l.frames[i:]...)
			if rest[0].From <= after { // within a folded range
				rest[0] = session.FoldedFrame("ses_1", after+1, rest[0].To, "ans_1")
			}
			return rest, nil
		}
	}
	return nil, nil
}

func (l *log) Head(context.Context, string) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone {
		return 0, store.ErrNotFound
	}
	return l.frames[len(l.frames)-1].To, nil
}

func (l *log) Sessions(context.Context, store.SessionQuery) (store.Page[store.SessionRow], error) {
	return store.Page[store.SessionRow]{}, nil
}

func (l *log) Session(context.Context, string) (store.SessionRow, error) {
	return store.SessionRow{ID: "ses_1"}, nil
}

func (l *log) delete() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = true
}

// recorder is a response that keeps what was written.
type recorder struct {
	*httptest.ResponseRecorder
	mu sync.Mutex
}

func (r *recorder) SetWriteDeadline(time.Time) error { return nil }

func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ResponseRecorder.Write(b)
}

func (r *recorder) FlushError() error { return nil }

// serve gives the bytes of the stream.
func (s stream) serve(t *testing.T) string {
	t.Helper()
	src := &log{frames: conversation{Frames: s.Log}.parsed(t)}
	hub := feed.New(src, feed.Options{Log: slog.New(slog.DiscardHandler)})
	w := &recorder{ResponseRecorder: httptest.NewRecorder()}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/sessions/ses_1/events", nil)
		done <- hub.ServeSSE(w, r, "ses_1", s.After)
	}()
	synctest.Wait()
	switch s.Then {
	case "silence":
		time.Sleep(15*time.Second + time.Millisecond) // of the bubble's clock
		synctest.Wait()
		cancel()
	case "deleted":
		src.delete()
		hub.Publish(store.Commit{Session: "ses_1", Deleted: true})
	case "shutdown":
		hub.Close(errors.New("shutting down"))
	default:
		t.Fatalf("what is %q?", s.Then)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	hub.Close(nil)
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no", "Content-Encoding": "",
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s is %q, not %q", name, got, want)
		}
	}
	return regexp.MustCompile(`(?m)^retry: [1-6]\d{3}$`).ReplaceAllString(w.Body.String(), "retry: 2317")
}

func TestAStreamOfServerSentEventsHasExactlyTheseBytes(t *testing.T) {
	const file = "cases/sse.json"
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []stream
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	for i := range all {
		s := &all[i]
		t.Run(s.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := s.serve(t)
				if *update {
					s.Bytes = got
				}
				if diff := cmp.Diff(s.Bytes, got); diff != "" {
					t.Errorf("-case +feed:\n%s", diff)
				}
				want, got := string(encode(t, s.Messages)), string(encode(t, parse(t, got)))
				if diff := cmp.Diff(compact(t, []byte(want)), got); diff != "" {
					t.Errorf("what a reader makes of it: -case +read:\n%s", diff)
				}
			})
		})
	}
	if *update {
		if err := os.WriteFile(file, layOut(t, all), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// parse reads an event stream as the standard says.
func parse(t *testing.T, body string) []message {
	t.Helper()
	messages := []message{}
	id := ""
	for _, block := range bytes.Split([]byte(body), []byte("\n\n")) {
		var data []byte
		for _, line := range bytes.Split(block, []byte("\n")) {
			name, value, _ := bytes.Cut(line, []byte(": "))
			switch string(name) {
			case "id":
				id = string(value)
			case "data":
				data = append(data, value...)
			}
		}
		if len(data) > 0 {
			messages = append(messages, message{ID: id, Data: data})
		}
	}
	return messages
}

func layOut(t *testing.T, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, encode(t, v), "", " "); err != nil {
		t.Fatal(err)
	}
	return append(b.Bytes(), '\n')
}
