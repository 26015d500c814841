package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/holdfast-run/holdfast/server"
	"github.com/holdfast-run/holdfast/server/api"
)

func TestOnlyHostsOfThisServerAreServed(t *testing.T) {
	w := newWorld(t, worldOptions{server: server.Options{AllowedHosts: []string{"Holdfast.internal", "box.lan:8787"}}})
	for host, served := range map[string]bool{
		"localhost": true, "localhost:8787": true, "LOCALHOST": true, "127.0.0.1": true, "127.0.0.1:80": true, "127.8.8.8": true, "[::1]": true, "[::1]:8787": true,
		"holdfast.internal": true, "HOLDFAST.internal:99": true, "box.lan:8787": true,
		"box.lan": false, "box.lan:80": false, "evil.example": false, "evil.example:8787": false, "localhost.evil.example": false,
		"127.0.0.1.evil.example": false, "0.0.0.0": false, "192.168.1.5": false, "localhost:80:80": false, "127.0.0.1@evil.example": false, "2130706433": false,
	} {
		for _, path := range []string{"/v1/sessions", "/healthz", "/v1/openapi.json", "/nowhere"} {
			a := w.do("GET", path, nil, "Host", host)
			if served && a.status == 403 {
				t.Errorf("%s %s: %d %s", host, path, a.status, a.body)
			}
			if !served {
				a.problem(403, api.ForbiddenHost)
			}
		}
	}
	any := newWorld(t, worldOptions{server: server.Options{AllowedHosts: []string{"*"}}})
	any.do("GET", "/healthz", nil, "Host", "evil.example").is(200)
}

func TestARequestWithoutAHostIsRefused(t *testing.T) {
	w := newWorld(t, worldOptions{})
	w.sendRaw("GET /v1/sessions HTTP/1.0\r\n\r\n").problem(403, api.ForbiddenHost)
}

func TestPagesOfOtherSitesMayNotUseTheServer(t *testing.T) {
	w := newWorld(t, worldOptions{server: server.Options{AllowedOrigins: []string{"https://App.example.com"}}})
	own := w.url
	port := own[strings.LastIndexByte(own, ':'):]
	for origin, allowed := range map[string]bool{
		own: true, "https" + strings.TrimPrefix(own, "http"): true, "https://app.example.com": true,
		"https://evil.example": false, "http://app.example.com": false, "https://app.example.com.evil.example": false, "https://app.example.com:444": false,
		"null": false, "": false, "http://127.0.0.1": false, "http://localhost" + port: false, "http://127.0.0.1:1": false,
		"file://" + strings.TrimPrefix(own, "http://"): false, "garbage": false, own + " " + own: false,
	} {
		for _, method := range []string{"GET", "POST"} {
			a := w.do(method, "/v1/sessions", map[string]string{"GET": "", "POST": "{}"}[method], "Origin", origin)
			if allowed && a.status >= 400 {
				t.Errorf("%s of %s: %d %s", method, origin, a.status, a.body)
			}
			if !allowed {
				a.problem(403, api.ForbiddenOrigin)
			}
		}
	}
	w.do("POST", "/v1/sessions", "{}", "Origin", own, "Origin", "https://evil.example").problem(403, api.ForbiddenOrigin)
	// A form or an image of another site comes without Origin from an old browser, with this from all others.
	w.do("POST", "/v1/sessions", "{}", "Sec-Fetch-Site", "cross-site").problem(403, api.ForbiddenOrigin)
	w.do("DELETE", "/v1/sessions/ses_1", nil, "Sec-Fetch-Site", "same-site").problem(403, api.ForbiddenOrigin)
	w.do("POST", "/v1/sessions", "{}", "Sec-Fetch-Site", "same-origin").is(201)
	w.do("GET", "/v1/sessions", nil, "Sec-Fetch-Site", "cross-site").is(200)
}

func TestAWebSocketOfAnotherSiteIsRefused(t *testing.T) {
	w := newWorld(t, worldOptions{})
	for origin, allowed := range map[string]bool{"https://evil.example": false, "null": false, w.url: true} {
		conn, res, err := websocket.Dial(t.Context(), w.url+"/v1/connect", &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {origin}}})
		if (err == nil) != allowed {
			t.Errorf("%s: %v %v", origin, res, err)
		}
		if err == nil {
			conn.CloseNow()
		}
	}
	_, res, err := websocket.Dial(t.Context(), w.url+"/v1/connect", &websocket.DialOptions{Host: "evil.example"})
	if err == nil || res.StatusCode != 403 {
		t.Errorf("another host: %v %v", res, err)
	}
}

