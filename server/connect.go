package server

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/feed"
	"github.com/holdfast-run/holdfast/server/api"
)

func (s *Server) routeConnect() {
	s.mux.HandleFunc("GET /v1/connect", func(w http.ResponseWriter, r *http.Request) {
		if err := s.connect(w, r); err != nil {
			s.refuse(w, r, err)
		}
	})
}

// connect upgrades to the WebSocket of a page. An error means that nothing has been sent.
func (s *Server) connect(w http.ResponseWriter, r *http.Request) error {
	p, err := s.principal(r)
	if err != nil {
		return err
	}
	if !wantsUpgrade(r) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		return newProblem(api.UpgradeRequired, "this route is a WebSocket, version 13")
	}
	if err := s.streams.enter(); err != nil {
		return err
	}
	defer s.streams.leave()
	s.rt.Feed().ServeSocket(w, r, feed.SocketOptions{
		Tenant: p.Tenant, Owner: p.Owner,
		Allow: func(ctx context.Context, id string) error { return s.rt.Allowed(ctx, p, id) },
		// Every request's origin was checked at the door, by a stricter rule.
		Origins: []string{"*"},
	})
	return nil
}

// wantsUpgrade says whether the request is the opening of a WebSocket.
func wantsUpgrade(r *http.Request) bool {
	return r.Method == http.MethodGet && r.ProtoMajor == 1 &&
		lists(r.Header.Values("Connection"), "upgrade") && lists(r.Header.Values("Upgrade"), "websocket") &&
		r.Header.Get("Sec-WebSocket-Version") == "13" && r.Header.Get("Sec-WebSocket-Key") != ""
}

// lists says whether a header's comma-separated values have a token, in any case.
func lists(values []string, token string) bool {
	return slices.ContainsFunc(strings.Split(strings.Join(values, ","), ","), func(v string) bool {
		return strings.EqualFold(strings.TrimSpace(v), token)
	})
}
