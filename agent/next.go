package agent

import (
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

// Next is what comes next for a run. It is one of [CallModel], [UseTools],
// [EndStep], [Wait], [Stay], [Complete], [Fail] and [Cancel].
type Next interface{ next() }

// CallModel makes try Attempt of the model call of Step.
type CallModel struct {
	Step, Attempt int
	Because       string // for attempts after the first: "retry" or "crash"
}

// UseTools records that Settled are settled, then starts the calls in Start together.
type UseTools struct {
	Settled []session.Data
	Start   []session.ToolCall
}

// EndStep records that the step is done: all its calls have results.
type EndStep struct{}

// Wait gives the run up until something happens, at the latest at Until (the zero time: no limit).
type Wait struct {
	Reason session.WaitingReason
	Until  time.Time
	Error  *session.Failure
}

// Stay waits for the calls that this worker is running.
type Stay struct{}

// Complete ends the run: the model answered without calling a tool.
type Complete struct{}

// Fail ends the run.
type Fail struct{ Failure session.Failure }

// Cancel ends the run because a cancel is recorded.
type Cancel struct{}

func (CallModel) next() {}
func (UseTools) next()  {}
func (EndStep) next()   {}
func (Wait) next()      {}
func (Stay) next()      {}
func (Complete) next()  {}
func (Fail) next()      {}
func (Cancel) next()    {}

// Decide says what comes next for run, which is carried, at time now. It is a
// pure function of the folded log; busy names the tool calls that this worker
// is running already.
func (a Agent) Decide(s *session.State, run *session.Run, now time.Time, busy map[string]bool) Next {
	if run.CancelRequestedAt != nil {
		return Cancel{}
	}
	limits := a.Limits.WithDefaults()
	if len(run.Steps) == 0 {
		return begin(s, run)
	}
	step := &run.Steps[len(run.Steps)-1]
	switch {
	case step.AnsweredAt == nil:
		return a.again(step, limits, now)
	case step.CompletedAt != nil:
		return a.following(s, run, step, limits)
	}
	calls := s.Calls(run)
	if len(calls) == 0 {
		return Complete{}
	}
	return settle(s, run, calls, now, busy)
}

// begin is the first thing that a run does. A retry goes on behind the steps
// that are done; if the last of them answered without a call, nothing is left to do.
func begin(s *session.State, run *session.Run) Next {
	last, said, called := run.FromStep-1, false, false
	if m := s.Message(run.Message); m != nil && last > 0 {
		for _, p := range m.Parts {
			if p.Step == last {
				said, called = said || p.Type != session.PartStep, called || p.Tool != nil
			}
		}
	}
	if said && !called {
		return Complete{}
	}
	return CallModel{Step: max(run.FromStep, 1), Attempt: 1}
}

// again is what follows a try that gave no answer.
func (a Agent) again(step *session.Step, limits Limits, now time.Time) Next {
	switch {
	case step.Error == nil: // the log ends in the middle of a try
		return CallModel{Step: step.Step, Attempt: step.Attempt + 1, Because: "crash"}
	case step.Error.Code == "worker_lost" || step.Error.Code == "worker_left":
		return CallModel{Step: step.Step, Attempt: step.Attempt + 1, Because: "crash"}
	case step.RetryAt == nil || step.Attempt >= limits.Attempts:
		return Fail{Failure: *step.Error}
	case now.Before(*step.RetryAt):
		return Wait{Reason: session.WaitRetry, Until: *step.RetryAt, Error: step.Error}
	}
	return CallModel{Step: step.Step, Attempt: step.Attempt + 1, Because: "retry"}
}

// TokenLimit is how many tokens the run may use, its subagents included: what
// its agent allows, or what the run that it works for has left it.
func (a Agent) TokenLimit(run *session.Run) int {
	most := a.Limits.WithDefaults().Tokens
	if run.TokenLimit > 0 {
		most = min(most, run.TokenLimit)
	}
	return most
}

// following is what follows a completed step: the next one, within the limits.
func (a Agent) following(s *session.State, run *session.Run, step *session.Step, limits Limits) Next {
	if step.Finish != "tool_calls" && len(s.Calls(run)) == 0 {
		return Complete{}
	}
	if used, most := run.Usage.InputTokens+run.Usage.OutputTokens, a.TokenLimit(run); used > most {
		return Fail{Failure: session.Failure{
			Code:    "token_limit",
			Message: fmt.Sprintf("the run used %d tokens; it may use %d", used, most),
		}}
	}
	if made := step.Step - max(run.FromStep-1, 0); made >= limits.Steps {
		return Fail{Failure: session.Failure{
			Code:    "step_limit",
			Message: fmt.Sprintf("the run made %d model calls; its agent allows no more", made),
		}}
	}
	return CallModel{Step: step.Step + 1, Attempt: 1}
}

// settle brings the calls of a step to their results.
func settle(s *session.State, run *session.Run, calls []*session.ToolCall, now time.Time, busy map[string]bool) Next {
	var use UseTools
	var wait Wait
	running := false
	for _, c := range calls {
		switch {
		case c.Status.Settled():
		case busy[c.ID]:
			running = true
		case c.Status == session.CallDeferred:
			deferred(run, c, now, &use, &wait)
		case c.Status == session.CallUnknown:
			wait.Reason = session.WaitToolOutcome
		case c.Status == session.CallStarted: // its worker is gone, and it may be run again
			use.Start = append(use.Start, *c)
		case c.Approval == "":
			use.Start = append(use.Start, *c)
		default:
			allowed(s, c, now, &use, &wait)
		}
	}
	switch {
	case len(use.Settled) > 0 || len(use.Start) > 0:
		return use
	case running:
		return Stay{}
	case wait.Reason != "":
		return wait
	}
	return EndStep{}
}

// deferred looks at a call that others work on.
func deferred(run *session.Run, c *session.ToolCall, now time.Time, use *UseTools, wait *Wait) {
	if c.Until != nil && !now.Before(*c.Until) {
		use.Settled = append(use.Settled, session.ToolFailed{Message: run.Message, Call: c.ID, Error: session.Failure{
			Code: tool.CodeTimeout, Message: "No result came in time. It may have acted: check before you try again.",
		}})
		return
	}
	// What people have to do is told first.
	switch {
	case c.Child != nil && (wait.Reason == "" || wait.Reason == session.WaitCallback):
		wait.Reason = session.WaitChildRun
	case wait.Reason == "":
		wait.Reason = session.WaitCallback
	}
	wait.until(c.Until)
}

// until makes the wait end at a time, if it does not end before.
func (w *Wait) until(at *time.Time) {
	if at != nil && (w.Until.IsZero() || at.Before(w.Until)) {
		w.Until = *at
	}
}

// allowed looks at the approval that c needs.
func allowed(s *session.State, c *session.ToolCall, now time.Time, use *UseTools, wait *Wait) {
	a := s.Approval(c.Approval)
	message := ""
	if a != nil {
		message = a.Message
	}
	switch {
	case a == nil || a.Status == session.StatusVoided:
		use.Settled = append(use.Settled, session.ToolDenied{Message: message, Call: c.ID, Note: "the approval is gone"})
	case a.Status == session.StatusApproved:
		use.Start = append(use.Start, *c)
	case a.Status == session.StatusDenied:
		use.Settled = append(use.Settled, session.ToolDenied{Message: message, Call: c.ID, By: a.By, Note: a.Note})
	case a.Status == session.StatusExpired:
		use.Settled = append(use.Settled, session.ToolDenied{Message: message, Call: c.ID, Note: "nobody decided in time"})
	case a.ExpiresAt != nil && !now.Before(*a.ExpiresAt):
		use.Settled = append(use.Settled, session.ApprovalExpired{ID: a.ID},
			session.ToolDenied{Message: message, Call: c.ID, Note: "nobody decided in time"})
	default:
		if wait.Reason != session.WaitToolOutcome {
			wait.Reason = session.WaitApproval
		}
		wait.until(a.ExpiresAt)
	}
}
