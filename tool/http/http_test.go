package httptool

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

func TestACallIsAPostThatSaysWhatAndIsSigned(t *testing.T) {
	t.Setenv("DO_SECRET", "whsec_"+secret)
	t.Setenv("DO_TOKEN", "Bearer x")
	s := serve(t, always(200, "application/json", `{"ok":true}`))
	made := makeTool(t, s.URL+"/do?team=a", Config{SecretEnv: "DO_SECRET", Headers: map[string]string{"X-Team": "b"}, HeadersEnv: map[string]string{"Authorization": "DO_TOKEN"}})
	if _, err := use(t, made); err != nil {
		t.Fatal(err)
	}
	got := s.requests()[0]
	want := `{"call":"call_1","tool":"do","arguments":{"id":2512292042121000001,"html":"<b>"},"session":"ses_1","run":"run_1","attempt":1}`
	if string(got.body) != want {
		t.Errorf("the body is  %s\n     and not %s", got.body, want)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Idempotency-Key": key, "Webhook-Id": key, "User-Agent": "holdfast/7", "X-Team": "b", "Authorization": "Bearer x",
	} {
		if is := got.header.Get(name); is != value {
			t.Errorf("%s is %q, not %q", name, is, value)
		}
	}
	if !verify(got, secret) {
		t.Errorf("the signature %q is wrong", got.header.Get("Webhook-Signature"))
	}
	got.body = append(got.body, ' ')
	if verify(got, secret) {
		t.Error("the signature is not of the body")
	}
}

func TestWithoutASecretNothingIsSigned(t *testing.T) {
	s := serve(t, always(200, "application/json", `1`))
	if _, err := use(t, makeTool(t, s.URL, Config{})); err != nil {
		t.Fatal(err)
	}
	if h := s.requests()[0].header; h.Get("Webhook-Signature") != "" || h.Get("Webhook-Id") != key {
		t.Errorf("the headers are %v", h)
	}
}

// TD-04: odd but legal results are each one result, byte for byte. TD-03: so are large numbers.
func TestEveryJSONAnswerIsTheResult(t *testing.T) {
	for _, value := range []string{
		`null`, `""`, `0`, `false`, `[]`, `{}`, `"null"`, `{"__proto__":{"x":1},"constructor":1}`, `{"type":"finish"}`,
		`{"a":1,"a":2}`, `{"big":9007199254740993}`, `1e400`,
	} {
		s := serve(t, always(200, "application/json; charset=utf-8", value))
		got, err := use(t, makeTool(t, s.URL, Config{}))
		if err != nil || string(got.Value) != value || len(got.Files) > 0 {
			t.Errorf("%s gave %s, %v", value, got.Value, err)
		}
	}
	deep := strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)
	for _, bad := range []string{deep, `{"a":`, `{} {}`, `<html>`} {
		s := serve(t, always(200, "application/json", bad))
		_, err := use(t, makeTool(t, s.URL, Config{Effects: session.Idempotent}))
		if codeOf(err) != tool.CodeInvalidResult || len(s.requests()) != 1 {
			t.Errorf("%.20s: %v after %d requests", bad, err, len(s.requests()))
		}
	}
}

