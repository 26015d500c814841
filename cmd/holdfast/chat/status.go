package chat

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/session"
)

// statusOf says in one line what is going on with a run and does not show
// otherwise. It is empty while an answer streams.
func statusOf(m mirror, target string, now time.Time) string {
	run := m.Run(target)
	if run == nil {
		return "…"
	}
	ahead := m.Active()
	if ahead != nil && ahead.ID != target && run.Status == session.Queued {
		if theirs := statusOf(m, ahead.ID, now); theirs != "" {
			return queued(m, run) + ": " + theirs
		}
		return queued(m, run)
	}
	if run.CancelRequestedAt != nil && !run.Status.Terminal() {
		return "cancelling" + within(run.CancelDeadline, now)
	}
	switch run.Status {
	case session.Queued:
		return "queued: waits for a worker"
	case session.Waiting:
		return waiting(run, now)
	case session.Running:
		return running(m, run)
	}
	return ""
}

// queued is a run's place in the inbox.
func queued(m mirror, run *session.Run) string {
	i := slices.IndexFunc(m.Inbox, func(item *session.InboxItem) bool { return item.Run == run.ID })
	if i <= 0 {
		return "queued behind another run"
	}
	return fmt.Sprintf("queued behind %d others", i+1)
}

func waiting(run *session.Run, now time.Time) string {
	switch run.WaitingReason {
	case session.WaitRetry:
		why := ""
		if run.Error != nil {
			why = " (" + run.Error.Code + ")"
		}
		return fmt.Sprintf("attempt %d%s%s", run.Attempt+1, within(run.WaitingUntil, now), why)
	case session.WaitApproval:
		return "waits for an approval" + until(run.WaitingUntil, now)
	case session.WaitToolOutcome:
		return "waits for somebody to say what a tool call did"
	case session.WaitChildRun:
		return "waits for a subagent; what it asks is in holdfast approvals" + until(run.WaitingUntil, now)
	case session.WaitCallback:
		return "waits for the result of a call" + until(run.WaitingUntil, now)
	case session.WaitWorker:
		return "waits for a worker" + until(run.WaitingUntil, now)
	}
	return "waits: " + string(run.WaitingReason) + until(run.WaitingUntil, now)
}

func within(at *time.Time, now time.Time) string {
	if at == nil || !at.After(now) {
		return " now"
	}
	return " in " + countdown(at.Sub(now))
}

func until(at *time.Time, now time.Time) string {
	if at == nil || !at.After(now) {
		return ""
	}
	return ", " + countdown(at.Sub(now)) + " at most"
}

// countdown is a time that is left, in whole seconds.
func countdown(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%ds", int((d+time.Second-1)/time.Second))
	}
	return Short(d)
}

// running is what a run does besides saying something.
func running(m mirror, run *session.Run) string {
	var doing []string
	for _, c := range m.calls(run, session.CallStarted) {
		doing = append(doing, c.Name+progress(c.Progress))
	}
	for _, c := range m.calls(run, session.CallWriting) {
		written := ""
		if n := len(c.RawArguments); n > 0 {
			written = fmt.Sprintf(", %d bytes of arguments so far", n)
		}
		doing = append(doing, "asks for "+c.Name+written)
	}
	if len(doing) > 0 {
		return strings.Join(doing, " · ")
	}
	if msg := m.Message(run.Message); msg != nil {
		if n := len(msg.Parts); n > 0 && msg.Parts[n-1].State == session.PartStreaming {
			return "" // it speaks
		}
	}
	return "waits for the model"
}

func progress(p *session.Progress) string {
	if p == nil {
		return ""
	}
	text := ""
	if p.Fraction > 0 {
		text = fmt.Sprintf(" %.0f%%", p.Fraction*100)
	}
	if p.Message != "" {
		text += " " + oneLine(p.Message, 60)
	}
	return text
}
