package tool

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/session"
)

var namePattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// Set is the tools of an agent, in order, each under a name of its own. It does
// not change, and is safe for concurrent use. A nil Set has no tools. Tools that
// come and go are in it after [Set.Now].
type Set struct {
	specs   []Spec
	byName  map[string]member
	sources []Source
}

type member struct {
	tool Tool
	spec Spec
}

// NewSet makes a set. It refuses a name that is taken or does not match
// ^[a-zA-Z0-9_-]{1,64}$, parameters that are no JSON Schema of type object,
// and effects that do not exist.
func NewSet(tools ...Tool) (*Set, error) {
	for i, t := range tools {
		if t == nil {
			return nil, fmt.Errorf("tool %d of the set is nil", i+1)
		}
	}
	return (&Set{byName: map[string]member{}}).And(tools...)
}

// And is the set with more tools behind its own. It refuses what [NewSet] refuses.
func (s *Set) And(tools ...Tool) (*Set, error) {
	if s != nil && len(tools) == 0 {
		return s, nil
	}
	all := &Set{byName: map[string]member{}}
	if s != nil {
		all.specs, all.byName, all.sources = slices.Clone(s.specs), maps.Clone(s.byName), s.sources
	}
	if all.byName == nil { // of sources alone
		all.byName = map[string]member{}
	}
	for _, t := range tools {
		if err := all.add(t); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// add is for sets that nobody else holds yet.
func (s *Set) add(t Tool) error {
	spec, err := t.Spec().settle()
	if err != nil {
		return fmt.Errorf("tool %q: %w", trim(spec.Name, 100), err)
	}
	if _, taken := s.byName[spec.Name]; taken {
		return fmt.Errorf("tool %q: the name is taken by another tool of the set", spec.Name)
	}
	s.byName[spec.Name] = member{t, spec}
	s.specs = append(s.specs, spec)
	return nil
}

// Lookup finds a tool and its spec, with defaults filled in. The error for a
// name that is not in the set wraps [ErrUnknownTool] and is an *[Error] that
// tells the model which tools there are, or why a [Source] has not got it now.
func (s *Set) Lookup(name string) (Tool, Spec, error) {
	if s != nil {
		if m, ok := s.byName[name]; ok {
			return m.tool, m.spec, nil
		}
	}
	if told := s.absent(name); told != nil {
		return nil, Spec{}, &unknownToolError{told}
	}
	return nil, Spec{}, &unknownToolError{Errorf(CodeUnknownTool, "There is no tool %s. %s", quote([]byte(name)), s.choices())}
}

func (s *Set) choices() string {
	if s.Len() == 0 {
		return "You have no tools."
	}
	names := make([]string, 0, s.Len())
	for _, spec := range s.specs {
		names = append(names, spec.Name)
	}
	return "The tools are: " + trim(strings.Join(names, ", "), 2000) + "."
}

// unknownToolError is both ErrUnknownTool and the *Error the model reads.
type unknownToolError struct{ told *Error }

func (e *unknownToolError) Error() string   { return e.told.Message }
func (e *unknownToolError) Unwrap() []error { return []error{ErrUnknownTool, e.told} }

// Specs describes the tools in order, with defaults filled in.
func (s *Set) Specs() []Spec {
	if s == nil {
		return nil
	}
	return slices.Clone(s.specs)
}

// Len is how many tools there are.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return len(s.specs)
}

// settle fills the defaults in and checks the rest.
func (spec Spec) settle() (Spec, error) {
	spec.Parameters = spec.parameters()
	spec.Effects = cmp.Or(spec.Effects, session.Unsafe)
	spec.Timeout = cmp.Or(spec.Timeout, DefaultTimeout)
	if !namePattern.MatchString(spec.Name) {
		return spec, fmt.Errorf("the name must match %s", namePattern)
	}
	switch spec.Effects {
	case session.ReadOnly, session.Idempotent, session.Unsafe:
	default:
		return spec, fmt.Errorf("unknown effects %q: use read_only, idempotent or unsafe", spec.Effects)
	}
	if spec.Timeout < 0 {
		return spec, fmt.Errorf("the timeout %s is negative", spec.Timeout)
	}
	s, err := compiled.get(spec.Parameters)
	if err != nil {
		return spec, fmt.Errorf("parameters: %w", err)
	}
	if s.root.Type != "object" {
		return spec, errors.New("parameters: the JSON Schema must have the type object")
	}
	return spec, nil
}

// parameters is the schema of the arguments; none given means no arguments.
func (spec Spec) parameters() json.RawMessage {
	if len(spec.Parameters) == 0 {
		return json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`)
	}
	return spec.Parameters
}
