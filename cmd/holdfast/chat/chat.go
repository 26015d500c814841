// Package chat is the terminal client: it says something in a session, shows
// what comes of it, and asks the person where a person is needed.
//
// It holds nothing that matters. The run belongs to the server: the chat
// reconnects with its cursor when the server was away, and can be left and come back to at any time.
package chat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/holdfast-run/holdfast/cmd/holdfast/client"
	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
)

// Options say who talks to whom.
type Options struct {
	Client *client.Client
	// Session to go on with. Default: a new one.
	Session string
	// Agent that answers. Default: the session's, or the server's.
	Agent string
	// Message to say. Default: what is read from In, line by line.
	Message string
	// OnBusy says what to do when the session is busy. Default: the message waits for its turn.
	OnBusy session.OnBusy
	// In, Out and Err are the standard streams. Those that are terminals are used as such.
	In       io.Reader
	Out, Err io.Writer
	// Color allows styles on terminals.
	Color bool
	// Command spells a command for the person, such as "cancel run_1". Default: with "holdfast" before it.
	Command func(command string) string
	// Patience is how long a server that is not there at first is waited for. Default: 3 seconds.
	Patience time.Duration
}

// Outcome is how a chat ended.
type Outcome int

// The outcomes, and as exit codes.
const (
	Completed   Outcome = 0   // the last run completed, or the person left
	Failed      Outcome = 1   // the last run failed
	Cancelled   Outcome = 3   // the last run was cancelled
	NeedsPerson Outcome = 4   // the run waits for somebody's decision, and nobody is here
	Detached    Outcome = 130 // left while the run goes on
)

// ErrNothingToSay says that there was no message and no session to look at.
var ErrNothingToSay = errors.New("there is nothing to say: give a message, or type one")

// Run chats until there is nothing more to say or ctx ends, which leaves the run
// as it is. The error says why it could not go on.
func Run(ctx context.Context, o Options) (Outcome, error) {
	c := newChat(ctx, o)
	outcome, err := c.run(ctx)
	c.notes.Status("")
	c.notes.FreshLine()
	if err == nil && outcome == Detached {
		c.farewell()
	}
	return outcome, errors.Join(err, c.notes.Flush())
}

// chat is one Run.
type chat struct {
	Options
	teller
	keys *keyboard
	// lost is what is wrong with the connection, empty while it stands.
	lost     string
	asked    bool // a certain session is wanted
	accepted bool // the server knows of the session
	sending  bool // a message is under way, and not acknowledged
}

func newChat(ctx context.Context, o Options) *chat {
	asked := o.Session != ""
	if !asked {
		o.Session = session.NewID(session.SessionPrefix)
	}
	if o.Patience <= 0 {
		o.Patience = 3 * time.Second
	}
	if o.Command == nil {
		o.Command = func(command string) string { return "holdfast " + command }
	}
	c := &chat{Options: o, asked: asked}
	c.teller = teller{mine: map[string]bool{}, now: time.Now, mirror: mirror{session.New(o.Session)}}
	shown := o.Err
	if terminal(o.Out) != nil {
		shown = o.Out
	} else {
		c.answer = &answer{out: o.Out, ctx: ctx, blob: func(ctx context.Context, hash string) ([]byte, error) {
			return o.Client.Blob(ctx, o.Session, hash)
		}}
	}
	tty := terminal(shown)
	c.notes = newScreen(shown, tty != nil, tty != nil && o.Color, func() (int, int) { return sizeOf(tty) })
	var in *os.File
	if tty != nil {
		in = terminal(o.In)
	}
	c.keys = newKeyboard(o.In, shown, in)
	return c
}

// terminal is the stream's file if it is a terminal, or nil.
func terminal(stream any) *os.File {
	f, ok := stream.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return f
}

func sizeOf(tty *os.File) (width, height int) {
	if tty == nil {
		return 0, 0
	}
	width, height, err := term.GetSize(int(tty.Fd()))
	if err != nil {
		return 0, 0
	}
	return width, height
}

func (c *chat) run(ctx context.Context) (Outcome, error) {
	known, err := c.meet(ctx)
	switch {
	case ctx.Err() != nil:
		return Detached, nil
	case err != nil:
		return Failed, err
	}
	c.accepted = known
	if c.Message != "" {
		if known && c.mirror.Active() != nil {
			c.tail(2) // what is being said there goes on first
		}
		return c.say(ctx, c.Message)
	}
	if !known && c.asked {
		return Failed, fmt.Errorf("there is no session %s; to see those there are: %s", c.Session, c.Command("sessions"))
	}
	if !known {
		if c.keys.Interactive() {
			c.notes.Line(dim, "A new session, "+c.Session+". Ctrl-D leaves it.")
		}
		return c.talk(ctx, func() (Outcome, error) { return Failed, ErrNothingToSay })
	}
	c.tail(tailLength)
	watched, outcome, err := c.watch(ctx)
	leave := outcome == Detached || outcome == NeedsPerson
	if err != nil || leave || outcome != Completed && !c.keys.Interactive() {
		return outcome, err
	}
	if watched {
		return c.talk(ctx, func() (Outcome, error) { return outcome, nil })
	}
	return c.talk(ctx, c.again)
}

// meet gets to know the session; false means that it is new. A server that is just being started is waited for.
func (c *chat) meet(ctx context.Context) (known bool, err error) {
	for deadline := time.Now().Add(c.Patience); ; {
		snap, err := c.Client.Snapshot(ctx, c.Session, snapshotWindow)
		switch {
		case err == nil:
			c.mirror, err = mirrorOf(snap)
			return err == nil, err
		case client.Is(err, api.NotFound):
			return false, nil
		case !client.Passing(err) || time.Now().After(deadline):
			return false, err
		}
		c.notes.Status(err.Error() + ": trying again")
		if !c.pause(ctx, client.Backoff(1)) {
			return false, context.Cause(ctx)
		}
	}
}

