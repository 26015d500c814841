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
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/holdfast-run/holdfast/internal/fakellm"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "`address` to listen on; port 0 takes a free one")
	lenient := flag.Bool("lenient", false, "answer ill-formed histories in place of refusing them")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server := fakellm.New(fakellm.Options{Lenient: *lenient})
	if err := server.Listen(*listen); err != nil {
		fmt.Fprintln(os.Stderr, "fakellm:", err)
		os.Exit(1)
	}
	defer server.Close()
	fmt.Println(server.URL())
	<-ctx.Done()
}
