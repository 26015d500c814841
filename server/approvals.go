package server

import (
	"context"
	"net/http"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// OfApproval names an approval in the path.
type OfApproval struct {
	ID string `path:"id" pattern:"^[A-Za-z0-9_-]{1,128}$" patternDescription:"an id: 1 to 128 letters, digits, _ or -" doc:"the approval"`
}

type listApprovals struct {
	Paging
	Status  session.ApprovalStatus `query:"status" enum:"pending,approved,denied,expired,voided"`
	Session string                 `query:"session" pattern:"^[A-Za-z0-9_-]{1,128}$" patternDescription:"an id: 1 to 128 letters, digits, _ or -"`
	Run     string                 `query:"run" pattern:"^[A-Za-z0-9_-]{1,128}$" patternDescription:"an id: 1 to 128 letters, digits, _ or -"`
}

type decideApproval struct {
	OfApproval
	Body api.DecideApproval
}

func (s *Server) routeApprovals() {
	handle(s, route{
		id: "listApprovals", method: http.MethodGet, path: "/v1/approvals",
		summary: "List approvals over all sessions, the last requested first",
	}, s.listApprovals)
	handle(s, route{
		id: "getApproval", method: http.MethodGet, path: "/v1/approvals/{id}", summary: "An approval, decided or not",
	}, s.getApproval)
	handle(s, route{
		id: "decideApproval", method: http.MethodPost, path: "/v1/approvals/{id}", summary: "Decide an approval: the first decision stands",
	}, s.decideApproval)
}

func (s *Server) listApprovals(ctx context.Context, p holdfast.Principal, in *listApprovals) (*reply[api.ApprovalList], error) {
	page, err := s.rt.Approvals(ctx, p, store.ApprovalQuery{
		Session: in.Session, Run: in.Run, Status: in.Status, Cursor: in.Cursor, Limit: in.Limit,
	})
	if err != nil {
		return nil, err
	}
	return ok(api.ApprovalList{Items: filled(page.Items), Next: page.Next}), nil
}

func (s *Server) getApproval(ctx context.Context, p holdfast.Principal, in *OfApproval) (*reply[session.Approval], error) {
	a, err := s.rt.Approval(ctx, p, in.ID)
	if err != nil {
		return nil, err
	}
	return ok(a), nil
}

func (s *Server) decideApproval(ctx context.Context, p holdfast.Principal, in *decideApproval) (*reply[api.ApprovalDone], error) {
	if err := checkText("note", in.Body.Note, 4000); err != nil {
		return nil, err
	}
	done, err := s.rt.DecideApproval(ctx, p, in.ID, holdfast.Deciding{
		Decision: in.Body.Decision, Note: in.Body.Note, Arguments: in.Body.Arguments,
	})
	if err != nil {
		return nil, err
	}
	return ok(api.ApprovalDone{Approval: done.Is, Seq: done.Seq}), nil
}
