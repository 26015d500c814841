package httptool

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

func TestWhatMakesNoSenseIsToldWhereItStands(t *testing.T) {
	sound := Config{URL: "https://tickets.example.com/do", Description: "Does it."}
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.URL = "" }, ": the tool needs a url"},
		{func(c *Config) { c.URL = "ftp://x" }, "url: a url begins with"},
		{func(c *Config) { c.URL = "https://:80" }, "url: a url begins with"},
		{func(c *Config) { c.URL = "https://a:b@x" }, "url: a url has no user"},
		{func(c *Config) { c.URL = "https://x/#a" }, "url: a url has no fragment"},
		{func(c *Config) { c.URL = "http://\x7f" }, "url: it is no URL"},
		{func(c *Config) { c.URL = "http://localhost:80" }, "url: localhost is not on the public internet"},
		{func(c *Config) { c.URL = "http://10.0.0.1/x" }, "url: 10.0.0.1 is not on the public internet"},
		{func(c *Config) { c.URL = "http://[fd00::1]/" }, "url: fd00::1 is not on the public internet"},
		{func(c *Config) { c.Description = " " }, ": the tool do needs a description"},
		{func(c *Config) { c.Effects = "none" }, `effects: unknown effects "none"`},
		{func(c *Config) { c.Parameters = map[string]any{"type": "string"} }, "parameters: the JSON Schema must have the type object"},
		{func(c *Config) { c.Parameters = map[string]any{"type": "obj"} }, "parameters: "},
		{func(c *Config) { c.Timeout = -1 }, "timeout: -1ns is negative"},
		{func(c *Config) { c.TryTimeout = -1 }, "tryTimeout: -1ns is negative"},
		{func(c *Config) { c.Timeout, c.TryTimeout = time.Second, time.Minute }, "tryTimeout: a try cannot take longer"},
		{func(c *Config) { c.Async = &Async{Timeout: -1} }, "async.timeout: -1ns is negative"},
		{func(c *Config) { c.Headers = map[string]string{"a b": "x"} }, "headers: \"a b\" is no name"},
		{func(c *Config) { c.Headers = map[string]string{"webhook-id": "x"} }, "headers.webhook-id: the header webhook-id is set by Holdfast"},
		{func(c *Config) { c.Headers = map[string]string{"X": "a\nb"} }, "headers.X: the value"},
		{func(c *Config) { c.HeadersEnv = map[string]string{"Host": "X"} }, "headersEnv.Host: the header"},
		{func(c *Config) { c.HeadersEnv = map[string]string{"X": "$X"} }, "headersEnv.X: it is the name of a variable"},
		{func(c *Config) {
			c.HeadersEnv, c.Headers = map[string]string{"X": "X"}, map[string]string{"X": "x"}
		}, "headersEnv.X: the header X is in headers as well"},
		{func(c *Config) { c.SecretEnv = "whsec_abc" }, "secretEnv: a secret does not stand here"},
	} {
		config, told := sound, []string{}
		c.change(&config)
		config.Check("do", func(path, format string, args ...any) {
			told = append(told, path+": "+fmt.Errorf(format, args...).Error())
		})
		if len(told) != 1 || !strings.HasPrefix(told[0], c.want) {
			t.Errorf("%q was told, not %q", told, c.want)
		}
	}
	sound.Check("do", func(path, format string, args ...any) { t.Errorf("%s: "+format, append([]any{path}, args...)...) })
	named := ""
	sound.Check("a.b", func(path, _ string, _ ...any) { named += "wrong" + path })
	if named != "wrong" {
		t.Errorf("the name a.b is told as %q", named)
	}
}

func TestAVariableThatIsMissingIsNamedAndNoneIsShown(t *testing.T) {
	for _, bad := range []string{"", "hunter2hunter2hunter2hunter2", secret, "whsec_c2hvcnQ=", "whsec_!!"} {
		t.Setenv("DO_SECRET", bad)
		_, err := New("do", Config{URL: "https://x.example.com", SecretEnv: "DO_SECRET"}, Options{})
		if err == nil || !strings.Contains(err.Error(), "DO_SECRET") || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	t.Setenv("DO_HEADER", "a\nb")
	for _, variable := range []string{"DO_HEADER", "DO_NOTHING"} {
		_, err := New("do", Config{URL: "https://x.example.com", HeadersEnv: map[string]string{"X": variable}}, Options{})
		if err == nil || !strings.Contains(err.Error(), variable) {
			t.Errorf("%s: %v", variable, err)
		}
	}
	if _, err := New("do", Config{URL: "https://x.example.com", Async: &Async{}}, Options{}); err == nil {
		t.Error("a tool is async without a callback URL")
	}
}

func TestAToolAsksAPersonUnlessItIsToldNotToOrOnlyReads(t *testing.T) {
	for _, c := range []struct {
		effects  session.Effects
		approval *tool.Policy
		asks     bool
	}{{"", nil, true}, {session.Idempotent, nil, true}, {session.ReadOnly, nil, false}, {session.Unsafe, &tool.Never, false}, {session.ReadOnly, &tool.Always, true}} {
		made, err := New("do", Config{URL: "https://x.example.com", Effects: c.effects, Approval: c.approval}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if spec := made.Spec(); spec.Approval.Needs(spec, nil) != c.asks {
			t.Errorf("%s with %v asks: %v", c.effects, c.approval, !c.asks)
		}
	}
}
