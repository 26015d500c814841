package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/holdfast-run/holdfast/feed"
	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// statuses is the one table from codes to HTTP statuses.
var statuses = map[api.Code]int{
	api.Malformed:            http.StatusBadRequest,
	api.InvalidID:            http.StatusBadRequest,
	api.InvalidCursor:        http.StatusBadRequest,
	api.Unauthenticated:      http.StatusUnauthorized,
	api.ForbiddenHost:        http.StatusForbidden,
	api.ForbiddenOrigin:      http.StatusForbidden,
	api.NotFound:             http.StatusNotFound,
	api.MethodNotAllowed:     http.StatusMethodNotAllowed,
	api.RequestTimeout:       http.StatusRequestTimeout,
	api.TooLarge:             http.StatusRequestEntityTooLarge,
	api.UnsupportedMediaType: http.StatusUnsupportedMediaType,
	api.RangeNotSatisfiable:  http.StatusRequestedRangeNotSatisfiable,
	api.Invalid:              http.StatusUnprocessableEntity,
	api.UpgradeRequired:      http.StatusUpgradeRequired,
	api.Internal:             http.StatusInternalServerError,
	api.TooManyStreams:       http.StatusServiceUnavailable,
	api.Unavailable:          http.StatusServiceUnavailable,

	api.Code(session.Conflict):       http.StatusConflict,
	api.Code(session.RunActive):      http.StatusConflict,
	api.Code(session.RunTerminal):    http.StatusConflict,
	api.Code(session.RunNotTerminal): http.StatusConflict,
	api.Code(session.ApprovalDone):   http.StatusConflict,
	api.Code(session.ApprovalGone):   http.StatusConflict,
	api.Code(session.OutcomeKnown):   http.StatusConflict,
	api.Code(session.CallNotOpen):    http.StatusConflict,
	api.Code(session.NotInInbox):     http.StatusConflict,
	api.Code(session.InboxFull):      http.StatusTooManyRequests,
}

func newProblem(code api.Code, format string, args ...any) *api.Problem {
	status := statuses[code]
	return &api.Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: fmt.Sprintf(format, args...),
	}
}

func fieldProblem(code api.Code, field, message string) *api.Problem {
	p := newProblem(code, "%s: %s", field, message)
	p.Errors = []api.FieldError{{Field: field, Message: message}}
	return p
}

func internalProblem() *api.Problem {
	return newProblem(api.Internal, "something went wrong here; it is logged under this answer's X-Request-Id")
}

// unavailableMs is when to repeat a request that the store did not take.
const unavailableMs = 1000

// problem is what an error is told as. What has no place in the table is logged
// and told as internal.
func (s *Server) problem(ctx context.Context, err error) *api.Problem {
	var known *api.Problem
	var refused *session.Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &refused):
		if p := refusal(refused); p != nil {
			return p
		}
	case errors.Is(err, store.ErrNotFound):
		return missing()
	case errors.Is(err, feed.ErrCursor):
		return fieldProblem(api.InvalidCursor, "after", fmt.Sprintf("a cursor is a number from 0 to %d, in digits", int64(feed.MaxCursor)))
	case errors.Is(err, feed.ErrClosing):
		return s.leaving()
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrClosed):
		s.opts.Log.Warn("request could not be served", slog.String("request", requestOf(ctx)), slog.Any("error", err))
		p := newProblem(api.Unavailable, "the store cannot be used now; repeat the same request later")
		p.RetryAfterMs = unavailableMs
		return p
	case ctx.Err() != nil:
		// The client left: nobody reads this.
		p := newProblem(api.Unavailable, "the request was cut short; repeat it")
		p.RetryAfterMs = unavailableMs
		return p
	}
	s.opts.Log.Warn("request failed", slog.String("request", requestOf(ctx)), slog.Any("error", err))
	return internalProblem()
}

// leaving is the answer of a server that drains.
func (s *Server) leaving() *api.Problem {
	p := newProblem(api.Unavailable, "the server is shutting down: come back with your cursor")
	p.RetryAfterMs = s.streams.later().Milliseconds()
	return p
}

// missing is the answer for what does not exist and for what is somebody
// else's: it must not differ by a byte.
func missing() *api.Problem { return newProblem(api.NotFound, "it does not exist, or it is not yours") }

// refusal is a domain refusal on the wire, or nil for those that no client can cause.
func refusal(e *session.Error) *api.Problem {
	code := api.Code(e.Code)
	switch {
	case e.Code == session.NotFound && e.Field == "":
		return missing()
	case e.Code == session.Invalid && e.Field == "cursor":
		code = api.InvalidCursor
	}
	if statuses[code] == 0 {
		return nil
	}
	p := newProblem(code, "%s", e.Message)
	p.Run, p.Approval = e.Run, e.Approval
	if p.Run != nil {
		run := *p.Run
		run.Steps = nil
		p.Run = &run
	}
	if e.Field != "" {
		p.Errors = []api.FieldError{{Field: fieldPath(e.Field), Message: e.Message}}
	}
	return p
}

// fieldPath writes "parts[0].text" as "parts.0.text".
func fieldPath(field string) string {
	return strings.NewReplacer("[", ".", "]", "").Replace(field)
}

// refuse sends a problem, whether or not the body has been read.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	dontRead(w, r)
	writeProblem(w, s.problem(r.Context(), err))
}

func writeProblem(w http.ResponseWriter, p *api.Problem) {
	header := w.Header()
	for name, values := range p.GetHeaders() {
		header[name] = values
	}
	header.Set("Content-Type", api.ProblemType)
	header.Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(p) // an error here is the client's absence
}
