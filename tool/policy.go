package tool

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast/session"
)

// Policy says when a person must agree to a call before it is made. The zero
// value is [Never]. In JSON and YAML a policy is one of the texts "never",
// "always" and "unless_read_only", or an object {"when": SCHEMA}.
type Policy struct {
	name string // empty means never
	rule json.RawMessage
}

// The policies without a rule.
var (
	Never          = Policy{}
	Always         = Policy{name: "always"}
	UnlessReadOnly = Policy{name: "unless_read_only"} // ask unless the tool's effects are session.ReadOnly
)

// When asks if the arguments match rule, a JSON Schema. A rule that says nothing
// about an argument matches any value of it, so name in "required" what must be there:
//
//	{"properties": {"amount": {"minimum": 100}}, "required": ["amount"]}
func When(rule json.RawMessage) (Policy, error) {
	clean, err := session.CleanJSON(rule)
	if err == nil && clean[0] != '{' {
		err = fmt.Errorf("the rule must be a JSON Schema object, not %s", kindOf(clean))
	}
	if err == nil {
		_, err = compiled.get(clean)
	}
	if err == nil {
		err = exactBounds(clean)
	}
	if err != nil {
		return Policy{}, fmt.Errorf("tool: approval rule: %w", err)
	}
	return Policy{name: "when", rule: clean}, nil
}

// exactBounds refuses a limit that the validator would round: an approval rule
// that is off by one is no rule.
func exactBounds(rule json.RawMessage) error {
	value, err := decode(rule)
	if err != nil {
		return err
	}
	var find func(value any) error
	find = func(value any) error {
		switch v := value.(type) {
		case []any:
			for _, item := range v {
				if err := find(item); err != nil {
					return err
				}
			}
		case map[string]any:
			for _, keyword := range []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"} {
				if i, ok := v[keyword].(int64); ok && (i > 1<<53 || i < -1<<53) {
					return fmt.Errorf("%s %d is beyond 2^53 and cannot be compared exactly", keyword, i)
				}
			}
			for _, item := range v {
				if err := find(item); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return find(value)
}

// Needs says whether a call of the tool with these arguments waits for a
// person. Arguments are what [Validate] gave. What cannot be judged needs one.
func (p Policy) Needs(spec Spec, arguments json.RawMessage) bool {
	switch p.name {
	case "":
		return false
	case "unless_read_only":
		return spec.Effects != session.ReadOnly
	case "when":
		s, err := compiled.get(p.rule)
		if err != nil {
			return true
		}
		value, err := decode(arguments)
		return err != nil || s.check(value) == nil
	}
	return true
}

// String is the policy's text form; a rule is written as "when " and its schema.
func (p Policy) String() string {
	switch p.name {
	case "":
		return "never"
	case "when":
		return "when " + string(p.rule)
	}
	return p.name
}

// ParsePolicy reads "never", "always" or "unless_read_only".
func ParsePolicy(text string) (Policy, error) {
	for _, p := range []Policy{Never, Always, UnlessReadOnly} {
		if text == p.String() {
			return p, nil
		}
	}
	return Policy{}, fmt.Errorf("tool: unknown approval policy %q: use never, always, unless_read_only, or when with a JSON Schema", trim(text, 100))
}

// MarshalJSON writes the form that UnmarshalJSON reads.
func (p Policy) MarshalJSON() ([]byte, error) {
	if p.name == "when" {
		return json.Marshal(map[string]json.RawMessage{"when": p.rule})
	}
	return json.Marshal(p.String())
}

// UnmarshalJSON reads one of the three names or {"when": SCHEMA}.
func (p *Policy) UnmarshalJSON(text []byte) error {
	if strings.HasPrefix(strings.TrimSpace(string(text)), `"`) {
		var name string
		if err := json.Unmarshal(text, &name); err != nil {
			return err
		}
		parsed, err := ParsePolicy(name)
		if err == nil {
			*p = parsed
		}
		return err
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil || len(object) != 1 || object["when"] == nil {
		return fmt.Errorf("tool: an approval policy is never, always, unless_read_only, or an object with the one key when, not %s", quote(text))
	}
	parsed, err := When(object["when"])
	if err == nil {
		*p = parsed
	}
	return err
}

// UnmarshalYAML reads what UnmarshalJSON reads, written as YAML.
func (p *Policy) UnmarshalYAML(unmarshal func(any) error) error {
	var value any
	if err := unmarshal(&value); err != nil {
		return err
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("tool: approval policy: %w", err)
	}
	return p.UnmarshalJSON(text)
}
