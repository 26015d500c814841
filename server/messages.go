package server

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
)

type listMessages struct {
	InSession
	Before  string `query:"before" pattern:"^[A-Za-z0-9_-]{1,128}$" patternDescription:"an id: 1 to 128 letters, digits, _ or -" doc:"the message that the page leads to; absent: the end of the active branch"`
	Through string `query:"through" pattern:"^[A-Za-z0-9_-]{1,128}$" patternDescription:"an id: 1 to 128 letters, digits, _ or -" doc:"instead of before: the page begins with this message, and follows the branch that leads through it"`
	Limit   int    `query:"limit" minimum:"1" maximum:"200" doc:"default: 50"`
}

type sendMessage struct {
	InSession
	Idempotent
	Body api.SendMessage
}

// InInbox names a waiting message in the path.
type InInbox struct {
	InSession
	Message string `path:"message" pattern:"^[A-Za-z0-9_-]{1,128}$" patternDescription:"an id: 1 to 128 letters, digits, _ or -" doc:"the waiting message"`
}

type editInbox struct {
	InInbox
	Body api.EditInbox
}

func (s *Server) routeMessages() {
	handle(s, route{
		id: "listMessages", method: http.MethodGet, path: "/v1/sessions/{id}/messages", summary: "Page back through a branch",
	}, s.listMessages)
	handle(s, route{
		id: "sendMessage", method: http.MethodPost, path: "/v1/sessions/{id}/messages", status: http.StatusAccepted, also: http.StatusOK,
		body: maxMessage, summary: "Say something: the session is created if it is new, and a run answers",
	}, s.sendMessage)
	handle(s, route{
		id: "editInbox", method: http.MethodPatch, path: "/v1/sessions/{id}/inbox/{message}", body: maxMessage,
		summary: "Edit a waiting message",
	}, s.editInbox)
	handle(s, route{
		id: "removeInbox", method: http.MethodDelete, path: "/v1/sessions/{id}/inbox/{message}", status: http.StatusNoContent,
		summary: "Take a waiting message back",
	}, s.removeInbox)
}

func (s *Server) listMessages(ctx context.Context, p holdfast.Principal, in *listMessages) (*reply[holdfast.MessagePage], error) {
	if in.Through != "" && in.Before != "" {
		return nil, &session.Error{Code: session.Invalid, Field: "through", Message: "before and through exclude each other"}
	}
	if in.Through != "" {
		page, err := s.rt.Through(ctx, p, in.ID, in.Through, in.Limit)
		if err != nil {
			return nil, err
		}
		return ok(page), nil
	}
	page, err := s.rt.Messages(ctx, p, in.ID, in.Before, in.Limit)
	if err != nil {
		return nil, err
	}
	return ok(page), nil
}

func (s *Server) sendMessage(ctx context.Context, p holdfast.Principal, in *sendMessage) (*reply[api.MessageAccepted], error) {
	parts, err := partsOf(in.Body.Parts)
	if err != nil {
		return nil, err
	}
	done, err := s.rt.Submit(ctx, p, in.InSession.ID, holdfast.Submission{
		ID: in.or(in.Body.ID, session.MessagePrefix), Parts: parts, OnBusy: in.Body.OnBusy,
		Agent: in.Body.Agent, Background: in.Body.Background, Parent: in.Body.Parent,
	})
	if err != nil {
		return nil, err
	}
	out := &reply[api.MessageAccepted]{Status: http.StatusAccepted, Body: api.MessageAccepted{
		Message: done.Message, Run: done.Run, Seq: done.Seq, Inbox: done.Inbox,
	}}
	if done.Repeated {
		out.Status = http.StatusOK
	}
	return out, nil
}

func (s *Server) editInbox(ctx context.Context, p holdfast.Principal, in *editInbox) (*reply[api.InboxDone], error) {
	parts, err := partsOf(in.Body.Parts)
	if err != nil {
		return nil, err
	}
	done, err := s.rt.EditInbox(ctx, p, in.ID, in.Message, parts)
	if err != nil {
		return nil, err
	}
	return ok(api.InboxDone{Inbox: done.Is, Seq: done.Seq}), nil
}

func (s *Server) removeInbox(ctx context.Context, p holdfast.Principal, in *InInbox) (*struct{}, error) {
	return nil, s.rt.RemoveInbox(ctx, p, in.ID, in.Message)
}

// partsOf checks what a person sends and makes it parts of a message.
func partsOf(in []api.Part) ([]session.Part, error) {
	parts := make([]session.Part, len(in))
	for i, part := range in {
		field := func(name string) string { return fmt.Sprintf("parts.%d.%s", i, name) }
		for _, other := range []struct {
			kind  session.PartType
			given bool
		}{{session.PartText, part.Text != ""}, {session.PartFile, part.File != nil}, {session.PartData, part.Data != nil}} {
			if other.given && other.kind != part.Type {
				return nil, fieldProblem(api.Invalid, field(string(other.kind)), fmt.Sprintf("a part of type %s has no %s", part.Type, other.kind))
			}
			if !other.given && other.kind == part.Type {
				return nil, fieldProblem(api.Invalid, field(string(part.Type)), fmt.Sprintf("a part of type %s needs %s", part.Type, part.Type))
			}
		}
		parts[i] = session.Part{Type: part.Type, Text: part.Text, Data: part.Data}
		if part.File == nil {
			continue
		}
		if !isFileURL(part.File.URL) {
			return nil, fieldProblem(api.Invalid, field("file.url"), "expected an https:, http: or data: URL")
		}
		parts[i].File = &session.File{Name: part.File.Name, MediaType: part.File.MediaType, URL: part.File.URL}
	}
	return parts, nil
}

func isFileURL(raw string) bool {
	u, err := url.Parse(schemeOf(raw))
	return err == nil && (u.Scheme == "https" || u.Scheme == "http" || u.Scheme == "data")
}

// schemeOf keeps what is parsed of a data: URL small.
func schemeOf(raw string) string {
	if len(raw) >= 5 && strings.EqualFold(raw[:5], "data:") {
		return "data:,"
	}
	return raw
}
