package temporal

import (
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

const (
	workflowName = "CarryRun"
	activityName = "carry"
	// The run may have something to do.
	wakeSignal = "wake"
	// A cancel of the run is recorded.
	cancelSignal = "cancel"
	// rounds is how often a workflow has its run carried before it begins a
	// history of its own: a round is up to 16 events.
	rounds = 10
	// longest is how long a run waits without a look: its end may not have been told.
	longest = time.Hour
)

// input names a run. It is all that Temporal knows of it.
type input struct {
	Session   string        `json:"session"`
	Run       string        `json:"run"`
	Heartbeat time.Duration `json:"heartbeat"` // as of its start, so that it replays alike everywhere
	Described bool          `json:"described"` // there are search attributes
	Cancelled bool          `json:"cancelled,omitempty"`
}

// outcome says what becomes of a run that was carried for a while.
type outcome struct {
	Ended bool `json:"ended,omitempty"`
	// Idle: it waits until it is told. Otherwise it goes on After this time.
	Idle  bool          `json:"idle,omitempty"`
	After time.Duration `json:"after,omitempty"`
}

func register(w worker.Worker, a *activities) {
	w.RegisterWorkflowWithOptions(carryRun, workflow.RegisterOptions{Name: workflowName})
	w.RegisterActivityWithOptions(a.carry, activity.RegisterOptions{Name: activityName})
}

// carryRun is the workflow of a run: it is carried until it waits, waits until
// it is told or its time has come, and is carried again, until it has ended. A
// cancel in Temporal becomes a cancel of the run, which then ends as the log says.
func carryRun(ctx workflow.Context, in input) error {
	wakes, cancels := workflow.GetSignalChannel(ctx, wakeSignal), workflow.GetSignalChannel(ctx, cancelSignal)
	for range rounds {
		drain(wakes) // whatever they told of is in the log, where the activity looks
		knew := in.Cancelled
		out, err := carryOn(ctx, &in, cancels)
		switch {
		case err != nil:
			return err
		case in.Cancelled && !knew && !out.Ended: // the activity may not have heard of it
		case out.Ended && in.Cancelled:
			return temporal.NewCanceledError()
		case out.Ended:
			return nil
		case out.Idle || out.After > 0:
			wait(ctx, &in, out, wakes, cancels)
		}
	}
	drain(wakes)
	drain(cancels)
	return workflow.NewContinueAsNewError(ctx, workflowName, in)
}

// carryOn has the run carried, as often as it takes. A cancel reaches the activity with the answer to a heartbeat.
func carryOn(ctx workflow.Context, in *input, cancels workflow.ReceiveChannel) (out outcome, err error) {
	detached, abandon := workflow.NewDisconnectedContext(ctx) // it ends by the log, whatever becomes of the workflow
	defer abandon()
	carrying, stop := workflow.WithCancel(workflow.WithActivityOptions(detached, workflow.ActivityOptions{
		StartToCloseTimeout: 30 * 24 * time.Hour, // an agent's own limit ends it long before
		HeartbeatTimeout:    in.Heartbeat,
		WaitForCancellation: true,
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: in.Heartbeat / 20, BackoffCoefficient: 2, MaximumInterval: in.Heartbeat / 2},
	}))
	carried := workflow.ExecuteActivity(carrying, activityName, *in)
	done := false
	selector := workflow.NewSelector(ctx).
		AddFuture(carried, func(f workflow.Future) { err, done = f.Get(ctx, &out), true }).
		AddReceive(cancels, func(c workflow.ReceiveChannel, _ bool) { c.Receive(ctx, nil); stop() })
	if !in.Cancelled {
		selector.AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) { in.Cancelled = true; stop() })
	}
	for !done {
		if in.Cancelled { // the context's end is always ready to be received
			err, done = carried.Get(detached, &out), true
			break
		}
		selector.Select(ctx)
	}
	if temporal.IsCanceledError(err) { // before it began
		return outcome{}, nil
	}
	return out, err
}

// wait waits until the run may go on.
func wait(ctx workflow.Context, in *input, out outcome, wakes, cancels workflow.ReceiveChannel) {
	describe(ctx, in, "waiting")
	timers, stop := workflow.WithCancel(ctx)
	defer stop()
	receive := func(c workflow.ReceiveChannel, _ bool) { c.Receive(ctx, nil) }
	selector := workflow.NewSelector(ctx).AddReceive(wakes, receive).AddReceive(cancels, receive)
	if !in.Cancelled {
		selector.AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) { in.Cancelled = true })
	}
	if out.Idle {
		out.After = longest
	}
	selector.AddFuture(workflow.NewTimer(timers, min(out.After, longest)), func(workflow.Future) {})
	selector.Select(ctx)
	describe(ctx, in, "running")
}

func drain(c workflow.ReceiveChannel) {
	for c.ReceiveAsync(nil) {
	}
}
