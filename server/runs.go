package server

import (
	"context"
	"net/http"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// OfRun names a run in the path.
type OfRun struct {
	ID string `path:"id" pattern:"^[A-Za-z0-9_-]{1,128}$" patternDescription:"an id: 1 to 128 letters, digits, _ or -" doc:"the run"`
}

type listRuns struct {
	Paging
	Session string                `query:"session" pattern:"^[A-Za-z0-9_-]{1,128}$" patternDescription:"an id: 1 to 128 letters, digits, _ or -"`
	Status  []session.Status      `query:"status" enum:"queued,running,waiting,completed,failed,cancelled" doc:"one or several, with commas"`
	Reason  session.WaitingReason `query:"reason" enum:"approval,tool_outcome,child_run,callback,retry,worker" doc:"what a waiting run waits for"`
}

type cancelRun struct {
	OfRun
	Body *api.CancelRun
}

type retryRun struct {
	OfRun
	Idempotent
	Body *api.RetryRun
}

type resolveTool struct {
	OfRun
	Call string `path:"call" pattern:"^[A-Za-z0-9_-]{1,128}$" patternDescription:"an id: 1 to 128 letters, digits, _ or -" doc:"the tool call"`
	Body api.ResolveTool
}

func (s *Server) routeRuns() {
	handle(s, route{
		id: "listRuns", method: http.MethodGet, path: "/v1/runs", summary: "List runs, the last queued first",
	}, s.listRuns)
	handle(s, route{
		id: "getRun", method: http.MethodGet, path: "/v1/runs/{id}", summary: "A run with its steps",
	}, s.getRun)
	handle(s, route{
		id: "getContext", method: http.MethodGet, path: "/v1/runs/{id}/steps/{step}/context", summary: "What the model saw at a step, computed again from the log",
	}, s.getContext)
	handle(s, route{
		id: "listCompactions", method: http.MethodGet, path: "/v1/sessions/{id}/compactions",
		summary: "Where the context of the active branch was compacted, the newest first",
	}, s.listCompactions)
	handle(s, route{
		id: "cancelRun", method: http.MethodPost, path: "/v1/runs/{id}/cancel", status: http.StatusAccepted, also: http.StatusOK,
		summary: "Cancel a run: 200 when it is cancelled, 202 when it will be by its deadline",
	}, s.cancelRun)
	handle(s, route{
		id: "retryRun", method: http.MethodPost, path: "/v1/runs/{id}/retry", status: http.StatusAccepted, also: http.StatusOK,
		summary: "Go on from the step where a run failed or was cancelled, or answer again what it had answered",
	}, s.retryRun)
	handle(s, route{
		id: "resolveTool", method: http.MethodPost, path: "/v1/runs/{id}/tools/{call}",
		summary: "Say what a call did whose outcome is unknown",
	}, s.resolveTool)
}

func (s *Server) listRuns(ctx context.Context, p holdfast.Principal, in *listRuns) (*reply[api.RunList], error) {
	page, err := s.rt.Runs(ctx, p, store.RunQuery{
		Session: in.Session, Status: in.Status, Reason: in.Reason, Cursor: in.Cursor, Limit: in.Limit,
	})
	if err != nil {
		return nil, err
	}
	return ok(api.RunList{Items: filled(page.Items), Next: page.Next}), nil
}

func (s *Server) getRun(ctx context.Context, p holdfast.Principal, in *OfRun) (*reply[session.Run], error) {
	run, err := s.rt.FindRun(ctx, p, in.ID)
	if err != nil {
		return nil, err
	}
	return ok(run), nil
}

func (s *Server) cancelRun(ctx context.Context, p holdfast.Principal, in *cancelRun) (*reply[api.RunDone], error) {
	var reason string
	if in.Body != nil {
		reason = in.Body.Reason
	}
	if err := checkText("reason", reason, 1000); err != nil {
		return nil, err
	}
	done, err := s.rt.Cancel(ctx, p, in.ID, reason)
	if err != nil {
		return nil, err
	}
	return runDone(done, done.Is.Status != session.Cancelled), nil
}

func (s *Server) retryRun(ctx context.Context, p holdfast.Principal, in *retryRun) (*reply[api.RunDone], error) {
	var body api.RetryRun
	if in.Body != nil {
		body = *in.Body
	}
	done, err := s.rt.Retry(ctx, p, in.OfRun.ID, holdfast.Retrying{ID: in.or(body.ID, session.RunPrefix), Fresh: body.Fresh})
	if err != nil {
		return nil, err
	}
	return runDone(done, !done.Repeated), nil
}

func (s *Server) resolveTool(ctx context.Context, p holdfast.Principal, in *resolveTool) (*reply[api.RunDone], error) {
	if err := checkText("note", in.Body.Note, 4000); err != nil {
		return nil, err
	}
	done, err := s.rt.ResolveTool(ctx, p, session.ResolveTool{
		Run: in.ID, Call: in.Call, Outcome: in.Body.Outcome, Result: in.Body.Result, Note: in.Body.Note,
	})
	if err != nil {
		return nil, err
	}
	return runDone(done, false), nil
}

// runDone answers a command: 202 when there is more to come, else 200.
func runDone(done holdfast.Done[session.Run], more bool) *reply[api.RunDone] {
	out := ok(api.RunDone{Run: done.Is, Seq: done.Seq})
	if more {
		out.Status = http.StatusAccepted
	}
	return out
}
