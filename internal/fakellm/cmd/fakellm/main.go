// Command fakellm serves the scripted model provider, for tests in other
// processes and for trying things by hand:
//
//	$ fakellm -listen 127.0.0.1:8099
//	http://127.0.0.1:8099
//	$ curl -d '{"turns":[{"steps":[{"text":["Hel","lo"]},{"cut":true}]}]}' http://127.0.0.1:8099/_script
//
// Its first line of output is its URL. It ends on SIGINT and SIGTERM.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/holdfast-run/holdfast/internal/fakellm"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "fakellm:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, out, complaints io.Writer) error {
	flags := flag.NewFlagSet("fakellm", flag.ContinueOnError)
	flags.SetOutput(complaints)
	listen := flags.String("listen", "127.0.0.1:0", "`address` to listen on; port 0 takes a free one")
	lenient := flags.Bool("lenient", false, "answer ill-formed histories in place of refusing them")
	keep := flags.Int("keep", 1000, "remember the content of the last `n` requests; 0 is all")
	if err := flags.Parse(args); err != nil {
		return err
	}
	server := fakellm.New(fakellm.Options{Lenient: *lenient, Keep: *keep})
	if err := server.Listen(*listen); err != nil {
		return err
	}
	defer server.Close()
	if _, err := fmt.Fprintln(out, server.URL()); err != nil {
		return fmt.Errorf("print the URL: %w", err)
	}
	<-ctx.Done()
	return nil
}
