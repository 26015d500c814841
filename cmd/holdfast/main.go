// Command holdfast is the whole of Holdfast in one binary: the server, and the
// commands to talk to it.
package main

import (
	"os"

	"github.com/holdfast-run/holdfast/cmd/holdfast/app"
)

// version is set by the linker in releases; else the build says what it is.
var version string

func main() {
	os.Exit(app.Main(app.App{Version: version}, os.Args[1:]))
}
