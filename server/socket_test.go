package server_test

import (
	"testing"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
)

// socket is an open WebSocket.
type socket struct {
	t    testing.TB
	conn *websocket.Conn
}

func (w *world) socket() *socket {
	w.t.Helper()
	conn, res, err := websocket.Dial(w.t.Context(), w.url+"/v1/connect", nil)
	if err != nil {
		w.t.Fatalf("%v %v", res, err)
	}
	conn.SetReadLimit(16 << 20)
	w.t.Cleanup(func() { conn.CloseNow() })
	return &socket{w.t, conn}
}

type wsFrame struct {
	Type, ID, Session, Code string
	From, To, Head, After   int64
	RetryAfterMs            int64
	Events                  []session.Event
	Upsert                  []struct{ ID, Title string }
	Removed                 []string
}

func (s *socket) send(v any) {
	s.t.Helper()
	if err := wsjson.Write(s.t.Context(), s.conn, v); err != nil {
		s.t.Fatal(err)
	}
}

// next reads a frame that is no heartbeat.
func (s *socket) next() (f wsFrame) {
	s.t.Helper()
	for {
		f = wsFrame{}
		if err := wsjson.Read(s.t.Context(), s.conn, &f); err != nil {
			s.t.Fatal(err)
		}
		if f.Type != "heartbeat" {
			return f
		}
	}
}

func (s *socket) follow(id string, after, until int64) {
	s.t.Helper()
	s.send(map[string]any{"type": "subscribe", "id": "a", "session": id, "after": after})
	if f := s.next(); f.Type != "subscribed" || f.ID != "a" {
		s.t.Errorf("answered %+v", f)
	}
	for after < until {
		f := s.next()
		if f.Type != "events" || f.From != after+1 || f.Session != id {
			s.t.Errorf("after %d came %+v", after, f)
			return
		}
		for _, e := range f.Events {
			if e.Seq != after+1 {
				s.t.Errorf("after %d came %d", after, e.Seq)
			}
			after = e.Seq
		}
		if after != f.To {
			s.t.Errorf("the frame to %d ends at %d", f.To, after)
		}
	}
}

func TestAWebSocketFollowsSessionsAndTheirList(t *testing.T) {
	w := newWorld(t, worldOptions{})
	w.say("ses_1", "msg_1", "hello")
	s := w.socket()
	s.send(map[string]any{"type": "subscribe", "id": "list", "sessions": true})
	if f := s.next(); f.Type != "subscribed" || f.ID != "list" {
		t.Errorf("answered %+v", f)
	}
	s.send(map[string]any{"type": "subscribe", "id": "no", "session": "ses_none"})
	if f := s.next(); f.Type != "error" || f.ID != "no" || f.Code != "not_found" {
		t.Errorf("answered %+v", f)
	}
	w.do("POST", "/v1/sessions", api.CreateSession{ID: "ses_2", Title: "second"}).is(201)
	if f := s.next(); f.Type != "sessions" || len(f.Upsert) != 1 || f.Upsert[0].Title != "second" {
		t.Errorf("told %+v", f)
	}
	w.do("DELETE", "/v1/sessions/ses_2", nil).is(204)
	if f := s.next(); f.Type != "sessions" || len(f.Removed) != 1 || f.Removed[0] != "ses_2" {
		t.Errorf("told %+v", f)
	}
	if got := w.srv.Streams(); got != 1 {
		t.Errorf("%d streams are open", got)
	}
}
