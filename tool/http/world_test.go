package httptool

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// seen is a request that a service got.
type seen struct {
	header http.Header
	body   []byte
	at     time.Time
}

// service is an endpoint that answers as a test says and remembers what it got.
type service struct {
	*httptest.Server
	mu  sync.Mutex
	got []seen // guarded by mu
}

// serve starts a service. answer is told which request it is, from 1.
func serve(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, n int)) *service {
	t.Helper()
	s := &service{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.got = append(s.got, seen{r.Header.Clone(), body, time.Now()})
		n := len(s.got)
		s.mu.Unlock()
		answer(w, r, n)
	}))
	t.Cleanup(s.Close)
	return s
}

// always answers each request the same.
func always(status int, kind, body string, headers ...string) func(http.ResponseWriter, *http.Request, int) {
	return func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.Header().Set("Content-Type", kind)
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func (s *service) requests() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]seen(nil), s.got...)
}

const (
	key    = "run_1.call_1"
	secret = "c2VjcmV0IG9mIHRoaXJ0eS10d28gYnl0ZXMgb3Igc28="
)

// make gives a tool with short pauses.
func makeTool(t *testing.T, url string, c Config) tool.Tool {
	t.Helper()
	c.URL, c.AllowPrivate, c.Description = url, true, "Does it."
	c.Check("do", func(path, format string, args ...any) { t.Fatalf("%s: "+format, append([]any{path}, args...)...) })
	made, err := New("do", c, Options{Version: "7", Callback: func(call tool.Call) string { return "https://agents.example.com/v1/callbacks/of-" + call.ID }})
	if err != nil {
		t.Fatal(err)
	}
	made.(*endpoint).first = time.Millisecond
	return made
}

// use makes a call as an engine does.
func use(t *testing.T, made tool.Tool) (tool.Result, error) {
	t.Helper()
	return useIn(t.Context(), made)
}

func useIn(ctx context.Context, made tool.Tool) (tool.Result, error) {
	return tool.Run(ctx, made, tool.Call{
		ID: "call_1", Arguments: json.RawMessage(`{"id":2512292042121000001,"html":"<b>"}`), IdempotencyKey: key,
		Session: "ses_1", Run: "run_1", Attempt: 1,
	})
}

func codeOf(err error) string {
	var told *tool.Error
	if errors.As(err, &told) {
		return told.Code
	}
	return ""
}

// verify is what a service does with a signature, as the specification of
// Standard Webhooks says it.
func verify(r seen, secret string) bool {
	raw, err := base64.StdEncoding.DecodeString(secret)
	if err != nil {
		return false
	}
	mac := hmac.New(sha256.New, raw)
	_, _ = io.WriteString(mac, strings.Join([]string{r.header.Get("webhook-id"), r.header.Get("webhook-timestamp"), string(r.body)}, "."))
	for given := range strings.FieldsSeq(r.header.Get("webhook-signature")) {
		version, code, _ := strings.Cut(given, ",")
		sum, err := base64.StdEncoding.DecodeString(code)
		if version == "v1" && err == nil && hmac.Equal(sum, mac.Sum(nil)) {
			return true
		}
	}
	return false
}

var everyEffects = []session.Effects{session.ReadOnly, session.Idempotent, session.Unsafe}
