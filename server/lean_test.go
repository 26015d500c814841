package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// takenOver serves one request with serve on a connection that is taken over,
// and gives the answer to it. Its log is complete when the stream has left.
func takenOver(t *testing.T, serve func(http.ResponseWriter, *http.Request) error) (res *http.Response, body []byte, log string, err error) {
	t.Helper()
	var text bytes.Buffer
	s := &Server{opts: Options{Log: slog.New(slog.NewTextHandler(&text, nil))}}
	s.streams.init(1, time.Second)
	ts := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.streams.enter(); err != nil {
			t.Error(err)
		}
		w.Header().Set("X-From-Before", "kept")
		if !s.takeOver(w, r, serve) {
			t.Error("not taken over")
		}
	}))
	ts.Config.ConnContext = markOwn
	ts.Start()
	defer ts.Close()
	res, err = ts.Client().Get(ts.URL)
	if err == nil {
		body, err = io.ReadAll(res.Body)
		res.Body.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if late := s.streams.await(ctx, 0); late != nil {
		t.Fatal(late)
	}
	return res, body, text.String(), err
}

func TestATakenOverAnswerIsWhole(t *testing.T) {
	res, body, _, err := takenOver(t, func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		w.WriteHeader(http.StatusTeapot) // too late, as in net/http
		w.Header().Set("X-Late", "dropped")
		for _, piece := range []string{"", "one\n", strings.Repeat("two", 100_000), ""} {
			if n, err := io.WriteString(w, piece); n != len(piece) || err != nil {
				t.Error(n, err)
			}
		}
		return nil
	})
	if err != nil || string(body) != "one\n"+strings.Repeat("two", 100_000) {
		t.Fatalf("%d bytes, %v", len(body), err)
	}
	if res.StatusCode != 200 || res.Header.Get("X-From-Before") != "kept" || res.Header.Get("X-Late") != "" || res.Header.Get("Date") == "" || !res.Close {
		t.Errorf("%d %v", res.StatusCode, res.Header)
	}
}

func TestATakenOverAnswerThatWasCutLooksCut(t *testing.T) {
	_, _, _, err := takenOver(t, func(w http.ResponseWriter, _ *http.Request) error {
		if _, err := io.WriteString(w, "one\n"); err != nil {
			t.Error(err)
		}
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(-time.Second)); err != nil {
			t.Error(err)
		}
		if _, err := io.WriteString(w, "two\n"); err == nil {
			t.Error("written after its deadline")
		}
		return nil
	})
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the client saw %v", err)
	}
}

func TestAPanicOfATakenOverStreamEndsOnlyThatStream(t *testing.T) {
	_, _, log, err := takenOver(t, func(w http.ResponseWriter, _ *http.Request) error {
		if _, err := io.WriteString(w, "one\n"); err != nil {
			t.Error(err)
		}
		panic("broken")
	})
	if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(log, "broken") {
		t.Errorf("the client saw %v, the log is %q", err, log)
	}
}

func TestATakenOverStreamHearsThatItsClientIsGone(t *testing.T) {
	s := &Server{opts: Options{Log: slog.New(slog.DiscardHandler)}}
	s.streams.init(1, time.Second)
	began, ended := make(chan struct{}), make(chan error, 1)
	ts := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.streams.enter(); err != nil {
			t.Error(err)
		}
		s.takeOver(w, r, func(_ http.ResponseWriter, r *http.Request) error {
			close(began)
			<-r.Context().Done()
			ended <- r.Context().Err()
			return nil
		})
	}))
	ts.Config.ConnContext = markOwn
	ts.Start()
	defer ts.Close()
	conn, err := net.Dial("tcp", ts.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	// What a client says after its request is not its end.
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\nand more"); err != nil {
		t.Fatal(err)
	}
	<-began
	select {
	case err := <-ended:
		t.Fatalf("ended with %v while the client is there", err)
	default:
	}
	conn.Close()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	if err := s.streams.await(t.Context(), 0); err != nil {
		t.Error(err)
	}
}
