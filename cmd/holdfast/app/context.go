package app

import (
	"context"
	"fmt"
	"io"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/cmd/holdfast/chat"
)

type runsContext struct {
	ID      string `arg:"" name:"run" help:"The run."`
	Step    int    `arg:"" help:"The step, from 1."`
	Attempt int    `help:"One of its attempts; the last by default." placeholder:"N"`
	Whole   bool   `help:"Print the messages whole, not their beginnings."`
	JSON    bool   `name:"json" help:"Print it as JSON."`
	remote
}

// Run prints what the model saw.
func (c *runsContext) Run(ctx context.Context, a *App) error {
	if c.Step < 1 || c.Attempt < 0 {
		return usagef("steps and attempts count from 1")
	}
	api, err := c.client()
	if err != nil {
		return err
	}
	seen, err := api.Context(ctx, c.ID, c.Step, c.Attempt)
	if err != nil {
		return c.about(fmt.Sprintf("step %d of %s", c.Step, c.ID), err)
	}
	if c.JSON {
		return printJSON(a.Stdout, seen)
	}
	fmt.Fprintf(a.Stdout, "%s step %d, attempt %d: about %d", seen.Run, seen.Step, seen.Attempt, seen.Tokens)
	if seen.Window > 0 {
		fmt.Fprintf(a.Stdout, " of %d", seen.Window)
	}
	fmt.Fprint(a.Stdout, " tokens")
	if seen.Reported > 0 {
		fmt.Fprintf(a.Stdout, "; the provider counted %d", seen.Reported)
	}
	fmt.Fprintln(a.Stdout)
	if !seen.Exact {
		fmt.Fprintf(a.Stdout, "Not exactly so: %s.\n", seen.Reason)
	}
	if seen.System != "" {
		c.part(a.Stdout, "\ninstructions", seen.System)
	}
	for _, t := range seen.Tools {
		c.part(a.Stdout, "tool "+chat.Printable(t.Name), t.Description)
	}
	for _, m := range seen.Messages {
		c.message(a.Stdout, m)
	}
	if seen.Cut > 0 {
		fmt.Fprintf(a.Stdout, "\n%d bytes of text are not in this answer.\n", seen.Cut)
	}
	return nil
}

func (c *runsContext) message(w io.Writer, m holdfast.ContextMessage) {
	from := "in place of earlier messages"
	if m.Message != "" {
		from = m.Message
	}
	if m.Step > 0 {
		from += fmt.Sprintf(" step %d", m.Step)
	}
	if m.Shortened {
		from += ", shortened"
	}
	fmt.Fprintf(w, "\n%s, %d tokens (%s)\n", m.Role, m.Tokens, from)
	for _, p := range m.Parts {
		title := string(p.Kind)
		if p.Name != "" {
			title += " " + chat.Printable(p.Name)
		}
		if p.MediaType != "" {
			title += " " + chat.Printable(p.MediaType)
		}
		c.part(w, "  "+title, p.Text)
	}
}

func (c *runsContext) part(w io.Writer, title, text string) {
	if !c.Whole {
		text = cell(text, 200)
	}
	fmt.Fprintf(w, "%s: %s\n", title, chat.Printable(text))
}
