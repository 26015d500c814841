package feed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast-run/holdfast/feed"
	"github.com/holdfast-run/holdfast/store"
)

// socket is a client of the feed's WebSocket.
type socket struct {
	conn *websocket.Conn
}

// message is anything that the server sends.
type message struct {
	Type         string             `json:"type"`
	ID           string             `json:"id"`
	Session      string             `json:"session"`
	Sessions     bool               `json:"sessions"`
	After        *int64             `json:"after"`
	Head         *int64             `json:"head"`
	From         int64              `json:"from"`
	To           int64              `json:"to"`
	Events       []json.RawMessage  `json:"events"`
	Upsert       []store.SessionRow `json:"upsert"`
	Removed      []string           `json:"removed"`
	Code         string             `json:"code"`
	Detail       string             `json:"detail"`
	RetryAfterMs int64              `json:"retryAfterMs"`
}

func dial(ctx context.Context, url string) (*socket, error) {
	conn, _, err := websocket.Dial(ctx, url+"/socket", nil)
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(-1)
	return &socket{conn}, nil
}

func (s *socket) send(ctx context.Context, format string, args ...any) error {
	return s.conn.Write(ctx, websocket.MessageText, fmt.Appendf(nil, format, args...))
}

func (s *socket) next(ctx context.Context) (message, error) {
	var m message
	kind, raw, err := s.conn.Read(ctx)
	if err == nil && kind != websocket.MessageText {
		err = errors.New("not a text message")
	}
	if err == nil {
		err = json.Unmarshal(raw, &m)
	}
	return m, err
}

// readTo reads events messages of one session that join from a cursor on up to the given seq.
func (s *socket) readTo(ctx context.Context, session string, after, to int64) error {
	c := chain{after}
	for c.seq < to {
		m, err := s.next(ctx)
		if err != nil {
			return fmt.Errorf("after %d: %w", c.seq, err)
		}
		if m.Type == "heartbeat" {
			continue
		}
		if m.Type != "events" || m.Session != session || m.From != c.seq+1 {
			return fmt.Errorf("after %d comes %+v", c.seq, m)
		}
		for _, raw := range m.Events {
			var f frame
			if err := json.Unmarshal(raw, &f); err != nil {
				return err
			}
			if err := c.add(f.covers()); err != nil {
				return err
			}
		}
		if m.To != c.seq {
			return fmt.Errorf("a message to %d ends at %d", m.To, c.seq)
		}
	}
	return nil
}

// window is a client in a test that fails when anything does.
type window struct {
	*socket
	t   *testing.T
	ctx context.Context
}

func allow(context.Context, string) error { return nil }

func (w *world) window(opts feed.SocketOptions) *window {
	t := w.t.(*testing.T)
	t.Helper()
	if opts.Allow == nil {
		opts.Allow = allow
	}
	server := w.serve(opts)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	t.Cleanup(cancel)
	s, err := dial(ctx, server.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.conn.CloseNow() })
	return &window{s, t, ctx}
}

func (c *window) ask(format string, args ...any) {
	c.t.Helper()
	if err := c.send(c.ctx, format, args...); err != nil {
		c.t.Fatal(err)
	}
}

