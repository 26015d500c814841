// Command profiled is the holdfast binary with the runtime's profiles served on
// loopback: $PROFILE_ADDR, or 127.0.0.1:18101. It is for finding where the time
// goes, in the place of the binary in suts.json; no release carries it.
//
//	go tool pprof -top http://127.0.0.1:18101/debug/pprof/profile?seconds=10
package main

import (
	"cmp"
	"log"
	"net/http"
	_ "net/http/pprof" // serves itself on the default mux
	"os"

	"github.com/holdfast-run/holdfast/cmd/holdfast/app"
)

func main() {
	addr := cmp.Or(os.Getenv("PROFILE_ADDR"), "127.0.0.1:18101")
	go func() { log.Fatal(http.ListenAndServe(addr, nil)) }()
	os.Exit(app.Main(app.App{Version: "profiled"}, os.Args[1:]))
}
