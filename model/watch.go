package model

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Watch gives m with a limit on silence: when no chunk comes for idle, the
// stream ends with code [CodeStalled] and the provider's connection is closed.
//
// The clock starts with the call, so a server that accepts and never answers is
// covered, and it rests while the reader of the stream is busy. Only chunks
// count: comments and pings are signs of life of the network, not of the model.
// There is no limit on the whole. An idle of zero or less means no limit.
func Watch(m Model, idle time.Duration) Model {
	if idle <= 0 {
		return m
	}
	return watched{m, idle}
}

type watched struct {
	model Model
	idle  time.Duration
}

func (w watched) Stream(ctx context.Context, req Request) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		stalled := &Error{
			Code:      CodeStalled,
			Message:   fmt.Sprintf("the model sent nothing for %s", w.idle),
			Retryable: true,
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		timer := time.AfterFunc(w.idle, func() { cancel(stalled) })
		defer timer.Stop()
		for chunk, err := range w.model.Stream(ctx, req) {
			timer.Stop()
			if err != nil && errors.Is(context.Cause(ctx), stalled) {
				err = stalled
			}
			if !yield(chunk, err) {
				return
			}
			timer.Reset(w.idle)
		}
	}
}
