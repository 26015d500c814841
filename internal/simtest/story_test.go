package simtest

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/session"
)

// story is what happened, for people. Nothing is formatted until it is told.
type story struct {
	start time.Time

	mu    sync.Mutex
	lines []line // guarded by mu
}

type line struct {
	at     time.Duration
	who    string
	format string
	args   []any
}

// note adds a line. The arguments must not change afterwards.
func (s *story) note(who, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line{time.Since(s.start), who, format, args})
}

// tell gives the whole story, with short names for the long ids, by their first mention.
func (s *story) tell() string { return s.end(len(s.lines)) }

// end is what the last n lines tell.
func (s *story) end(n int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, l := range s.lines[max(0, len(s.lines)-n):] {
		fmt.Fprintf(&b, "%12.6f  %-9s  %s\n", l.at.Seconds(), l.who, fmt.Sprintf(l.format, l.args...))
	}
	return shorten(b.String())
}

var longID = regexp.MustCompile(`(ses|msg|run|call|apr|wrk)_[0-9a-z]{26}`)

// shorten replaces generated ids by short ones, in the order in which they occur.
func shorten(text string) string {
	names, count := map[string]string{}, map[string]int{}
	return longID.ReplaceAllStringFunc(text, func(id string) string {
		if names[id] == "" {
			kind, _, _ := strings.Cut(id, "_")
			count[kind]++
			names[id] = fmt.Sprintf("%s#%d", kind, count[kind])
		}
		return names[id]
	})
}

// told writes the events of a commit on one line when it is told.
type told []session.Event

func (list told) String() string {
	var b strings.Builder
	for i, e := range list {
		if i > 0 {
			b.WriteString(" ")
		}
		fmt.Fprintf(&b, "%d:%s", e.Seq, e.Type())
		b.WriteString(detail(e))
	}
	return b.String()
}

// detail is what a person wants to know of an event.
func detail(e session.Event) string {
	at := ""
	if e.Step > 0 {
		at = fmt.Sprintf(" %d/%d", e.Step, e.Attempt)
	}
	switch d := e.Data.(type) {
	case session.TextDelta:
		return fmt.Sprintf("(%s%s %q)", e.Run, at, brief(d.Text))
	case session.ReasoningDelta:
		return fmt.Sprintf("(%s%s %q)", e.Run, at, brief(d.Text))
	case session.ModelCompleted:
		return fmt.Sprintf("(%s%s %s %d parts)", e.Run, at, d.Finish, len(d.Parts))
	case session.AttemptFailed:
		return fmt.Sprintf("(%s%s %s, retry %v, %d parts)", e.Run, at, d.Error.Code, d.RetryAt != nil, len(d.Parts))
	case session.StepStarted:
		return fmt.Sprintf("(%s%s %s)", e.Run, at, d.Because)
	case session.ToolCalled:
		return fmt.Sprintf("(%s%s %s %s %s)", e.Run, at, d.Name, d.Call, brief(string(d.Arguments)+d.RawArguments))
	case session.ToolStarted:
		return fmt.Sprintf("(%s%s %s try %d)", e.Run, at, d.Call, d.Try)
	case session.ToolCompleted:
		return fmt.Sprintf("(%s%s %s by %q)", e.Run, at, d.Call, d.By)
	case session.ToolFailed:
		return fmt.Sprintf("(%s%s %s %s by %q)", e.Run, at, d.Call, d.Error.Code, d.By)
	case session.ToolDenied:
		return fmt.Sprintf("(%s%s %s %s)", e.Run, at, d.Call, d.Note)
	case session.ToolCancelled:
		return fmt.Sprintf("(%s%s %s)", e.Run, at, d.Call)
	case session.ToolUnknown:
		return fmt.Sprintf("(%s%s %s)", e.Run, at, d.Call)
	case session.ToolResolved:
		return fmt.Sprintf("(%s%s %s %s)", e.Run, at, d.Call, d.Outcome)
	case session.ApprovalRequested:
		return fmt.Sprintf("(%s %s %s)", e.Run, d.Approval.ID, d.Approval.Call)
	case session.ApprovalDecided:
		return fmt.Sprintf("(%s %s %s)", e.Run, d.ID, d.Decision)
	case session.RunQueued:
		return fmt.Sprintf("(%s of %s into %s retry of %q)", e.Run, d.Input, d.Message, d.RetryOf)
	case session.RunStarted:
		return fmt.Sprintf("(%s %s fence %d)", e.Run, d.Worker, d.Fence)
	case session.RunResumed:
		return fmt.Sprintf("(%s %s fence %d after %s)", e.Run, d.Worker, d.Fence, d.After)
	case session.RunWaiting:
		return fmt.Sprintf("(%s %s)", e.Run, d.Reason)
	case session.RunReconciled:
		return fmt.Sprintf("(%s %s → %s: %s)", e.Run, d.Cause, d.Decision, d.Evidence)
	case session.RunFailed:
		return fmt.Sprintf("(%s %s)", e.Run, d.Error.Code)
	case session.MessageCreated:
		return fmt.Sprintf("(%s %s after %q)", e.Run, d.Message.ID, d.Message.Parent)
	case session.MessageInterrupted:
		return fmt.Sprintf("(%s %s %d parts)", e.Run, d.Message, len(d.Parts))
	case session.InboxQueued:
		return fmt.Sprintf("(%s %s run %s)", d.Item.Message.ID, d.Item.Mode, d.Item.Run)
	case session.InboxDelivered:
		return fmt.Sprintf("(%s to %s)", d.ID, d.Run)
	case session.InboxRemoved:
		return fmt.Sprintf("(%s by %q)", d.ID, d.By)
	}
	if e.Run != "" {
		return fmt.Sprintf("(%s%s)", e.Run, at)
	}
	return ""
}

func brief(text string) string { return session.TrimText(text, 60) }

// log is a logger whose lines become part of the story.
func (s *story) log(who string) *slog.Logger { return slog.New(&teller{story: s, who: who}) }

// teller is a [slog.Handler] that tells a story.
type teller struct {
	story *story
	who   string
	attrs []slog.Attr
}

func (t *teller) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (t *teller) Handle(_ context.Context, r slog.Record) error {
	attrs := slices.Clone(t.attrs)
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a)
		return true
	})
	t.story.note(t.who, "log: %s %v", r.Message, attrs)
	return nil
}

func (t *teller) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &teller{t.story, t.who, slices.Concat(t.attrs, attrs)}
}

func (t *teller) WithGroup(string) slog.Handler { return t }
