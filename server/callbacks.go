package server

import (
	"context"
	"net/http"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
)

// callbackPattern is the route of callbacks, as the mux knows it.
const callbackPattern = http.MethodPost + " /v1/callbacks/{token}"

type completeCall struct {
	Token string `path:"token" doc:"what the call was posted with: it names the call, and nobody else can make it"`
	Body  api.CompleteCall
}

func (s *Server) routeCallbacks() {
	handle(s, route{
		id: "completeCall", method: http.MethodPost, path: "/v1/callbacks/{token}", body: maxMessage, public: true,
		summary: "For a service that answered a tool call with 202: how the call ended. The first end stands, and the same again is fine while the run goes on",
		admit: func(r *http.Request) error {
			_, err := s.rt.CallOf(r.PathValue("token"))
			return err
		},
	}, s.completeCall)
}

func (s *Server) completeCall(ctx context.Context, _ holdfast.Principal, in *completeCall) (*reply[api.CallDone], error) {
	call, err := s.rt.CallOf(in.Token)
	if err != nil {
		return nil, err
	}
	if (in.Body.Result == nil) == (in.Body.Error == nil) {
		return nil, fieldProblem(api.Invalid, "result", "a call ends with a result or with an error: send one of them")
	}
	var failure *session.Failure
	if e := in.Body.Error; e != nil {
		if err := checkText("error.message", e.Message, 8<<10); err != nil {
			return nil, err
		}
		failure = &session.Failure{Code: e.Code, Message: e.Message}
	}
	seq, err := s.rt.CompleteCall(ctx, call, in.Body.Result, failure)
	if err != nil {
		return nil, err
	}
	return ok(api.CallDone{Call: call.ID, Seq: seq}), nil
}
