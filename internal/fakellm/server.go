package fakellm

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// Options say how the provider behaves when the script does not.
type Options struct {
	// Default answers requests that no queued turn matches. Default: Demo.
	Default func(Request) Turn
	// Lenient switches strict mode off: ill-formed histories are answered.
	Lenient bool
	// Models are what GET /v1/models lists; requests may name any. Default:
	// fake-model.
	Models []string
	// ReasoningField is the chat wire's field for thoughts. Default:
	// reasoning_content.
	ReasoningField string
	// Keep is how many of the last requests are remembered with their content;
	// older ones lose header, body, messages and tools. Default: all.
	Keep int
}

// A Server is the fake provider. It is an http.Handler; Start also gives it a
// socket. All methods may be called concurrently.
type Server struct {
	options Options
	mux     *http.ServeMux
	id      string // makes ids unique among servers
	journal journal

	life  context.Context // ends when the server closes
	close context.CancelCauseFunc
	busy  sync.WaitGroup // the model requests being answered

	url    string
	http   *http.Server
	served chan struct{} // closed when the accept loop has ended

	mu      sync.Mutex // guards what follows
	queue   []Turn
	respond func(Request) Turn
	gates   map[string]chan struct{}
	closed  bool
}

// New returns a provider without a socket, to be served by any HTTP/1.1 server.
func New(options Options) *Server {
	if options.Default == nil {
		options.Default = Demo
	}
	if options.Models == nil {
		options.Models = []string{"fake-model"}
	}
	if options.ReasoningField == "" {
		options.ReasoningField = "reasoning_content"
	}
	id := make([]byte, 4)
	rand.Read(id)
	s := &Server{
		options: options,
		mux:     http.NewServeMux(),
		id:      hex.EncodeToString(id),
		journal: journal{keep: options.Keep, changed: make(chan struct{})},
		respond: options.Default,
		gates:   make(map[string]chan struct{}),
	}
	s.life, s.close = context.WithCancelCause(context.Background())
	s.mux.HandleFunc("POST /v1/chat/completions", s.answerOn(Chat))
	s.mux.HandleFunc("POST /v1/responses", s.answerOn(Responses))
	s.mux.HandleFunc("POST /v1/messages", s.answerOn(Messages))
	s.mux.HandleFunc("GET /v1/models", s.listModels)
	s.addControlRoutes()
	return s
}

// Start serves a new provider on a free port of 127.0.0.1. It closes at the end
// of the test, which a mistake in the script fails, and which logs what was
// asked if it failed. tb may be nil: then the caller closes. Start panics if
// there is no port to be had.
func Start(tb testing.TB, options Options) *Server {
	s := New(options)
	if err := s.Listen("127.0.0.1:0"); err != nil {
		panic(err)
	}
	if tb != nil {
		tb.Cleanup(func() {
			s.Close()
			for _, r := range s.Requests() {
				if r.PlayError != "" {
					tb.Errorf("fakellm request %d: %s", r.Number, r.PlayError)
				}
			}
			if tb.Failed() {
				s.logTo(tb)
			}
		})
	}
	return s
}

// Listen serves the provider on address until Close. It may be called once.
func (s *Server) Listen(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("fake provider: %w", err)
	}
	s.url = "http://" + listener.Addr().String()
	s.http = &http.Server{Handler: s, ErrorLog: log.New(io.Discard, "", 0)}
	s.served = make(chan struct{})
	go func() {
		defer close(s.served)
		_ = s.http.Serve(listener) // Returns when Close closes the listener.
	}()
	return nil
}

// URL is the server's address without a path, "http://127.0.0.1:1234". OpenAI
// clients usually want "/v1" after it, Anthropic clients do not.
func (s *Server) URL() string { return s.url }

// Close ends all turns and connections and waits for them.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.close(errClosing)
	if s.http != nil {
		s.http.Close()
		<-s.served
	}
	s.busy.Wait()
}

