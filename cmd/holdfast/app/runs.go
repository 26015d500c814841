package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/cmd/holdfast/chat"
	"github.com/holdfast-run/holdfast/cmd/holdfast/client"
	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
)

type runsCommand struct {
	List    runsList    `cmd:"" default:"withargs" help:"List runs, the last queued first (default)."`
	Show    runsShow    `cmd:"" help:"Print a run and its timeline: steps, attempts, tool calls, waits."`
	Context runsContext `cmd:"" help:"Print what the model saw at a step of a run."`
}

type runsList struct {
	Session string   `placeholder:"ID" help:"Of this session only."`
	Status  []string `enum:"queued,running,waiting,completed,failed,cancelled" placeholder:"STATUS" help:"With one of these statuses: queued, running, waiting, completed, failed, cancelled."`
	Waiting string   `enum:",approval,tool_outcome,retry,worker" default:"" placeholder:"FOR" help:"That wait for this: approval, tool_outcome, retry, worker."`
	Limit   int      `default:"20" help:"How many; 0 is all."`
	output
	remote
}

// Run lists runs.
func (c *runsList) Run(ctx context.Context, a *App) error {
	api, err := c.client()
	if err != nil {
		return err
	}
	filter := client.RunFilter{Session: c.Session, Reason: session.WaitingReason(c.Waiting)}
	for _, s := range c.Status {
		filter.Status = append(filter.Status, session.Status(s))
	}
	items, next, err := everything(c.Limit, func(p client.Page) ([]session.Run, string, error) {
		list, err := api.Runs(ctx, filter, p)
		return list.Items, list.Next, err
	})
	if err != nil {
		return c.explain(err)
	}
	err = table(c.output, a.Stdout, items, "ID\tSTATUS\tAGENT\tQUEUED\tTOOK\tSESSION", func(run session.Run) []string {
		return []string{run.ID, state(run), run.Agent, when(run.QueuedAt), took(run), run.Session}
	})
	more(a, c.output, next)
	return err
}

// state is where a run is, and why.
func state(run session.Run) string {
	text := string(run.Status)
	switch {
	case run.Status == session.Waiting:
		text += " for " + map[session.WaitingReason]string{
			session.WaitApproval: "an approval", session.WaitToolOutcome: "a tool's outcome",
			session.WaitChildRun: "a subagent", session.WaitCallback: "the result of a call",
			session.WaitRetry: "the next attempt", session.WaitWorker: "a worker",
		}[run.WaitingReason]
	case run.Status == session.Failed && run.Error != nil:
		text += " (" + run.Error.Code + ")"
	case run.CancelRequestedAt != nil && !run.Status.Terminal():
		text += ", cancelling"
	}
	if run.Background {
		text += ", in the background"
	}
	return text
}

func took(run session.Run) string {
	if run.StartedAt == nil {
		return ""
	}
	end := time.Now()
	if run.FinishedAt != nil {
		end = *run.FinishedAt
	}
	return chat.Short(end.Sub(*run.StartedAt))
}

type runsShow struct {
	ID   string `arg:"" name:"run" help:"The run."`
	JSON bool   `name:"json" help:"Print the run as JSON, with its steps."`
	remote
}

// Run prints a run's timeline.
func (c *runsShow) Run(ctx context.Context, a *App) error {
	api, err := c.client()
	if err != nil {
		return err
	}
	run, err := api.Run(ctx, c.ID)
	if err != nil {
		return c.about(c.ID, err)
	}
	if c.JSON {
		return printJSON(a.Stdout, run)
	}
	fmt.Fprintf(a.Stdout, "%s  %s\nagent %s, session %s, %d tokens in and %d out",
		run.ID, state(run), chat.Printable(run.Agent), run.Session, run.Usage.InputTokens, run.Usage.OutputTokens)
	if run.RetryOf != "" {
		fmt.Fprintf(a.Stdout, ", a retry of %s", run.RetryOf)
		if run.FromStep > 1 {
			fmt.Fprintf(a.Stdout, " from step %d", run.FromStep)
		}
	}
	fmt.Fprintf(a.Stdout, "\n\n")
	events, err := api.RunEvents(ctx, run.Session, run.ID)
	if err != nil {
		return c.explain(err)
	}
	printTimeline(a.Stdout, run.QueuedAt, events)
	if !run.Status.Terminal() {
		fmt.Fprintf(a.Stdout, "\nFollow it: %s %s\n", c.command("chat --session"), run.Session)
	}
	return nil
}

