package simtest

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/session"
)

// act does what the plan has a person do.
func (p *people) act(a action) {
	d := roll(p.world.plan.seed, "act", a.number)
	switch a.kind {
	case "submit":
		for _, after := range a.again {
			p.world.work.Go(func() {
				time.Sleep(after)
				p.submit(a, " please")
			})
		}
		p.submit(a, " please")
	case "conflict":
		p.conflict(d, a)
	case "cancel":
		p.cancel(p.someRun(d, a.session))
	case "cancel twice":
		run, after := p.someRun(d, a.session), d.span(0, time.Millisecond)
		p.world.work.Go(func() {
			time.Sleep(after)
			p.cancel(run)
		})
		p.cancel(run)
	case "cancel its run":
		p.cancel(a.run)
	case "decide", "resolve":
		p.look(d)
	case "decide late":
		p.decideLate(d)
	case "edit", "remove":
		p.changeInbox(d, a)
	case "head", "title":
		p.update(d, a)
	case "retry":
		p.retry(d, a)
	case "delete":
		p.delete(a.session)
	case "look":
		p.checkSnapshot(a.session)
	default:
		panic(a.kind)
	}
}

// conflict uses an id again for something else.
func (p *people) conflict(d dice, a action) {
	var ids []string
	p.peek(a.session, func(s *session.State) {
		for _, m := range s.Messages {
			if m.Role == session.RoleUser {
				ids = append(ids, m.ID)
			}
		}
	})
	if len(ids) == 0 {
		return
	}
	a.message, a.mode = pick(d, ids...), session.Enqueue
	p.submit(a, " otherwise")
}

func (p *people) cancel(run string) {
	if run == "" {
		return
	}
	what := "cancel " + run
	p.may(what, p.ask(what, func(ctx context.Context) error {
		_, err := p.world.runtime.Cancel(ctx, holdfast.Local, run, "a person said so")
		return err
	}), session.RunTerminal, session.NotFound)
}

func (p *people) changeInbox(d dice, a action) {
	var waiting []string
	p.peek(a.session, func(s *session.State) {
		for _, item := range s.Inbox {
			waiting = append(waiting, item.Message.ID)
		}
	})
	if len(waiting) == 0 {
		return
	}
	id := pick(d, waiting...)
	if d.chance(0.3) { // somebody else does the same
		after := d.span(0, time.Millisecond)
		p.world.work.Go(func() {
			time.Sleep(after)
			p.changeItem(a, id)
		})
	}
	p.changeItem(a, id)
}

func (p *people) changeItem(a action, id string) {
	what := a.kind + " the waiting " + id
	p.may(what, p.ask(what, func(ctx context.Context) error {
		if a.kind == "remove" {
			return p.world.runtime.RemoveInbox(ctx, holdfast.Local, a.session, id)
		}
		_, err := p.world.runtime.EditInbox(ctx, holdfast.Local, a.session, id, p.write(id, " in other words"))
		return err
	}), session.NotInInbox, session.NotFound, session.RunTerminal)
}

func (p *people) update(d dice, a action) {
	title := pick(d, "one", "two")
	change := session.Update{Title: &title}
	if a.kind == "head" {
		var head string
		p.peek(a.session, func(s *session.State) {
			if n := len(s.Messages); n > 0 {
				head = s.Messages[d.IntN(n)].ID
			}
		})
		change = session.Update{Head: &head}
	}
	what := "change the " + a.kind
	p.may(what, p.ask(what, func(ctx context.Context) error {
		_, err := p.world.runtime.UpdateSession(ctx, holdfast.Local, a.session, change)
		return err
	}), session.RunActive, session.NotFound)
}

