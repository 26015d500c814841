package app

import (
	"os"
	"runtime"
	"sync"
)

// spareProcessor lets one goroutine more run at once than there are processors.
// The one that writes to the disk keeps its place while it waits there; where
// there is one processor only, everything else would wait with it. Whoever sets
// GOMAXPROCS has decided otherwise.
var spareProcessor = sync.OnceFunc(func() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	}
})
