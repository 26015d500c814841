package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/term"

	"github.com/holdfast-run/holdfast/cmd/holdfast/chat"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/sqlite"
)

type doctorCommand struct {
	Data     string   `default:"data" env:"HOLDFAST_DATA" type:"path" placeholder:"DIR" help:"The data folder (${default}). A server may be using it."`
	Store    string   `env:"HOLDFAST_STORE" placeholder:"URL" help:"A PostgreSQL database, as postgres://user@host/database, instead of the data folder."`
	Sessions []string `arg:"" optional:"" name:"session" help:"Check these only. Default: all."`
}

// Run checks a data folder or a database as it is at this moment. It changes nothing.
func (c *doctorCommand) Run(ctx context.Context, a *App) error {
	s, err := StoreConfig{URL: c.Store}.examine(ctx, c.Data)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no Holdfast data in %s: name the folder with --data", c.Data)
	}
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // it was only read
	began := time.Now()
	d := &diagnosis{ctx: ctx, app: a, store: s, progress: progressOf(a.Stderr)}
	ids := c.Sessions
	if len(ids) == 0 {
		if file, ok := s.(*sqlite.Store); ok {
			d.progress("the database file")
			findings, err := file.Inspect(ctx)
			if err := d.report(filepath.Join(c.Data, "holdfast.db"), findings, err); err != nil {
				return err
			}
		}
		if ids, err = s.EverySession(ctx); err != nil {
			return err
		}
	}
	for i, id := range ids {
		d.progress("%d of %d sessions, %s", i, len(ids), count(d.found, "finding"))
		if err := d.session(id); err != nil {
			return err
		}
	}
	d.progress("")
	fmt.Fprintf(a.Stdout, "%s checked in %s: %s.\n", count(len(ids), "session"), chat.Short(time.Since(began)), count(d.found, "finding"))
	if d.found > 0 {
		return exitError(exitFailed)
	}
	return nil
}

// diagnosis is one look at a store.
type diagnosis struct {
	ctx      context.Context
	app      *App
	store    examined
	progress func(format string, args ...any)
	found    int
}

func (d *diagnosis) session(id string) error {
	findings, err := d.store.Check(d.ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		findings, err = []string{"something is stored of it, but it has no log"}, nil
	}
	return d.report(id, findings, err)
}

// report prints findings. What cannot be read is one too, unless the person stopped.
func (d *diagnosis) report(of string, findings []string, err error) error {
	if d.ctx.Err() != nil {
		return context.Cause(d.ctx)
	}
	if err != nil {
		findings = append(findings, err.Error())
	}
	if len(findings) > 0 {
		d.progress("")
	}
	for _, f := range findings {
		fmt.Fprintf(d.app.Stdout, "%s: %s\n", of, chat.Printable(f))
	}
	d.found += len(findings)
	return nil
}

// progressOf shows progress on one line of a terminal, and nothing elsewhere.
func progressOf(out io.Writer) func(format string, args ...any) {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return func(string, ...any) {}
	}
	var last time.Time
	return func(format string, args ...any) {
		if format != "" && time.Since(last) < 100*time.Millisecond {
			return
		}
		last = time.Now()
		fmt.Fprintf(f, "\r\x1b[K"+format, args...)
	}
}
