package fakellm

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// addControlRoutes adds the routes by which a test in another process scripts
// the provider. They are no part of any provider's wire.
//
//	POST   /_script        {"turns":[{"steps":[{"text":["Hel","lo"]},{"cut":true}],
//	                        "when":{"last_user":"hi"},"times":2}]}: appends turns
//	DELETE /_script        empties the queue
//	GET    /_requests      {"requests":[...],"open":0,"max_open":1,"unplayed":0}
//	                       ?from=3   leaves out those before number 3
//	                       ?count=2  first waits until so many have arrived
//	                       ?closed=2 first waits until number 2 is over
//	                       ?wait=5s  is how long at most
//	POST   /_gates/{name}  opens a gate
//	GET    /_gates/{name}  waits until the gate is open; ?wait=5s at most
func (s *Server) addControlRoutes() {
	s.mux.HandleFunc("POST /_script", s.postScript)
	s.mux.HandleFunc("DELETE /_script", func(w http.ResponseWriter, _ *http.Request) {
		s.DropScript()
		w.WriteHeader(http.StatusNoContent)
	})
	s.mux.HandleFunc("GET /_requests", s.getRequests)
	s.mux.HandleFunc("POST /_gates/{name}", func(w http.ResponseWriter, r *http.Request) {
		s.OpenGate(r.PathValue("name"))
		w.WriteHeader(http.StatusNoContent)
	})
	s.mux.HandleFunc("GET /_gates/{name}", s.getGate)
}

// Script is the body of POST /_script.
type Script struct {
	Turns []Turn `json:"turns"`
}

// State is the body of GET /_requests.
type State struct {
	Requests []Request `json:"requests"`
	Open     int       `json:"open"`     // responses under way
	MaxOpen  int       `json:"max_open"` // the most there ever were
	Unplayed int       `json:"unplayed"` // turns in the queue
}

func (s *Server) postScript(w http.ResponseWriter, r *http.Request) {
	var script Script
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&script); err != nil {
		http.Error(w, "script: "+err.Error(), http.StatusBadRequest)
		return
	}
	s.Script(script.Turns...)
	writeJSON(w, map[string]int{"unplayed": s.Unplayed()})
}

func (s *Server) getRequests(w http.ResponseWriter, r *http.Request) {
	ctx, cancel, err := s.patience(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	defer cancel()
	pending := []struct {
		parameter string
		wait      func(context.Context, int) (Request, error)
	}{{"count", s.WaitRequest}, {"closed", s.WaitClosed}}
	for _, p := range pending {
		value := r.FormValue(p.parameter)
		if value == "" {
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil {
			http.Error(w, fmt.Sprintf("%s: %v", p.parameter, err), http.StatusBadRequest)
			return
		}
		if _, err := p.wait(ctx, n); err != nil {
			http.Error(w, err.Error(), http.StatusGatewayTimeout)
			return
		}
	}
	state := State{Requests: s.Requests(), Open: s.OpenStreams(), MaxOpen: s.MaxOpenStreams(), Unplayed: s.Unplayed()}
	if from := r.FormValue("from"); from != "" {
		n, err := strconv.Atoi(from)
		if err != nil {
			http.Error(w, fmt.Sprintf("from: %v", err), http.StatusBadRequest)
			return
		}
		state.Requests = state.Requests[min(max(n-1, 0), len(state.Requests)):]
	}
	if state.Requests == nil {
		state.Requests = []Request{}
	}
	writeJSON(w, state)
}

func (s *Server) getGate(w http.ResponseWriter, r *http.Request) {
	ctx, cancel, err := s.patience(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	defer cancel()
	if err := s.WaitGate(ctx, r.PathValue("name")); err != nil {
		http.Error(w, err.Error(), http.StatusGatewayTimeout)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// patience is how long a control request waits: ?wait=, 30 seconds by default,
// and no longer than the server lives.
func (s *Server) patience(r *http.Request) (context.Context, context.CancelFunc, error) {
	wait := 30 * time.Second
	if value := r.FormValue("wait"); value != "" {
		var err error
		if wait, err = time.ParseDuration(value); err != nil {
			return nil, nil, fmt.Errorf("wait: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	stop := context.AfterFunc(s.life, cancel)
	return ctx, func() { stop(); cancel() }, nil
}

func writeJSON(w http.ResponseWriter, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(body)
}
