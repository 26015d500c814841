package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

func load(t *testing.T, text string) (Config, built, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "holdfast.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := readConfig(path, true)
	if err != nil {
		return c, built{}, err
	}
	made, err := c.build(t.TempDir(), nil)
	return c, made, err
}

func TestTheExampleLoadsAsItIs(t *testing.T) {
	for _, name := range []string{"OPENAI_API_KEY", "ANTHROPIC_API_KEY"} {
		t.Setenv(name, "")
	}
	raw, err := os.ReadFile("../../../holdfast.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, made, err := load(t, string(raw))
	if err != nil {
		t.Fatal(err)
	}
	if len(made.agents) != 2 || made.agents[0].Name != "demo" || made.agents[0].Tools.Len() != 9 {
		t.Errorf("it makes %+v", made.agents)
	}
	if c.Engine.Lease != 15*time.Second || c.Retention != time.Hour {
		t.Errorf("it says %+v", c.Engine)
	}

	// What it shows in comments is right as well.
	t.Setenv("OPENAI_API_KEY", "sk-test")
	var shown strings.Builder
	for l := range strings.Lines(string(raw)) {
		if strings.HasPrefix(l, "  # ") && !strings.HasPrefix(l, "  # A real model") {
			l = "  " + strings.TrimPrefix(l, "  # ")
		}
		shown.WriteString(l)
	}
	_, made, err = load(t, shown.String())
	if err != nil {
		t.Fatalf("%v\n%s", err, shown.String())
	}
	if len(made.agents) != 3 {
		t.Fatalf("with the comments it makes %d agents", len(made.agents))
	}
	real := made.agents[2]
	_, get, err := real.Tools.Lookup("http_get")
	if err != nil || get.Timeout != 20*time.Second {
		t.Errorf("http_get is %+v, %v", get, err)
	}
	for url, asks := range map[string]bool{"https://example.com": false, "http://example.com": true} {
		if got := get.Approval.Needs(get, session.JSONString(url)); !got { // no object: cannot be judged
			t.Error("arguments that cannot be judged need no approval")
		}
		args := `{"url":"` + url + `"}`
		if got := get.Approval.Needs(get, []byte(args)); got != asks {
			t.Errorf("%s needs an approval: %v", url, got)
		}
	}
	if _, write, err := real.Tools.Lookup("notes_write"); err != nil || write.Approval.String() != tool.Always.String() {
		t.Errorf("notes_write is %+v, %v", write, err)
	}
}

// Each configuration that a document shows works as it is printed.
func TestTheConfigurationsInTheDocumentsLoad(t *testing.T) {
	for _, name := range []string{"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "TRACKER_AUTHORIZATION", "TICKETS_SECRET"} {
		t.Setenv(name, "sk-test")
	}
	t.Setenv("TRIPS_SECRET", "whsec_YSBzZWNyZXQgb2YgdGhpcnR5LXR3byBieXRlcyEhISE=")
	pages, err := filepath.Glob("../../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, page := range append(pages, "../../../README.md") {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, piece := range strings.Split(string(raw), "```yaml\n")[1:] {
			text, _, _ := strings.Cut(piece, "```")
			if !strings.Contains(text, "agents:") {
				continue
			}
			tried++
			if _, made, err := load(t, text); err != nil || len(made.agents) == 0 {
				t.Errorf("%s: the configuration %d makes %+v, %v", filepath.Base(page), i+1, made.agents, err)
			}
		}
	}
	if tried < 6 {
		t.Errorf("only %d configurations were found", tried)
	}
}

func TestTheReadmesConfigurationLoads(t *testing.T) {
	raw, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(raw), "```yaml\n")
	text, _, found := strings.Cut(text, "```")
	if !found {
		t.Fatal("it has none")
	}
	t.Setenv("OPENAI_API_KEY", "sk-test")
	if _, made, err := load(t, text); err != nil || len(made.agents) == 0 {
		t.Errorf("it makes %+v, %v", made.agents, err)
	}
	t.Setenv("OPENAI_API_KEY", "")
	if _, _, err := load(t, text); err == nil || !strings.Contains(err.Error(), "OPENAI_API_KEY is not set") {
		t.Errorf("without the key: %v", err)
	}
}

