package server_test

import "testing"

func TestSmoke(t *testing.T) {
	w := newWorld(t, worldOptions{})
	out := w.say("ses_1", "msg_1", "hello")
	t.Logf("%+v", out)
	for _, p := range []string{"/v1/sessions", "/v1/sessions/ses_1", "/v1/sessions/ses_1/messages", "/v1/sessions/ses_1/events", "/v1/runs", "/v1/runs/" + out.Run.ID, "/v1/approvals", "/v1/agents", "/healthz", "/readyz", "/nope", "/v1/sessions/%00", "/v1/runs?x=1", "/v1/connect"} {
		a := w.do("GET", p, nil)
		t.Logf("%s %d %s", p, a.status, a.body)
	}
	a := w.do("GET", "/v1/openapi.json", nil)
	t.Logf("%d %s", a.status, a.body)
	a = w.do("PUT", "/v1/sessions", "{}")
	t.Logf("%d %s %s", a.status, a.body, a.header)
	a = w.do("POST", "/v1/sessions/ses_1/messages", `{"ID":"x","parts":[]}`)
	t.Logf("%d %s", a.status, a.body)
	a = w.do("POST", "/v1/sessions/ses_1/messages", `{"id":"x/","parts":[]}`)
	t.Logf("%d %s", a.status, a.body)
	a = w.do("POST", "/v1/sessions", nil)
	t.Logf("%d %s", a.status, a.body)
}
