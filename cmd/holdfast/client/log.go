package client

import (
	"context"
	"fmt"

	"github.com/holdfast-run/holdfast/session"
)

// pageSize is how many frames of a log are read at once.
const pageSize = 5000

// EachFrame reads the log after a cursor up to its present end: [Event]s and
// [Folded] ranges, and [Reset], after which nothing comes.
func (c *Client) EachFrame(ctx context.Context, sessionID string, after int64, take func(Update) error) error {
	for {
		page, err := c.Events(ctx, sessionID, after, pageSize, 0)
		if err != nil {
			return err
		}
		if page.Reset {
			return take(Reset{Head: page.Head})
		}
		for _, raw := range page.Frames {
			u, _, to, err := ParseFrame(raw)
			if err != nil {
				return err
			}
			if err := take(u); err != nil {
				return err
			}
			after = to
		}
		if !page.More || len(page.Frames) == 0 {
			return nil
		}
	}
}

// RunEvents are the facts of one run, in order.
func (c *Client) RunEvents(ctx context.Context, sessionID, runID string) ([]session.Event, error) {
	var events []session.Event
	err := c.EachFrame(ctx, sessionID, 0, func(u Update) error {
		if e, ok := u.(Event); ok && e.Run == runID && !session.IsDelta(e.Data) {
			events = append(events, e.Event)
		}
		return nil
	})
	return events, err
}

// AwaitRun waits until a run has ended, following its session after a seq. A
// server that goes away meanwhile is waited for, until ctx ends.
func (c *Client) AwaitRun(ctx context.Context, run session.Run, after int64) (session.Run, error) {
	for u := range c.Follow(ctx, run.Session, after) {
		switch u := u.(type) {
		case Event:
			if u.Run != run.ID {
				continue
			}
			switch u.Data.(type) {
			case session.RunCompleted, session.RunFailed, session.RunCancelled:
				return c.Run(ctx, run.ID)
			}
		case Deleted:
			return run, fmt.Errorf("the session %s was deleted", run.Session)
		case Refused:
			return run, u.Err
		}
	}
	return run, context.Cause(ctx)
}
