package server_test

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// FuzzBodies looks for a body, a path or a query that the server answers with a
// fault of its own or without a word.
func FuzzBodies(f *testing.F) {
	for _, body := range []string{
		`{"id":"msg_1","parts":[{"type":"text","text":"hi"}]}`, `{"title":"x","metadata":{"a":[1,{"b":null}]}}`,
		`{"decision":"approve","arguments":{"n":1e999}}`, `{"outcome":"happened","result":[[[]]]}`, `{"id":"\ud800"}`, "{\"id\":\"\xff\"}",
		`null`, `[]`, `""`, `{`, ``, ` `, `{"parts":[{"type":"file","file":{"mediaType":"a/b","url":"data:,x"}}]}`, `{"a":1,"a":2}`, `{"":1}`,
	} {
		f.Add(body, "ses_1", "limit=1")
	}
	w := newWorld(f, worldOptions{})
	w.say("ses_1", "msg_1", "hello")
	f.Fuzz(func(t *testing.T, body, id, query string) {
		for _, route := range []string{
			"POST /v1/sessions", "PATCH /v1/sessions/{}", "POST /v1/sessions/{}/messages", "PATCH /v1/sessions/{}/inbox/{}", "POST /v1/runs/{}/cancel",
			"POST /v1/runs/{}/retry", "POST /v1/runs/{}/tools/{}", "POST /v1/approvals/{}",
			"GET /v1/sessions", "GET /v1/sessions/{}", "GET /v1/sessions/{}/messages", "GET /v1/sessions/{}/events", "GET /v1/runs", "GET /v1/approvals",
		} {
			method, path, _ := strings.Cut(route, " ")
			r := httptest.NewRequest(method, "http://localhost/", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			r.URL.Path, r.URL.RawQuery = strings.ReplaceAll(path, "{}", id), query
			answer := httptest.NewRecorder()
			w.srv.ServeHTTP(answer, r)
			if answer.Code >= 500 || answer.Body.Len() == 0 && answer.Code != 204 && answer.Code/100 != 3 {
				t.Errorf("%s %q?%q %q: %d %s", route, id, query, body, answer.Code, answer.Body)
			}
		}
	})
}
