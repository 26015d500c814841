package chat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/cmd/holdfast/client"
	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
)

// errDeleted says that the session went away under the chat.
var errDeleted = errors.New("the session was deleted")

// following is the watch over one run until it ends.
type following struct {
	*chat
	target string
	// sent is the message that the run answers, if this chat sent it: to be sent
	// again if the server's log turns out to be another than before.
	sent *api.SendMessage
	// takenBack says that somebody removed it from the inbox.
	takenBack bool
	// asking is the question that stands on the terminal, or nil.
	asking *asking
	// answeredAt are matters that the server was told of, by the seq that shows it.
	answeredAt map[string]int64
}

// asking is a matter being put to the person, in a goroutine of its own.
type asking struct {
	matter
	cancel context.CancelFunc
	done   chan said
	back   func() error // takes the terminal back
}

type said struct {
	word
	err error
}

// follow shows a run until it ends, waits for somebody who is not here, or ctx ends.
func (c *chat) follow(ctx context.Context, target string, sent *api.SendMessage) (Outcome, error) {
	f := &following{chat: c, target: target, sent: sent, answeredAt: map[string]int64{}}
	c.teller.target = target
	c.missed()
	reading, stop := context.WithCancel(ctx)
	updates := make(chan client.Update, 256)
	var reader sync.WaitGroup
	reader.Go(func() {
		for u := range c.Client.Follow(reading, c.Session, c.mirror.Seq) {
			select {
			case updates <- u:
			case <-reading.Done():
				return
			}
		}
	})
	defer reader.Wait()
	defer stop()
	outcome, err := f.loop(ctx, updates)
	err = errors.Join(err, f.stopAsking())
	c.notes.Status("")
	c.notes.FreshLine()
	if c.answer != nil {
		err = errors.Join(err, c.answer.end())
	}
	return outcome, err
}

// A status with a countdown or progress is renewed this often.
const statusEvery = 500 * time.Millisecond

func (f *following) loop(ctx context.Context, updates <-chan client.Update) (Outcome, error) {
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	for {
		if len(updates) == 0 {
			if outcome, done, err := f.settle(ctx); done || err != nil {
				return outcome, err
			}
		}
		var answered chan said
		if f.asking != nil {
			answered = f.asking.done
		}
		select {
		case <-ctx.Done():
			return Detached, nil
		case <-tick.C:
		case u := <-updates:
			if err := f.take(ctx, u); err != nil {
				return Failed, err
			}
		case s := <-answered:
			if outcome, done, err := f.answered(ctx, s); done || err != nil {
				return outcome, err
			}
		}
		if f.answer != nil && f.answer.err != nil {
			return Failed, f.answer.err
		}
	}
}

// settle looks at where the run is, now that everything known has been told.
func (f *following) settle(ctx context.Context) (outcome Outcome, done bool, err error) {
	run := f.mirror.Run(f.target)
	if run != nil && run.Status.Terminal() {
		switch next, known := f.answering(); {
		case !known:
		case next == f.target:
			return outcomeOf(run), true, nil
		default:
			f.target, f.teller.target = next, next
			run = f.mirror.Run(next)
		}
	}
	if err := f.ask(ctx); err != nil {
		return Failed, true, err
	}
	if !f.keys.Interactive() {
		if waiting := f.blocked(run); waiting != nil {
			f.explain(waiting)
			return NeedsPerson, true, nil
		}
	}
	if f.asking == nil {
		status := f.lost
		if status == "" {
			status = statusOf(f.mirror, f.target, f.now())
		}
		f.notes.Status(status)
	}
	return 0, false, f.notes.Flush()
}

// answering is the run that answers what was sent, or that was watched. It is not
// known while the log is between two events that belong together: a steer whose run
// ended first gets a run of its own, and what leaves the inbox becomes a message.
func (f *following) answering() (run string, known bool) {
	if f.sent == nil {
		unheard := func(item *session.InboxItem) bool {
			return item.Mode == session.Steer && item.Run == f.target && f.mirror.Run(item.SpareRun) == nil
		}
		return f.target, !slices.ContainsFunc(f.mirror.Inbox, unheard)
	}
	if item := f.mirror.InboxItem(f.sent.ID); item != nil {
		return item.Run, item.Mode != session.Steer
	}
	if m := f.mirror.Message(f.sent.ID); m != nil {
		return cmp.Or(m.Run, f.target), true
	}
	return f.target, f.takenBack
}

func (f *following) noteTakenBack(e session.Event) {
	if removed, ok := e.Data.(session.InboxRemoved); ok && f.sent != nil && removed.ID == f.sent.ID {
		f.takenBack = true
	}
}

// blocked is the run that waits for a person and that the wanted one is, or is behind.
func (f *following) blocked(run *session.Run) *session.Run {
	if run == nil {
		return nil
	}
	if ahead := f.mirror.Active(); ahead != nil && run.Status == session.Queued {
		run = ahead
	}
	// What was decided a moment ago is no matter any more, though no worker has taken the run yet.
	undecided := func(m matter) bool { return m.run == run.ID }
	if needsPerson(run) && slices.ContainsFunc(f.mirror.matters(), undecided) {
		return run
	}
	return nil
}

