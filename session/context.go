package session

import "slices"

// Mark is a place on a branch: the end of a message, or, with Step, the end of
// that step in it. The zero Mark is the branch's beginning.
type Mark struct {
	Message string `json:"message"`
	Step    int    `json:"step,omitempty"`
}

// ContextCompacted shrinks what the model is shown from here on, on every
// branch that has the messages of its marks. The log keeps everything. It says
// the whole of what is in force: it replaces the compaction before it.
type ContextCompacted struct {
	// UpTo is how far the branch is not shown any more: Summary stands for it.
	UpTo *Mark `json:"upTo,omitempty"`
	// Summary is what the model wrote, at most 16 KiB. Empty with UpTo: what was before is left out without one.
	Summary string `json:"summary,omitempty"`
	// Told is how far Summary tells, where that is less than UpTo.
	Told *Mark `json:"told,omitempty"`
	// Shortened is how far tool calls and their results are shown shortened.
	Shortened *Mark `json:"shortened,omitempty"`
	// Because is "window" where the context had grown near the model's window, or
	// "refused" where the provider had refused it as too long.
	Because string `json:"because"`
	// Window is the largest window that the provider is believed to have, after it refused a larger context.
	Window int `json:"window,omitempty"`
	// Before and After are the tokens that the context was counted at.
	Before int `json:"before"`
	After  int `json:"after"`
	// Error is why there is no new summary although something was left out.
	Error *Failure `json:"error,omitempty"`
	// Usage is what the summary cost.
	Usage Usage `json:"usage"`
}

// Type is "context.compacted".
func (ContextCompacted) Type() string { return "context.compacted" }

// Lost says that something was left out which no summary tells.
func (c *ContextCompacted) Lost() bool {
	return c != nil && c.UpTo != nil && (c.Summary == "" || c.Told != nil)
}

var _ = register[ContextCompacted]()

// StepContext is what it takes, beside the log, to say later what a model call saw.
type StepContext struct {
	// Tokens is what the context was estimated at, with what the provider
	// counted before taken into account; Counted is the estimate without that.
	Tokens  int `json:"tokens"`
	Counted int `json:"counted"`
	// Window is the model's window; Room is what Counted had to fit into.
	Window int `json:"window"`
	Room   int `json:"room"`
	// Compaction is the seq of the compaction in force.
	Compaction int64 `json:"compaction,omitempty"`
	// Agent is the digest of the agent's part: its model, instructions and tools.
	Agent string `json:"agent"`
}

// Compaction is a place in the log where the context was compacted. The event at Seq has the rest.
type Compaction struct {
	Seq       int64  `json:"seq"`
	Run       string `json:"run"`
	Step      int    `json:"step"`
	Attempt   int    `json:"attempt"`
	UpTo      *Mark  `json:"upTo,omitempty"`
	Shortened *Mark  `json:"shortened,omitempty"`
	Window    int    `json:"window,omitempty"`
}

// Measure is an estimate of a context beside what the provider counted.
type Measure struct {
	Counted  int `json:"counted"`
	Reported int `json:"reported"`
}

// Compaction finds the one that is in force on a branch, given by the ids of
// its messages, or gives nil.
func (s *State) Compaction(path []string) *Compaction {
	on := make(map[string]bool, len(path))
	for _, id := range path {
		on[id] = true
	}
	for _, c := range slices.Backward(s.Compactions) {
		if (c.UpTo == nil || on[c.UpTo.Message]) && (c.Shortened == nil || on[c.Shortened.Message]) {
			return &c
		}
	}
	return nil
}

func (s *State) compact(run *Run, e Event, d ContextCompacted) {
	run.Usage = run.Usage.Add(d.Usage)
	s.Compactions = append(s.Compactions, Compaction{
		Seq: e.Seq, Run: e.Run, Step: e.Step, Attempt: e.Attempt, UpTo: d.UpTo, Shortened: d.Shortened, Window: d.Window,
	})
}

// measure remembers how an estimate compared with what the provider counted.
func (s *State) measure(run *Run, step *Step, usage Usage) {
	if step.Context == nil || step.Context.Counted <= 0 || usage.InputTokens <= 0 {
		return
	}
	if s.Measures == nil {
		s.Measures = map[string]Measure{}
	}
	s.Measures[run.Agent] = Measure{Counted: step.Context.Counted, Reported: usage.InputTokens}
}