type cancelCommand struct {
	ID     string `arg:"" name:"run" help:"The run."`
	Reason string `help:"Why, for the record." placeholder:"TEXT"`
	remote
}

// Run cancels a run and waits for its end, which is near: cancels have a deadline.
func (c *cancelCommand) Run(ctx context.Context, a *App) error {
	server, err := c.client()
	if err != nil {
		return err
	}
	done, err := server.Cancel(ctx, c.ID, c.Reason)
	var p *api.Problem
	if errors.As(err, &p) && p.Run != nil {
		return fmt.Errorf("%s has %s already", c.ID, p.Run.Status)
	}
	if err != nil {
		return c.about(c.ID, err)
	}
	run := done.Run
	if run.Status != session.Cancelled {
		fmt.Fprintf(a.Stderr, "The cancel is recorded; the run ends by %s at the latest.\n", when(*run.CancelDeadline))
		if run, err = server.AwaitRun(ctx, run, done.Seq); err != nil {
			return c.explain(err)
		}
	}
	fmt.Fprintf(a.Stdout, "%s is %s.\n", run.ID, run.Status)
	return nil
}

type retryCommand struct {
	ID    string `arg:"" name:"run" help:"A run that has ended."`
	Fresh bool   `help:"Begin anew: its finished steps are not kept, and its tools run again."`
	remote
}

// Run goes on from where a run failed or was cancelled.
func (c *retryCommand) Run(ctx context.Context, a *App) error {
	server, err := c.client()
	if err != nil {
		return err
	}
	done, err := server.Retry(ctx, c.ID, api.RetryRun{ID: session.NewID(session.RunPrefix), Fresh: c.Fresh})
	if err != nil {
		return c.about(c.ID, err)
	}
	fmt.Fprintf(a.Stdout, "%s\n", done.Run.ID)
	if done.Run.FromStep > 1 {
		fmt.Fprintf(a.Stderr, "It goes on with step %d.\n", done.Run.FromStep)
	}
	fmt.Fprintf(a.Stderr, "Follow it: %s %s\n", c.command("chat --session"), done.Run.Session)
	return nil
}

type tailCommand struct {
	Session string `arg:"" help:"The session."`
	After   int64  `default:"0" help:"Only what comes after this seq." placeholder:"SEQ"`
	Follow  bool   `short:"f" help:"Go on with what is added, until Ctrl-C. A lost server is waited for."`
	remote
}

// Run prints a log.
func (c *tailCommand) Run(ctx context.Context, a *App) error {
	server, err := c.client()
	if err != nil {
		return err
	}
	if c.After < 0 {
		return usagef("--after is a seq: 0 or more")
	}
	if !c.Follow {
		return c.about(c.Session, server.EachFrame(ctx, c.Session, c.After, func(u client.Update) error {
			return printUpdate(a, u)
		}))
	}
	for u := range server.Follow(ctx, c.Session, c.After) {
		switch u := u.(type) {
		case client.Lost:
			if u.Failures == 1 {
				fmt.Fprintf(a.Stderr, "lost the server (%v): connecting again\n", u.Err)
			}
		case client.Back:
		case client.Reset:
			fmt.Fprintf(a.Stderr, "the log is shorter than the cursor: it ends at %d; what follows is from its beginning\n", u.Head)
		case client.Deleted:
			return errors.New("the session was deleted")
		case client.Refused:
			return c.about(c.Session, u.Err)
		default:
			if err := printUpdate(a, u); err != nil {
				return err
			}
		}
	}
	return nil
}

func printUpdate(a *App, u client.Update) error {
	var raw []byte
	switch u := u.(type) {
	case client.Event:
		raw = u.JSON
	case client.Folded:
		raw = u.JSON
	case client.Reset:
		return usagef("the log ends at %d, before --after", u.Head)
	}
	_, err := fmt.Fprintf(a.Stdout, "%s\n", strings.TrimSuffix(string(raw), "\n"))
	return err
}
