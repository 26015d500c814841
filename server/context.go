package server

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/server/api"
)

type getContext struct {
	OfRun
	Step    int `path:"step" minimum:"1" doc:"the step, from 1"`
	Attempt int `query:"attempt" minimum:"1" doc:"one of its attempts; default: the last"`
}

func (s *Server) getContext(ctx context.Context, p holdfast.Principal, in *getContext) (*reply[holdfast.Context], error) {
	seen, err := s.rt.Context(ctx, p, in.ID, in.Step, in.Attempt)
	if err != nil {
		return nil, err
	}
	return ok(seen), nil
}

func (s *Server) listCompactions(ctx context.Context, p holdfast.Principal, in *InSession) (*reply[api.CompactionList], error) {
	list, err := s.rt.Compactions(ctx, p, in.ID)
	if err != nil {
		return nil, err
	}
	return ok(api.CompactionList{Items: list}), nil
}
