package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/holdfast-run/holdfast/cmd/holdfast/chat"
	"github.com/holdfast-run/holdfast/cmd/holdfast/client"
	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
)

type chatCommand struct {
	Message    []string `arg:"" optional:"" help:"What to say. Without it: lines that you type, or that come from a pipe."`
	Session    string   `short:"s" placeholder:"ID" help:"Go on with this session: what was said is shown, and a run that is under way followed."`
	Agent      string   `short:"a" placeholder:"NAME" help:"The agent that answers. Default: the session's, or the server's."`
	OnBusy     string   `enum:"enqueue,steer,interrupt,rollback,reject" default:"enqueue" help:"When a run is active: ${enum}."`
	Background bool     `short:"b" help:"Ask beside the conversation: print the run and leave. Its result is told in the session when it is there."`
	remote
}

// Help is the long help.
func (chatCommand) Help() string {
	return `A run that was left goes on, and chat --session comes back to it. Only cancel cancels.

Where the output is not a terminal, it is the answer and nothing else: each step's text when it is whole. What happens besides goes to the error output.

Exit codes: 0 the run completed, 1 it failed, 2 the command line makes no sense, 3 it was cancelled, 4 it waits for a person and nobody can be asked here, 130 left.`
}

// Run chats.
func (c *chatCommand) Run(ctx context.Context, a *App) error {
	server, err := c.client()
	if err != nil {
		return err
	}
	defer server.Close()
	if c.Session != "" && !session.ValidID(c.Session) {
		return usagef("%q is no session id: ids have letters, digits, _ and -; holdfast sessions lists them", c.Session)
	}
	message := strings.Join(c.Message, " ")
	if len(c.Message) > 0 && strings.TrimSpace(message) == "" {
		return usagef("the message is empty")
	}
	if c.Background {
		return c.aside(ctx, a, server, message)
	}
	onBusy := session.OnBusy(c.OnBusy)
	if onBusy == session.Enqueue {
		onBusy = ""
	}
	outcome, err := chat.Run(ctx, chat.Options{
		Client: server, Session: c.Session, Agent: c.Agent, Message: message, OnBusy: onBusy,
		In: a.Stdin, Out: a.Stdout, Err: a.Stderr, Color: os.Getenv("NO_COLOR") == "", Command: c.command,
	})
	switch {
	case errors.Is(err, chat.ErrNothingToSay):
		return usagef("%v", err)
	case err != nil:
		return c.explain(err)
	case outcome != chat.Completed:
		return exitError(outcome)
	}
	return nil
}

// aside asks in the background.
func (c *chatCommand) aside(ctx context.Context, a *App, server *client.Client, message string) error {
	if message == "" {
		return usagef("--background needs a message")
	}
	id := cmp.Or(c.Session, session.NewID(session.SessionPrefix))
	done, err := server.Send(ctx, id, api.SendMessage{
		ID: session.NewID(session.MessagePrefix), Parts: []api.Part{{Type: session.PartText, Text: message}}, Agent: c.Agent, Background: true,
	})
	if err != nil {
		return c.explain(err)
	}
	fmt.Fprintf(a.Stdout, "%s\n", done.Run.ID)
	fmt.Fprintf(a.Stderr, "How it goes: %s %s\nIts result: %s %s\n", c.command("runs show"), done.Run.ID, c.command("chat --session"), id)
	return nil
}
