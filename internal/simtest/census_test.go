package simtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/session"
)

// census counts what histories had in them, by name: a promise that is never
// put to the test is not kept.
type census map[string]int

// add counts what a world had.
func (c census) add(w *world) {
	for _, h := range w.histories() {
		c["session"]++
		if h.deleted {
			c["session deleted"]++
		}
		for _, e := range h.list {
			c[e.Type()]++
			switch d := e.Data.(type) {
			case session.RunReconciled:
				c["reconciled: "+string(d.Cause)+", "+d.Decision]++
			case session.RunWaiting:
				c["waiting: "+string(d.Reason)]++
			case session.RunFailed:
				c["failed: "+d.Error.Code]++
			case session.StepStarted:
				if d.Because != "" {
					c["attempt because of "+d.Because]++
				}
			case session.ToolStarted:
				if d.Try > 1 {
					c["tool tried again"]++
				}
			case session.ToolResolved:
				c["resolved: "+string(d.Outcome)]++
			case session.ToolFailed:
				c["tool failed: "+d.Error.Code]++
			case session.ApprovalDecided:
				c["decided: "+string(d.Decision)]++
				if d.Arguments != nil {
					c["decided: edited"]++
				}
			case session.InboxQueued:
				c["queued: "+string(d.Item.Mode)]++
			case session.RunQueued:
				if d.RetryOf != "" {
					c["run retried"]++
				}
				if d.Background {
					c["run in the background"]++
				}
			}
		}
	}
	for _, l := range w.story.lines {
		for _, word := range []string{"DIES before", "DIES after", "is not told", "%s fails", "link is", "jumps", "is told to leave", "folds"} {
			if strings.HasPrefix(l.format, word) {
				c["fault: "+word]++
			}
		}
	}
	for _, code := range w.people.refusals() {
		c["refused: "+code]++
	}
}

// check fails if something never happened that a world must be able to have.
func (c census) check(t *testing.T) {
	for _, name := range []string{
		"attempt because of crash", "attempt because of retry", "attempt.failed", "approval.decided", "approval.expired",
		"approval.requested", "approval.voided", "decided: approve", "decided: deny", "decided: edited",
		"failed: crash", "failed: invalid_request", "failed: rate_limited", "failed: step_limit", "failed: time_limit", "failed: token_limit",
		"fault: %s fails", "fault: DIES after", "fault: DIES before", "fault: folds", "fault: is not told", "fault: is told to leave",
		"fault: jumps", "fault: link is", "inbox.delivered", "inbox.edited", "inbox.removed", "message.interrupted",
		"queued: enqueue", "queued: interrupt", "queued: rollback", "queued: steer",
		"reconciled: cancel_timeout, cancel", "reconciled: drain, hand_over", "reconciled: lease_expired, cancel",
		"reconciled: lease_expired, continue", "reconciled: lease_expired, fail", "reconciled: restart, continue",
		"refused: approval_decided", "refused: approval_gone", "refused: inbox_delivered", "refused: message_conflict",
		"refused: run_active", "refused: run_not_terminal", "refused: run_terminal", "refused: tool_outcome_known",
		"resolved: did_not", "resolved: failed", "resolved: happened", "run in the background", "run retried",
		"run.cancelled", "run.completed", "session deleted", "session.updated",
		"tool failed: invalid_arguments", "tool failed: invalid_result", "tool failed: timeout", "tool failed: tool_crash", "tool failed: unknown_tool",
		"tool tried again", "tool.cancelled", "tool.denied", "tool.progress", "tool.unknown",
		"waiting: approval", "waiting: retry", "waiting: tool_outcome",
	} {
		if c[name] == 0 {
			t.Errorf("in no history there was %q", name)
		}
	}
}

// String lists the counts.
func (c census) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(&b, "%8d  %s\n", c[name], name)
	}
	return b.String()
}