// explain says what a person has to decide, where nobody can be asked.
func (f *following) explain(run *session.Run) {
	for _, m := range f.mirror.matters() {
		if m.run != run.ID {
			continue
		}
		for _, text := range m.introduce(200) {
			f.note(yellow, "%s", text)
		}
		if m.approval != nil {
			f.hint("allow it", "approve "+m.approval.ID)
			f.hint("refuse", "deny "+m.approval.ID+" --note \"why not\"")
		} else {
			f.hint("say", "resolve "+run.ID+" "+m.call.ID+" happened|did_not|failed")
		}
	}
	f.hint("then see", "chat --session "+f.Session)
}

// take takes one update of the log or of the connection to it.
func (f *following) take(ctx context.Context, u client.Update) error {
	switch u := u.(type) {
	case client.Event:
		f.mirror.Apply(u.Event)
		f.noteTakenBack(u.Event)
		if err := f.outdated(); err != nil {
			return err
		}
		f.tell(u.Event)
	case client.Folded:
		f.mirror.Seq = u.To
	case client.Lost:
		if f.lost == "" && !f.notes.live {
			f.note(yellow, "lost the server (%v): connecting again; the run does not depend on it", u.Err)
		}
		f.lost = fmt.Sprintf("lost the server (%v): connecting again", u.Err)
	case client.Back:
		if f.lost != "" && f.notes.live {
			f.note(dim, "lost the server for %s; connected again, nothing was missed", Short(u.After))
		}
		f.lost = ""
	case client.Reset:
		return f.restart(ctx)
	case client.Deleted:
		return errDeleted
	case client.Refused:
		return u.Err
	}
	return nil
}

// restart begins anew with a log that is not the one that was followed: the
// server was given older data. What it does not know of is sent again.
func (f *following) restart(ctx context.Context) error {
	f.note(yellow, "the server's log is not the one that was followed (older data?): showing it from its beginning")
	f.mirror.State = session.New(f.Session)
	f.step = step{}
	if err := f.outdated(); err != nil {
		return err
	}
	if f.sent == nil {
		return nil
	}
	accepted, err := f.submit(ctx, *f.sent)
	if err != nil {
		return err
	}
	f.takenBack = false
	f.target, f.teller.target = accepted.Run.ID, accepted.Run.ID
	return nil
}

// ask puts the next matter to the person, if there is one and none is asked.
func (f *following) ask(ctx context.Context) error {
	if f.asking != nil || !f.keys.Interactive() {
		return nil
	}
	for _, m := range f.mirror.matters() {
		if f.mirror.Seq < f.answeredAt[m.id()] {
			continue
		}
		f.notes.FreshLine()
		for i, text := range m.introduce(f.width()) {
			f.note([]style{yellow, plain}[min(i, 1)], "%s", text)
		}
		q := f.keys.Question()
		back, err := f.notes.Lend(q)
		if err != nil {
			return err
		}
		asked, cancel := context.WithCancel(ctx)
		f.asking = &asking{matter: m, cancel: cancel, done: make(chan said, 1), back: back}
		go func(done chan<- said) { // stopAsking and answered wait for it
			w, err := q.put(asked, m)
			done <- said{w, err}
		}(f.asking.done)
		return nil
	}
	return nil
}

// outdated takes away a question that somebody else has answered, or that is void.
func (f *following) outdated() error {
	if f.asking == nil {
		return nil
	}
	for _, m := range f.mirror.matters() {
		if m.id() == f.asking.id() {
			return nil
		}
	}
	err := f.stopAsking()
	f.note(dim, "that is decided")
	return err
}

// stopAsking takes a question away.
func (f *following) stopAsking() error {
	if f.asking == nil {
		return nil
	}
	f.asking.cancel()
	<-f.asking.done
	return f.endAsking()
}

func (f *following) endAsking() error {
	f.asking.cancel()
	err := f.asking.back()
	f.asking = nil
	return err
}

// answered does what the person said.
func (f *following) answered(ctx context.Context, s said) (outcome Outcome, done bool, err error) {
	m := f.asking.matter
	if err := f.endAsking(); err != nil {
		return Failed, true, err
	}
	switch {
	case ctx.Err() != nil, isLeaving(s.err):
		return Detached, true, nil
	case errors.Is(s.err, errLater):
		f.explainLater(m)
		return NeedsPerson, true, nil
	case s.err != nil:
		return Failed, true, fmt.Errorf("ask: %w", s.err)
	}
	if err := f.send(ctx, m, s.word); err != nil {
		if ctx.Err() != nil {
			return Detached, true, nil
		}
		// The log says how it was decided; what was refused is asked again.
		f.note(yellow, "%v", err)
	}
	return 0, false, nil
}

func (f *following) explainLater(m matter) {
	if m.approval != nil {
		f.hint("decide", "approve "+m.approval.ID)
	} else {
		f.hint("decide", "resolve "+m.run+" "+m.call.ID+" happened|did_not|failed")
	}
	f.hint("come back", "chat --session "+f.Session)
}

// send tells the server, until it answers.
func (f *following) send(ctx context.Context, m matter, w word) error {
	for failures := 1; ; failures++ {
		var err error
		var seq int64
		if w.decide != nil {
			done, problem := f.Client.Decide(ctx, m.approval.ID, *w.decide)
			seq, err = done.Seq, problem
		} else {
			done, problem := f.Client.Resolve(ctx, m.run, m.call.ID, *w.resolve)
			seq, err = done.Seq, problem
		}
		if err == nil {
			f.answeredAt[m.id()] = seq
			return nil
		}
		if !client.Passing(err) {
			return err
		}
		f.notes.Status(err.Error() + ": telling it again")
		if !f.pause(ctx, client.Backoff(failures)) {
			return context.Cause(ctx)
		}
	}
}
