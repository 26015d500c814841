package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-run/holdfast/cmd/holdfast/chat"
	"github.com/holdfast-run/holdfast/cmd/holdfast/client"
	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
)

type approveCommand struct {
	ID        string `arg:"" optional:"" name:"approval" help:"The approval. Without it: list those that wait."`
	Arguments string `placeholder:"JSON" help:"Run it with these arguments in place of the model's."`
	Note      string `placeholder:"TEXT" help:"A note, for the record."`
	output
	remote
}

// Run approves, or lists what waits.
func (c *approveCommand) Run(ctx context.Context, a *App) error {
	if c.ID == "" {
		if c.Arguments != "" || c.Note != "" {
			return usagef("say which approval: holdfast approve lists them")
		}
		return listApprovals(ctx, a, c.remote, c.output)
	}
	d := api.DecideApproval{Decision: session.Approve, Note: c.Note}
	if c.Arguments != "" {
		raw, err := session.CleanJSON([]byte(c.Arguments))
		if err != nil || raw[0] != '{' {
			return usagef("--arguments must be a JSON object, such as '{\"name\":\"x\"}'")
		}
		d.Arguments = raw
	}
	return decide(ctx, a, c.remote, c.output, c.ID, d)
}

type denyCommand struct {
	ID   string `arg:"" optional:"" name:"approval" help:"The approval. Without it: list those that wait."`
	Note string `placeholder:"TEXT" help:"Why. The model reads it."`
	output
	remote
}

// Run denies, or lists what waits.
func (c *denyCommand) Run(ctx context.Context, a *App) error {
	if c.ID == "" {
		if c.Note != "" {
			return usagef("say which approval: holdfast deny lists them")
		}
		return listApprovals(ctx, a, c.remote, c.output)
	}
	return decide(ctx, a, c.remote, c.output, c.ID, api.DecideApproval{Decision: session.Deny, Note: c.Note})
}

func decide(ctx context.Context, a *App, r remote, o output, id string, d api.DecideApproval) error {
	server, err := r.client()
	if err != nil {
		return err
	}
	done, err := server.Decide(ctx, id, d)
	var p *api.Problem
	if errors.As(err, &p) && p.Approval != nil {
		return fmt.Errorf("%s is %s already%s", id, p.Approval.Status, decidedBy(*p.Approval))
	}
	if err != nil {
		return r.about(id, err)
	}
	if o.JSON {
		return printJSON(a.Stdout, done.Approval)
	}
	fmt.Fprintf(a.Stdout, "%s is %s: %s %s\n", id, done.Approval.Status, chat.Printable(done.Approval.Name),
		chat.Printable(cell(string(firstOf(done.Approval.Edited, done.Approval.Arguments)), 200)))
	fmt.Fprintf(a.Stderr, "Follow it: %s %s\n", r.command("chat --session"), done.Approval.Session)
	return nil
}

func firstOf(edited, arguments json.RawMessage) json.RawMessage {
	if edited != nil {
		return edited
	}
	return arguments
}

func decidedBy(ap session.Approval) string {
	if ap.By == "" {
		return ""
	}
	return ", by " + chat.Printable(ap.By)
}

func listApprovals(ctx context.Context, a *App, r remote, o output) error {
	server, err := r.client()
	if err != nil {
		return err
	}
	items, _, err := everything(0, func(p client.Page) ([]session.Approval, string, error) {
		list, err := server.Approvals(ctx, session.StatusPending, p)
		return list.Items, list.Next, err
	})
	if err != nil {
		return r.explain(err)
	}
	if len(items) == 0 && !o.JSON {
		fmt.Fprintln(a.Stderr, "Nothing waits for a decision.")
	}
	return table(o, a.Stdout, items, "ID\tTOOL\tARGUMENTS\tASKED\tSESSION", func(ap session.Approval) []string {
		return []string{ap.ID, ap.Name, cell(string(ap.Arguments), 60), when(ap.RequestedAt), ap.Session}
	})
}

type resolveCommand struct {
	RunID   string `arg:"" optional:"" name:"run" help:"The run that waits. Without it: list the calls in question."`
	Call    string `arg:"" optional:"" help:"The tool call."`
	Outcome string `arg:"" optional:"" enum:",happened,did_not,failed" default:"" help:"happened: it did. did_not: it did not, so run it. failed: tell the model that it failed."`
	Result  string `placeholder:"JSON" help:"With happened: what it gave, for the model."`
	Note    string `placeholder:"TEXT" help:"A note; with failed the model reads it."`
	output
	remote
}

// Run resolves a call, or lists those in question.
func (c *resolveCommand) Run(ctx context.Context, a *App) error {
	server, err := c.client()
	if err != nil {
		return err
	}
	switch {
	case c.RunID == "":
		return c.list(ctx, a, server)
	case c.Call == "" || c.Outcome == "":
		return usagef("say which call, and what it did: holdfast resolve RUN CALL happened|did_not|failed")
	case c.Result != "" && c.Outcome != string(session.Happened):
		return usagef("--result goes with happened")
	}
	word := api.ResolveTool{Outcome: session.Outcome(c.Outcome), Note: c.Note}
	if c.Result != "" {
		if word.Result, err = session.CleanJSON([]byte(c.Result)); err != nil {
			return usagef("--result must be JSON; a text in quotes: '\"done\"'")
		}
	}
	done, err := server.Resolve(ctx, c.RunID, c.Call, word)
	if err != nil {
		return c.about(c.RunID+" "+c.Call, err)
	}
	if c.JSON {
		return printJSON(a.Stdout, done.Run)
	}
	fmt.Fprintf(a.Stdout, "%s: %s %s. The run is %s.\n", c.RunID, c.Call, c.Outcome, state(done.Run))
	return nil
}

// question is a call whose outcome nobody knows.
type question struct {
	Session string            `json:"session"`
	Run     string            `json:"run"`
	Call    *session.ToolCall `json:"call"`
}

func (c *resolveCommand) list(ctx context.Context, a *App, server *client.Client) error {
	runs, _, err := everything(0, func(p client.Page) ([]session.Run, string, error) {
		list, err := server.Runs(ctx, client.RunFilter{Status: []session.Status{session.Waiting}, Reason: session.WaitToolOutcome}, p)
		return list.Items, list.Next, err
	})
	if err != nil {
		return c.explain(err)
	}
	var open []question
	for _, run := range runs {
		calls, err := unknownCalls(ctx, server, run)
		if err != nil {
			return c.explain(err)
		}
		for _, call := range calls {
			open = append(open, question{run.Session, run.ID, call})
		}
	}
	if len(open) == 0 && !c.JSON {
		fmt.Fprintln(a.Stderr, "No tool call is in question.")
	}
	return table(c.output, a.Stdout, open, "RUN\tCALL\tTOOL\tARGUMENTS\tSESSION", func(q question) []string {
		return []string{q.Run, q.Call.ID, q.Call.Name, cell(string(q.Call.Arguments), 60), q.Session}
	})
}

// unknownCalls are a run's calls in question, from its log: the message may be on no page that is at hand.
func unknownCalls(ctx context.Context, server *client.Client, run session.Run) ([]*session.ToolCall, error) {
	state := session.New(run.Session)
	err := server.EachFrame(ctx, run.Session, 0, func(u client.Update) error {
		if e, ok := u.(client.Event); ok && !session.IsDelta(e.Data) {
			state.Apply(e.Event)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var unknown []*session.ToolCall
	if current := state.Run(run.ID); current != nil {
		for _, call := range state.Calls(current) {
			if call.Status == session.CallUnknown {
				unknown = append(unknown, call)
			}
		}
	}
	return unknown, nil
}
