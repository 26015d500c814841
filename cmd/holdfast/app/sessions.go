package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/term"

	"github.com/holdfast-run/holdfast/cmd/holdfast/chat"
	"github.com/holdfast-run/holdfast/cmd/holdfast/client"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

type sessionsCommand struct {
	List   sessionsList   `cmd:"" default:"withargs" help:"List sessions, the last changed first (default)."`
	Show   sessionsShow   `cmd:"" help:"Print a session: what was said, what is under way and what waits."`
	Fork   sessionsFork   `cmd:"" help:"Begin a session with a copy of another one up to a message."`
	Delete sessionsDelete `cmd:"" help:"Delete a session and all that is in it, for ever. Its runs are stopped."`
}

type sessionsList struct {
	Search string `help:"Part of a title." placeholder:"TEXT"`
	Limit  int    `default:"20" help:"How many; 0 is all."`
	output
	remote
}

// Run lists sessions.
func (c *sessionsList) Run(ctx context.Context, a *App) error {
	api, err := c.client()
	if err != nil {
		return err
	}
	items, next, err := everything(c.Limit, func(p client.Page) ([]store.SessionRow, string, error) {
		list, err := api.Sessions(ctx, c.Search, p)
		return list.Items, list.Next, err
	})
	if err != nil {
		return c.explain(err)
	}
	if len(items) == 0 && !c.JSON {
		fmt.Fprintln(a.Stderr, "There are no sessions yet. Begin one: "+c.command(`chat "hello"`))
	}
	err = table(c.output, a.Stdout, items, "ID\tSTATUS\tCHANGED\tTITLE", func(s store.SessionRow) []string {
		status := s.Status
		if s.Approvals > 0 {
			status += ", " + count(s.Approvals, "approval")
		}
		if s.Inbox > 0 {
			status += ", " + strconv.Itoa(s.Inbox) + " queued"
		}
		return []string{s.ID, status, when(s.UpdatedAt), cell(s.Title, 60)}
	})
	more(a, c.output, next)
	return err
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

type sessionsShow struct {
	ID     string `arg:"" name:"session" help:"The session."`
	Window int    `default:"50" help:"How many of the last messages, at most 200."`
	JSON   bool   `name:"json" help:"Print the snapshot as JSON."`
	remote
}

// Run prints a snapshot.
func (c *sessionsShow) Run(ctx context.Context, a *App) error {
	api, err := c.client()
	if err != nil {
		return err
	}
	snap, err := api.Snapshot(ctx, c.ID, c.Window)
	if err != nil {
		return c.about(c.ID, err)
	}
	if c.JSON {
		return printJSON(a.Stdout, snap)
	}
	s := snap.Session
	fmt.Fprintf(a.Stdout, "%s  %s\n%s, changed %s, %d events\n", s.ID, chat.Printable(cell(s.Title, 80)), s.Status, when(s.UpdatedAt), snap.Seq)
	if snap.HasMore {
		fmt.Fprintf(a.Stdout, "\n(earlier messages: --window)\n")
	}
	for i := range snap.Messages {
		printMessage(a, &snap.Messages[i])
	}
	for _, item := range snap.Inbox {
		fmt.Fprintf(a.Stdout, "\nqueued (%s): %s\n", item.Mode, chat.Printable(cell(item.Message.Text(), 200)))
	}
	for _, run := range snap.Runs {
		if !run.Status.Terminal() {
			fmt.Fprintf(a.Stdout, "\n%s is %s: %s %s\n", run.ID, state(run), c.command("chat --session"), s.ID)
		}
	}
	for _, ap := range snap.Approvals {
		fmt.Fprintf(a.Stdout, "\n%s asks to run %s %s: %s %s\n", ap.ID, chat.Printable(ap.Name),
			chat.Printable(cell(string(ap.Arguments), 200)), c.command("approve"), ap.ID)
	}
	return nil
}

func printMessage(a *App, m *session.Message) {
	fmt.Fprintf(a.Stdout, "\n[%s] %s", m.Role, m.ID)
	if m.Status != session.MessageWhole {
		fmt.Fprintf(a.Stdout, ", %s %s", m.Status, m.Reason)
	}
	if n := len(m.Siblings); n > 1 {
		fmt.Fprintf(a.Stdout, ", one of %d versions", n)
	}
	fmt.Fprintln(a.Stdout)
	for i := range m.Parts {
		p := &m.Parts[i]
		switch {
		case p.Tool != nil:
			result := string(p.Tool.Result)
			if p.Tool.Error != nil {
				result = p.Tool.Error.Message
			}
			fmt.Fprintf(a.Stdout, "  → %s %s: %s %s\n", chat.Printable(p.Tool.Name), chat.Printable(cell(string(p.Tool.Arguments), 120)),
				p.Tool.Status, chat.Printable(cell(result, 200)))
		case p.Type == session.PartText:
			fmt.Fprintln(a.Stdout, strings.TrimRight(chat.Printable(p.Text), "\n"))
		case p.Type == session.PartReasoning:
			fmt.Fprintln(a.Stdout, "  (thought) "+chat.Printable(cell(p.Text, 200)))
		case p.File != nil:
			fmt.Fprintf(a.Stdout, "  [file %s, %s]\n", chat.Printable(p.File.Name), chat.Printable(p.File.MediaType))
		}
	}
}

type sessionsDelete struct {
	IDs []string `arg:"" name:"session" help:"The sessions."`
	Yes bool     `short:"y" help:"Do not ask."`
	remote
}

// Run deletes sessions.
func (c *sessionsDelete) Run(ctx context.Context, a *App) error {
	api, err := c.client()
	if err != nil {
		return err
	}
	if !c.Yes {
		if err := a.confirm(fmt.Sprintf("Delete %s for ever?", strings.Join(c.IDs, ", "))); err != nil {
			return err
		}
	}
	for _, id := range c.IDs {
		if err := api.DeleteSession(ctx, id); err != nil {
			return c.about(id, err)
		}
		fmt.Fprintf(a.Stdout, "%s is deleted.\n", id)
	}
	return nil
}

// confirm asks a person.
func (a *App) confirm(question string) error {
	if f, ok := a.Stdin.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		return usagef("nobody can be asked here: say --yes")
	}
	fmt.Fprintf(a.Stderr, "%s [y/N] ", question)
	line, err := bufio.NewReader(a.Stdin).ReadString('\n')
	if word := strings.ToLower(strings.TrimSpace(line)); err != nil || word != "y" && word != "yes" {
		return errors.New("nothing was done")
	}
	return nil
}
