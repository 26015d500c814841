package demo

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/model"
)

// scene is what the demo model reads in a request.
type scene struct {
	ask     string // what the person said last
	tools   []string
	results []result // of the calls made since, oldest first
	turns   int      // the model's own turns since
	history string   // the whole request, for telling requests apart
}

// result is how a call ended.
type result struct {
	name   string
	text   string
	failed bool
}

func read(req model.Request) scene {
	var s scene
	for _, t := range req.Tools {
		s.tools = append(s.tools, t.Name)
	}
	for _, m := range req.Messages {
		switch m.Role {
		case model.User:
			s.ask, s.results, s.turns = "", nil, 0
			for _, p := range m.Parts {
				s.ask += p.Text
			}
		case model.Assistant:
			s.turns++
		case model.ToolRole:
			for _, p := range m.Parts {
				s.results = append(s.results, result{name: p.Name, text: p.Text, failed: p.Failed})
			}
		}
	}
	raw, err := json.Marshal(req.Messages)
	if err == nil {
		s.history = string(raw)
	}
	return s
}

// asks says whether the person used one of these words.
func (s scene) asks(words ...string) bool {
	ask := strings.ToLower(s.ask)
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(ask, w) })
}

// has says whether the agent has all these tools.
func (s scene) has(names ...string) bool {
	for _, n := range names {
		if !slices.Contains(s.tools, n) {
			return false
		}
	}
	return true
}

// last is the newest result of a tool.
func (s scene) last(name string) (result, bool) {
	for i := len(s.results) - 1; i >= 0; i-- {
		if s.results[i].name == name {
			return s.results[i], true
		}
	}
	return result{}, false
}

// about is the first result of a tool that names a subject, or else the last.
func (s scene) about(name, subject string) result {
	for _, r := range s.results {
		if r.name == name && strings.Contains(r.text, subject) {
			return r
		}
	}
	r, _ := s.last(name)
	return r
}

// arguments is a JSON object of strings and numbers.
func arguments(pairs ...any) string {
	m := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1]
	}
	raw, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return string(raw)
}
