package engine

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/tool"
)

const (
	// maxInlineText bounds a text part in a message; a larger one becomes a blob with a preview of this size.
	maxInlineText = 256 << 10
	// maxPictures bounds the pictures of tools that a model sees in one call: the
	// newest. maxPicture bounds one, in bytes: no provider takes larger ones.
	maxPictures = 16
	maxPicture  = 3_750_000
	// maxRetryAfter is the longest wait that a provider may ask for.
	maxRetryAfter = time.Hour
)

// pictureTypes are those that every provider takes.
var pictureTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// callModel makes one try of a model call and records its answer or its failure.
func (k *carry) callModel(ctx context.Context, n agent.CallModel) error {
	message := ""
	err := k.settle(ctx, func(s *session.State, run *session.Run) ([]session.Event, error) {
		message = run.Message
		events := s.DeliverSteers(run)
		if steers := s.Steers(run); len(steers) > 0 {
			message = steers[len(steers)-1].Output
		}
		return append(events, session.Event{
			Run: run.ID, Step: n.Step, Attempt: n.Attempt,
			Data: session.StepStarted{Message: message, Because: n.Because},
		}), nil
	})
	if err != nil {
		return err
	}
	req, err := k.request(ctx, n.Step)
	if err != nil {
		return err
	}
	a := &answer{carry: k, n: n, message: message}
	finish, err := a.listen(ctx, req)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return a.failed(ctx, err)
	}
	return a.completed(ctx, finish)
}

// request is what the model sees.
func (k *carry) request(ctx context.Context, step int) (model.Request, error) {
	var path []string
	var run session.Run
	err := k.look(ctx, func(s *session.State, r *session.Run) error {
		path, run = s.Path(r.Message), *r
		return nil
	})
	if err != nil {
		return model.Request{}, err
	}
	branch, err := k.Store.Messages(ctx, k.lease.Session, path)
	if err != nil {
		return model.Request{}, err
	}
	pictures := maxPictures
	for i := len(branch) - 1; i >= 0; i-- { // the newest first
		if err := k.unpack(ctx, &branch[i]); err != nil {
			return model.Request{}, err
		}
		if err := k.unpackPictures(ctx, &branch[i], &pictures); err != nil {
			return model.Request{}, err
		}
	}
	return k.agent.Context(&run, branch, step), nil
}

// unpack puts the large values that the model must see whole back into a message.
func (k *carry) unpack(ctx context.Context, m *session.Message) error {
	for i := range m.Parts {
		p := &m.Parts[i]
		if p.Blob != nil && (p.Type == session.PartText || p.Type == session.PartReasoning) {
			raw, err := k.blob(ctx, p.Blob)
			if err != nil {
				return err
			}
			p.Text = string(raw)
		}
		if f := p.File; f != nil && f.Blob != nil && f.URL == "" {
			raw, err := k.blob(ctx, f.Blob)
			if err != nil {
				return err
			}
			file := *f
			file.URL = "data:" + f.MediaType + ";base64," + base64.StdEncoding.EncodeToString(raw)
			p.File = &file
		}
		if t := p.Tool; t != nil && t.ArgumentsBlob != nil && t.Arguments == nil {
			raw, err := k.blob(ctx, t.ArgumentsBlob)
			if err != nil {
				return err
			}
			t.Arguments = raw
		}
	}
	return nil
}

// unpackPictures puts the pictures that tools gave back into a message, as many
// as are left; others the model knows by the text of their result.
func (k *carry) unpackPictures(ctx context.Context, m *session.Message, left *int) error {
	for i := len(m.Parts) - 1; i >= 0; i-- {
		t := m.Parts[i].Tool
		if t == nil || len(t.Files) == 0 {
			continue
		}
		t.Files = slices.Clone(t.Files)
		for j := range t.Files {
			f := &t.Files[j]
			if *left == 0 || f.Blob == nil || f.Blob.Size > maxPicture || !slices.Contains(pictureTypes, f.MediaType) {
				continue
			}
			raw, err := k.blob(ctx, f.Blob)
			if errors.Is(err, store.ErrNotFound) { // no run should die for a picture
				continue
			}
			if err != nil {
				return err
			}
			*left--
			f.URL = "data:" + f.MediaType + ";base64," + base64.StdEncoding.EncodeToString(raw)
		}
	}
	return nil
}

func (k *carry) blob(ctx context.Context, b *session.Blob) ([]byte, error) {
	_, r, err := k.Store.Blob(ctx, k.lease.Session, b.Hash)
	if err != nil {
		return nil, fmt.Errorf("blob %s: %w", b.Hash, err)
	}
	defer r.Close()
	return io.ReadAll(r)
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

// listen streams the answer. A model that is deaf to the end of ctx is left
// behind, so that it cannot hold its run: what it still says goes nowhere, and
// nothing of the answer may be used.
func (a *answer) listen(ctx context.Context, req model.Request) (*model.Finish, error) {
	var finish *model.Finish
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		finish, err = a.stream(ctx, req)
	}()
	select {
	case <-done:
		return finish, err
	case <-ctx.Done():
	}
	deadline := time.NewTimer(settleTime / 2)
	defer deadline.Stop()
	select {
	case <-done:
		return finish, err
	case <-deadline.C:
		return nil, context.Cause(ctx)
	}
}

// stream asks the model and notes what comes. A model that panics costs its attempt, not the process.
func (a *answer) stream(ctx context.Context, req model.Request) (finish *model.Finish, err error) {
	defer func() {
		if broken := a.recovered(recover()); broken != nil {
			finish, err = nil, &model.Error{Code: model.CodePanic, Retryable: true, Message: "the model's code crashed", Err: broken}
		}
	}()
	m, err := a.Models(a.agent.Model)
	if err != nil {
		return nil, &model.Error{Code: model.CodeInvalidRequest, Message: err.Error(), Err: err}
	}
	for chunk, err := range m.Stream(ctx, req) {
		if ctx.Err() != nil { // a deaf model talks on
			return nil, context.Cause(ctx)
		}
		if err != nil {
			return nil, err
		}
		if chunk.Finish != nil {
			return chunk.Finish, nil
		}
		a.add(chunk)
	}
	return nil, &model.Error{Code: model.CodeIncomplete, Retryable: true, Message: "the stream ended without a finish reason"}
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