// retry asks for an ended run again, twice with the same id.
func (p *people) retry(d dice, a action) {
	run := p.someRun(d, a.session)
	if run == "" {
		return
	}
	id, fresh := session.NewID(session.RunPrefix), d.chance(0.3)
	for range 2 {
		what := "retry " + run + " as " + id
		var done holdfast.Done[session.Run]
		err := p.ask(what, func(ctx context.Context) (err error) {
			done, err = p.world.runtime.Retry(ctx, holdfast.Local, run, holdfast.Retrying{ID: id, Fresh: fresh})
			return err
		})
		if err == nil && done.Is.ID != id {
			p.world.find("%s gives the run %s", what, done.Is.ID)
		}
		p.may(what, err, session.RunActive, session.RunNotTerminal, session.NotFound)
	}
}

func (p *people) delete(id string) {
	what := "delete " + id
	p.may(what, p.ask(what, func(ctx context.Context) error {
		return p.world.runtime.DeleteSession(ctx, holdfast.Local, id)
	}), session.NotFound)
}

// checkSnapshot looks at a session as a page does that is loaded, in the middle
// of everything: what it is shown must be the fold of the log up to that seq.
func (p *people) checkSnapshot(id string) {
	var snap holdfast.Snapshot
	err := p.ask("look at "+id, func(ctx context.Context) (err error) {
		snap, err = p.world.runtime.Snapshot(ctx, holdfast.Local, id, 500)
		return err
	})
	if err != nil {
		p.may("look at "+id, err)
		return
	}
	p.world.checkLeases(id)
	s, ok := p.world.foldAt(id, snap.Seq)
	if !ok {
		return // deleted meanwhile
	}
	path := s.Path(s.Head)
	if len(path) != len(snap.Messages) || s.Head != snap.Head {
		p.world.find("a page at %d of %s shows %d messages up to %s, the log says %d up to %s", snap.Seq, id, len(snap.Messages), snap.Head, len(path), s.Head)
		return
	}
	for i, m := range snap.Messages {
		m.Siblings = nil
		p.world.same("message "+m.ID+" of a page", m, *s.Message(path[i]))
	}
	for _, run := range snap.Runs {
		want := s.Run(run.ID)
		if want == nil {
			p.world.find("a page at %d of %s shows the run %s, which the log does not have", snap.Seq, id, run.ID)
			continue
		}
		shown := *want
		shown.Steps = nil
		p.world.same("run "+run.ID+" of a page", run, shown)
	}
}

// checkLeases checks that exactly the runs that are running are held.
func (w *world) checkLeases(id string) {
	running := map[string]int64{}
	var seq int64
	look := func(s *session.State) {
		seq = s.Seq
		clear(running)
		for _, run := range s.Open() {
			if run.Status == session.Running {
				running[run.ID] = run.Fence
			}
		}
	}
	w.people.peek(id, look)
	leases, err := w.store.Held(context.Background(), "", 1000)
	before := seq
	w.people.peek(id, look)
	if err != nil || seq != before || seq == 0 {
		return // something happened meanwhile, or nobody could look
	}
	for _, l := range leases {
		if l.Session != id {
			continue
		}
		if running[l.Run] != l.Fence {
			w.find("%s is held by %s under fence %d, and it is running under %d (0: it is not)", l.Run, l.Worker, l.Fence, running[l.Run])
		}
		delete(running, l.Run)
	}
	if len(running) > 0 {
		w.find("these runs are running and nobody holds them: %v", running)
	}
}

// foldAt is the fold of the first seq events of a session's log.
func (w *world) foldAt(id string, seq int64) (*session.State, bool) {
	w.mu.Lock()
	r := w.records[id]
	var frames []session.Frame
	if r != nil && int64(len(r.frames)) >= seq {
		frames = r.frames[:seq]
	}
	w.mu.Unlock()
	if frames == nil || w.everDeleted(id) {
		return nil, false
	}
	s := session.New(id)
	for _, f := range frames {
		e, ok, err := f.Event()
		if err != nil || !ok {
			w.find("the log of %s at %d: %v", id, f.From, err)
			return nil, false
		}
		s.Apply(e)
	}
	return s, true
}
