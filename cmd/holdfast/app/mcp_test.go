package app

import (
	"strings"
	"testing"
)

func TestFaultsOfMCPServersAreNamedWithTheirLine(t *testing.T) {
	c, err := parseConfig("holdfast.yaml", []byte(`
mcp:
  files:
    command: [node, server.js]
    effects: harmless
  notes: {url: "ftp://example.com"}
  lost: {}
agents:
  - name: a
    model: demo/demo
    tools: [notes_list]
    mcp: [files, notes, nobody, files]
`))
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.build(t.TempDir(), nil)
	if err == nil {
		t.Fatal("it is taken")
	}
	for _, want := range []string{
		`holdfast.yaml:5: mcp.files.effects: unknown effects "harmless"`,
		`holdfast.yaml:6: mcp.notes.url: a url begins with http`,
		`holdfast.yaml:7: mcp.lost: the MCP server lost needs a command or a url`,
		`agents[0].mcp[1]: the agent's tool notes_list is named like one of the MCP server notes`,
		`agents[0].mcp[2]: there is no MCP server "nobody": there are files, lost, notes`,
		`agents[0].mcp[3]: the agent has files already`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("not said: %s\n%v", want, err)
		}
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != 6 {
		t.Errorf("%d faults are told:\n%v", n, err)
	}
}

func TestAnUnknownFieldOfAnMCPServerIsRefused(t *testing.T) {
	if _, err := parseConfig("holdfast.yaml", []byte("mcp:\n  files:\n    comand: [node]\n")); err == nil || !strings.Contains(err.Error(), "comand") {
		t.Errorf("it says %v", err)
	}
}
