package app

import (
	"fmt"
	"io"
	"time"

	"github.com/holdfast-run/holdfast/cmd/holdfast/chat"
	"github.com/holdfast-run/holdfast/session"
)

// printTimeline prints what happened in a run, each with the time since it was queued.
func printTimeline(out io.Writer, queued time.Time, events []session.Event) {
	calls := map[string]string{}
	for _, e := range events {
		text := happened(e, calls)
		if text == "" {
			continue
		}
		fmt.Fprintf(out, "%9s  %s\n", "+"+chat.Short(max(0, e.At.Sub(queued))), chat.Printable(text))
	}
}

// happened says what an event means for a person, or nothing if it is a detail
// of another. calls are the names of the tool calls so far.
func happened(e session.Event, calls map[string]string) string {
	switch d := e.Data.(type) {
	case session.RunQueued:
		if d.FromStep > 1 {
			return fmt.Sprintf("queued, to go on from step %d of %s", d.FromStep, d.RetryOf)
		}
		return "queued"
	case session.RunStarted:
		return "started by " + d.Worker
	case session.RunResumed:
		return fmt.Sprintf("goes on by %s, after waiting for %s", d.Worker, d.After)
	case session.RunWaiting:
		return "waits for " + string(d.Reason) + until(d.Until) + failure(d.Error)
	case session.RunCancelRequested:
		return "cancel asked for by " + d.By + because(d.Reason)
	case session.RunReconciled:
		return fmt.Sprintf("reconciled (%s): %s%s", d.Cause, d.Decision, because(d.Evidence))
	case session.RunCompleted:
		return "completed"
	case session.RunFailed:
		return "failed" + failure(&d.Error)
	case session.RunCancelled:
		return "cancelled by " + d.By + because(d.Reason)
	case session.StepStarted:
		if e.Attempt > 1 {
			return fmt.Sprintf("step %d, attempt %d (%s)", e.Step, e.Attempt, d.Because)
		}
		return fmt.Sprintf("step %d", e.Step)
	case session.AttemptFailed:
		return fmt.Sprintf("  attempt %d failed%s%s", e.Attempt, failure(&d.Error), until(d.RetryAt))
	case session.ModelCompleted:
		return fmt.Sprintf("  answered (%s, %d tokens)", d.Finish, d.Usage.OutputTokens)
	case session.ContextCompacted:
		how := "older results were shortened"
		switch {
		case d.Error != nil:
			how = "earlier messages were left out without a summary" + failure(d.Error)
		case d.Usage != (session.Usage{}):
			how = "earlier messages were summarised"
		}
		return fmt.Sprintf("the context was compacted, from %d tokens to %d: %s", d.Before, d.After, how)
	case session.ToolCalled:
		calls[d.Call] = d.Name
		return fmt.Sprintf("  %s called: %s", d.Name, cell(string(d.Arguments)+d.RawArguments, 100))
	}
	return toolHappened(e.Data, func(call string) string { return "  " + calls[call] })
}

func toolHappened(d session.Data, name func(call string) string) string {
	switch d := d.(type) {
	case session.ApprovalRequested:
		return name(d.Approval.Call) + " asks for approval " + d.Approval.ID
	case session.ApprovalDecided:
		return fmt.Sprintf("  %s by %s%s", map[session.Decision]string{session.Approve: "approved", session.Deny: "denied"}[d.Decision], d.By, because(d.Note))
	case session.ApprovalExpired:
		return "  the approval expired"
	case session.ApprovalVoided:
		return "  the approval is void" + because(d.Reason)
	case session.ToolStarted:
		if d.Try > 1 {
			return fmt.Sprintf("%s started again, try %d", name(d.Call), d.Try)
		}
		return name(d.Call) + " started"
	case session.ToolCompleted:
		return name(d.Call) + " completed: " + cell(string(d.Result), 100)
	case session.ToolFailed:
		return name(d.Call) + " failed" + failure(&d.Error)
	case session.ToolDenied:
		return name(d.Call) + " denied" + because(d.Note)
	case session.ToolCancelled:
		return name(d.Call) + " cancelled" + because(d.Reason)
	case session.ToolUnknown:
		return name(d.Call) + " may or may not have happened" + because(d.Evidence)
	case session.ToolResolved:
		return fmt.Sprintf("%s: %s, says %s%s", name(d.Call), d.Outcome, d.By, because(d.Note))
	}
	return ""
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + cell(reason, 160)
}

func failure(f *session.Failure) string {
	if f == nil {
		return ""
	}
	return because(f.Message) + " (" + f.Code + ")"
}

func until(t *time.Time) string {
	if t == nil {
		return ""
	}
	return ", until " + t.Local().Format("15:04:05.0")
}
