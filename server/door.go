package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
)

// ServeHTTP answers a request: every one passes here.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	id := session.NewID("req_")
	out := &response{ResponseWriter: w}
	header := w.Header()
	header.Set("X-Request-Id", id)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	r = r.WithContext(context.WithValue(r.Context(), requestID{}, id))
	defer func() {
		if broken := recover(); broken != nil {
			s.recovered(out, r, broken)
		}
		s.opts.Log.LogAttrs(r.Context(), slog.LevelDebug, "request",
			slog.String("request", id), slog.String("method", r.Method), slog.String("route", r.Pattern),
			slog.Int("status", out.status), slog.Duration("took", time.Since(began)))
	}()
	if r.Method != http.MethodPost && r.Method != http.MethodPatch {
		dontRead(out, r)
	}
	_, pattern := s.mux.Handler(r)
	if p := s.admit(r, pattern); p != nil {
		s.refuse(out, r, p)
		return
	}
	if s.origins.share(header, r) && r.Method == http.MethodOptions {
		out.WriteHeader(http.StatusNoContent)
		return
	}
	if pattern == "" {
		if s.ui != nil && isUIPath(r.URL.Path) {
			s.serveUI(out, r)
			return
		}
		s.unrouted(out, r)
		return
	}
	s.mux.ServeHTTP(out, r)
}

// admit refuses what a page of another site may have sent. A callback shows that
// it may do what it does, and whatever a service runs on may say that it comes from a page.
func (s *Server) admit(r *http.Request, pattern string) *api.Problem {
	if !s.hosts.allow(r.Host) {
		return newProblem(api.ForbiddenHost, "this server does not serve the host %q", trim(r.Host))
	}
	if pattern != callbackPattern && !s.origins.allow(r) {
		return newProblem(api.ForbiddenOrigin, "pages of %q may not use this server", trim(r.Header.Get("Origin")))
	}
	return nil
}

// unrouted answers for a path that does not exist, or not with this method.
func (s *Server) unrouted(w http.ResponseWriter, r *http.Request) {
	// The mux knows which methods a path has; its own words are not a problem document.
	answer := &discard{header: http.Header{}}
	s.mux.ServeHTTP(answer, r)
	if allow := answer.header.Get("Allow"); answer.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", allow)
		s.refuse(w, r, newProblem(api.MethodNotAllowed, "%s is not a method of this route: it has %s", trim(r.Method), allow))
		return
	}
	s.refuse(w, r, newProblem(api.NotFound, "there is no such route"))
}

// dontRead lets the connection end with the answer if the request has a body
// that nobody wants: net/http would wait for it, as long as that takes.
func dontRead(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close")
	}
}

// recovered turns a panic into a 500 if nothing was sent, and else ends the
// connection, so that a cut answer is not taken for a whole one.
func (s *Server) recovered(w *response, r *http.Request, broken any) {
	if broken == http.ErrAbortHandler { //nolint:errorlint // what was panicked with, as net/http compares it
		panic(broken)
	}
	s.opts.Log.Error("request handler panicked",
		slog.String("request", requestOf(r.Context())), slog.String("route", r.Pattern),
		slog.String("panic", fmt.Sprint(broken)), slog.String("stack", string(debug.Stack())))
	if w.status != 0 {
		panic(http.ErrAbortHandler)
	}
	writeProblem(w, internalProblem())
}

// requestID is the context key of a request's id.
type requestID struct{}

func requestOf(ctx context.Context) string {
	id, _ := ctx.Value(requestID{}).(string)
	return id
}

// response remembers the status that was sent.
type response struct {
	http.ResponseWriter
	status int
}

func (w *response) WriteHeader(status int) {
	if w.status == 0 && status >= 200 || status == http.StatusSwitchingProtocols {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// discard takes an answer's headers and drops the rest.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }

// trim bounds what is repeated from a request.
func trim(s string) string { return session.TrimText(session.CleanText(s), 200) }