func TestTextIsAStringAndAnythingElseAFile(t *testing.T) {
	for _, c := range []struct{ status, kind, body, want string }{
		{"200", "text/plain; charset=utf-8", "grüß\x00\n", `"grüß\u0000\n"`},
		{"201", "text/plain; charset=iso-8859-1", "gr\xfc\xdf", `"grüß"`},
		{"200", "text/csv", "a,b", `"a,b"`},
		{"200", "application/vnd.x+json", `{"a": 1}`, `{"a":1}`},
		{"204", "", "", `null`},
		{"202", "text/plain", "taken", `"taken"`}, // this tool is not async
	} {
		status := map[string]int{"200": 200, "201": 201, "202": 202, "204": 204}[c.status]
		s := serve(t, always(status, c.kind, c.body))
		got, err := use(t, makeTool(t, s.URL, Config{}))
		if err != nil || string(got.Value) != c.want {
			t.Errorf("%s %q gave %s, not %s; %v", c.kind, c.body, got.Value, c.want, err)
		}
	}
	s := serve(t, always(200, "image/png", "\x89PNG", "Content-Disposition", `attachment; filename="../../ca\\t.png"`))
	got, err := use(t, makeTool(t, s.URL, Config{}))
	if err != nil || len(got.Files) != 1 || got.Files[0].MediaType != "image/png" || string(got.Files[0].Content) != "\x89PNG" || strings.ContainsAny(got.Files[0].Name, `/\`) {
		t.Errorf("a picture gave %+v, %v", got, err)
	}
}

// TD-01: an answer without an end is read up to a bound that is said.
func TestAnAnswerWithoutEndIsBounded(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.Header().Set("Content-Type", "text/plain")
		chunk := []byte(strings.Repeat("a", 1<<20))
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	if _, err := use(t, makeTool(t, s.URL, Config{})); codeOf(err) != tool.CodeInvalidResult || !strings.Contains(err.Error(), "16777216 bytes") {
		t.Errorf("it gave %v", err)
	}
}

func TestARefusalIsToldInTheServicesOwnWords(t *testing.T) {
	for _, c := range []struct {
		status           int
		kind, body       string
		code, saysInFull string
	}{
		{404, "application/problem+json", `{"title":"Not Found","detail":"There is no ticket 7.","code":"no_ticket"}`, "no_ticket", "The service answered HTTP 404 Not Found: There is no ticket 7."},
		{422, "application/json", `{"error":{"code":"bad_input","message":"title is missing"}}`, "bad_input", "The service answered HTTP 422 Unprocessable Entity: title is missing"},
		{400, "application/json", `{"error":"no"}`, "http_400", "The service answered HTTP 400 Bad Request: no"},
		{400, "application/json", `{"x":1}`, "http_400", `The service answered HTTP 400 Bad Request: {"x":1}`},
		{409, "text/plain", "busy\n", "http_409", "The service answered HTTP 409 Conflict: busy"},
		{403, "text/html", "<html>", "http_403", "The service answered HTTP 403 Forbidden"},
		{410, "application/json", `{`, "http_410", "The service answered HTTP 410 Gone"},
		{400, "application/json", `{"code":"a b","message":7}`, "http_400", `The service answered HTTP 400 Bad Request: {"code":"a b","message":7}`},
	} {
		s := serve(t, always(c.status, c.kind, c.body))
		for _, effects := range everyEffects {
			_, err := use(t, makeTool(t, s.URL, Config{Effects: effects}))
			if codeOf(err) != c.code || err.Error() != c.saysInFull {
				t.Errorf("%s: %d %s is told as %q, %v", effects, c.status, c.body, codeOf(err), err)
			}
		}
		if n := len(s.requests()); n != len(everyEffects) {
			t.Errorf("%d was asked %d times", c.status, n)
		}
	}
}

func TestAServiceThatMayAnswerLaterIsToldWhere(t *testing.T) {
	s := serve(t, always(202, "", ""))
	before := time.Now()
	got, err := use(t, makeTool(t, s.URL, Config{Async: &Async{Timeout: time.Hour}}))
	if err != nil || got.Deferred == nil {
		t.Fatalf("it gave %+v, %v", got, err)
	}
	var body struct{ Callback promise }
	if err := json.Unmarshal(s.requests()[0].body, &body); err != nil {
		t.Fatal(err)
	}
	until := got.Deferred.Until
	if body.Callback.URL != "https://agents.example.com/v1/callbacks/of-call_1" || !body.Callback.Until.Equal(until) {
		t.Errorf("the callback is %+v, and the call waits until %v", body.Callback, until)
	}
	if wait := until.Sub(before); wait < time.Hour-time.Second || wait > time.Hour+time.Minute {
		t.Errorf("it waits for %v", wait)
	}
	s = serve(t, always(200, "application/json", `"at once"`))
	if got, err := use(t, makeTool(t, s.URL, Config{Async: &Async{}})); err != nil || got.Deferred != nil || string(got.Value) != `"at once"` {
		t.Errorf("an answer at once gave %+v, %v", got, err)
	}
}

func TestOnlyTheSamePostToTheSameHostIsRedirected(t *testing.T) {
	other := serve(t, always(200, "application/json", `"other"`))
	for status, follows := range map[int]bool{301: false, 302: false, 303: false, 307: true, 308: true} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request, n int) {
			if r.URL.Path == "/here" {
				always(200, "application/json", `"here"`)(w, r, n)
				return
			}
			http.Redirect(w, r, r.URL.Query().Get("to"), status)
		})
		got, err := use(t, makeTool(t, s.URL+"/?to=/here", Config{}))
		if follows {
			if all := s.requests(); err != nil || string(got.Value) != `"here"` || len(all) != 2 || string(all[0].body) != string(all[1].body) {
				t.Errorf("%d gave %s, %v", status, got.Value, err)
			}
		} else if codeOf(err) != "http_"+itoa(status) {
			t.Errorf("%d gave %s, %v", status, got.Value, err)
		}
		if _, err := use(t, makeTool(t, s.URL+"/?to="+other.URL, Config{})); codeOf(err) != "http_"+itoa(status) || !strings.Contains(err.Error(), "redirects") {
			t.Errorf("%d to another host gave %v", status, err)
		}
	}
	if n := len(other.requests()); n != 0 {
		t.Errorf("another host was asked %d times", n)
	}
	s := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		http.Redirect(w, r, "/", http.StatusTemporaryRedirect)
	})
	if _, err := use(t, makeTool(t, s.URL, Config{})); codeOf(err) != "http_307" {
		t.Errorf("a circle gave %v", err)
	}
}

func TestPrivateAddressesAreRefusedHoweverTheyAreNamed(t *testing.T) {
	s := serve(t, always(200, "application/json", `1`))
	port := s.URL[strings.LastIndexByte(s.URL, ':'):]
	// A name that resolves to a private address is only seen when it is dialled.
	for _, target := range []string{"http://127.0.0.1" + port, "http://localhost" + port, "http://[::ffff:127.0.0.1]" + port, "http://169.254.169.254/", "http://10.0.0.1/"} {
		made, err := New("do", Config{URL: target, Description: "d"}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := use(t, made); codeOf(err) != CodeBlocked {
			t.Errorf("%s gave %v", target, err)
		}
	}
	if len(s.requests()) != 0 {
		t.Error("a request got through")
	}
}
