package server_test

import (
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
)

const oneText = `"parts":[{"type":"text","text":"hi"}]`

func TestAMisspeltOrRepeatedFieldIsRefusedByName(t *testing.T) {
	w := newWorld(t, worldOptions{})
	for _, c := range []struct{ body, field string }{
		{`{"id":"msg_1",` + oneText + `,"onbusy":"reject"}`, "onbusy"},
		{`{"id":"msg_1",` + oneText + `,"nonsense":1}`, "nonsense"},
		{`{"ID":"msg_1",` + oneText + `}`, "ID"},
		{`{"id":"msg_1","ID":"../../x",` + oneText + `}`, "ID"},
		{`{"id":"msg_1","\u0069d":"msg_2",` + oneText + `}`, "id"},
		{`{"id":"msg_1",` + oneText + `,` + oneText + `}`, "parts"},
		{`{"id":"msg_1","parts":[{"type":"text","Text":"x","text":"hi"}]}`, "parts.0.Text"},
		{`{"id":"msg_1","parts":[{"type":"file","file":{"mediaType":"a/b","url":"https://x","path":"/etc"}}]}`, "parts.0.file.path"},
		{`{"id":"msg_1",` + oneText + `,"status":"completed"}`, "status"},
		{`{"id":"msg_1",` + oneText + `,"__proto__":{}}`, "__proto__"},
	} {
		p := w.do("POST", "/v1/sessions/ses_1/messages", c.body).problem(422, api.Invalid)
		if len(p.Errors) == 0 || p.Errors[0].Field != c.field {
			t.Errorf("%s: %+v, want the field %s", c.body, p.Errors, c.field)
		}
	}
	w.do("GET", "/v1/sessions/ses_1", nil).problem(404, api.NotFound)
}

func TestWhatIsPassedOnKeepsItsBytes(t *testing.T) {
	w := newWorld(t, worldOptions{})
	data := `{"b":1,"a":12345678901234567890,"a":1.10,"e":1e400,"s":"\u0000\u00e9<&>","deep":{"unknown":[1,{"x":null}]}}`
	w.do("POST", "/v1/sessions/ses_1/messages", `{"id":"msg_1", "parts":[ {"type":"data","data": `+strings.ReplaceAll(data, ",", " ,\n")+`} ]}`).is(202)
	// The white space between tokens is not kept, everything else is.
	for _, e := range w.events("ses_1") {
		if m, ok := e.Data.(session.MessageCreated); ok && string(m.Message.Parts[0].Data) != data {
			t.Errorf("became %s", m.Message.Parts[0].Data)
		}
	}
	a := w.do("GET", "/v1/sessions/ses_1", nil).is(200)
	if !strings.Contains(string(a.body), data) {
		t.Errorf("the snapshot has another form: %s", a.body)
	}
}

func TestTextIsCleanedAtTheDoor(t *testing.T) {
	w := newWorld(t, worldOptions{})
	for i, c := range []struct{ sent, kept string }{
		{`"a\u0000b"`, "a\x00b"},
		{`"\\u0000"`, `\u0000`},
		{`"x\ud83dy"`, "x\uFFFDy"},
		{`"x\ude00y"`, "x\uFFFDy"},
		{`"\ud83d\ude00"`, "😀"},
		{"\"x\xff\xfey\"", "x\uFFFDy"},
		{"\"\u2028\u2029\"", "\u2028\u2029"},
		{`"line\r\nline"`, "line\r\nline"},
	} {
		id := "ses_" + string(rune('a'+i))
		w.do("POST", "/v1/sessions/"+id+"/messages", `{"id":"msg_1","parts":[{"type":"text","text":`+c.sent+`}]}`).is(202)
		var page struct{ Messages []session.Message }
		w.do("GET", "/v1/sessions/"+id+"/messages", nil).into(200, &page)
		if got := page.Messages[0].Parts[0].Text; got != c.kept {
			t.Errorf("%s became %q, want %q", c.sent, got, c.kept)
		}
	}
}

func TestABodyIsBoundedAndNotTooDeep(t *testing.T) {
	w := newWorld(t, worldOptions{})
	text := func(n int) string {
		return `{"id":"msg_big","parts":[{"type":"text","text":"` + strings.Repeat("x", n) + `"}]}`
	}
	p := w.do("POST", "/v1/sessions/ses_1/messages", text(8<<20)).problem(413, api.TooLarge)
	if !strings.Contains(p.Detail, "8388608") {
		t.Errorf("the bound is not told: %s", p.Detail)
	}
	w.do("POST", "/v1/sessions/ses_1/messages", text(8<<20-1000)).is(202)
	w.do("POST", "/v1/sessions", `{"title":"`+strings.Repeat("x", 1<<20)+`"}`).problem(413, api.TooLarge)
	w.do("POST", "/v1/sessions", `{"metadata":{"x":`+strings.Repeat("[", 300)+strings.Repeat("]", 300)+`}}`).problem(400, api.Malformed)
}

func TestABodyMustBeJSONByName(t *testing.T) {
	w := newWorld(t, worldOptions{})
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp", "json", "application/json/x", ""} {
		w.sendRaw("POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+kind+"\r\nContent-Length: 2\r\n\r\n{}").problem(415, api.UnsupportedMediaType)
	}
	w.sendRaw("POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}").problem(415, api.UnsupportedMediaType)
	w.sendRaw("POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: Application/JSON; charset=utf-8\r\nContent-Length: 2\r\n\r\n{}").is(201)
	w.sendRaw("POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n").is(201)
}

func TestABodyThatIsCutOffWritesNothing(t *testing.T) {
	w := newWorld(t, worldOptions{})
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"id\":\"ses_cut\"}")); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	readAnswer(t, conn).problem(400, api.Malformed)
	w.do("GET", "/v1/sessions/ses_cut", nil).problem(404, api.NotFound)
}

func TestASlowBodyIsGivenUpInTime(t *testing.T) {
	w := newWorld(t, worldOptions{})
	w.srv.SetBodyTimeout(50 * time.Millisecond)
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")); err != nil {
		t.Fatal(err)
	}
	readAnswer(t, conn).problem(408, api.RequestTimeout)
}

func TestAnAnswerIsJSONWithoutHTMLEscapes(t *testing.T) {
	w := newWorld(t, worldOptions{})
	title := "<b> & \u2028"
	a := w.do("POST", "/v1/sessions", api.CreateSession{ID: "ses_1", Title: title}).is(201)
	if !strings.Contains(string(a.body), "<b> & ") || !json.Valid(a.body) {
		t.Errorf("answered %s", a.body)
	}
	if a.header.Get("Content-Type") != "application/json" || a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers are %v", a.header)
	}
	// Whatever is asked for, JSON is what there is.
	a = w.do("GET", "/v1/sessions/ses_1", nil, "Accept", "application/cbor, text/html").is(200)
	if a.header.Get("Content-Type") != "application/json" {
		t.Errorf("headers are %v", a.header)
	}
}
