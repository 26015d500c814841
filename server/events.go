package server

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2/negotiation"

	"github.com/holdfast-run/holdfast/feed"
	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
)

const eventStream = "text/event-stream"

func (s *Server) routeEvents() {
	s.mux.HandleFunc("GET /v1/sessions/{id}/events", func(w http.ResponseWriter, r *http.Request) {
		if err := s.events(w, r); err != nil {
			s.refuse(w, r, err)
		}
	})
}

// events answers with the log after a cursor, in the form that Accept chooses.
// An error means that nothing has been sent.
func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	p, err := s.principal(r)
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	if !session.ValidID(id) {
		return fieldProblem(api.InvalidID, "id", wrongID)
	}
	after, err := feed.RequestCursor(r)
	if err != nil {
		return err
	}
	ask, err := parseEventsQuery(r.URL.Query())
	if err != nil {
		return err
	}
	if err := s.rt.Allowed(r.Context(), p, id); err != nil {
		return err
	}
	stream := r.Method != http.MethodHead && wantsStream(r)
	if !stream && ask.wait == 0 || r.Method == http.MethodHead {
		page, err := s.rt.Feed().Page(r.Context(), id, after, ask.limit, 0)
		if err != nil {
			return err
		}
		return writePage(w, page)
	}
	if err := s.streams.enter(); err != nil {
		return err
	}
	if stream && s.takeOver(w, r, func(w http.ResponseWriter, r *http.Request) error {
		return s.rt.Feed().ServeSSE(w, r, id, after)
	}) {
		return nil
	}
	defer s.streams.leave()
	if stream {
		return s.rt.Feed().ServeSSE(w, r, id, after)
	}
	// Errors are those of writers that have no connection, as in tests.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(ask.wait + writeTimeout))
	page, err := s.rt.Feed().Page(r.Context(), id, after, ask.limit, ask.wait)
	if err != nil {
		return err
	}
	return writePage(w, page)
}

func writePage(w http.ResponseWriter, page feed.Page) error {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	_, _ = w.Write(page.AppendJSON(nil)) // an error here is the client's absence
	return nil
}

// wantsStream says whether Accept names an event stream, and JSON not above it.
func wantsStream(r *http.Request) bool {
	accept := strings.ToLower(strings.Join(r.Header.Values("Accept"), ","))
	return negotiation.SelectQValue(accept, []string{eventStream, "application/json"}) == eventStream
}

// eventsQuery is what a page of the log is asked by, beside its cursor.
type eventsQuery struct {
	limit int
	wait  time.Duration
}

func parseEventsQuery(query url.Values) (eventsQuery, error) {
	var q eventsQuery
	for name, values := range query {
		if !slices.Contains([]string{"after", "limit", "wait"}, name) {
			return q, fieldProblem(api.Invalid, trim(name), "unknown query parameter")
		}
		if len(values) > 1 {
			return q, fieldProblem(api.Invalid, name, "the query parameter is there twice")
		}
	}
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > feed.PageMost {
			return q, fieldProblem(api.Invalid, "limit", fmt.Sprintf("expected a number from 1 to %d", feed.PageMost))
		}
		q.limit = n
	}
	if text := query.Get("wait"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 || d > feed.WaitMost {
			return q, fieldProblem(api.Invalid, "wait", fmt.Sprintf("expected a duration from 0s to %v, such as 30s", feed.WaitMost))
		}
		q.wait = d
	}
	return q, nil
}