func TestWithoutAFileThereIsTheDemoAgent(t *testing.T) {
	c, err := readConfig(filepath.Join(t.TempDir(), "holdfast.yaml"), false)
	if err != nil {
		t.Fatal(err)
	}
	made, err := c.build(t.TempDir(), nil)
	if err != nil || len(made.agents) != 2 || made.agents[0].Model != "demo/demo" {
		t.Errorf("it makes %+v, %v", made.agents, err)
	}
	if _, err := readConfig(filepath.Join(t.TempDir(), "other.yaml"), true); err == nil {
		t.Error("a file that was named and is missing is no error")
	}
	for _, empty := range []string{"", "# nothing\n", "agents:\n"} {
		if _, made, err := load(t, empty); err != nil || len(made.agents) != 2 {
			t.Errorf("%q makes %+v, %v", empty, made.agents, err)
		}
	}
}

// Each mistake is told with the line where it stands and what would be right.
func TestAMistakeIsToldWithItsLine(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"an unknown field": {"agents:\n  - name: a\n    modle: demo/demo\n", []string{"yaml:3:5: ", `unknown field "modle"`}},
		"an unknown field of a tool": {
			"agents:\n  - name: a\n    model: demo/demo\n    tools:\n      - clock\n      - {name: clock, aproval: always}\n",
			[]string{"yaml:6:23: ", `unknown field "aproval"`},
		},
		"a key that is there twice":      {"cancelGrace: 5s\ncancelGrace: 6s\n", []string{"yaml:2:1: ", `"cancelGrace" already defined`}},
		"no YAML":                        {"agents: [\n", []string{"yaml:1:9: "}},
		"two documents":                  {"cancelGrace: 5s\n---\ncancelGrace: 6s\n", []string{"more than one YAML document"}},
		"a store that is none":           {"store: {url: \"mysql://u:secret@h/d\"}\n", []string{"yaml:1:", "a store is a PostgreSQL database"}},
		"a database that makes no sense": {"store: {url: \"postgres://u:secret@h:port/d\"}\n", []string{"yaml:1:"}},
		"a wrong type":                   {"engine:\n  slots: many\n", []string{"yaml:2:10: "}},
		"a duration without a unit":      {"retention: 5\n", []string{"yaml:1:12: "}},
		"a duration that is none":        {"retention: 1h\nengine: {lease: soon}\n", []string{"yaml:2: ", `invalid duration "soon"`}},
		"an unknown policy": {
			"agents:\n  - name: a\n    model: demo/demo\n    tools:\n      - {name: clock, approval: sometimes}\n",
			[]string{"yaml:5:", `unknown approval policy "sometimes"`},
		},
		"a rule that is no schema": {
			"agents:\n  - name: a\n    model: demo/demo\n    tools:\n      - {name: clock, approval: {when: {type: 5}}}\n",
			[]string{"yaml:5:", "approval rule"},
		},
		"an unknown provider": {
			"agents:\n  - name: a\n    model: opneai/gpt\n", []string{"yaml:3: agents[0].model: ", `no provider "opneai", only demo`},
		},
		"a model without a provider": {"agents:\n  - name: a\n    model: gpt\n", []string{"yaml:3: agents[0].model: ", `"provider/name"`}},
		"no model":                   {"agents:\n  - name: a\n", []string{"yaml:2: agents[0]: ", "names no model"}},
		"no name":                    {"agents:\n  - model: demo/demo\n", []string{"yaml:2: agents[0].name: ", "1 to 64 letters"}},
		"two agents of a name": {
			"agents:\n  - name: a\n    model: demo/demo\n  - model: demo/demo\n    name: a\n", []string{"yaml:5: agents[1].name: ", `another agent "a"`},
		},
		"an unknown tool": {
			"agents:\n  - name: a\n    model: demo/demo\n    tools:\n      - clock\n      - clok\n",
			[]string{"yaml:6: agents[0].tools[1]: ", `no tool "clok": there are `, "calculator", "weather_sample"},
		},
		"a tool that is there twice": {
			"agents:\n  - name: a\n    model: demo/demo\n    tools: [clock, clock]\n", []string{"yaml:4: agents[0].tools[1]: ", "has clock already"},
		},
		"a negative limit": {
			"agents:\n  - name: a\n    model: demo/demo\n    limits:\n      steps: -1\n", []string{"yaml:5: agents[0].limits.steps: -1 is negative"},
		},
		"a window that holds nothing": {
			"agents:\n  - name: a\n    model: demo/demo\n    context:\n      window: 100\n",
			[]string{"yaml:5: agents[0].context.window: a window has at least 2048 tokens, not 100"},
		},
		"a reasoning that does not exist": {
			"agents:\n  - name: a\n    model: demo/demo\n    reasoning: hard\n", []string{"yaml:4: agents[0].reasoning: ", "low, medium or high"},
		},
		"a temperature out of range": {
			"agents:\n  - name: a\n    model: demo/demo\n    temperature: 3\n", []string{"yaml:4: agents[0].temperature: "},
		},
		"an HTTP tool with faults": {
			"http:\n  book:\n    url: http://10.0.0.1/\n    description: Books.\n    effects: none\n    parameters:\n      type: array\n    headers:\n      webhook-id: x\n",
			[]string{"yaml:3: http.book.url: 10.0.0.1 is not", "yaml:5: http.book.effects: unknown", "yaml:7: http.book.parameters: the JSON Schema", "yaml:9: http.book.headers.webhook-id: "},
		},
		"an HTTP tool whose name is taken": {"http:\n  clock:\n    url: https://x.example.com\n    description: d\n", []string{"yaml:3: http.clock: there is another tool"}},
		"an HTTP tool whose secret is not set": {
			"http:\n  book: {url: \"https://x.example.com\", description: d, secretEnv: HOLDFAST_TEST_NO_SUCH_SECRET}\nagents:\n  - name: a\n    model: demo/demo\n    tools: [book]\n",
			[]string{"yaml:6: agents[0].tools[0]: ", "HOLDFAST_TEST_NO_SUCH_SECRET is not set"},
		},
		"a misspelt field of an HTTP tool": {"http:\n  book:\n    uri: https://x.example.com\n", []string{"yaml:3:", "uri"}},
		"a public URL that is none":        {"server:\n  publicUrl: agents.example.com\n", []string{"yaml:2: server.publicUrl: a public URL is"}},
		"a lease that is too short":        {"engine:\n  poll: 1s\n  lease: 10ms\n", []string{"yaml:3: engine.lease: 10ms is too short: at least 1s"}},
		"a key in the place of a variable": {
			"providers:\n  p: {type: openai, apiKey: $OPENAI_API_KEY}\n", []string{"yaml:2: providers.p.apiKey: ", "apiKeyEnv: OPENAI_API_KEY"},
		},
		"an unknown type of provider": {"providers:\n  p:\n    type: opnai\n", []string{"yaml:", "providers.p: ", "openai-compatible"}},
		"a compatible provider without a URL": {
			"providers:\n  p:\n    type: openai-compatible\nagents:\n  - {name: a, model: p/x}\n", []string{"providers.p: ", "baseURL is missing"},
		},
		"a key that is not set": {
			"providers:\n  p: {type: openai, apiKeyEnv: HOLDFAST_TEST_NO_SUCH_KEY}\nagents:\n  - name: a\n    model: p/gpt\n",
			[]string{"yaml:5: agents[0].model: ", "HOLDFAST_TEST_NO_SUCH_KEY is not set"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := load(t, tc.text)
			if err == nil {
				t.Fatal("it was accepted")
			}
			if !strings.Contains(err.Error(), "holdfast.yaml:") {
				t.Errorf("the file is not named: %v", err)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("it does not say %q:\n%v", part, err)
				}
			}
		})
	}
}

func TestAllMistakesAreToldAtOnce(t *testing.T) {
	_, _, err := load(t, "agents:\n  - name: a b\n    model: x/y\n    tools: [clok, flacky]\n")
	if n := strings.Count(err.Error(), "holdfast.yaml:"); n != 4 {
		t.Errorf("%d are told:\n%v", n, err)
	}
}

func TestAKeyIsInNoErrorAndInNoLine(t *testing.T) {
	_, _, err := load(t, "providers:\n  p:\n    type: nonsense\n    apiKey: sk-very-secret\nagents:\n  - {name: a, model: p/x}\n")
	if err == nil || strings.Contains(err.Error(), "very-secret") {
		t.Errorf("got %v", err)
	}
	_, _, err = load(t, "providers:\n  p:\n    type: openai\n    apiKey: sk-very-secret\n    unknown: 1\n")
	if err == nil || strings.Contains(err.Error(), "very-secret") {
		t.Errorf("got %v", err)
	}
}