func TestAnswersAreSharedOnlyWithAllowedSites(t *testing.T) {
	plain := newWorld(t, worldOptions{})
	for _, method := range []string{"GET", "OPTIONS"} {
		a := plain.do(method, "/v1/sessions", nil, "Origin", plain.url)
		for name := range a.header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s answers with %s", method, name)
			}
		}
	}
	w := newWorld(t, worldOptions{server: server.Options{AllowedOrigins: []string{"https://app.example.com"}}})
	a := w.do("OPTIONS", "/v1/sessions/ses_1/messages", nil, "Origin", "https://app.example.com", "Access-Control-Request-Method", "POST")
	if a.status != 204 || a.header.Get("Access-Control-Allow-Origin") != "https://app.example.com" || !strings.Contains(a.header.Get("Access-Control-Allow-Methods"), "PATCH") {
		t.Errorf("the preflight is answered %d %v", a.status, a.header)
	}
	a = w.do("GET", "/v1/sessions", nil, "Origin", "https://app.example.com").is(200)
	if a.header.Get("Access-Control-Allow-Origin") != "https://app.example.com" || !strings.Contains(a.header.Get("Vary"), "Origin") {
		t.Errorf("a read is answered %v", a.header)
	}
	a = w.do("OPTIONS", "/v1/sessions", nil, "Origin", "https://evil.example")
	a.problem(403, api.ForbiddenOrigin)
	if a = w.do("GET", "/v1/sessions", nil).is(200); a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("shared with nobody: %v", a.header)
	}
}

func TestHostsAndOriginsThatCannotBeAreRefusedAtTheStart(t *testing.T) {
	w := newWorld(t, worldOptions{})
	for _, opts := range []server.Options{
		{AllowedHosts: []string{"http://x"}},
		{AllowedHosts: []string{""}},
		{AllowedHosts: []string{"a b"}},
		{AllowedOrigins: []string{"example.com"}},
		{AllowedOrigins: []string{"*"}},
		{AllowedOrigins: []string{"https://x/path"}},
		{AllowedOrigins: []string{"https://user@x"}},
		{AllowedOrigins: []string{"https://"}},
	} {
		if _, err := server.New(w.rt, opts); err == nil {
			t.Errorf("%+v is taken", opts)
		}
	}
	if _, err := server.New(nil, server.Options{}); err == nil {
		t.Error("a server without a runtime is made")
	}
}

func TestEveryAnswerHasTheSecurityHeaders(t *testing.T) {
	w := newWorld(t, worldOptions{})
	for _, path := range []string{"/healthz", "/nowhere", "/v1/sessions", "/v1/runs/run_none", "/v1/openapi.json"} {
		a := w.do("GET", path, nil)
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin",
			"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
		} {
			if got := a.header.Get(name); got != want {
				t.Errorf("%s: %s is %q", path, name, got)
			}
		}
		if a.header.Get("Server") != "" {
			t.Errorf("%s says what it is served by", path)
		}
	}
}

func TestTheLogHasRequestsButNoBodiesAndNoCredentials(t *testing.T) {
	w := newWorld(t, worldOptions{})
	send := `{"id":"msg_1","parts":[{"type":"text","text":"sesame"}]}`
	a := w.do("POST", "/v1/sessions/ses_1/messages?x=sesame", send, "Authorization", "Bearer sesame", "Cookie", "sid=sesame")
	a.problem(422, api.Invalid)
	a = w.do("POST", "/v1/sessions/ses_1/messages", send, "Authorization", "Bearer sesame", "Cookie", "sid=sesame").is(202)
	w.do("POST", "/v1/sessions/ses_1/messages", `{"id":"sesame!","sesame":1}`)
	log := w.log.String()
	if strings.Contains(log, "sesame") {
		t.Errorf("the log tells:\n%s", log)
	}
	want := "request=" + a.header.Get("X-Request-Id") + ` method=POST route="POST /v1/sessions/{id}/messages" status=202`
	if !strings.Contains(log, want) {
		t.Errorf("the log does not have %s:\n%s", want, log)
	}
}
