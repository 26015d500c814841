package tool

import (
	"encoding/json"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/holdfast-run/holdfast/session"
)

func when(t *testing.T, rule string) Policy {
	t.Helper()
	p, err := When(json.RawMessage(rule))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAPolicySaysWhichCallsWaitForAPerson(t *testing.T) {
	payment := when(t, `{"properties":{"amount":{"minimum":100}},"required":["amount"]}`)
	account := when(t, `{"properties":{"id":{"const":2512292042121000001}},"required":["id"]}`)
	path := when(t, `{"properties":{"path":{"pattern":"^/etc/"}},"required":["path"]}`)
	for _, c := range []struct {
		policy  Policy
		effects session.Effects
		args    string
		want    bool
	}{
		{Never, session.Unsafe, `{}`, false},
		{Policy{}, session.Unsafe, `{}`, false},
		{Always, session.ReadOnly, `{}`, true},
		{UnlessReadOnly, session.ReadOnly, `{}`, false},
		{UnlessReadOnly, session.Idempotent, `{}`, true},
		{UnlessReadOnly, session.Unsafe, `{}`, true},
		{UnlessReadOnly, "", `{}`, true},
		{payment, session.Unsafe, `{"amount":100}`, true},
		{payment, session.Unsafe, `{"amount":1e2}`, true},
		{payment, session.Unsafe, `{"amount":99.99}`, false},
		{payment, session.Unsafe, `{}`, false},
		{payment, session.Unsafe, `{"amount":123456789012345678901234567890}`, true},
		{account, session.Unsafe, `{"id":2512292042121000001}`, true},
		{account, session.Unsafe, `{"id":2512292042121000002}`, false},
		{path, session.Unsafe, `{"path":"/etc/hosts"}`, true},
		{path, session.Unsafe, `{"path":"\/etc/hosts"}`, true},
		{path, session.Unsafe, `{"path":"/home"}`, false},
		{path, session.Unsafe, `{"path":"/home","path":"/etc/hosts"}`, true},
		{path, session.Unsafe, `not JSON`, true},
	} {
		if got := c.policy.Needs(Spec{Effects: c.effects}, json.RawMessage(c.args)); got != c.want {
			t.Errorf("%s for a tool that is %s with %s: %v, want %v", c.policy, c.effects, c.args, got, c.want)
		}
	}
}

func TestAPolicyComesBackFromItsTextForm(t *testing.T) {
	for _, p := range []Policy{Never, Always, UnlessReadOnly, when(t, `{"properties":{"id":{"const":2512292042121000001}},"required":["id"]}`)} {
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var back Policy
		if err := json.Unmarshal(text, &back); err != nil || back.String() != p.String() {
			t.Errorf("%s came back as %s: %v", text, back, err)
		}
	}
}

func TestAPolicyIsReadFromYAML(t *testing.T) {
	var config struct {
		Approval map[string]Policy `yaml:"approval"`
	}
	err := yaml.Unmarshal([]byte(`
approval:
  a: always
  b: unless_read_only
  c: never
  d:
    when:
      required: [id, amount]
      properties:
        id: {const: 2512292042121000001}
        amount: {exclusiveMinimum: 0.5}
`), &config)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a": "always", "b": "unless_read_only", "c": "never"} {
		if got := config.Approval[name].String(); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if d := config.Approval["d"]; !d.Needs(Spec{}, json.RawMessage(`{"id":2512292042121000001,"amount":0.6}`)) ||
		d.Needs(Spec{}, json.RawMessage(`{"id":2512292042121000002,"amount":0.6}`)) ||
		d.Needs(Spec{}, json.RawMessage(`{"id":2512292042121000001,"amount":0.5}`)) {
		t.Errorf("the rule %s decides wrongly", d)
	}
}

func TestAWrongPolicyIsRefusedAndChangesNothing(t *testing.T) {
	for _, text := range []string{
		`"sometimes"`, `""`, `7`, `[]`, `{}`, `{"when":7}`, `{"when":{"type":7}}`, `{"when":{},"unless":{}}`,
		`{"when":{"properties":{"n":{"minimum":9007199254740995}}}}`,
	} {
		p := Always
		if err := json.Unmarshal([]byte(text), &p); err == nil || p.String() != "always" {
			t.Errorf("%s was read as %s: %v", text, p, err)
		}
	}
}
