package app

import (
	"context"
	"fmt"

	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
)

type sessionsFork struct {
	ID      string `arg:"" name:"session" help:"The session."`
	Message string `arg:"" optional:"" help:"The last message that is copied. Default: the last one of the active branch."`
	remote
}

// Run forks a session.
func (c *sessionsFork) Run(ctx context.Context, a *App) error {
	server, err := c.client()
	if err != nil {
		return err
	}
	if c.Message == "" {
		snap, err := server.Snapshot(ctx, c.ID, 1)
		if err != nil {
			return c.about(c.ID, err)
		}
		if c.Message = snap.Head; c.Message == "" {
			return fmt.Errorf("nothing was said in %s yet", c.ID)
		}
	}
	done, err := server.Fork(ctx, c.ID, api.ForkSession{ID: session.NewID(session.SessionPrefix), Message: c.Message})
	if err != nil {
		return c.about(c.ID, err)
	}
	fmt.Fprintf(a.Stdout, "%s\n", done.Session.ID)
	fmt.Fprintf(a.Stderr, "Go on with it: %s %s\n", c.command("chat --session"), done.Session.ID)
	return nil
}
