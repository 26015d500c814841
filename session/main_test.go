package session_test

import (
	"flag"
	"os"
	"testing"
)

// The properties look at longer histories than rapid's defaults would give them. Flags still win.
func TestMain(m *testing.M) {
	flag.Parse()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range map[string]string{"rapid.checks": "200", "rapid.steps": "80"} {
		if !given[name] {
			if err := flag.Set(name, value); err != nil {
				panic(err)
			}
		}
	}
	os.Exit(m.Run())
}
