package simtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// people ask for things through the runtime, as the server does for them. They
// ask again when they get no answer, with the same ids.
type people struct {
	world *world

	mu       sync.Mutex // guards what follows
	bodies   map[string]holdfast.Submission
	texts    map[string]map[string]bool // what was written in a message, at first or as an edit, by its id
	accepted []answered
	decided  []decided
	refused  []string           // the codes of refusals
	seen     []session.Approval // that somebody looked at
}

// answered is a submission that was accepted.
type answered struct {
	session, message, run string
	mode                  session.OnBusy
	text                  string
}

// decided is a decision that was taken.
type decided struct {
	session, approval string
	by                holdfast.Deciding
}

func newPeople(w *world) *people {
	return &people{world: w, bodies: map[string]holdfast.Submission{}, texts: map[string]map[string]bool{}}
}

// write is the text of a message, which begins with its id. Some are too long for an event.
func (p *people) write(id, text string) []session.Part {
	text = id + text
	if d := roll(p.world.plan.seed, "text", text); d.chance(p.world.plan.temper.large * 3) {
		text += strings.Repeat(" and so on", d.IntN(50_000))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.texts[id] == nil {
		p.texts[id] = map[string]bool{}
	}
	p.texts[id][text] = true
	return []session.Part{{Type: session.PartText, Text: text}}
}

// shownOf is the end of a text that was too long for the model's window.
var shownOf = regexp.MustCompile(`(?s)^(.*)\n\[\d+ more bytes are not shown\]$`)

// heard gives the id of the message whose text the model was sent, which must
// be whole, or say that it is not.
func (p *people) heard(text string) string {
	id, _, _ := strings.Cut(text, " ")
	p.mu.Lock()
	wrote := p.texts[id][text]
	if part := shownOf.FindStringSubmatch(text); part != nil {
		for whole := range p.texts[id] {
			wrote = wrote || strings.HasPrefix(whole, part[1])
		}
	}
	p.mu.Unlock()
	if !wrote {
		p.world.find("the model is sent what nobody wrote: %q", brief(text))
	}
	return id
}

// begin lets somebody look at what is open now and then.
func (p *people) begin() {
	w := p.world
	for i := time.Duration(0); i < w.plan.length; i += 2 * time.Second {
		d := roll(w.plan.seed, "attention", i)
		if d.chance(w.plan.attention) {
			w.at(i+d.span(0, 2*time.Second), func() { p.look(d) })
		}
	}
}

// look decides one or all open questions, perhaps together with others who decide otherwise.
func (p *people) look(d dice) {
	for _, id := range p.world.plan.sessions {
		for _, a := range p.pending(id) {
			p.mu.Lock()
			p.seen = append(p.seen, a)
			p.mu.Unlock()
			for range 1 + d.upTo(2)*d.upTo(1) {
				by, after := p.decision(d, a), d.span(0, 2*time.Millisecond)
				p.world.work.Go(func() {
					time.Sleep(after)
					p.decide(id, a.ID, by)
				})
			}
		}
		for _, c := range p.unknown(id) {
			for range 1 + d.upTo(1) {
				said, after := c, d.span(0, 2*time.Millisecond)
				said.Outcome = pick(d, session.Happened, session.DidNot, session.OutcomeFail)
				p.world.work.Go(func() {
					time.Sleep(after)
					p.resolve(said)
				})
			}
		}
	}
}

// decideLate decides what somebody had on the screen a while ago.
func (p *people) decideLate(d dice) {
	p.mu.Lock()
	seen := slices.Clone(p.seen)
	p.mu.Unlock()
	if len(seen) > 0 {
		a := pick(d, seen...)
		p.decide(a.Session, a.ID, p.decision(d, a))
	}
}

// decideAll decides everything that is open.
func (p *people) decideAll() {
	for _, id := range p.world.plan.sessions {
		for _, a := range p.pending(id) {
			p.decide(id, a.ID, p.decision(roll(p.world.plan.seed, "in the end", string(a.Arguments)), a))
		}
		for _, c := range p.unknown(id) {
			c.Outcome = pick(roll(p.world.plan.seed, "in the end", p.world.since()), session.Happened, session.DidNot, session.OutcomeFail)
			p.resolve(c)
		}
	}
}

// peek looks at a session without any fault in between.
func (p *people) peek(id string, look func(*session.State)) {
	if err := p.world.store.View(context.Background(), id, look); err != nil &&
		!errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrUnavailable) {
		p.world.find("look at session %s: %v", id, err)
	}
}

func (p *people) pending(id string) []session.Approval {
	var found []session.Approval
	p.peek(id, func(s *session.State) {
		for _, a := range s.Approvals {
			if a.Status == session.StatusPending {
				found = append(found, *a)
			}
		}
	})
	return found
}

func (p *people) unknown(id string) []session.ResolveTool {
	var found []session.ResolveTool
	p.peek(id, func(s *session.State) {
		for _, run := range s.Open() {
			for _, c := range s.Calls(run) {
				if c.Status == session.CallUnknown {
					found = append(found, session.ResolveTool{Run: run.ID, Call: c.ID, Note: "a person says so"})
				}
			}
		}
	})
	return found
}

