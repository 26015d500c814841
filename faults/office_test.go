package faults

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/session"
)

const (
	httpSecret  = "YSBzZWNyZXQgb2YgdGhpcnR5LXR3byBieXRlcyEhISE="
	callbackKey = "6161616161616161616161616161616161616161616161616161616161616161"
)

// letter is a call as an office got it.
type letter struct {
	key  string
	body string
	said struct {
		Call, Tool, Session, Run string
		Attempt                  int
		Callback                 struct {
			URL   string
			Until time.Time
		}
	}
}

// office is a service of a team's own that works on calls.
type office struct {
	*httptest.Server
	t *testing.T
	// answer answers a call; set before it comes. Default: 202.
	answer func(w http.ResponseWriter, r *http.Request, l letter)
	mail   chan letter // each call as it comes
	mu     sync.Mutex
	got    []letter // guarded by mu
}

// newOffice opens one, and gives the tools that call it: book may be repeated,
// ask only reads, and buy must not be done twice.
func newOffice(t *testing.T) (*office, string) {
	t.Helper()
	o := &office{t: t, mail: make(chan letter, 64)}
	o.answer = func(w http.ResponseWriter, _ *http.Request, _ letter) { w.WriteHeader(http.StatusAccepted) }
	o.Server = httptest.NewServer(http.HandlerFunc(o.serve))
	t.Cleanup(o.Close)
	var b strings.Builder
	b.WriteString("http:\n")
	for name, effects := range map[string]string{"book": "idempotent", "ask": "read_only", "buy": "unsafe"} {
		fmt.Fprintf(&b, `  %s:
    url: %s
    description: Does it.
    parameters: {type: object}
    effects: %s
    approval: never
    timeout: 30s
    secretEnv: HTTP_SECRET
    allowPrivate: true
    async: {timeout: 2h}
`, name, o.URL, effects)
	}
	return o, b.String()
}

func (o *office) serve(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	l := letter{key: r.Header.Get("Idempotency-Key"), body: string(raw)}
	if err := json.Unmarshal(raw, &l.said); err != nil {
		o.t.Errorf("a call is no JSON: %s", raw)
	}
	secret, _ := base64.StdEncoding.DecodeString(httpSecret)
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), raw)
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); r.Header.Get("webhook-signature") != want {
		o.t.Errorf("a call is signed %q, not %q", r.Header.Get("webhook-signature"), want)
	}
	o.mu.Lock()
	o.got = append(o.got, l)
	answer := o.answer
	o.mu.Unlock()
	o.mail <- l
	answer(w, r, l)
}

// from are the calls that came of a session.
func (o *office) from(sessionID string) []letter {
	o.mu.Lock()
	defer o.mu.Unlock()
	var list []letter
	for _, l := range o.got {
		if l.said.Session == sessionID {
			list = append(list, l)
		}
	}
	return list
}

func (o *office) answers(answer func(w http.ResponseWriter, r *http.Request, l letter)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer = answer
}

// next is the next call that comes.
func (o *office) next() letter {
	o.t.Helper()
	select {
	case l := <-o.mail:
		return l
	case <-time.After(patience):
		o.t.Fatal("no call comes")
		return letter{}
	}
}

// tell ends a call at its callback URL. 0: the connection broke.
func tell(l letter, body string) int {
	res, err := http.Post(l.said.Callback.URL, "application/json", bytes.NewReader([]byte(body)))
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// begins scripts one call of a tool and an answer after it, and begins it.
func (w *world) begins(sessionID, name string) session.Run {
	w.t.Helper()
	w.llm.Script(
		fakellm.Reply(fakellm.Call{ID: "c", Name: name, Args: `{"to":"Lisbon"}`}).On(fakellm.Match{LastUser: "call " + sessionID}),
		fakellm.Reply(fakellm.Text("done")).On(fakellm.Match{LastUser: "call " + sessionID}))
	return w.submit(sessionID, "call "+sessionID)
}
