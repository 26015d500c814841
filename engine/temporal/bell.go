package temporal

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/holdfast-run/holdfast/store"
)

const (
	// maxCalls bounds the calls that wait. What is over it is found when healing.
	maxCalls = 100_000
	// ringers make calls at once.
	ringers = 16
	// callTime bounds one call.
	callTime = 10 * time.Second
)

// call is what the workflow of a run is to be told.
type call struct {
	due  store.Due
	what news
}

type news int

const (
	isDue       news = iota // also where there is no workflow yet
	isCancelled             // while it is carried
	hasEnded                // while nobody carried it
)

// bell tells workflows that their runs are due or to be cancelled. A call is
// a hint: one that fails is made again when healing.
type bell struct {
	client    client.Client
	queue     string
	heartbeat time.Duration
	log       *slog.Logger
	described atomic.Bool
	ring      chan struct{}

	mu    sync.Mutex
	calls []call        // in order; guarded by mu
	waits map[call]bool // those in calls; guarded by mu
}

// call has a workflow told. It does not block.
func (b *bell) call(c call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waits[c] || len(b.calls) >= maxCalls {
		return
	}
	if b.waits == nil {
		b.waits = map[call]bool{}
	}
	b.waits[c] = true
	b.calls = append(b.calls, c)
	b.awaken()
}

func (b *bell) awaken() {
	select {
	case b.ring <- struct{}{}:
	default:
	}
}

// next is the call that waits longest.
func (b *bell) next() (call, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.calls) == 0 {
		return call{}, false
	}
	c := b.calls[0]
	b.calls = b.calls[1:]
	delete(b.waits, c)
	if len(b.calls) > 0 {
		b.awaken() // another ringer
	}
	return c, true
}

// serve makes calls until ctx ends.
func (b *bell) serve(ctx context.Context) {
	var ringing sync.WaitGroup
	for range ringers {
		ringing.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-b.ring:
				}
				for c, ok := b.next(); ok && ctx.Err() == nil; c, ok = b.next() {
					b.make(ctx, c)
				}
			}
		})
	}
	ringing.Wait()
}

func (b *bell) make(ctx context.Context, c call) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	id := b.queue + "/" + c.due.Run
	if c.what != isDue {
		name := map[news]string{isCancelled: cancelSignal, hasEnded: wakeSignal}[c.what]
		err := b.client.SignalWorkflow(ctx, id, "", name, nil)
		gone := (*serviceerror.NotFound)(nil)
		if err != nil && !errors.As(err, &gone) && ctx.Err() == nil {
			b.log.Warn("tell a workflow", slog.String("run", c.due.Run), slog.String("signal", name), slog.Any("error", err))
		}
		return
	}
	in := input{Session: c.due.Session, Run: c.due.Run, Heartbeat: b.heartbeat, Described: b.described.Load()}
	options := client.StartWorkflowOptions{
		ID: id, TaskQueue: b.queue,
		WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE, // what is due is due, whatever ended here
	}
	if in.Described {
		options.TypedSearchAttributes = temporal.NewSearchAttributes(
			sessionKey.ValueSet(c.due.Session), runKey.ValueSet(c.due.Run), statusKey.ValueSet("running"))
	}
	_, err := b.client.SignalWithStartWorkflow(ctx, id, wakeSignal, nil, options, workflowName, in)
	if err != nil && ctx.Err() == nil {
		b.log.Warn("tell Temporal of a run that is due", slog.String("run", c.due.Run), slog.Any("error", err))
	}
}
