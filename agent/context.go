package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/session"
)

// View is what a context is made from.
type View struct {
	// Branch is its messages, oldest first, with what large values they have put
	// back. It ends in Message, the assistant message that is being written.
	Branch  []session.Message
	Message string
	// Step is the step whose model call it is: of Message only what comes before is told.
	Step int
	// Compaction is the one in force, or nil.
	Compaction *session.ContextCompacted
	// Room bounds [Seen.Counted]. 0 is no bound.
	Room int
}

// Seen is everything the model sees for one call, and what it is made of.
type Seen struct {
	Request model.Request
	// Counted estimates the tokens of everything; Fixed those of the
	// instructions and the tools.
	Counted, Fixed int
	// Told are the pieces that Request's messages are, in their order.
	Told []Told
}

// Told is a piece of the branch as the model sees it: a message of a person,
// or a step of an answer with its results.
type Told struct {
	// Mark is where it comes from. The zero Mark is what stands for earlier messages.
	Mark     session.Mark
	Messages []model.Message
	Counts   []int // the estimated tokens of each
	// Shortened says that less of it is told than there is, because of its age or for want of room.
	Shortened bool
}

// See gives everything the model sees: a pure function of the agent and the
// view. Instructions, tools and the oldest messages come first, and what was told
// of a message changes only at a compaction, so that a provider's cache of the
// beginning stays good from step to step.
//
// It cannot build a history that a strict provider refuses: every call is
// followed at once by exactly one result, in the order of the calls; arguments
// are always a JSON object; empty and blank messages do not occur; a call that
// was never made (its arguments broke off) is not told as one.
//
// It fits into the view's room, if instructions and tools leave any: what the
// compaction leaves too large is cut further, the oldest first, the newest results last.
func (a Agent) See(v View) Seen { return a.Draft(v).See() }

// Draft takes the view apart. What it takes to see and to compact is done once.
func (a Agent) Draft(v View) *Draft {
	c := a.compose(v)
	return &Draft{agent: a, view: v, c: c, shape: c.inForce(v.Compaction)}
}

// Draft is a view taken apart into what can be told, shortened or left out. It
// is not safe for concurrent use.
type Draft struct {
	agent Agent
	view  View
	c     *composition
	shape shape // that the compaction in force gives
}

// See gives what the model sees: see [Agent.See].
func (d *Draft) See() Seen { return d.c.seen(d.c.fit(d.shape, d.view.Room)) }

// Digest is the fingerprint of the agent's part of what a model sees.
func (a Agent) Digest() string {
	raw, err := json.Marshal([]any{a.Model, a.Instructions, a.tools(), a.Limits.WithDefaults().ToolOutput})
	if err != nil { // a tool's schema is no JSON: no provider would take it
		return ""
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}

func (a Agent) tools() []model.Tool {
	if a.Tools == nil {
		return nil
	}
	var tools []model.Tool
	for _, spec := range a.Tools.Specs() {
		tools = append(tools, model.Tool{Name: spec.Name, Description: spec.Description, Parameters: spec.Parameters})
	}
	return tools
}

// composition is a branch taken apart into the pieces that can be told or left out.
type composition struct {
	request model.Request // without messages
	fixed   int
	telling telling
	pieces  []piece
	places  map[string]int // of each message on the branch
	// summary and told are of the compaction in force.
	summary string
	partly  bool
}

// piece is a user's message or a step of an answer.
type piece struct {
	mark session.Mark
	user *session.Message // nil: a step
	step []session.Part
	// whole and short are the two ways in which it is told. Few are ever told short: see short.
	whole, short form
}

// form is a piece as it is told, and what each message of it counts.
type form struct {
	messages []model.Message
	counts   []int
	counted  int
}

func formOf(messages []model.Message) form {
	f := form{messages: messages, counts: make([]int, len(messages))}
	for i, m := range messages {
		f.counts[i] = countMessage(m)
		f.counted += f.counts[i]
	}
	return f
}

func (p *piece) told(t telling) []model.Message {
	if p.user != nil {
		return []model.Message{t.user(p.user)}
	}
	return t.step(p.step)
}

func (a Agent) compose(v View) *composition {
	c := &composition{
		request: model.Request{
			System: a.Instructions, Tools: a.tools(), MaxTokens: a.MaxTokens, Temperature: a.Temperature, Reasoning: a.Reasoning,
		},
		places: make(map[string]int, len(v.Branch)),
	}
	c.telling = telling{output: a.Limits.WithDefaults().ToolOutput, tools: len(c.request.Tools) > 0}
	c.fixed = countText(c.request.System) + messageTokens
	for _, t := range c.request.Tools {
		c.fixed += countTool(t)
	}
	for i := range v.Branch {
		m := &v.Branch[i]
		c.places[m.ID] = i
		switch {
		case m.Role == session.RoleUser, m.Background != nil: // this conversation's model did not say the latter
			c.add(piece{mark: session.Mark{Message: m.ID}, user: m})
		case m.Role == session.RoleAssistant:
			before := 0
			if m.ID == v.Message {
				before = v.Step
			}
			c.addSteps(m, before)
		}
	}
	return c
}

// addSteps takes an answer apart. Parts of steps from before on are left out (0: none are).
func (c *composition) addSteps(m *session.Message, before int) {
	for from := 0; from < len(m.Parts); {
		step, to := m.Parts[from].Step, from
		for to < len(m.Parts) && m.Parts[to].Step == step {
			to++
		}
		if before == 0 || step < before {
			c.add(piece{mark: session.Mark{Message: m.ID, Step: step}, step: m.Parts[from:to]})
		}
		from = to
	}
}

func (c *composition) add(p piece) {
	if p.whole = formOf(p.told(c.telling)); len(p.whole.messages) > 0 {
		c.pieces = append(c.pieces, p)
	}
}

// short is how piece i is told when it is no longer new.
func (c *composition) short(i int) form {
	p := &c.pieces[i]
	if p.short.messages == nil {
		p.short = p.whole
		if p.user == nil {
			if told := p.told(c.telling.shortened()); len(told) > 0 {
				p.short = formOf(told)
			}
		}
	}
	return p.short
}

// after is the first piece behind a mark.
func (c *composition) after(m *session.Mark) int {
	if m == nil {
		return 0
	}
	place, there := c.places[m.Message]
	if !there {
		return 0
	}
	i := slices.IndexFunc(c.pieces, func(p piece) bool {
		at := c.places[p.mark.Message]
		return at > place || at == place && m.Step > 0 && p.mark.Step > m.Step
	})
	if i < 0 {
		return len(c.pieces)
	}
	return i
}

// inForce is the shape that a compaction gives, and takes over what it says.
func (c *composition) inForce(d *session.ContextCompacted) shape {
	if d == nil {
		return shape{}
	}
	c.summary, c.partly = d.Summary, d.Told != nil
	return shape{from: c.after(d.UpTo), short: c.after(d.Shortened)}
}
