package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

const maxMetadata = 16 << 10 // bytes

// InSession names a session in the path.
type InSession struct {
	ID string `path:"id" pattern:"^[A-Za-z0-9_-]{1,128}$" patternDescription:"an id: 1 to 128 letters, digits, _ or -" doc:"the session"`
}

// Paging is what every list takes.
type Paging struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"200" doc:"default: 50"`
	Cursor string `query:"cursor" maxLength:"1000" doc:"the next of the page before"`
}

type createSession struct {
	Idempotent
	Body *api.CreateSession
}

// Idempotent is the header that stands in for a missing id in the body.
type Idempotent struct {
	Key string `header:"Idempotency-Key" pattern:"^[A-Za-z0-9_-]{1,128}$" patternDescription:"an id: 1 to 128 letters, digits, _ or -" doc:"the id, if the body has none"`
}

// or is the id of the body, or else the key, or else a new id.
func (k Idempotent) or(id, prefix string) string {
	switch {
	case id != "":
		return id
	case k.Key != "":
		return k.Key
	}
	return session.NewID(prefix)
}

type listSessions struct {
	Paging
	Search string `query:"search" maxLength:"200" doc:"part of a title, in any case"`
}

type getSession struct {
	InSession
	Window int `query:"window" minimum:"1" maximum:"200" doc:"how many messages; default: 50"`
}

type forkSession struct {
	InSession
	Idempotent
	Body api.ForkSession
}

type updateSession struct {
	InSession
	Body api.UpdateSession
}

func (s *Server) routeSessions() {
	handle(s, route{
		id: "createSession", method: http.MethodPost, path: "/v1/sessions", status: http.StatusCreated, also: http.StatusOK,
		summary: "Begin a session without a message",
	}, s.createSession)
	handle(s, route{
		id: "listSessions", method: http.MethodGet, path: "/v1/sessions", summary: "List sessions, the last changed first",
	}, s.listSessions)
	handle(s, route{
		id: "getSession", method: http.MethodGet, path: "/v1/sessions/{id}", summary: "A snapshot: what is true at a seq, with the last messages",
	}, s.getSession)
	handle(s, route{
		id: "updateSession", method: http.MethodPatch, path: "/v1/sessions/{id}", summary: "Change title, metadata or branch",
	}, s.updateSession)
	handle(s, route{
		id: "forkSession", method: http.MethodPost, path: "/v1/sessions/{id}/fork", status: http.StatusCreated, also: http.StatusOK,
		summary: "Begin a session with a copy of a branch up to a message",
	}, s.forkSession)
	handle(s, route{
		id: "deleteSession", method: http.MethodDelete, path: "/v1/sessions/{id}", status: http.StatusNoContent,
		summary: "Delete a session and all that is in it",
	}, s.deleteSession)
}

func (s *Server) createSession(ctx context.Context, p holdfast.Principal, in *createSession) (*reply[api.SessionDone], error) {
	body := api.CreateSession{}
	if in.Body != nil {
		body = *in.Body
	}
	if err := checkText("title", body.Title, 500); err != nil {
		return nil, err
	}
	if err := checkMetadata(body.Metadata); err != nil {
		return nil, err
	}
	done, err := s.rt.CreateSession(ctx, p, in.or(body.ID, session.SessionPrefix),
		session.Create{Title: body.Title, Agent: body.Agent, Metadata: body.Metadata})
	if err != nil {
		return nil, err
	}
	return begun(done), nil
}

// begun answers what may have begun a session: 201, or 200 when it was there.
func begun(done holdfast.Done[holdfast.Session]) *reply[api.SessionDone] {
	out := &reply[api.SessionDone]{Status: http.StatusCreated, Body: api.SessionDone{Session: done.Is, Seq: done.Seq}}
	if done.Repeated {
		out.Status = http.StatusOK
	}
	return out
}

func (s *Server) forkSession(ctx context.Context, p holdfast.Principal, in *forkSession) (*reply[api.SessionDone], error) {
	done, err := s.rt.Fork(ctx, p, in.InSession.ID, holdfast.Forking{ID: in.or(in.Body.ID, session.SessionPrefix), Message: in.Body.Message})
	if err != nil {
		return nil, err
	}
	return begun(done), nil
}

func (s *Server) listSessions(ctx context.Context, p holdfast.Principal, in *listSessions) (*reply[api.SessionList], error) {
	page, err := s.rt.Sessions(ctx, p, store.SessionQuery{
		Search: session.CleanText(in.Search), Cursor: in.Cursor, Limit: in.Limit,
	})
	if err != nil {
		return nil, err
	}
	return ok(api.SessionList{Items: filled(page.Items), Next: page.Next}), nil
}

func (s *Server) getSession(ctx context.Context, p holdfast.Principal, in *getSession) (*reply[holdfast.Snapshot], error) {
	snap, err := s.rt.Snapshot(ctx, p, in.ID, in.Window)
	if err != nil {
		return nil, err
	}
	return ok(snap), nil
}

func (s *Server) updateSession(ctx context.Context, p holdfast.Principal, in *updateSession) (*reply[api.SessionDone], error) {
	if in.Body.Title != nil {
		if err := checkText("title", *in.Body.Title, 500); err != nil {
			return nil, err
		}
	}
	if err := checkMetadata(in.Body.Metadata); err != nil {
		return nil, err
	}
	done, err := s.rt.UpdateSession(ctx, p, in.ID, session.Update(in.Body))
	if err != nil {
		return nil, err
	}
	return ok(api.SessionDone{Session: done.Is, Seq: done.Seq}), nil
}

func (s *Server) deleteSession(ctx context.Context, p holdfast.Principal, in *InSession) (*struct{}, error) {
	return nil, s.rt.DeleteSession(ctx, p, in.ID)
}

// checkMetadata says what is wrong with metadata: it must be an object and small.
func checkMetadata(raw json.RawMessage) error {
	switch {
	case raw == nil:
		return nil
	case raw[0] != '{':
		return fieldProblem(api.Invalid, "metadata", "expected object")
	case len(raw) > maxMetadata:
		return fieldProblem(api.Invalid, "metadata", fmt.Sprintf("expected %d bytes at most", maxMetadata))
	}
	return nil
}

// checkText bounds a text in bytes; schemas can only count characters.
func checkText(field, text string, most int) error {
	if len(text) > most {
		return fieldProblem(api.Invalid, field, fmt.Sprintf("expected %d bytes at most", most))
	}
	return nil
}

// filled makes an absent list an empty one on the wire.
func filled[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}
