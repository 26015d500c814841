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
	"github.com/holdfast-run/holdfast/tool"
)

const (
	// maxInlineText bounds a text part in a message; a larger one becomes a blob with a preview of this size.
	maxInlineText = 256 << 10
	// maxRetryAfter is the longest wait that a provider may ask for.
	maxRetryAfter = time.Hour
)

// callModel makes one try of a model call and records its answer or its failure.
func (k *carry) callModel(ctx context.Context, n agent.CallModel) error {
	seen, facts, told, err := k.see(ctx, n)
	if err != nil {
		return err
	}
	message := ""
	err = k.settle(ctx, func(s *session.State, run *session.Run) ([]session.Event, error) {
		events := s.DeliverSteers(run)
		if len(events) != told { // more was said in the meantime
			return nil, errLookAgain
		}
		message = run.Message
		if steers := s.Steers(run); len(events) > 0 {
			message = steers[len(steers)-1].Output
		}
		return append(events, session.Event{
			Run: run.ID, Step: n.Step, Attempt: n.Attempt,
			Data: session.StepStarted{Message: message, Because: n.Because, Context: &facts},
		}), nil
	})
	if errors.Is(err, errLookAgain) {
		return nil
	}
	if err != nil {
		return err
	}
	a := &answer{carry: k, n: n, message: message}
	finish, err := k.listen(ctx, seen.Request, a.add)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return a.failed(ctx, err)
	}
	return a.completed(ctx, finish)
}

func (k *carry) putBlob(ctx context.Context, mediaType, content string) (*session.Blob, error) {
	b, err := k.Store.PutBlob(ctx, k.lease.Session, mediaType, strings.NewReader(content))
	if err != nil {
		return nil, err
	}
	return &b, nil
}

// answer gathers one streamed answer.
type answer struct {
	*carry
	n       agent.CallModel
	message string
	blocks  []*block
}

type block struct {
	index     int // the provider's
	kind      model.ChunkKind
	text      strings.Builder
	call      string // our id
	name      string
	signature string
}

func (a *answer) add(chunk model.Chunk) {
	var b *block
	part := 0
	for i := len(a.blocks) - 1; i >= 0; i-- {
		if a.blocks[i].index == chunk.Block && a.blocks[i].kind == chunk.Kind {
			b, part = a.blocks[i], i
			break
		}
	}
	if b == nil {
		b, part = &block{index: chunk.Block, kind: chunk.Kind, name: chunk.Name}, len(a.blocks)
		if chunk.Kind == model.CallChunk {
			b.call = session.NewID(session.CallPrefix)
		}
		a.blocks = append(a.blocks, b)
	}
	b.text.WriteString(chunk.Text)
	if chunk.Signature != "" {
		b.signature = chunk.Signature
	}
	for text := chunk.Text; text != "" || chunk.Text == "" && b.kind == model.CallChunk; {
		piece := session.TrimText(text, maxNote)
		text = text[len(piece):]
		a.notes.add(session.Event{Run: a.lease.Run, Step: a.n.Step, Attempt: a.n.Attempt, Data: a.delta(b, part, piece)})
		if chunk.Text == "" {
			break
		}
	}
}

func (a *answer) delta(b *block, part int, text string) session.Data {
	switch b.kind {
	case model.ReasoningChunk:
		return session.ReasoningDelta{Message: a.message, Part: part, Text: text}
	case model.CallChunk:
		return session.ToolInputDelta{Message: a.message, Part: part, Call: b.call, Name: b.name, Text: text}
	}
	return session.TextDelta{Message: a.message, Part: part, Text: text}
}