// enter counts a request in, unless the server closes.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.busy.Add(1)
	return true
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// answerOn is the route of one wire.
func (s *Server) answerOn(wire Wire) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.enter() {
			panic(http.ErrAbortHandler)
		}
		defer s.busy.Done()
		request := Request{At: time.Now(), Wire: wire, Path: r.URL.Path, Header: r.Header.Clone()}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // The client left before it had asked anything.
		}
		request.Body = body
		broken := parse(&request, !s.options.Lenient)
		if broken != nil {
			request.Rule, request.Refusal = broken.rule, broken.Error()
		}
		s.journal.arrive(&request)
		s.answer(w, r, request, broken)
	}
}

// answer plays the turn for request, or refuses it.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, request Request, broken *violation) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(errClosing) })()

	p := &player{ctx: ctx, server: s, request: request, encoder: s.newEncoder(request)}
	p.out = &emitter{w: w, flusher: http.NewResponseController(w), onHead: func(status int) {
		s.journal.amend(request.Number, func(r *Request) { r.Status = status })
	}}
	w.Header().Set(requestIDHeader(request.Wire), "req_"+s.exchangeID(request))

	var err error
	defer func() { // also when a test's own function ends the goroutine
		s.journal.leave(request.Number, func(done *Request) {
			done.BytesSent = p.out.sent
			switch {
			case err == nil, errors.Is(err, errCut), errors.Is(err, errReset), s.life.Err() != nil:
			case errors.Is(err, errScript):
				done.PlayError = err.Error()
			default:
				done.ClientLeft = true
			}
		})
	}()
	if broken != nil {
		failure := errorOfStatus(http.StatusBadRequest, request.Wire)
		failure.message, failure.param = broken.Error(), broken.at
		refusal := Reply(Status{Code: failure.status, Body: string(p.encoder.errorBody(failure))})
		err = p.run(func() Turn { return refusal })
	} else {
		err = p.run(func() Turn { return s.takeTurn(request) })
	}
	if err != nil {
		p.out.abort(errors.Is(err, errReset))
	}
}

func (s *Server) exchangeID(r Request) string { return fmt.Sprintf("%s%06d", s.id, r.Number) }

func (s *Server) newEncoder(r Request) encoder {
	switch id := s.exchangeID(r); r.Wire {
	case Chat:
		return newChatEncoder(r, id, s.options.ReasoningField)
	case Responses:
		return newResponsesEncoder(r, id)
	default:
		return newMessagesEncoder(r, id)
	}
}

func requestIDHeader(wire Wire) string {
	if wire == Messages {
		return "Request-Id"
	}
	return "X-Request-Id"
}

// listModels answers in the shape of the provider whose header the client sent.
func (s *Server) listModels(w http.ResponseWriter, r *http.Request) {
	var models []raw
	anthropic := r.Header.Get("Anthropic-Version") != ""
	for _, name := range s.options.Models {
		if anthropic {
			models = append(models, object("type", "model", "id", name, "display_name", name, "created_at", "2025-01-01T00:00:00Z"))
		} else {
			models = append(models, object("id", name, "object", "model", "created", 1735689600, "owned_by", "fakellm"))
		}
	}
	list := object("object", "list", "data", models)
	if anthropic {
		var first, last any
		if n := len(s.options.Models); n > 0 {
			first, last = s.options.Models[0], s.options.Models[n-1]
		}
		list = object("data", models, "has_more", false, "first_id", first, "last_id", last)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(list)
}

// logTo tells a failed test what the provider saw.
func (s *Server) logTo(tb testing.TB) {
	for _, r := range s.Requests() {
		tb.Logf("fakellm request %d: %s, %d messages, last user text %q, status %d, client left %v, %d bytes sent%s%s",
			r.Number, r.Wire, len(r.Messages), shorten(r.LastUser()), r.Status, r.ClientLeft, r.BytesSent,
			after(", refused: ", r.Refusal), after(", script: ", r.PlayError))
	}
	if n := s.Unplayed(); n > 0 {
		tb.Logf("fakellm: %d scripted turns were never asked for", n)
	}
}

func after(label, text string) string {
	if text == "" {
		return ""
	}
	return label + text
}
