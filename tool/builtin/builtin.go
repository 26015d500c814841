// Package builtin has the tools that come with Holdfast: clock, calculator,
// http_get, notes_list, notes_read, notes_write and notes_delete.
//
// Each touches only what its [Config] gives it: http_get only addresses of the
// public internet and hosts that are named, the notes tools only one folder.
package builtin

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/tool"
)

// Config says what the built-in tools may touch.
type Config struct {
	// NotesDir is the folder of the notes tools; everyone who may use the agent
	// shares it. It is created if it is missing. Without it there are no notes tools.
	NotesDir string
	// HTTP bounds http_get.
	HTTP HTTPConfig
	// Now is the clock's time. Default: time.Now.
	Now func() time.Time
}

var makers = []struct {
	name string
	make func(Config) (tool.Tool, error)
}{
	{"clock", func(c Config) (tool.Tool, error) { return Clock(c.Now), nil }},
	{"calculator", func(Config) (tool.Tool, error) { return Calculator(), nil }},
	{"http_get", func(c Config) (tool.Tool, error) { return HTTPGet(c.HTTP) }},
	{"notes_list", notesTool((*Notes).List)},
	{"notes_read", notesTool((*Notes).Read)},
	{"notes_write", notesTool((*Notes).Write)},
	{"notes_delete", notesTool((*Notes).Delete)},
}

func notesTool(of func(*Notes) tool.Tool) func(Config) (tool.Tool, error) {
	return func(c Config) (tool.Tool, error) {
		if c.NotesDir == "" {
			return nil, fmt.Errorf("the notes tools need a folder, and none is configured")
		}
		notes, err := OpenNotes(c.NotesDir)
		if err != nil {
			return nil, err
		}
		return of(notes), nil
	}
}

// Names lists the built-in tools.
func Names() []string {
	var names []string
	for _, m := range makers {
		names = append(names, m.name)
	}
	return names
}

// ByName makes a built-in tool. The error for a name that is none of [Names]
// wraps [tool.ErrUnknownTool]; others say what the configuration lacks.
func ByName(name string, config Config) (tool.Tool, error) {
	for _, m := range makers {
		if m.name == name {
			t, err := m.make(config)
			if err != nil {
				return nil, fmt.Errorf("built-in tool %s: %w", name, err)
			}
			return t, nil
		}
	}
	names := slices.Sorted(slices.Values(Names()))
	return nil, fmt.Errorf("%w: %q is not built in; the built-in tools are %s", tool.ErrUnknownTool, name, strings.Join(names, ", "))
}
