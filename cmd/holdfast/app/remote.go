package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/holdfast-run/holdfast/cmd/holdfast/chat"
	"github.com/holdfast-run/holdfast/cmd/holdfast/client"
	"github.com/holdfast-run/holdfast/server/api"
)

const defaultServer = "http://127.0.0.1:8787"

// remote is the flag of all commands that ask a server.
type remote struct {
	Server string `default:"${server}" env:"HOLDFAST_SERVER" placeholder:"URL" help:"The server to ask (${server})."`
}

func (r remote) client() (*client.Client, error) {
	c, err := client.New(r.Server)
	if err != nil {
		return nil, usagef("%v", err)
	}
	return c, nil
}

// command is another command that reaches the same server, as the person would type it.
func (r remote) command(command string) string {
	name, rest, _ := strings.Cut(command, " ")
	words := []string{program(), name}
	if r.Server != defaultServer && r.Server != os.Getenv("HOLDFAST_SERVER") {
		words = append(words, "--server", r.Server)
	}
	if rest != "" {
		words = append(words, rest)
	}
	return strings.Join(words, " ")
}

// program is how the person called us, if that is short enough to be told.
func program() string {
	if name := os.Args[0]; strings.HasSuffix(name, "holdfast") && len(name) < 40 {
		return name
	}
	return "holdfast"
}

// about is explain for an error that concerns one thing, which the error may not name.
func (r remote) about(id string, err error) error {
	var p *api.Problem
	if errors.As(err, &p) && p.Code == api.NotFound {
		return fmt.Errorf("%s: %w", id, r.explain(err))
	}
	return r.explain(err)
}

// explain turns an error of the API into what a person can do about it.
func (r remote) explain(err error) error {
	var gone *client.UnreachableError
	var p *api.Problem
	switch {
	case err == nil:
		return nil
	case errors.As(err, &gone):
		return fmt.Errorf("%w\nStart the server with \"%s serve\", or name another with --server", err, program())
	case errors.As(err, &p):
		text := err.Error()
		for _, e := range p.Errors {
			if !strings.Contains(text, e.Message) {
				text += fmt.Sprintf("\n  %s: %s", e.Field, e.Message)
			}
		}
		return errors.New(chat.Printable(text))
	}
	return err
}

// output is the flag of commands that print lists.
type output struct {
	JSON bool `name:"json" help:"Print JSON, one object a line."`
}

// table prints rows under a head, or each item as JSON.
func table[T any](o output, out io.Writer, items []T, head string, row func(T) []string) error {
	if o.JSON {
		for _, item := range items {
			if err := printJSON(out, item); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if len(items) > 0 {
		fmt.Fprintln(w, head)
	}
	for _, item := range items {
		cells := row(item)
		for i := range cells {
			cells[i] = chat.Printable(cells[i])
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	return w.Flush()
}

// printJSON prints a value on one line, without HTML escapes.
func printJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// cell makes a text one line of at most so many characters.
func cell(text string, most int) string {
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return string(runes)
}

// when is a time as people want it: today's without the date.
func when(t time.Time) string {
	t = t.Local()
	if y, m, d := t.Date(); t.IsZero() || time.Since(t) > 24*time.Hour || d != time.Now().Day() {
		return fmt.Sprintf("%d-%02d-%02d %02d:%02d", y, m, d, t.Hour(), t.Minute())
	}
	return t.Format("15:04:05")
}

// more says that a list was cut.
func more(a *App, o output, next string) {
	if next != "" && !o.JSON {
		fmt.Fprintln(a.Stderr, "There are more: use --limit.")
	}
}

// everything reads pages until there are limit items (0: no limit), and says whether there are more.
func everything[T any](limit int, page func(client.Page) ([]T, string, error)) (items []T, next string, err error) {
	for {
		p := client.Page{Cursor: next, Limit: 200}
		if limit > 0 {
			p.Limit = min(p.Limit, limit-len(items))
		}
		var some []T
		if some, next, err = page(p); err != nil {
			return nil, "", err
		}
		items = append(items, some...)
		if next == "" || limit > 0 && len(items) >= limit {
			return items, next, nil
		}
	}
}
