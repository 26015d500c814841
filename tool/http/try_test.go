package httptool

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestAServiceInTroubleIsAskedAgainIfTheEffectsAllowIt(t *testing.T) {
	for _, status := range []int{408, 425, 429, 500, 502, 503, 504} {
		for _, effects := range everyEffects {
			s := serve(t, func(w http.ResponseWriter, r *http.Request, n int) {
				if n < 3 {
					always(status, "text/plain", "not now")(w, r, n)
					return
				}
				always(200, "application/json", `"done"`)(w, r, n)
			})
			got, err := use(t, makeTool(t, s.URL, Config{Effects: effects}))
			all := s.requests()
			if effects != session.Unsafe {
				if err != nil || string(got.Value) != `"done"` || len(all) != 3 {
					t.Errorf("%s: %d gave %s, %v after %d requests", effects, status, got.Value, err, len(all))
				}
				for _, r := range all {
					if r.header.Get("Idempotency-Key") != key || string(r.body) != string(all[0].body) {
						t.Errorf("%s: the tries differ: %v %s", effects, r.header, r.body)
					}
				}
				continue
			}
			gateway := status == 502 || status == 504
			if len(all) != 1 || errors.Is(err, tool.ErrOutcomeUnknown) != gateway || codeOf(err) != "http_"+itoa(status) {
				t.Errorf("%s: %d gave %v after %d requests", effects, status, err, len(all))
			}
		}
	}
}

func TestTriesAreBounded(t *testing.T) {
	s := serve(t, always(500, "text/plain", "broken"))
	_, err := use(t, makeTool(t, s.URL, Config{Effects: session.Idempotent}))
	if n := len(s.requests()); n != maxTries || codeOf(err) != "http_500" {
		t.Errorf("%d tries gave %v", n, err)
	}
}

func TestTheServiceSaysWhenItIsAskedAgain(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request, n int) {
		if n == 1 {
			always(429, "text/plain", "slow", "Retry-After", "1")(w, r, n)
		}
	})
	if _, err := use(t, makeTool(t, s.URL, Config{Effects: session.ReadOnly})); err != nil {
		t.Fatal(err)
	}
	if all := s.requests(); len(all) != 2 || all[1].at.Sub(all[0].at) < time.Second {
		t.Errorf("it was asked %d times", len(all))
	}
	// Later than the call may take: nobody waits.
	s = serve(t, always(503, "text/plain", "tomorrow", "Retry-After", time.Now().Add(24*time.Hour).UTC().Format(http.TimeFormat)))
	if _, err := use(t, makeTool(t, s.URL, Config{Effects: session.ReadOnly})); codeOf(err) != "http_503" || len(s.requests()) != 1 {
		t.Errorf("it was asked %d times: %v", len(s.requests()), err)
	}
}

// cutter is a service whose connections break as a test says.
func cutter(t *testing.T, serve func(n int, conn net.Conn)) (url string, count func() int) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan int)
	go func() {
		n := 0
		for {
			conn, err := listener.Accept()
			if err != nil {
				ended <- n
				return
			}
			n++
			serve(n, conn)
			_ = conn.Close()
		}
	}()
	count = func() int { _ = listener.Close(); return <-ended }
	return "http://" + listener.Addr().String(), count
}

// read reads a whole request.
func read(conn net.Conn) {
	if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
		buf := make([]byte, 1<<10)
		for {
			if _, err := r.Body.Read(buf); err != nil {
				return
			}
		}
	}
}

func TestAConnectionThatBreaksLeavesTheOutcomeToTheEffects(t *testing.T) {
	for name, how := range map[string]func(conn net.Conn){
		"before the request is read": func(net.Conn) {},
		"after it":                   read,
		"in the headers":             func(c net.Conn) { read(c); _, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Le")) },
		"in the body": func(c net.Conn) {
			read(c)
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{\"a\""))
		},
		"with rubbish": func(c net.Conn) { read(c); _, _ = c.Write([]byte("\x00\x01\x02 what\r\n\r\n")) },
	} {
		for _, effects := range everyEffects {
			url, count := cutter(t, func(n int, conn net.Conn) {
				if n == 1 {
					how(conn)
					return
				}
				read(conn)
				_, _ = conn.Write([]byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n42"))
			})
			got, err := use(t, makeTool(t, url, Config{Effects: effects}))
			tries := count()
			if effects == session.Unsafe {
				if !errors.Is(err, tool.ErrOutcomeUnknown) || tries != 1 {
					t.Errorf("%s, cut %s: %v after %d tries", effects, name, err, tries)
				}
			} else if err != nil || string(got.Value) != "42" || tries != 2 {
				t.Errorf("%s, cut %s: %s, %v after %d tries", effects, name, got.Value, err, tries)
			}
		}
	}
}

func TestWhatWasNeverSentDidNothing(t *testing.T) {
	url, count := cutter(t, func(int, net.Conn) {})
	count() // nobody listens there any more
	for _, effects := range everyEffects {
		_, err := use(t, makeTool(t, url, Config{Effects: effects}))
		if codeOf(err) != CodeUnavailable || errors.Is(err, tool.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "Nothing was done") {
			t.Errorf("%s: %v", effects, err)
		}
	}
}

func TestAServiceThatDoesNotAnswerInTime(t *testing.T) {
	for _, body := range []bool{false, true} { // nothing, or a body that never ends
		hang := func(w http.ResponseWriter, r *http.Request, _ int) {
			if body {
				_, _ = w.Write([]byte(`{"slow":`))
				_ = http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
		}
		s := serve(t, hang)
		if _, err := use(t, makeTool(t, s.URL, Config{Timeout: 500 * time.Millisecond})); !errors.Is(err, tool.ErrOutcomeUnknown) {
			t.Errorf("unsafe: %v", err)
		}
		if _, err := use(t, makeTool(t, s.URL, Config{Timeout: 500 * time.Millisecond, Effects: session.Idempotent})); codeOf(err) != tool.CodeTimeout {
			t.Errorf("idempotent: %v", err)
		}
		s = serve(t, func(w http.ResponseWriter, r *http.Request, n int) {
			if n == 1 {
				hang(w, r, n)
				return
			}
			always(200, "application/json", `7`)(w, r, n)
		})
		got, err := use(t, makeTool(t, s.URL, Config{TryTimeout: 500 * time.Millisecond, Effects: session.Idempotent}))
		if err != nil || string(got.Value) != "7" {
			t.Errorf("with a timeout of a try: %s, %v", got.Value, err)
		}
	}
}

func TestACallThatIsToldToStopStops(t *testing.T) {
	stop := errors.New("stop")
	for _, effects := range everyEffects {
		ctx, cancel := context.WithCancelCause(t.Context())
		s := serve(t, func(_ http.ResponseWriter, r *http.Request, _ int) {
			cancel(stop)
			<-r.Context().Done()
		})
		_, err := useIn(ctx, makeTool(t, s.URL, Config{Effects: effects}))
		if unknown := errors.Is(err, tool.ErrOutcomeUnknown); unknown != (effects == session.Unsafe) || !unknown && !errors.Is(err, stop) {
			t.Errorf("%s: %v", effects, err)
		}
	}
}

// What is told of a failure goes into the log and to the model.
func TestNoErrorShowsASecret(t *testing.T) {
	t.Setenv("DO_SECRET", "whsec_"+secret)
	url, count := cutter(t, func(_ int, conn net.Conn) { read(conn) })
	_, err := use(t, makeTool(t, url+"/hook?key=hidden", Config{SecretEnv: "DO_SECRET"}))
	count()
	if err == nil || strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), secret) {
		t.Errorf("the error is %v", err)
	}
}
