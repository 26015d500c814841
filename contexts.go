package holdfast

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/holdfast-run/holdfast/engine"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// Context is what the model saw at one attempt of a step, recomputed from the
// log: nothing that came later has a part in it.
type Context struct {
	Session string `json:"session"`
	Run     string `json:"run"`
	Step    int    `json:"step"`
	Attempt int    `json:"attempt"`
	// Message is the assistant message that the step wrote to.
	Message string `json:"message"`
	Agent   string `json:"agent"`
	// Exact says that it was so byte for byte. Else Reason says why it may not be.
	Exact  bool   `json:"exact"`
	Reason string `json:"reason,omitempty"`
	// Tokens is what it was estimated at, Window the model's window. Reported is what the provider counted, if it answered.
	Tokens   int `json:"tokens"`
	Window   int `json:"window,omitempty"`
	Reported int `json:"reported,omitempty"`
	// Compaction is the one in force.
	Compaction *Compaction      `json:"compaction,omitempty"`
	System     string           `json:"system,omitempty"`
	Tools      []ContextTool    `json:"tools,omitempty"`
	Fixed      int              `json:"fixed"` // the tokens of system and tools
	Messages   []ContextMessage `json:"messages"`
	// Cut is how many bytes of text are not here because the whole would be too large.
	Cut int `json:"cut,omitempty"`
}

// ContextTool is a tool as the model was told of it.
type ContextTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

// ContextMessage is one message as the model saw it.
type ContextMessage struct {
	Role model.Role `json:"role"`
	// Message and Step say where it comes from. Both are absent for what stands for earlier messages.
	Message string `json:"message,omitempty"`
	Step    int    `json:"step,omitempty"`
	Tokens  int    `json:"tokens"`
	// Shortened says that the model saw less of it than there is.
	Shortened bool          `json:"shortened,omitempty"`
	Parts     []ContextPart `json:"parts"`
}

// ContextPart is one piece of a message as the model saw it.
type ContextPart struct {
	Kind model.PartKind `json:"kind"`
	// Text is a text, a call's arguments or a result. Cut is how many bytes more the model saw.
	Text      string `json:"text,omitempty"`
	Cut       int    `json:"cut,omitempty"`
	Call      string `json:"call,omitempty"`
	Name      string `json:"name,omitempty"`
	Failed    bool   `json:"failed,omitempty"`
	MediaType string `json:"mediaType,omitempty"`
	Size      int    `json:"size,omitempty"` // of a file, in bytes
	URL       string `json:"url,omitempty"`
	Files     int    `json:"files,omitempty"` // pictures that came with a result
}

// Compaction is a place in the log where the context was compacted.
type Compaction struct {
	Seq     int64  `json:"seq"`
	Run     string `json:"run"`
	Step    int    `json:"step"`
	Attempt int    `json:"attempt"`
	session.ContextCompacted
}

func compactionOf(at session.Compaction, d session.ContextCompacted) *Compaction {
	return &Compaction{Seq: at.Seq, Run: at.Run, Step: at.Step, Attempt: at.Attempt, ContextCompacted: d}
}

// How much text a [Context] holds: of one part, and of all.
const (
	maxContextPart = 32 << 10
	maxContextText = 1 << 20
)

// Context gives what the model saw at an attempt of a step (0: the last one).
// store.ErrNotFound for what is not there or not the principal's.
func (r *Runtime) Context(ctx context.Context, p Principal, runID string, step, attempt int) (Context, error) {
	run, err := r.FindRun(ctx, p, runID)
	if err != nil {
		return Context{}, err
	}
	var at *session.Step
	for i := range run.Steps {
		if s := &run.Steps[i]; s.Step == step && (attempt == 0 || s.Attempt == attempt) {
			at = s
		}
	}
	if at == nil {
		return Context{}, store.ErrNotFound
	}
	if at.Message == "" { // a log from before it was kept
		at.Message = run.Message
	}
	seen, err := engine.Recall(ctx, r.store, r.agents, run, *at)
	if err != nil {
		return Context{}, err
	}
	return contextOf(run, *at, seen), nil
}

// contextOf tells what was seen.
func contextOf(run session.Run, at session.Step, seen engine.Recalled) Context {
	out := Context{
		Session: run.Session, Run: run.ID, Step: at.Step, Attempt: at.Attempt, Message: at.Message, Agent: run.Agent,
		Exact: seen.Inexact == "", Reason: seen.Inexact, Tokens: seen.Counted, Messages: []ContextMessage{},
	}
	scale := 1.0
	if c := at.Context; c != nil {
		out.Tokens, out.Window = c.Tokens, c.Window
		if c.Counted > 0 {
			scale = float64(c.Tokens) / float64(c.Counted)
		}
	}
	if c := seen.At; c != nil {
		out.Compaction = compactionOf(*c, *seen.Compaction)
	}
	if at.Usage != nil {
		out.Reported = at.Usage.InputTokens
	}
	tokens := func(counted int) int { return int(float64(counted)*scale + 0.5) }
	left := maxContextText
	cut := func(text string) (string, int) {
		shown := session.TrimText(text, min(left, maxContextPart))
		left -= len(shown)
		out.Cut += len(text) - len(shown)
		return shown, len(text) - len(shown)
	}
	out.Fixed = tokens(seen.Fixed)
	out.System, _ = cut(seen.Request.System)
	for _, t := range seen.Request.Tools {
		out.Tools = append(out.Tools, ContextTool(t))
	}
	// The newest messages are what one looks for: they are whole first.
	for i := len(seen.Told) - 1; i >= 0; i-- {
		told := seen.Told[i]
		for j := len(told.Messages) - 1; j >= 0; j-- {
			m := ContextMessage{
				Role: told.Messages[j].Role, Message: told.Mark.Message, Step: told.Mark.Step,
				Tokens: tokens(told.Counts[j]), Shortened: told.Shortened, Parts: []ContextPart{},
			}
			for _, p := range told.Messages[j].Parts {
				m.Parts = append(m.Parts, contextPart(p, cut))
			}
			out.Messages = append(out.Messages, m)
		}
	}
	for i, j := 0, len(out.Messages)-1; i < j; i, j = i+1, j-1 {
		out.Messages[i], out.Messages[j] = out.Messages[j], out.Messages[i]
	}
	return out
}

func contextPart(p model.Part, cut func(string) (string, int)) ContextPart {
	out := ContextPart{
		Kind: p.Kind, Call: p.Call, Name: p.Name, Failed: p.Failed, MediaType: p.MediaType, Size: len(p.Data), Files: len(p.Files),
	}
	if !strings.HasPrefix(p.URL, "data:") {
		out.URL, _ = cut(p.URL)
	}
	text := p.Text
	if p.Kind == model.CallPart {
		text = string(p.Arguments)
	}
	out.Text, out.Cut = cut(text)
	return out
}

// Compactions are those of the session's active branch, the newest first, at
// most 50: the first is in force.
func (r *Runtime) Compactions(ctx context.Context, p Principal, id string) ([]Compaction, error) {
	list := []Compaction{}
	err := r.view(ctx, p, id, func(s *session.State) error {
		path := s.Path(s.Head)
		for i := len(s.Compactions); i > 0 && len(list) < 50; i-- {
			older := session.State{Compactions: s.Compactions[i-1 : i]}
			if c := older.Compaction(path); c != nil {
				list = append(list, *compactionOf(*c, session.ContextCompacted{}))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range list {
		d, err := engine.ReadCompaction(ctx, r.store, id, list[i].Seq)
		if err != nil {
			return nil, err
		}
		list[i].ContextCompacted = *d
	}
	return list, nil
}
