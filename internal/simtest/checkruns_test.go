package simtest

import (
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/session"
)

// checkEnd checks that a run ends once, and that nothing of it follows.
func (w *world) checkEnd(h *history, run string) {
	var ended *session.Event
	for _, e := range h.of(run) {
		if ended != nil {
			w.find("%s of %s ended with %s at %d, and then came %s at %d", run, h.session, ended.Type(), ended.Seq, e.Type(), e.Seq)
			return
		}
		if terminal(e.Data) {
			ended = &e
		}
	}
	if ended == nil && !h.deleted && h.queued(run) {
		w.find("%s of %s never ended", run, h.session)
	}
}

// queued says whether the run began to exist.
func (h *history) queued(run string) bool {
	for _, e := range h.of(run) {
		if _, ok := e.Data.(session.RunQueued); ok {
			return true
		}
	}
	return false
}

// checkAttempts checks that the attempts of a run come one after the other and
// that nothing of an older one comes after a newer one has begun.
func (w *world) checkAttempts(h *history, run string) {
	step, attempt := 0, 0
	for _, e := range h.of(run) {
		if d, queued := e.Data.(session.RunQueued); queued {
			step = max(d.FromStep-1, 0)
			continue
		}
		if _, begins := e.Data.(session.StepStarted); begins {
			next := e.Step == step && e.Attempt == attempt+1 || e.Step == step+1 && e.Attempt == 1
			if !next {
				w.find("in %s attempt %d/%d begins after %d/%d (%d of %s)", run, e.Step, e.Attempt, step, attempt, e.Seq, h.session)
			}
			step, attempt = e.Step, e.Attempt
			continue
		}
		if _, before := e.Data.(session.ContextCompacted); before { // of the attempt that begins next
			if e.Step == step && e.Attempt == attempt+1 || e.Step == step+1 && e.Attempt == 1 {
				continue
			}
		}
		if e.Step != 0 && (e.Step != step || e.Attempt != attempt) {
			w.find("in %s comes %s of %d/%d during %d/%d (%d of %s)", run, e.Type(), e.Step, e.Attempt, step, attempt, e.Seq, h.session)
		}
	}
}

// slack is how much later than it could be something may happen that the
// engine looks for: a poll, and a few ways to the store.
func (w *world) slack() time.Duration { return w.plan.poll + 2*time.Second }

// checkCarrying checks the claims of a run: fences grow, nobody works on a run
// that waits, and no worker that was well lost its run.
func (w *world) checkCarrying(h *history, run string) {
	var fence int64
	var carrier string // empty: nobody carries it
	for _, e := range h.of(run) {
		var claimed int64
		switch d := e.Data.(type) {
		case session.RunStarted:
			claimed, carrier = d.Fence, d.Worker
		case session.RunResumed:
			claimed, carrier = d.Fence, d.Worker
		case session.RunReconciled:
			w.checkReconciled(h, e, d, carrier)
			if d.Decision == "continue" || d.Decision == "hand_over" {
				carrier, fence = "", fence+1
			}
			continue
		case session.RunWaiting:
			carrier = ""
			continue
		case session.StepStarted, session.ModelCompleted, session.StepCompleted, session.ToolStarted, session.ToolCalled,
			session.TextDelta, session.ReasoningDelta, session.ToolInputDelta, session.ToolProgress, session.ApprovalRequested,
			session.RunCompleted, session.RunFailed:
			if carrier == "" {
				if failed, ok := e.Data.(session.RunFailed); ok && failed.Error.Code == "crash" {
					continue
				}
				w.find("nobody carries %s when %s comes (%d of %s)", run, e.Type(), e.Seq, h.session)
			}
		}
		if claimed != 0 {
			if claimed <= fence {
				w.find("%s is claimed under fence %d after %d (%d of %s)", run, claimed, fence, e.Seq, h.session)
			}
			fence = claimed
		}
	}
}

