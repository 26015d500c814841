// Package app is the holdfast command: flags, configuration, wiring and
// signals. It is the only place that names concrete backends, and it is a
// package of its own so that a test can run the real thing with tools of its own.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/holdfast-run/holdfast/tool"
)

// App is what differs between the real binary and one built for a test.
type App struct {
	Version string
	// Tools are made available to agents beside the built-in ones, by name.
	Tools map[string]tool.Tool
	// Stdout and Stderr default to the process's.
	Stdout, Stderr io.Writer
}

// commands is the command line.
type commands struct {
	Serve   serveCommand   `cmd:"" help:"Run the server: the HTTP API and the worker that carries runs."`
	Version versionCommand `cmd:"" help:"Print the version."`
}

// Main runs the command line and gives the exit code: 0 for success, 1 for
// failure, 2 for a command line that makes no sense.
func Main(a App, args []string) int {
	if a.Stdout == nil {
		a.Stdout = os.Stdout
	}
	if a.Stderr == nil {
		a.Stderr = os.Stderr
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	var c commands
	exit := -1
	parser, err := kong.New(&c,
		kong.Name("holdfast"),
		kong.Description("A durable runtime for AI agents: runs outlive the page, the connection and the process."),
		kong.Writers(a.Stdout, a.Stderr),
		kong.Exit(func(code int) { exit = code }),
		kong.UsageOnError(),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(&a),
		kong.DefaultEnvars("HOLDFAST"),
	)
	if err != nil {
		panic(err) // the command line's own definition is wrong
	}
	parsed, err := parser.Parse(args)
	if exit >= 0 {
		return exit
	}
	if err != nil {
		fmt.Fprintf(a.Stderr, "holdfast: %v\nTry holdfast --help.\n", err)
		return 2
	}
	err = parsed.Run()
	var quiet *exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &quiet):
		return quiet.code
	}
	fmt.Fprintf(a.Stderr, "holdfast: %v\n", err)
	return 1
}

// exitError ends the command with a code and no further word.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit %d", e.code) }

type versionCommand struct{}

func (versionCommand) Run(a *App) error {
	_, err := fmt.Fprintln(a.Stdout, "holdfast", a.Version)
	return err
}
