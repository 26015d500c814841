package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast-run/holdfast/session"
)

const (
	// SubscriptionsMost is how many subscriptions one socket can have.
	SubscriptionsMost = 256

	requestBytes = 16 << 10
	messageBytes = 64 << 10 // one message, unless a single frame is larger
)

// SocketOptions say what one connection may see.
type SocketOptions struct {
	// Allow is nil for a session that the connection may follow. It is asked at
	// each subscribe; store.ErrNotFound stands for what does not exist and for
	// what is somebody else's. Required.
	Allow func(ctx context.Context, session string) error
	// Tenant and Owner choose the list of sessions.
	Tenant, Owner string
	// Origins are the patterns of further origins that may connect, besides the
	// request's own host; see [websocket.AcceptOptions].
	Origins []string
}

// ServeSocket upgrades a request to a WebSocket and lets it follow many
// sessions, and the list of them, until either side ends it. It returns when
// nothing of it is left; http.Server.Shutdown does not wait for that, so who
// drains a server counts. A request that cannot be upgraded is answered.
func (h *Hub) ServeSocket(w http.ResponseWriter, r *http.Request, opts SocketOptions) {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{OriginPatterns: opts.Origins})
	if err != nil {
		h.opts.Log.Debug("refused a websocket", slog.Any("error", err))
		return
	}
	conn.SetReadLimit(requestBytes)
	ctx, cancel := context.WithCancel(r.Context())
	s := &socket{
		hub: h, opts: opts, conn: conn, ctx: ctx,
		turn: make(chan struct{}, 1), subs: map[string]*subscription{},
	}
	s.wrote()
	s.work.Go(s.heart)
	err = s.listen()
	cancel()
	s.work.Wait()
	if closing := conn.CloseNow(); err == nil {
		err = closing
	}
	h.opts.Log.Debug("websocket ended", slog.Any("error", err))
}

// socket is one WebSocket. Its subscriptions write themselves, one at a time:
// whoever has the turn. They wait for it in the order they came, so sessions
// share the connection fairly, and only the one whose turn it is holds frames.
type socket struct {
	hub  *Hub
	opts SocketOptions
	conn *websocket.Conn
	ctx  context.Context // the connection's life
	work sync.WaitGroup  // heart and subscriptions
	turn chan struct{}   // full while somebody writes
	last atomic.Int64    // when something was written, in nanoseconds since 1970

	mu   sync.Mutex
	subs map[string]*subscription // by session, "" for the list; guarded by mu
}

// listen does what the client asks until the connection ends.
func (s *socket) listen() error {
	for {
		kind, raw, err := s.conn.Read(s.ctx)
		if err != nil {
			return err
		}
		if kind != websocket.MessageText {
			return s.conn.Close(websocket.StatusUnsupportedData, "messages are text")
		}
		if err := s.answer(raw); err != nil {
			return err
		}
	}
}

// answer does one request. An error ends the connection.
func (s *socket) answer(raw []byte) error {
	req, code, err := parseRequest(raw)
	if err != nil {
		return s.say(s.ctx, control{Type: "error", ID: req.ID, Session: req.Session, Code: code, Detail: err.Error()})
	}
	s.drop(req.Session)
	switch {
	case req.Type == "unsubscribe":
		return s.say(s.ctx, control{Type: "unsubscribed", ID: req.ID, Session: req.Session, Sessions: req.Sessions})
	case s.full():
		return s.say(s.ctx, control{
			Type: "error", ID: req.ID, Session: req.Session, Code: "too_many_subscriptions",
			Detail: fmt.Sprintf("a connection has at most %d subscriptions", SubscriptionsMost),
		})
	case req.Sessions:
		return s.subscribeList(req)
	}
	return s.subscribe(req)
}

// heart breaks silence with a heartbeat and a ping, and says goodbye when the hub is closed.
func (s *socket) heart() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.hub.life.Done():
			s.goodbye()
			return
		case <-s.hub.wheel.beat(s.silent()):
		}
		if s.silent() < s.hub.opts.Heartbeat*3/4 {
			continue // something was written meanwhile
		}
		if s.say(s.ctx, control{Type: "heartbeat"}) != nil {
			return
		}
		s.ping()
	}
}

// ping ends the connection when nobody answers within the write timeout.
func (s *socket) ping() {
	ctx, cancel := context.WithTimeout(s.ctx, s.hub.opts.WriteTimeout)
	defer cancel()
	stop := context.AfterFunc(s.hub.life, cancel) // to say goodbye at once
	defer stop()
	// An error before the deadline is that of a ping which had to wait behind a
	// slow message: that one has a deadline of its own.
	if err := s.conn.Ping(ctx); err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		s.closeNow()
	}
}

func (s *socket) goodbye() {
	// What fails here finds the client gone, which is all the same now.
	if s.say(s.ctx, control{Type: "goodbye", RetryAfterMs: s.hub.retry().Milliseconds()}) == nil {
		_ = s.conn.Close(websocket.StatusGoingAway, "shutting down")
	}
	s.closeNow()
}

// closeNow ends the connection under everyone who uses it.
func (s *socket) closeNow() { _ = s.conn.CloseNow() }

// say writes one control message in its turn.
func (s *socket) say(ctx context.Context, c control) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.give()
	return s.write(line(c))
}

// take waits for the turn to write, and give ends it.
func (s *socket) take(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *socket) give() { <-s.turn }

// events writes frames as messages, in the writer's turn.
func (s *socket) events(id string, frames []session.Frame) error {
	b, done := buffer()
	defer func() { done(b) }()
	b = append(b, `{"type":"events","session":"`...)
	b = append(b, id...) // an id needs no escapes
	b = append(b, `","from":`...)
	b = strconv.AppendInt(b, frames[0].From, 10)
	b = append(b, `,"to":`...)
	b = strconv.AppendInt(b, frames[len(frames)-1].To, 10)
	b = append(b, `,"events":`...)
	b = appendFrames(b, frames)
	b = append(b, '}')
	return s.write(b)
}

// write writes one message, in the writer's turn. It is bounded by the
// connection's life, never by a subscription's: a message that is cut ends the connection.
func (s *socket) write(b []byte) error {
	ctx, cancel := context.WithTimeout(s.ctx, s.hub.opts.WriteTimeout)
	defer cancel()
	err := s.conn.Write(ctx, websocket.MessageText, b)
	switch {
	case err == nil:
		s.wrote()
		return nil
	case ctx.Err() != nil && s.ctx.Err() == nil:
		s.hub.opts.Log.Info("cut off a socket that does not read")
		s.closeNow()
		return fmt.Errorf("%w: a write took over %v", errSlow, s.hub.opts.WriteTimeout)
	}
	return fmt.Errorf("%w: %w", errWrite, err)
}

func (s *socket) wrote() { s.last.Store(time.Now().UnixNano()) }

func (s *socket) silent() time.Duration { return time.Since(time.Unix(0, s.last.Load())) }
