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
	// Version is what the binary calls itself. Default: what the build says.
	Version string
	// Tools are made available to agents beside the built-in ones, by name.
	Tools map[string]tool.Tool
	// Stdin, Stdout and Stderr default to the process's.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// The exit codes. chat has some of its own.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// commands is the command line.
type commands struct {
	Serve    serveCommand    `cmd:"" help:"Run the server: the HTTP API, and the worker that carries runs."`
	Worker   workerCommand   `cmd:"" help:"Carry runs, and serve nobody: beside servers on the same store."`
	Chat     chatCommand     `cmd:"" help:"Talk to an agent in this terminal. Ctrl-C leaves; the run goes on."`
	Sessions sessionsCommand `cmd:"" help:"List, show and delete sessions."`
	Runs     runsCommand     `cmd:"" help:"List runs, and show what one did and when."`
	Tail     tailCommand     `cmd:"" help:"Print the events of a session's log, one JSON object a line."`
	Cancel   cancelCommand   `cmd:"" help:"Cancel a run, and wait until it has ended."`
	Retry    retryCommand    `cmd:"" help:"Go on from the step where a run failed or was cancelled."`
	Approve  approveCommand  `cmd:"" help:"Allow a tool call; without an id: list what waits for a decision."`
	Deny     denyCommand     `cmd:"" help:"Refuse a tool call; without an id: list what waits for a decision."`
	Resolve  resolveCommand  `cmd:"" help:"Say what a tool call did whose outcome nobody knows; without a run: list them."`
	Doctor   doctorCommand   `cmd:"" help:"Check a data folder or a database: every log whole, everything else equal to what its log says."`
	Version  versionCommand  `cmd:"" help:"Print the version."`
}

const description = `A durable runtime for AI agents: a run outlives the page, the connection and the process.

Begin with "holdfast serve", and in another terminal: holdfast chat "plan a trip to Lisbon"`

// Main runs the command line in this process and gives its exit code. The first
// interrupt asks the command to end in order, the second ends the process.
func Main(a App, args []string) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() { // as long as the process
		<-signals
		cancel()
		<-signals
		os.Exit(exitInterrupted)
	}()
	return Run(ctx, a, args)
}

// Run runs the command line until it is done or ctx ends. It gives the exit code:
// 0 for success, 1 for failure, 2 for a command line that makes no sense, and
// what the help of a command says.
func Run(ctx context.Context, a App, args []string) int {
	a = a.withDefaults()
	if len(args) == 0 {
		args = []string{"--help"}
	}
	var c commands
	exit := -1
	parser, err := kong.New(&c,
		kong.Name("holdfast"),
		kong.Description(description),
		kong.Writers(a.Stdout, a.Stderr),
		kong.Exit(func(code int) { exit = code }),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(&a),
		kong.Vars{"server": defaultServer},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
	)
	if err != nil {
		panic(err) // the command line's own definition is wrong
	}
	parsed, err := parser.Parse(args)
	if exit >= 0 {
		return exit
	}
	if err != nil {
		return a.misused(err)
	}
	return a.ended(parsed.Run())
}

func (a App) withDefaults() App {
	if a.Stdin == nil {
		a.Stdin = os.Stdin
	}
	if a.Stdout == nil {
		a.Stdout = os.Stdout
	}
	if a.Stderr == nil {
		a.Stderr = os.Stderr
	}
	if a.Version == "" {
		a.Version = buildVersion()
	}
	return a
}

// misused says what is wrong with the command line.
func (a App) misused(err error) int {
	help := "holdfast --help"
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil {
		if node := parse.Context.Selected(); node != nil {
			help = node.FullPath() + " --help"
		}
	}
	fmt.Fprintf(a.Stderr, "holdfast: %v\nTry: %s\n", err, help)
	return exitUsage
}

// ended tells how a command ended.
func (a App) ended(err error) int {
	var code exitError
	var wrong *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	case errors.Is(err, context.Canceled): // the person knows
		return exitInterrupted
	case errors.As(err, &wrong):
		fmt.Fprintf(a.Stderr, "holdfast: %v\n", wrong)
		return exitUsage
	}
	fmt.Fprintf(a.Stderr, "holdfast: %v\n", err)
	return exitFailed
}

// exitError ends the command with a code and no further word.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// usageError is a command line that makes no sense.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}