// checkReconciled checks that there was a reason to step in.
func (w *world) checkReconciled(h *history, e session.Event, d session.RunReconciled, carrier string) {
	k := w.fleet.find(carrier)
	if k == nil {
		w.find("%s is reconciled, and nobody carried it (%d of %s)", e.Run, e.Seq, h.session)
		return
	}
	at := h.when(e)
	switch d.Cause {
	case session.CauseLeaseExpired, session.CauseRestart:
		if strings.HasPrefix(d.Evidence, "the worker gave up") && w.plan.latency > 100*time.Millisecond {
			break // the last writes of a claim have a time limit of their own
		}
		for _, well := range w.fleet.times(k) {
			if well.from < at-w.plan.lease-w.plan.setBack()-w.slack() && at < well.to {
				w.find("%s is taken from %s at %s, which was well since %s: %s (%d of %s)", e.Run, carrier, at, well.from, d.Evidence, e.Seq, h.session)
			}
		}
	case session.CauseDrain:
		if !w.fleet.leaves(k) {
			w.find("%s is handed over by %s, which nobody told to leave (%d of %s)", e.Run, carrier, e.Seq, h.session)
		}
	case session.CauseCancelTimeout:
		if !h.cancelled(e.Run, e.Seq) {
			w.find("%s is ended for a cancel that nobody asked for (%d of %s)", e.Run, e.Seq, h.session)
		}
	}
	if d.Evidence == "" || strings.Contains(d.Evidence, "%!") {
		w.find("%s is reconciled without evidence: %q (%d of %s)", e.Run, d.Evidence, e.Seq, h.session)
	}
}

// cancelled says whether a cancel of the run is recorded before seq.
func (h *history) cancelled(run string, seq int64) bool {
	for _, e := range h.of(run) {
		if _, ok := e.Data.(session.RunCancelRequested); ok && e.Seq < seq {
			return true
		}
	}
	return false
}

// checkCancel checks that a recorded cancel starts nothing more and ends the run in time.
func (w *world) checkCancel(h *history, run string) {
	var asked *session.Event
	var carrier string
	for _, e := range h.of(run) {
		switch d := e.Data.(type) {
		case session.RunStarted:
			carrier = d.Worker
		case session.RunResumed:
			carrier = d.Worker
		}
		switch d := e.Data.(type) {
		case session.RunCancelRequested:
			if asked != nil {
				w.find("the cancel of %s is recorded twice (%d of %s)", run, e.Seq, h.session)
			}
			asked = &e
			w.checkHeard(h, e, carrier)
		case session.StepStarted, session.ToolStarted, session.ApprovalRequested, session.RunWaiting, session.RunStarted, session.RunResumed:
			if asked != nil {
				w.find("%s is being cancelled, and then comes %s (%d of %s)", run, e.Type(), e.Seq, h.session)
			}
		case session.RunCancelled:
			if asked == nil && d.Reason == "" && d.By == "" {
				w.find("%s is cancelled by nobody (%d of %s)", run, e.Seq, h.session)
			}
		}
		if asked != nil && terminal(e.Data) {
			w.checkBound(h, *asked, e)
		}
	}
}

// checkBound checks that a cancelled run ended by its deadline, or soon after
// the first moment from which on some worker was well.
func (w *world) checkBound(h *history, asked, ended session.Event) {
	deadline := asked.Data.(session.RunCancelRequested).Deadline
	for _, k := range w.fleet.all() {
		for _, well := range w.fleet.times(k) {
			// When the store's clock and the worker's have come to the deadline, in the bubble's time.
			due := deadline.Sub(w.start) - well.offset - min(k.skew, 0)
			late := max(due, well.from, h.when(asked)) + w.slack() + 4*w.plan.latency
			if late < h.when(ended) && late < well.to {
				w.find("%s was cancelled at %s and ended at %s, although %s was well from %s to %s (%d of %s)", ended.Run,
					h.when(asked), h.when(ended), k.name, well.from, well.to, ended.Seq, h.session)
				return
			}
		}
	}
}

// checkHeard checks that a cancel closes the model call of a worker that is well
// within a second, unless its wake-up was lost or the model does not listen.
func (w *world) checkHeard(h *history, asked session.Event, carrier string) {
	k, at := w.fleet.find(carrier), h.when(asked)
	if k == nil || len(w.plan.deaf) > 0 {
		return
	}
	by := at + time.Second + 2*w.plan.latency
	for _, well := range w.fleet.times(k) {
		if well.from > at || well.to < by {
			continue
		}
		for _, t := range w.mind.toldBy(asked.Run) {
			if closed := t.closed(); t.began < at && closed > by && !t.deaf() {
				w.find("%s was cancelled at %s, and its model call %s was closed at %s (%d of %s)", asked.Run, at, t.name, closed, asked.Seq, h.session)
			}
		}
	}
}
