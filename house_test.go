package holdfast_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/holdfast-run/holdfast"

// rooms says, for each room, which other rooms its code may know. What is not
// listed is free: cmd, examples, faults, bench and tests.
var rooms = map[string]string{
	"session":        "",
	"store":          "session",
	"store/memory":   "session store",
	"store/sqlite":   "session store store/internal/*",
	"store/postgres": "session store store/internal/*",
	"feed":           "session store",
	"feed/doorbell":  "session store",

	"feed/doorbell/postgres": "session store feed/doorbell",
	"feed/doorbell/redis":    "session store feed/doorbell",

	"model":           "session",
	"model/openai":    "session model model/internal/*",
	"model/anthropic": "session model model/internal/*",
	"model/demo":      "session model",
	"tool":            "session",
	"tool/builtin":    "session tool internal/netguard",
	"tool/http":       "session tool internal/netguard",
	"tool/callback":   "",
	"tool/demo":       "session tool",
	"tool/mcp":        "session tool",
	"agent":           "session model tool",
	"engine":          "session store agent model tool",
	"engine/local":    "session store agent engine",
	"engine/temporal": "session store agent engine",
	".":               "session store feed feed/doorbell agent engine model tool tool/callback",
	"server":          ". session store feed server/*",
	"server/aisdk":    "session",
	"web":             "",
}

// Every room's imports, so that the house stays as its plan says: what happened
// knows nothing, backends know only their contract, and nobody but cmd and tests names a backend.
func TestNoRoomKnowsMoreThanThePlanAllows(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "./...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	seen := map[string]bool{}
	for {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		room := roomOf(p.ImportPath)
		allowed, ruled := rooms[room]
		if !ruled {
			continue
		}
		seen[room] = true
		for _, path := range p.Imports {
			if !strings.HasPrefix(path, module) {
				continue
			}
			if other := roomOf(path); !allows(strings.Fields(allowed), other) {
				t.Errorf("%s imports %s; the plan allows it: %q", room, other, allowed)
			}
		}
	}
	for room := range rooms {
		if !seen[room] {
			t.Errorf("the plan names the room %s, but there is none", room)
		}
	}
}

func roomOf(path string) string {
	room := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
	if room == "" {
		return "."
	}
	return room
}

func allows(rules []string, room string) bool {
	return slices.ContainsFunc(rules, func(rule string) bool {
		if prefix, wild := strings.CutSuffix(rule, "*"); wild {
			return strings.HasPrefix(room, prefix)
		}
		return rule == room
	})
}
