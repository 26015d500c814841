package simtest

import (
	"bytes"
	"context"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// checkRest checks what must be true of a world at rest, while it still runs.
func (w *world) checkRest() {
	ctx := context.Background()
	for until := time.Now().Add(30 * time.Second); w.runtime.Carrying() > 0 && time.Now().Before(until); {
		time.Sleep(500 * time.Millisecond)
	}
	if n := w.runtime.Carrying(); n > 0 {
		w.find("at rest %d runs are carried", n)
	}
	leases, err := w.store.Held(ctx, "", 1000)
	if err != nil || len(leases) > 0 {
		w.find("at rest these leases are held: %v, %v", leases, err)
	}
	if left, err := w.store.Claim(ctx, "nobody", time.Minute, 10); err != nil || len(left) > 0 {
		w.find("at rest these runs are due: %v, %v", left, err)
	}
	if due, err := w.store.Overdue(ctx, 10); err != nil || len(due) > 0 {
		w.find("at rest these cancels are overdue: %v, %v", due, err)
	}
	for _, h := range w.histories() {
		w.checkLog(h)
		if !h.deleted {
			w.checkStore(ctx, h)
			w.checkReading(ctx, h)
			w.checkAnswers(h)
		}
	}
	w.checkTools()
	w.checkPeople()
}

// checkLog checks what a log says, be it of a session that lives or of one that was deleted.
func (w *world) checkLog(h *history) {
	for _, run := range h.runs {
		w.checkEnd(h, run)
		w.checkAttempts(h, run)
		w.checkCarrying(h, run)
		w.checkWords(h, run)
		w.checkCancel(h, run)
	}
	w.checkCalls(h)
	w.checkApprovals(h)
}

// checkStore compares the store with the fold of the world's own copy of the log.
func (w *world) checkStore(ctx context.Context, h *history) {
	findings, err := w.store.Check(ctx, h.session)
	if err != nil || len(findings) > 0 {
		w.find("the store contradicts itself about %s: %v %v", h.session, findings, err)
	}
	whole := session.Fold(h.session, h.list)
	for _, m := range whole.Messages {
		kept, err := w.store.Messages(ctx, h.session, []string{m.ID})
		if err != nil || len(kept) != 1 {
			w.find("the message %s of %s is not there: %v", m.ID, h.session, err)
			continue
		}
		w.same("the message "+m.ID, kept[0], *m)
	}
	for _, run := range whole.Runs {
		kept, err := w.store.Run(ctx, run.ID)
		if err != nil {
			w.find("the run %s of %s is not there: %v", run.ID, h.session, err)
			continue
		}
		w.same("the run "+run.ID, kept, *run)
	}
	row, err := w.store.Session(ctx, h.session)
	if err != nil {
		w.find("the session %s is not listed: %v", h.session, err)
	}
	w.same("the row of "+h.session, row, store.RowOf(whole))
	snap, err := w.runtime.Snapshot(ctx, holdfast.Local, h.session, 500)
	if err != nil || snap.Seq != whole.Seq || len(snap.Messages) != len(whole.Path(whole.Head)) {
		w.find("the snapshot of %s is at %d with %d messages (%v), the log at %d", h.session, snap.Seq, len(snap.Messages), err, whole.Seq)
	}
	whole.Shed()
	err = w.store.View(ctx, h.session, func(s *session.State) { w.same("the state of "+h.session, s, whole) })
	if err != nil {
		w.find("look at session %s: %v", h.session, err)
	}
}

// checkReading reads a log in random pieces. Each piece must go on where the
// last ended; what is not folded away must be as it was written, and only
// deltas of runs that have ended may be.
func (w *world) checkReading(ctx context.Context, h *history) {
	d := roll(w.plan.seed, "reading", h.session)
	ends := map[string]bool{}
	for _, e := range h.list {
		if terminal(e.Data) {
			ends[e.Run] = true
		}
	}
	for _, most := range []int{1, 7, 1000} {
		after := int64(0)
		for after < int64(len(h.list)) {
			frames, err := w.store.Read(ctx, h.session, after, 1+d.upTo(most))
			if err != nil || len(frames) == 0 {
				w.find("reading %s after %d of %d gives %d frames, %v", h.session, after, len(h.list), len(frames), err)
				return
			}
			for _, f := range frames {
				if f.From != after+1 || f.To < f.From || f.To > int64(len(h.list)) {
					w.find("reading %s after %d gives %d..%d", h.session, after, f.From, f.To)
					return
				}
				if !bytes.Equal(f.JSON, h.frames[f.From-1].JSON) {
					for seq := f.From; seq <= f.To; seq++ {
						if e := h.list[seq-1]; !session.IsDelta(e.Data) || !ends[e.Run] {
							w.find("%d of %s, a %s, is read as %s", seq, h.session, e.Type(), f.JSON)
							return
						}
					}
				}
				after = f.To
			}
			if d.chance(0.1) { // from somewhere else, perhaps inside a folded range
				after = max(0, after-int64(d.upTo(20)))
			}
		}
		if more, err := w.store.Read(ctx, h.session, after, 10); err != nil || len(more) > 0 {
			w.find("reading %s after its end gives %d frames, %v", h.session, len(more), err)
		}
	}
}

func terminal(data session.Data) bool {
	switch data.(type) {
	case session.RunCompleted, session.RunFailed, session.RunCancelled:
		return true
	}
	return false
}

// checkPeople compares what people were told with what the logs say.
func (w *world) checkPeople() {
	submissions, decisions := map[string]map[string]bool{}, map[string]session.ApprovalDecided{}
	for _, h := range w.histories() {
		for _, e := range h.list {
			switch d := e.Data.(type) {
			case session.ApprovalDecided:
				decisions[d.ID] = d
			}
		}
		for id, s := range session.Fold(h.session, h.list).Submissions {
			if submissions[id] == nil {
				submissions[id] = map[string]bool{}
			}
			submissions[id][s.Run] = true
		}
	}
	w.people.mu.Lock()
	defer w.people.mu.Unlock()
	texts := map[string]string{}
	for _, a := range w.people.accepted {
		runs := submissions[a.message]
		if runs == nil {
			w.find("the message %s was accepted, and no log has it", a.message)
			continue
		}
		if w.everDeleted(a.session) {
			continue
		}
		if a.mode != session.Steer && !runs[a.run] {
			w.find("the message %s was accepted for the run %s; the log says %v", a.message, a.run, runs)
		}
		if text, ok := texts[a.message]; ok && text != a.text {
			w.find("the message id %s was accepted with two bodies", a.message)
		}
		texts[a.message] = a.text
	}
	for _, d := range w.people.decided {
		won, ok := decisions[d.approval]
		if !ok {
			w.find("a decision on %s was taken, and no log has it", d.approval)
		} else if won.Decision != d.by.Decision || !bytes.Equal(won.Arguments, d.by.Arguments) {
			w.find("%s %s on %s was taken, although %s %s won", d.by.Decision, d.by.Arguments, d.approval, won.Decision, won.Arguments)
		}
	}
}