func (p *people) decision(d dice, a session.Approval) holdfast.Deciding {
	by := holdfast.Deciding{Decision: pick(d, session.Approve, session.Approve, session.Deny), Note: pick(d, "", "well")}
	if by.Decision == session.Approve && d.chance(0.3) {
		var args arguments
		if err := json.Unmarshal(a.Arguments, &args); err == nil {
			args.Edited = pick(d, "so", "otherwise")
			by.Arguments, _ = json.Marshal(args)
		}
	}
	return by
}

// ask asks until there is an answer other than that nobody is there.
func (p *people) ask(what string, do func(context.Context) error) error {
	for again := 0; ; again++ {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := do(ctx)
		cancel()
		if !errors.Is(err, store.ErrUnavailable) {
			p.world.story.note("person", "%s: %v", what, err)
			return err
		}
		if again > 200 {
			p.world.find("%s is never answered: %v", what, err)
			return err
		}
		time.Sleep(min(time.Duration(100<<min(again, 5))*time.Millisecond, 3*time.Second))
	}
}

// refusals are the codes of all refusals.
func (p *people) refusals() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.refused)
}

// refused says that err is a refusal with one of the codes.
func refused(err error, codes ...session.ErrorCode) bool {
	return slices.ContainsFunc(codes, func(c session.ErrorCode) bool { return errors.Is(err, &session.Error{Code: c}) })
}

// may fails the history if err is neither nil nor one of what may be answered.
func (p *people) may(what string, err error, codes ...session.ErrorCode) {
	if why := (*session.Error)(nil); errors.As(err, &why) {
		p.mu.Lock()
		p.refused = append(p.refused, string(why.Code))
		p.mu.Unlock()
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) && !refused(err, codes...) {
		p.world.find("%s is answered with %v", what, err)
	}
}

func (p *people) decide(id, approval string, by holdfast.Deciding) {
	what := fmt.Sprintf("%s %s %s", by.Decision, approval, by.Arguments)
	err := p.ask(what, func(ctx context.Context) error {
		_, err := p.world.runtime.DecideApproval(ctx, holdfast.Local, approval, by)
		return err
	})
	if err == nil {
		p.mu.Lock()
		p.decided = append(p.decided, decided{id, approval, by})
		p.mu.Unlock()
		return
	}
	var why *session.Error
	if errors.As(err, &why) && why.Code == session.ApprovalDone && (why.Approval == nil || why.Approval.By == "") {
		p.world.find("%s is refused without saying who decided: %v", what, err)
	}
	p.may(what, err, session.ApprovalDone, session.ApprovalGone, session.NotFound)
}

func (p *people) resolve(c session.ResolveTool) {
	what := fmt.Sprintf("say that %s %s", c.Call, c.Outcome)
	p.may(what, p.ask(what, func(ctx context.Context) error {
		_, err := p.world.runtime.ResolveTool(ctx, holdfast.Local, c)
		return err
	}), session.OutcomeKnown, session.RunTerminal, session.NotFound)
}

// submit sends a message once and says what it became.
func (p *people) submit(a action, text string) {
	p.mu.Lock()
	body, known := p.bodies[a.message+text]
	p.mu.Unlock()
	if !known {
		body = holdfast.Submission{
			ID: a.message, OnBusy: a.mode, Agent: a.agent, Background: a.background,
			Parts: p.write(a.message, text),
		}
		if d := roll(p.world.plan.seed, "parent", a.message); d.chance(0.15) {
			body.Parent = p.somePlace(d, a.session)
		}
		p.mu.Lock()
		if first, ok := p.bodies[a.message+text]; ok {
			body = first
		}
		p.bodies[a.message+text] = body
		p.mu.Unlock()
	}
	what := fmt.Sprintf("submit %s to %s (%s)", a.message, a.session, a.mode)
	var done holdfast.Submitted
	err := p.ask(what, func(ctx context.Context) (err error) {
		done, err = p.world.runtime.Submit(ctx, holdfast.Local, a.session, body)
		return err
	})
	if err != nil {
		codes := []session.ErrorCode{session.Conflict, session.RunActive, session.InboxFull}
		if p.world.everDeleted(a.session) {
			codes = append(codes, session.NotFound) // its place in the tree is gone
		}
		p.may(what, err, codes...)
		if refused(err, session.RunActive) && a.mode != session.Reject {
			p.world.find("%s is refused because a run is active", what)
		}
		return
	}
	if done.Message.ID != a.message {
		p.world.find("%s is answered with the message %s", what, done.Message.ID)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.accepted = append(p.accepted, answered{a.session, a.message, done.Run.ID, a.mode, text})
}

// somePlace is the parent of some message: to edit it is to add a sibling.
func (p *people) somePlace(d dice, id string) (place *string) {
	p.peek(id, func(s *session.State) {
		if len(s.Messages) > 0 {
			parent := s.Messages[d.IntN(len(s.Messages))].Parent
			place = &parent
		}
	})
	return place
}

// someRun is a run, the newest more often than others.
func (p *people) someRun(d dice, id string) (run string) {
	p.peek(id, func(s *session.State) {
		if n := len(s.Runs); n > 0 {
			run = s.Runs[max(d.IntN(n), d.IntN(n))].ID
		}
	})
	return run
}
