package engine

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast/model"
)

// listen asks the model and tells hear what comes. A model that is deaf to the end of ctx is left
// behind, so that it cannot hold its run: what it still says goes nowhere, and
// nothing of the answer may be used.
func (k *carry) listen(ctx context.Context, req model.Request, hear func(model.Chunk)) (*model.Finish, error) {
	var finish *model.Finish
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		finish, err = k.stream(ctx, req, hear)
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
func (k *carry) stream(ctx context.Context, req model.Request, hear func(model.Chunk)) (finish *model.Finish, err error) {
	defer func() {
		if broken := k.recovered(recover()); broken != nil {
			finish, err = nil, &model.Error{Code: model.CodePanic, Retryable: true, Message: "the model's code crashed", Err: broken}
		}
	}()
	m, err := k.Models(k.agent.Model)
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
		hear(chunk)
	}
	return nil, &model.Error{Code: model.CodeIncomplete, Retryable: true, Message: "the stream ended without a finish reason"}
}