func (c *window) hear(kind string) message {
	c.t.Helper()
	m, err := c.next(c.ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	if m.Type != kind {
		c.t.Fatalf("got %+v, want %s", m, kind)
	}
	return m
}

func (c *window) follow(session string, after, to int64) {
	c.t.Helper()
	if err := c.readTo(c.ctx, session, after, to); err != nil {
		c.t.Fatal(err)
	}
}

func TestSocketsThatComeWhileEventsAreWrittenCarryEachOnce(t *testing.T) {
	w := newWorld(t, feed.Options{})
	server := w.serve(feed.SocketOptions{Allow: allow})
	comeAndGo(w, 2000, func(ctx context.Context, after, to int64) error {
		s, err := dial(ctx, server.URL)
		if err != nil {
			return err
		}
		defer s.conn.CloseNow()
		if err := s.send(ctx, `{"type":"subscribe","id":"1","session":"s","after":%d}`, after); err != nil {
			return err
		}
		m, err := s.next(ctx)
		if err != nil || m.Type != "subscribed" || m.ID != "1" || m.Session != "s" || *m.After != after || *m.Head < after {
			return fmt.Errorf("got %+v, %w", m, err)
		}
		return s.readTo(ctx, "s", after, to)
	})
}

func TestASocketFollowsManySessionsAndTheirList(t *testing.T) {
	w := newWorld(t, feed.Options{})
	w.write("a", 3)
	w.write("b", 3)
	c := w.window(feed.SocketOptions{Tenant: "t", Owner: "o"})
	c.ask(`{"type":"subscribe","id":"l","sessions":true}`)
	if m := c.hear("subscribed"); m.ID != "l" || !m.Sessions || m.Session != "" {
		t.Errorf("got %+v", m)
	}
	c.ask(`{"type":"subscribe","id":"1","session":"a"}`)
	if m := c.hear("subscribed"); m.ID != "1" || m.Session != "a" || *m.After != 0 || *m.Head != 3 {
		t.Errorf("got %+v", m)
	}
	c.follow("a", 0, 3)
	c.ask(`{"type":"subscribe","id":"2","session":"b","after":2}`)
	c.hear("subscribed")
	c.follow("b", 2, 3)
	w.write("b", 1)
	for range 2 {
		m, err := c.next(c.ctx)
		switch {
		case err != nil:
			t.Fatal(err)
		case m.Type == "events" && m.Session == "b" && m.From == 4:
		case m.Type == "sessions" && len(m.Upsert) == 1 && m.Upsert[0].ID == "b" && m.Removed != nil:
		default:
			t.Errorf("got %+v", m)
		}
	}
	c.ask(`{"type":"unsubscribe","id":"3","sessions":true}`)
	if m := c.hear("unsubscribed"); m.ID != "3" || !m.Sessions {
		t.Errorf("got %+v", m)
	}
	c.ask(`{"type":"unsubscribe","id":"4","session":"b"}`)
	if m := c.hear("unsubscribed"); m.ID != "4" || m.Session != "b" {
		t.Errorf("got %+v", m)
	}
	w.write("b", 1)
	w.write("a", 1)
	c.follow("a", 3, 4)
}

func TestSubscribingAgainMovesTheCursor(t *testing.T) {
	w := newWorld(t, feed.Options{})
	w.write("s", 50)
	c := w.window(feed.SocketOptions{})
	for i := range int64(50) {
		c.ask(`{"type":"subscribe","id":"%d","session":"s","after":%d}`, i, i)
	}
	for i, cursor := int64(0), int64(0); i < 50 || cursor < 50; {
		m, err := c.next(c.ctx)
		switch {
		case err != nil:
			t.Fatal(err)
		case m.Type == "subscribed" && m.ID == fmt.Sprint(i) && *m.After == i:
			cursor, i = i, i+1
		case m.Type == "events" && m.From == cursor+1:
			cursor = m.To
		default:
			t.Fatalf("at %d comes %+v", cursor, m)
		}
	}
	if got := w.hub.Stats().Readers; got != 1 {
		t.Errorf("%d readers", got)
	}
}

func TestASocketWithACursorAheadIsResetAndGetsTheWholeLog(t *testing.T) {
	w := newWorld(t, feed.Options{})
	w.write("s", 5)
	c := w.window(feed.SocketOptions{})
	c.ask(`{"type":"subscribe","id":"1","session":"s","after":900}`)
	if m := c.hear("subscribed"); *m.After != 0 || *m.Head != 5 {
		t.Errorf("got %+v", m)
	}
	if m := c.hear("reset"); m.Session != "s" || *m.Head != 5 {
		t.Errorf("got %+v", m)
	}
	c.follow("s", 0, 5)
}

func TestASocketIsToldOfADeletionAndGoesOn(t *testing.T) {
	w := newWorld(t, feed.Options{})
	w.write("s", 5)
	w.write("other", 5)
	c := w.window(feed.SocketOptions{})
	c.ask(`{"type":"subscribe","id":"1","session":"s","after":5}`)
	c.hear("subscribed")
	w.delete("s")
	if m := c.hear("deleted"); m.Session != "s" {
		t.Errorf("got %+v", m)
	}
	c.ask(`{"type":"subscribe","id":"2","session":"other"}`)
	c.hear("subscribed")
	c.follow("other", 0, 5)
}

func TestASocketRefusesWhatItMayNotShowAndGoesOn(t *testing.T) {
	w := newWorld(t, feed.Options{})
	w.write("s", 1)
	w.write("hidden", 1)
	w.write("down", 1)
	c := w.window(feed.SocketOptions{Allow: func(_ context.Context, id string) error {
		switch id {
		case "hidden":
			return store.ErrNotFound
		case "down":
			return fmt.Errorf("ask: %w", store.ErrUnavailable)
		case "odd":
			return errors.New("secret detail")
		}
		return nil
	}})
	for _, req := range []struct{ text, id, session, code string }{
		{`{"type":"subscribe","id":"1","session":"hidden"}`, "1", "hidden", "not_found"},
		{`{"type":"subscribe","id":"2","session":"missing"}`, "2", "missing", "not_found"},
		{`{"type":"subscribe","id":"3","session":"down"}`, "3", "down", "unavailable"},
		{`{"type":"subscribe","id":"4","session":"odd"}`, "4", "odd", "internal"},
		{`{"type":"subscribe","id":"5","session":"../x"}`, "5", "", "invalid_id"},
		{`{"type":"subscribe","id":"5","session":""}`, "5", "", "invalid_id"},
		{`{"type":"subscribe","id":"6","session":"s","after":-1}`, "6", "s", "invalid_cursor"},
		{`{"type":"subscribe","id":"6","session":"s","after":1.0}`, "6", "s", "invalid_cursor"},
		{`{"type":"subscribe","id":"6","session":"s","after":1e3}`, "6", "s", "invalid_cursor"},
		{`{"type":"subscribe","id":"6","session":"s","after":"1"}`, "6", "s", "invalid_cursor"},
		{`{"type":"subscribe","id":"6","session":"s","after":null}`, "6", "s", "invalid_cursor"},
		{`{"type":"subscribe","id":"6","session":"s","after":9007199254740992}`, "6", "s", "invalid_cursor"},
		{`{"type":"subscribe","id":"7","session":"s","sessions":true}`, "7", "s", "malformed"},
		{`{"type":"subscribe","id":"7"}`, "7", "", "malformed"},
		{`{"type":"subscribe","id":"7","sessions":true,"after":1}`, "7", "", "malformed"},
		{`{"type":"unsubscribe","id":"7","session":"s","after":1}`, "7", "s", "malformed"},
		{`{"type":"submit","id":"7","session":"s"}`, "7", "s", "malformed"},
		{`{"type":"subscribe","id":"8","session":"s","id":"9"}`, "8", "s", "malformed"},
		{`{"type":"subscribe","id":"8","Session":"s"}`, "8", "", "malformed"},
		{`{"type":"subscribe","id":"8","session":"s","cursor":5}`, "8", "s", "malformed"},
		{`{"type":"subscribe","id":"` + strings.Repeat("x", 129) + `","session":"s"}`, "", "s", "malformed"},
		{`{"type":"subscribe","id":"8","session":7}`, "8", "", "malformed"},
		{`{"type":"subscribe","id":"8","session":"s"} {}`, "8", "s", "malformed"},
		{`{"type":"subscribe","id":"8","session":"s"`, "8", "s", "malformed"},
		{`[]`, "", "", "malformed"},
		{`nonsense`, "", "", "malformed"},
		{``, "", "", "malformed"},
	} {
		c.ask("%s", req.text)
		m := c.hear("error")
		if m.ID != req.id || m.Session != req.session || m.Code != req.code || m.Detail == "" || strings.Contains(m.Detail, "secret") {
			t.Errorf("%s: got %+v", req.text, m)
		}
	}
	c.ask(`{"type":"subscribe","id":"ok","session":"s"}`)
	c.hear("subscribed")
	c.follow("s", 0, 1)
}

func TestASocketHasABoundedNumberOfSubscriptions(t *testing.T) {
	w := newWorld(t, feed.Options{})
	c := w.window(feed.SocketOptions{})
	for i := range feed.SubscriptionsMost {
		w.write(fmt.Sprint("s", i), 1)
		c.ask(`{"type":"subscribe","id":"%d","session":"s%d","after":1}`, i, i)
		c.hear("subscribed")
	}
	c.ask(`{"type":"subscribe","id":"more","sessions":true}`)
	if m := c.hear("error"); m.ID != "more" || m.Code != "too_many_subscriptions" {
		t.Errorf("got %+v", m)
	}
	c.ask(`{"type":"subscribe","id":"again","session":"s0","after":1}`)
	c.hear("subscribed")
	c.ask(`{"type":"unsubscribe","id":"less","session":"s0"}`)
	c.hear("unsubscribed")
	c.ask(`{"type":"subscribe","id":"more","sessions":true}`)
	c.hear("subscribed")
}

func TestSessionsShareASocketFairly(t *testing.T) {
	w := newWorld(t, feed.Options{})
	w.write("small", 1)
	w.large("large", 3000, 5000) // 15 MB: more than the sockets' buffers
	c := w.window(feed.SocketOptions{})
	c.ask(`{"type":"subscribe","id":"1","session":"large"}`)
	c.hear("subscribed")
	c.ask(`{"type":"subscribe","id":"2","session":"small"}`)
	for large := int64(0); ; {
		m, err := c.next(c.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if m.Session == "large" {
			large = m.To
		} else if m.Type == "events" {
			if large == 3000 {
				t.Error("the small session came behind all of the large one")
			}
			break
		}
	}
}

func TestASocketBreaksSilenceAndExpectsAnAnswer(t *testing.T) {
	w := newWorld(t, feed.Options{Heartbeat: 100 * time.Millisecond})
	pings := make(chan struct{}, 10)
	server := w.serve(feed.SocketOptions{Allow: allow})
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, server.URL+"/socket", &websocket.DialOptions{
		OnPingReceived: func(context.Context, []byte) bool { pings <- struct{}{}; return true },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	s := &socket{conn}
	for range 3 {
		if m, err := s.next(ctx); err != nil || m.Type != "heartbeat" {
			t.Fatalf("got %+v, %v", m, err)
		}
	}
	select {
	case <-pings:
	default:
		t.Error("no ping came with a heartbeat")
	}
}

func TestASocketThatAnswersNoPingIsClosed(t *testing.T) {
	w := newWorld(t, feed.Options{Heartbeat: 50 * time.Millisecond, WriteTimeout: 100 * time.Millisecond})
	server := w.serve(feed.SocketOptions{Allow: allow})
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, server.URL+"/socket", &websocket.DialOptions{
		OnPingReceived: func(context.Context, []byte) bool { return false },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	for err == nil {
		_, _, err = conn.Read(ctx)
	}
	if ctx.Err() != nil {
		t.Fatal("it stayed open")
	}
}

func TestASocketThatDoesNotReadIsCutOff(t *testing.T) {
	w := newWorld(t, feed.Options{WriteTimeout: 200 * time.Millisecond})
	w.large("s", 3000, 5000)
	c := w.window(feed.SocketOptions{})
	c.ask(`{"type":"subscribe","id":"1","session":"s"}`)
	w.awaitEnd(c.ctx)
	if got := w.hub.Stats().Readers; got != 0 {
		t.Errorf("%d readers are left", got)
	}
}

func TestCloseSaysGoodbyeToEverySocket(t *testing.T) {
	w := newWorld(t, feed.Options{})
	w.write("s", 3)
	c := w.window(feed.SocketOptions{})
	c.ask(`{"type":"subscribe","id":"1","session":"s"}`)
	c.hear("subscribed")
	c.follow("s", 0, 3)
	c.ask(`{"type":"subscribe","id":"2","sessions":true}`)
	c.hear("subscribed")
	w.hub.Close(nil)
	if m := c.hear("goodbye"); m.RetryAfterMs < 1000 || m.RetryAfterMs > 6000 {
		t.Errorf("got %+v", m)
	}
	if _, err := c.next(c.ctx); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("got %v", err)
	}
	w.awaitEnd(c.ctx)
	if got := w.hub.Stats().Readers; got != 0 {
		t.Errorf("%d readers are left", got)
	}
}

func TestASocketClosesOnWhatItCannotRead(t *testing.T) {
	for name, c := range map[string]struct {
		kind websocket.MessageType
		size int
		want websocket.StatusCode
	}{
		"binary":   {websocket.MessageBinary, 10, websocket.StatusUnsupportedData},
		"too long": {websocket.MessageText, 17 << 10, websocket.StatusMessageTooBig},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, feed.Options{})
			win := w.window(feed.SocketOptions{})
			if err := win.conn.Write(win.ctx, c.kind, make([]byte, c.size)); err != nil {
				t.Fatal(err)
			}
			if _, err := win.next(win.ctx); websocket.CloseStatus(err) != c.want {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestAReaderOfAListThatFellBehindIsToldToListAgain(t *testing.T) {
	w := newWorld(t, feed.Options{Heal: time.Hour})
	var many atomic.Bool
	wrote := make(chan struct{})
	defer func() {
		if many.Load() {
			<-wrote
		}
	}()
	c := w.window(feed.SocketOptions{Tenant: "t", Owner: "o", Allow: func(context.Context, string) error {
		if many.CompareAndSwap(false, true) {
			// More than a list remembers: what comes must be all of it, or word that it is not.
			for i := range 2000 {
				w.write(fmt.Sprint("n", i), 1)
			}
			close(wrote)
		}
		return nil
	}})
	c.ask(`{"type":"subscribe","id":"1","sessions":true}`)
	c.hear("subscribed")
	c.ask(`{"type":"subscribe","id":"2","session":"n0","after":1}`)
	newest := map[string]bool{}
	for !newest["n1999"] {
		m, err := c.next(c.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if m.Type == "error" {
			if m.Code != "unavailable" || m.Session != "" {
				t.Errorf("got %+v", m)
			}
			return
		}
		for _, row := range m.Upsert {
			newest[row.ID] = true
		}
	}
	if len(newest) != 2000 {
		t.Errorf("only %d of 2000 sessions came, and nothing was said", len(newest))
	}
}
