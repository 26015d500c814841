package temporal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/holdfast-run/holdfast/engine"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// activities are what workflows have done.
type activities struct{ *Engine }

// holder is told with each heartbeat, so that the next attempt knows whose run it takes over.
type holder struct {
	Worker string `json:"worker"`
	Fence  int64  `json:"fence"`
}

// soon is when a run that the store did not find due is asked for again.
const soon = 100 * time.Millisecond

// carry claims a run and carries it until it waits, ends, or is handed over.
// An error has Temporal try again, here or on another worker.
func (a *activities) carry(ctx context.Context, in input) (outcome, error) {
	due := store.Due{Session: in.Session, Run: in.Run}
	if in.Cancelled {
		if err := a.recordCancel(ctx, due); err != nil {
			return outcome{}, err
		}
	}
	asked := time.Now()
	lease, err := a.claim(ctx, due)
	switch {
	case errors.Is(err, &session.Error{Code: session.NotDue}), errors.Is(err, &session.Error{Code: session.NotFound}):
		out, err := a.look(ctx, due)
		if !out.Ended && !out.Idle {
			out.After = max(out.After, soon) // by our clock it may be due already
		}
		return out, err
	case err != nil:
		return outcome{}, err
	}
	carried := make(chan error, 1)
	a.Carry(ctx, lease, asked, func(err error) { carried <- err })
	if err := a.attend(ctx, lease, carried); err != nil {
		return outcome{}, fmt.Errorf("carry run %s: %w", in.Run, err)
	}
	return a.look(context.WithoutCancel(ctx), due)
}

// claim claims a run, and takes it from the worker of an earlier attempt:
// that there is another attempt means that Temporal has heard nothing of it for too long.
func (a *activities) claim(ctx context.Context, due store.Due) (store.Lease, error) {
	select {
	case <-a.Draining():
		return store.Lease{}, engine.ErrDraining
	default:
	}
	lease, err := a.carrier.Store.ClaimRun(ctx, due, a.opts.Name, a.opts.Lease)
	var last holder
	if !errors.Is(err, &session.Error{Code: session.NotDue}) || !activity.HasHeartbeatDetails(ctx) || activity.GetHeartbeatDetails(ctx, &last) != nil {
		return lease, err
	}
	held := store.Lease{Session: due.Session, Run: due.Run, Worker: last.Worker, Fence: last.Fence}
	a.Reconcile(ctx, held, session.CauseLeaseExpired, fmt.Sprintf("Temporal heard nothing of worker %s", last.Worker))
	return a.carrier.Store.ClaimRun(ctx, due, a.opts.Name, a.opts.Lease)
}

// attend sends heartbeats until the run is carried no more, and stops it when Temporal says so.
func (a *activities) attend(ctx context.Context, lease store.Lease, carried <-chan error) error {
	me := holder{Worker: lease.Worker, Fence: lease.Fence}
	activity.RecordHeartbeat(ctx, me)
	tick := time.NewTicker(a.opts.Heartbeat / 8)
	defer tick.Stop()
	told := ctx.Done()
	for {
		select {
		case err := <-carried:
			return err
		case <-tick.C:
			activity.RecordHeartbeat(ctx, me)
		case <-told:
			told = nil
			if !temporal.IsCanceledError(context.Cause(ctx)) {
				a.Stop(lease.Run, lease.Fence, engine.ErrLeaseLost) // another attempt was begun
				continue
			}
			if err := a.recordCancel(context.WithoutCancel(ctx), store.Due{Session: lease.Session, Run: lease.Run}); err != nil {
				a.Log().Warn("record a cancel", slog.String("run", lease.Run), slog.Any("error", err))
				continue // whoever asked for it has a deadline
			}
			a.Stop(lease.Run, lease.Fence, engine.ErrCancelled)
		}
	}
}

// recordCancel makes sure that a cancel of the run is recorded, for one that was made in Temporal.
func (a *activities) recordCancel(ctx context.Context, due store.Due) error {
	c := session.Cancel{
		Run: due.Run, By: "temporal", Reason: "its workflow was cancelled in Temporal", At: a.Now(), Grace: a.opts.CancelGrace,
	}
	_, err := a.carrier.Store.Append(ctx, due.Session, c.Decide)
	if errors.Is(err, &session.Error{Code: session.RunTerminal}) || errors.Is(err, &session.Error{Code: session.NotFound}) {
		return nil
	}
	return err
}

// look says what becomes of the run now.
func (a *activities) look(ctx context.Context, due store.Due) (out outcome, err error) {
	err = a.carrier.Store.View(ctx, due.Session, func(s *session.State) {
		run := s.Run(due.Run)
		if run == nil || run.Status.Terminal() {
			out = outcome{Ended: true}
			return
		}
		switch work := s.WorkOf(run); {
		case work.Held: // by a worker that the store knows of and Temporal does not
			out = outcome{After: a.opts.Lease}
		case work.Due:
			out = outcome{After: max(0, work.At.Sub(a.Now()))}
		default:
			out = outcome{Idle: true}
		}
	})
	if errors.Is(err, store.ErrNotFound) { // deleted
		return outcome{Ended: true}, nil
	}
	return out, err
}
