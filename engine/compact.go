package engine

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/session"
)

const (
	// summaryTries bounds the tries of one summary; what a person waits for is the answer.
	summaryTries = 2
	// maxSummaryWait is the longest wait between them that a provider may ask for.
	maxSummaryWait = 10 * time.Second
	// summaryKept bounds what is kept of a summary that is too long anyway, in bytes.
	summaryKept = 64 << 10
)

// compact makes the context smaller if it has to be, and says whether it did.
// Nothing of it is lost by a crash: it is begun again.
func (k *carry) compact(ctx context.Context, n agent.CallModel, at outlook, v agent.View, d *agent.Draft, b agent.Budget, refused bool) (bool, error) {
	plan, due := d.Compact(b, refused)
	if !due {
		return false, nil
	}
	if plan.Request != nil && v.Compaction.Lost() && at.needed > 0 { // tell what was left out as well
		whole, err := at.view(ctx, k.Store, k.lease.Session, true)
		if err != nil {
			return false, err
		}
		whole.Room = v.Room
		plan, _ = k.agent.Draft(whole).Compact(b, refused)
	}
	event := plan.Shortened()
	if plan.Request != nil {
		text, usage, failure := k.summarise(ctx, *plan.Request)
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if failure != nil {
			k.log().Warn("a summary failed: earlier messages are left out of the context without one",
				slog.String("code", failure.Code), slog.String("error", failure.Message))
			event = plan.Unsummarised(*failure, usage)
		} else {
			event = plan.Summarised(text, usage)
		}
	}
	err := k.settle(ctx, func(_ *session.State, run *session.Run) ([]session.Event, error) {
		return []session.Event{{Run: run.ID, Step: n.Step, Attempt: n.Attempt, Data: event}}, nil
	})
	if err == nil {
		k.log().Info("context compacted", slog.Int("step", n.Step), slog.String("because", event.Because),
			slog.Int("before", event.Before), slog.Int("after", event.After))
	}
	return err == nil, err
}

// summarise asks for a summary. What a failed one says is told by its failure.
func (k *carry) summarise(ctx context.Context, req model.Request) (text string, usage session.Usage, failure *session.Failure) {
	for try := 1; ; try++ {
		var said strings.Builder
		called := false
		finish, err := k.listen(ctx, req, func(chunk model.Chunk) {
			switch {
			case chunk.Kind == model.CallChunk:
				called = true
			case chunk.Kind == model.TextChunk && said.Len() < summaryKept:
				said.WriteString(chunk.Text)
			}
		})
		if ctx.Err() != nil {
			return "", usage, nil
		}
		if err == nil {
			usage = session.Usage(finish.Usage)
			text = strings.TrimSpace(session.CleanText(said.String()))
			return text, usage, agent.CheckSummary(text, called, finish.Reason)
		}
		cause := &model.Error{Code: model.CodeUnavailable, Message: err.Error()}
		errors.As(err, &cause)
		wait := max(cause.RetryAfter, k.Backoff.After(try))
		if !cause.Retryable || try == summaryTries || wait > maxSummaryWait {
			return "", usage, &session.Failure{Code: string(cause.Code), Message: session.CleanText(cause.Message)}
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}