const (
	// snapshotWindow is how many messages are fetched, tailLength how many are shown.
	snapshotWindow = 20
	tailLength     = 10
)

// pause waits; false means that ctx ended.
func (c *chat) pause(ctx context.Context, d time.Duration) bool {
	_ = c.notes.Flush() // a failure shows at the next
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// talk says line after line. On a terminal a run that failed is no reason to
// leave; elsewhere it is. silent is what to do when there was not a line.
func (c *chat) talk(ctx context.Context, silent func() (Outcome, error)) (Outcome, error) {
	for said := 0; ; {
		if err := c.notes.Flush(); err != nil {
			return Failed, err
		}
		text, err := c.keys.Message(ctx, "› ")
		c.notes.col = 0
		switch {
		case ctx.Err() != nil && !c.keys.Interactive():
			return Detached, nil
		case ctx.Err() != nil, isLeaving(err):
			if c.keys.Interactive() {
				c.farewell()
			} else if said == 0 {
				return silent()
			}
			return Completed, nil
		case err != nil:
			return Failed, fmt.Errorf("read what to say: %w", err)
		}
		if strings.TrimSpace(text) == "" {
			continue
		}
		said++
		outcome, err := c.say(ctx, text)
		stay := c.keys.Interactive() && outcome != Detached && outcome != NeedsPerson
		switch {
		case err != nil && stay && client.Passing(err):
			return outcome, err
		case err != nil && stay:
			c.note(red, "%v", err)
		case err != nil, outcome != Completed && !stay:
			return outcome, err
		}
	}
}

// again gives the last answer of a session in which nothing is going on.
func (c *chat) again() (Outcome, error) {
	last := c.mirror.lastAnswer()
	if last == nil {
		return Completed, nil
	}
	if c.answer != nil {
		c.answer.add(last.Parts)
		if err := c.answer.end(); err != nil {
			return Failed, err
		}
	}
	if run := c.mirror.Run(last.Run); run != nil {
		return outcomeOf(run), nil
	}
	return Completed, nil
}

func outcomeOf(run *session.Run) Outcome {
	switch run.Status {
	case session.Failed:
		return Failed
	case session.Cancelled:
		return Cancelled
	}
	return Completed
}

// say submits a message and shows what comes of it.
func (c *chat) say(ctx context.Context, text string) (Outcome, error) {
	m := api.SendMessage{
		ID: session.NewID(session.MessagePrefix), Parts: []api.Part{{Type: session.PartText, Text: text}},
		Agent: c.Agent, OnBusy: c.OnBusy,
	}
	c.mine[m.ID] = true
	if c.Message != "" && c.live() {
		c.notes.Line(bold, "› "+text)
	}
	c.sending = true
	accepted, err := c.submit(ctx, m)
	if err != nil {
		if ctx.Err() != nil {
			return Detached, nil
		}
		c.sending = false
		return Failed, err
	}
	c.sending = false
	return c.follow(ctx, accepted.Run.ID, &m)
}

// submit sends a message until it is acknowledged. Its id makes that one message.
func (c *chat) submit(ctx context.Context, m api.SendMessage) (api.MessageAccepted, error) {
	for failures := 1; ; failures++ {
		accepted, err := c.Client.Send(ctx, c.Session, m)
		if err == nil {
			c.accepted = true
			if failures > 1 {
				c.note(dim, "the server took it")
			}
			return accepted, nil
		}
		if !client.Passing(err) {
			return accepted, err
		}
		if failures == 1 {
			c.note(yellow, "%v: sending it again until it is acknowledged", err)
		}
		wait := client.Backoff(failures)
		if p := (*api.Problem)(nil); errors.As(err, &p) {
			wait = max(wait, time.Duration(p.RetryAfterMs)*time.Millisecond)
		}
		if !c.pause(ctx, wait) {
			return accepted, context.Cause(ctx)
		}
	}
}

// watch follows what is under way in the session to its end.
func (c *chat) watch(ctx context.Context) (any bool, outcome Outcome, err error) {
	for run := c.mirror.next(); run != nil; run = c.mirror.next() {
		any = true
		outcome, err = c.follow(ctx, run.ID, nil)
		if err != nil || outcome == Detached || outcome == NeedsPerson {
			break
		}
	}
	return any, outcome, err
}

// farewell says how to come back.
func (c *chat) farewell() {
	switch run := c.underWay(); {
	case c.sending:
		c.notes.Line(plain, "Left before the server said that it has the message.")
		c.hint("look", "chat --session "+c.Session)
	case run != "":
		c.notes.Line(plain, "Left. The run goes on without you.")
		c.hint("come back", "chat --session "+c.Session)
		c.hint("cancel it", "cancel "+run)
	case c.accepted:
		c.notes.Line(dim, "Come back with: "+c.Command("chat --session "+c.Session))
	}
}

// underWay is the run that goes on when the person leaves, if one does: the one
// that was followed, or another of the session.
func (c *chat) underWay() string {
	if c.target != "" { // it may have been accepted and not been seen yet
		if run := c.mirror.Run(c.target); run == nil || !run.Status.Terminal() {
			return c.target
		}
	}
	if run := c.mirror.next(); run != nil {
		return run.ID
	}
	return ""
}

// hint is a command that the person may want next.
func (c *chat) hint(to, command string) {
	c.notes.Line(plain, fmt.Sprintf("  %-10s %s", to+":", c.Command(command)))
}
