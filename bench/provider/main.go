// Command provider is a fake LLM with an OpenAI-compatible API, made for
// thousands of slow streams at once.
//
//	POST /v1/chat/completions   stream=true or false
//	GET  /stats                 what was emitted, and how late
//	POST /stats/reset
//
// Which response a request gets is read from the model's name and then from the
// last user message (see package workload). Every token carries the moment at
// which it was emitted.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast/bench/internal/hist"
	"github.com/holdfast-run/holdfast/bench/internal/workload"
)

// stats is the provider's account of itself.
type stats struct {
	started, finished, canceled atomic.Int64
	tokens, blocked             atomic.Int64
	late                        hist.Hist // actual minus scheduled emission
}

func (s *stats) snapshot() map[string]any {
	return map[string]any{
		"streams_started":  s.started.Load(),
		"streams_finished": s.finished.Load(),
		"streams_canceled": s.canceled.Load(),
		"tokens":           s.tokens.Load(),
		"writes_blocked":   s.blocked.Load(), // the reader did not keep up
		"late":             s.late.Summary(),
	}
}

func (s *stats) reset() {
	for _, c := range []*atomic.Int64{&s.started, &s.finished, &s.canceled, &s.tokens, &s.blocked} {
		c.Store(0)
	}
	s.late.Reset()
}

type server struct {
	defaults workload.Response
	stats    *stats
	clocks   []*clock
	ids      atomic.Uint64
}

type completionRequest struct {
	Model         string `json:"model"`
	Stream        bool   `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
}

// wish is the response that the request asks for.
func (r *completionRequest) wish(defaults workload.Response) workload.Response {
	w := defaults.Override(r.Model)
	for i := len(r.Messages) - 1; i >= 0; i-- {
		if r.Messages[i].Role == "user" {
			return w.Override(string(r.Messages[i].Content))
		}
	}
	return w
}

func (s *server) completions(w http.ResponseWriter, r *http.Request) {
	var req completionRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<20)).Decode(&req); err != nil {
		http.Error(w, `{"error":{"message":"bad request","type":"invalid_request_error"}}`, http.StatusBadRequest)
		return
	}
	n := s.ids.Add(1)
	res := response{
		id: fmt.Sprintf("chatcmpl-%d", n), model: req.Model, created: time.Now().Unix(),
		want: req.wish(s.defaults), usage: req.StreamOptions.IncludeUsage,
	}
	if !req.Stream {
		time.Sleep(res.want.Think + res.length())
		s.stats.tokens.Add(int64(res.want.Tokens))
		w.Header().Set("Content-Type", "application/json")
		w.Write(res.whole())
		return
	}
	hijacked, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	st, err := newStream(hijacked, res, s.stats)
	if err != nil {
		hijacked.Close()
		return
	}
	s.stats.started.Add(1)
	if res.want.Rate == 0 {
		st.flood()
		return
	}
	s.clocks[n%uint64(len(s.clocks))].add(st)
}

func main() {
	addr := flag.String("addr", "127.0.0.1:18080", "address to listen on")
	prompt := flag.String("default", "n=200 rate=50", "response given when a request names none")
	clocks := flag.Int("clocks", runtime.GOMAXPROCS(0), "scheduler goroutines")
	flag.Parse()

	s := &server{stats: new(stats), defaults: workload.Response{}.Override(*prompt)}
	for range *clocks {
		c := newClock()
		s.clocks = append(s.clocks, c)
		go c.run()
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", s.completions)
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(s.stats.snapshot())
	})
	mux.HandleFunc("POST /stats/reset", func(http.ResponseWriter, *http.Request) { s.stats.reset() })
	log.Printf("provider on http://%s/v1", *addr)
	log.Fatal(http.ListenAndServe(*addr, mux))
}