// parts are the answer's parts. Calls are named; their tool.called has the arguments.
func (a *answer) parts(ctx context.Context, calls bool) ([]session.Part, error) {
	var parts []session.Part
	for i, b := range a.blocks {
		p := session.Part{Type: session.PartText, Part: i, Text: b.text.String(), Signature: b.signature}
		switch b.kind {
		case model.ReasoningChunk:
			p.Type = session.PartReasoning
		case model.CallChunk:
			if !calls {
				continue
			}
			p = session.Part{Type: session.PartTool, Part: i, Tool: &session.ToolCall{ID: b.call, Name: b.name}}
		}
		if len(p.Text) > maxInlineText {
			blob, err := a.putBlob(ctx, "text/plain; charset=utf-8", p.Text)
			if err != nil {
				return nil, err
			}
			p.Blob, p.Text = blob, session.TrimText(p.Text, maxInlineText)
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// failed records a try that gave no answer, and when the next one may be made.
func (a *answer) failed(ctx context.Context, err error) error {
	var cause *model.Error
	if !errors.As(err, &cause) {
		cause = &model.Error{Code: model.CodeUnavailable, Message: err.Error(), Retryable: true, Err: err}
	}
	failure := session.Failure{Code: string(cause.Code), Message: session.CleanText(cause.Message), Retryable: cause.Retryable}
	parts, err := a.parts(ctx, false)
	if err != nil {
		return err
	}
	failed := session.AttemptFailed{Message: a.message, Error: failure, Parts: parts}
	limits := a.agent.Limits.WithDefaults()
	if cause.Retryable && a.n.Attempt < limits.Attempts && cause.RetryAfter <= maxRetryAfter {
		at := a.now().Add(max(cause.RetryAfter, a.Backoff.After(a.n.Attempt))).UTC()
		if whole := at.Truncate(time.Millisecond); whole.Before(at) {
			at = whole.Add(time.Millisecond) // never before the provider allows
		}
		failed.RetryAt = &at
	}
	if cause.Code == model.CodeContextTooLong && a.n.Attempt < limits.Attempts {
		at := a.now().UTC().Truncate(time.Millisecond) // at once: a smaller context is sent
		failed.RetryAt = &at
	}
	a.log().Info("model call failed", slog.Int("step", a.n.Step), slog.Int("attempt", a.n.Attempt),
		slog.String("code", failure.Code), slog.Bool("retry", failed.RetryAt != nil))
	return a.settle(ctx, func(_ *session.State, run *session.Run) ([]session.Event, error) {
		return []session.Event{at(run, failed)}, nil
	})
}

// completed records the answer: its parts, the calls it asks for, and the
// approvals they need, all in one append.
func (a *answer) completed(ctx context.Context, finish *model.Finish) error {
	parts, err := a.parts(ctx, true)
	if err != nil {
		return err
	}
	var calls []session.Data
	for _, b := range a.blocks {
		if b.kind == model.CallChunk {
			events, err := a.called(ctx, b, finish.Reason)
			if err != nil {
				return err
			}
			calls = append(calls, events...)
		}
	}
	return a.settle(ctx, func(_ *session.State, run *session.Run) ([]session.Event, error) {
		events := []session.Event{at(run, session.ModelCompleted{
			Message: a.message, Parts: parts, Finish: string(finish.Reason), Usage: session.Usage(finish.Usage),
		})}
		for _, d := range calls {
			events = append(events, at(run, d))
		}
		return events, nil
	})
}

// called is a call as the model wrote it: checked, and with the approval it needs.
func (a *answer) called(ctx context.Context, b *block, reason model.FinishReason) ([]session.Data, error) {
	raw := b.text.String()
	called := session.ToolCalled{Message: a.message, Call: b.call, Name: b.name, Effects: session.Unsafe}
	refuse := func(code, message string) []session.Data {
		called.RawArguments = session.TrimText(raw, tool.InlineLimit)
		return []session.Data{called, session.ToolFailed{
			Message: a.message, Call: b.call,
			Error: session.Failure{Code: code, Message: message},
		}}
	}
	_, spec, err := a.agent.Tools.Lookup(b.name)
	if err != nil {
		f := tool.FailureOf(err)
		return refuse(f.Code, f.Message), nil
	}
	called.Effects = spec.Effects
	arguments, err := tool.Validate(spec, []byte(raw))
	if err != nil {
		message := err.Error()
		if reason == model.Length {
			message = "the call was cut off by the token limit: " + message
		}
		return refuse(tool.CodeInvalidArguments, message), nil
	}
	called.Arguments = arguments
	events := []session.Data{}
	if spec.Approval.Needs(spec, arguments) {
		called.Approval = session.NewID(session.ApprovalPrefix)
		approval := session.Approval{
			ID: called.Approval, Session: a.lease.Session, Run: a.lease.Run, Message: a.message, Call: b.call,
			Name: b.name, Effects: called.Effects, Arguments: arguments, ArgumentsHash: session.HashArguments(arguments),
		}
		if a.agent.ApprovalTimeout > 0 {
			at := a.now().Add(a.agent.ApprovalTimeout).UTC().Truncate(time.Millisecond)
			approval.ExpiresAt = &at
		}
		events = append(events, session.ApprovalRequested{Approval: approval})
	}
	if len(arguments) > tool.InlineLimit && called.Approval == "" {
		blob, err := a.putBlob(ctx, "application/json", string(arguments))
		if err != nil {
			return nil, err
		}
		called.Arguments, called.ArgumentsBlob = nil, blob
	}
	return append([]session.Data{called}, events...), nil
}
