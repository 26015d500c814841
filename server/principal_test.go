package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/server"
	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
)

// byHeader is a principal that a header names.
func byHeader(r *http.Request) (holdfast.Principal, error) {
	tenant, owner, ok := strings.Cut(r.Header.Get("X-Test-User"), "/")
	if !ok {
		return holdfast.Principal{}, errors.New("no user: secret reason")
	}
	return holdfast.Principal{Tenant: tenant, Owner: owner}, nil
}

func TestWhatIsAnothersAnswersLikeWhatDoesNotExist(t *testing.T) {
	w := newWorld(t, worldOptions{server: server.Options{Principal: byHeader}})
	own, other := []string{"X-Test-User", "acme/ann"}, []string{"X-Test-User", "acme/bob"}
	var sent api.MessageAccepted
	w.do("POST", "/v1/sessions/ses_1/messages", `{"id":"msg_1","parts":[{"type":"text","text":"hello"}]}`, own...).into(202, &sent)
	w.ask(w.claim(), "apr_1", `{}`)
	w.do("POST", "/v1/sessions/ses_1/messages", `{"id":"msg_2","parts":[{"type":"text","text":"hello"}]}`, own...).is(202)
	blob, err := w.store.PutBlob(t.Context(), "ses_1", "text/plain", strings.NewReader("large"))
	if err != nil {
		t.Fatal(err)
	}
	w.do("GET", "/v1/sessions/ses_1/blobs/"+blob.Hash, nil, own...).is(200)

	bodies := map[string]string{
		"updateSession": `{"title":"mine now"}`, "editInbox": `{"parts":[{"type":"text","text":"x"}]}`, "decideApproval": `{"decision":"approve"}`,
		"resolveTool": `{"outcome":"failed"}`, "cancelRun": `{}`, "retryRun": `{}`, "forkSession": `{"message":"msg_1"}`, "listMessages": "",
	}
	// A page asks for a chat before it says the first word in it.
	quietly := map[string]int{"getChat": 200, "getChatMessages": 200, "resumeChat": 204, "stopChat": 200}
	tried := 0
	for path, item := range w.doc.paths {
		if !strings.Contains(path, "{id}") {
			continue
		}
		for method, op := range item {
			if op.OperationID == "sendMessage" {
				continue // see below: it begins a session that does not exist
			}
			real, none := "ses_1", "ses_0"
			switch {
			case strings.HasPrefix(path, "/v1/runs/"):
				real, none = sent.Run.ID, "run_none"
			case strings.HasPrefix(path, "/v1/approvals/"):
				real, none = "apr_1", "apr_none"
			}
			concrete := func(id string) string {
				return strings.NewReplacer("{id}", id, "{message}", "msg_2", "{call}", "call_apr_1", "{hash}", blob.Hash, "{step}", "1").Replace(path)
			}
			var body any
			if b := bodies[op.OperationID]; b != "" {
				body = b
			}
			as := append([]string{"Accept", "text/event-stream", "Last-Event-ID", "1"}, other...)
			got, missing := w.do(strings.ToUpper(method), concrete(real), body, as...), w.do(strings.ToUpper(method), concrete(none), body, as...)
			if status, quiet := quietly[op.OperationID]; quiet {
				got.is(status)
				missing.body = []byte(strings.ReplaceAll(string(missing.body), none, real))
			} else {
				got.problem(404, api.NotFound)
			}
			if string(got.body) != string(missing.body) || fmt.Sprint(fixed(got.header)) != fmt.Sprint(fixed(missing.header)) {
				t.Errorf("%s: another's answers %s %v\nand nobody's %s %v", op.OperationID, got.body, fixed(got.header), missing.body, fixed(missing.header))
			}
			tried++
		}
	}
	if tried < 14 {
		t.Errorf("tried only %d routes", tried)
	}
	w.do("POST", "/v1/sessions", `{"id":"ses_1"}`, other...).problem(404, api.NotFound)
	w.do("POST", "/v1/sessions/ses_1/messages", `{"id":"msg_9","parts":[{"type":"text","text":"x"}]}`, other...).problem(404, api.NotFound)
	// A repetition of what was accepted is no way in.
	w.do("POST", "/v1/sessions/ses_1/messages", `{"id":"msg_1","parts":[{"type":"text","text":"hello"}]}`, other...).problem(404, api.NotFound)
	for _, path := range []string{"/v1/sessions", "/v1/runs?session=ses_1", "/v1/approvals?session=ses_1&run=" + sent.Run.ID} {
		a := w.do("GET", path, nil, other...).is(200)
		if string(a.body) != "{\"items\":[]}\n" {
			t.Errorf("%s shows %s", path, a.body)
		}
	}
	conn, _, err := websocket.Dial(t.Context(), w.url+"/v1/connect", &websocket.DialOptions{HTTPHeader: http.Header{"X-Test-User": {"acme/bob"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	s := &socket{t, conn}
	for _, id := range []string{"ses_1", "ses_none"} {
		s.send(map[string]any{"type": "subscribe", "id": "x", "session": id})
		if f := s.next(); f.Type != "error" || f.Code != "not_found" {
			t.Errorf("%s: %+v", id, f)
		}
	}
	var snap holdfast.Snapshot
	w.do("GET", "/v1/sessions/ses_1", nil, own...).into(200, &snap)
	if snap.Session.Title != "hello" || len(snap.Approvals) != 1 || len(snap.Inbox) != 1 || snap.Approvals[0].Status != session.StatusPending {
		t.Errorf("something was changed: %+v", snap)
	}
}

// fixed is a header without what differs from answer to answer.
func fixed(h http.Header) http.Header {
	h = h.Clone()
	h.Del("X-Request-Id")
	h.Del("Date")
	return h
}

func TestWhoIsNobodyIsToldNothing(t *testing.T) {
	w := newWorld(t, worldOptions{server: server.Options{Principal: byHeader}})
	for path, item := range w.doc.paths {
		for method, op := range item {
			concrete := regexp.MustCompile(`\{[a-z]+\}`).ReplaceAllString(path, "x")
			a := w.do(strings.ToUpper(method), concrete, nil, "Accept", "application/json")
			switch op.OperationID {
			case "healthz", "readyz", "openapi":
				a.is(200)
			case "completeCall": // its token says all there is to say
				a.problem(404, api.NotFound)
			default:
				a.problem(401, api.Unauthenticated)
			}
			if strings.Contains(string(a.body), "secret") {
				t.Errorf("%s leaks: %s", op.OperationID, a.body)
			}
		}
	}
}

func TestAPrincipalMayRefuseInItsOwnWords(t *testing.T) {
	w := newWorld(t, worldOptions{server: server.Options{Principal: func(*http.Request) (holdfast.Principal, error) {
		return holdfast.Principal{}, &api.Problem{Type: "about:blank", Title: "Forbidden", Status: 403, Code: "suspended", Detail: "not today"}
	}}})
	w.do("GET", "/v1/sessions", nil).problem(403, "suspended")
	w.do("GET", "/v1/sessions/ses_1/events", nil).problem(403, "suspended")
}

func TestABlobIsADownloadWithRanges(t *testing.T) {
	w := newWorld(t, worldOptions{})
	w.say("ses_1", "msg_1", "hello")
	w.say("ses_2", "msg_1", "hello")
	blob, err := w.store.PutBlob(t.Context(), "ses_1", "text/html; charset=utf-8", strings.NewReader("<script>0123456789</script>"))
	if err != nil {
		t.Fatal(err)
	}
	path := "/v1/sessions/ses_1/blobs/" + blob.Hash
	a := w.do("GET", path, nil).is(200)
	for name, want := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff",
		"ETag": `"` + blob.Hash + `"`, "Cache-Control": "private, immutable, max-age=31536000", "Content-Security-Policy": "default-src 'none'; sandbox",
		"Accept-Ranges": "bytes",
	} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if string(a.body) != "<script>0123456789</script>" {
		t.Errorf("the bytes are %q", a.body)
	}
	if a = w.do("GET", path, nil, "Range", "bytes=8-17").is(206); string(a.body) != "0123456789" {
		t.Errorf("the range is %q", a.body)
	}
	w.do("GET", path, nil, "Range", "bytes=99-").problem(416, api.RangeNotSatisfiable)
	if a = w.do("GET", path, nil, "If-None-Match", `"`+blob.Hash+`"`).is(304); len(a.body) != 0 {
		t.Errorf("304 with %q", a.body)
	}
	w.do("GET", path, nil, "If-Match", `"other"`).is(200)
	if a = w.do("HEAD", path, nil).is(200); len(a.body) != 0 || a.header.Get("Content-Length") != "27" {
		t.Errorf("HEAD: %v %q", a.header, a.body)
	}
	w.do("GET", "/v1/sessions/ses_2/blobs/"+blob.Hash, nil).problem(404, api.NotFound)
	odd, err := w.store.PutBlob(t.Context(), "ses_1", "no type\r\nX-Evil: 1", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	if a = w.do("GET", "/v1/sessions/ses_1/blobs/"+odd.Hash, nil).is(200); a.header.Get("Content-Type") != "application/octet-stream" || a.header.Get("X-Evil") != "" {
		t.Errorf("an odd type becomes %v", a.header)
	}
	var raw json.RawMessage
	w.do("GET", "/v1/sessions/ses_1/blobs/"+strings.ToUpper(blob.Hash), nil).into(400, &raw)
}
