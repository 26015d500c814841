package server

import (
	"context"
	"net/http"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/server/api"
)

func (s *Server) routeAgents() {
	handle(s, route{
		id: "listAgents", method: http.MethodGet, path: "/v1/agents", summary: "The agents that can be asked",
	}, s.listAgents)
}

func (s *Server) listAgents(context.Context, holdfast.Principal, *struct{}) (*reply[api.AgentList], error) {
	list := api.AgentList{Items: []api.Agent{}}
	for _, a := range s.rt.Agents() {
		item := api.Agent{Name: a.Name, Description: a.Description, Model: a.Model, Tools: []api.Tool{}}
		for _, spec := range a.Tools.Specs() {
			approval, _, _ := strings.Cut(spec.Approval.String(), " ")
			if approval == "when" {
				approval = "rule"
			}
			item.Tools = append(item.Tools, api.Tool{
				Name: spec.Name, Description: spec.Description, Effects: spec.Effects, Approval: approval,
			})
		}
		list.Items = append(list.Items, item)
	}
	if len(list.Items) > 0 {
		list.Default = list.Items[0].Name
	}
	return ok(list), nil
}
