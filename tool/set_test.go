package tool

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/session"
)

// fixed is a tool with a given spec and behaviour.
type fixed struct {
	spec Spec
	call func(context.Context, Call) (Result, error)
}

func (f fixed) Spec() Spec { return f.spec }

func (f fixed) Call(ctx context.Context, call Call) (Result, error) { return f.call(ctx, call) }

func named(name string) Tool { return fixed{spec: Spec{Name: name}} }

func TestASetKeepsItsOrderAndFillsDefaultsIn(t *testing.T) {
	set, err := NewSet(named("b"), named("a"), fixed{spec: Spec{Name: "c-1_X", Effects: session.ReadOnly, Timeout: 5}})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range set.Specs() {
		names = append(names, s.Name)
	}
	if got := strings.Join(names, " "); got != "b a c-1_X" || set.Len() != 3 {
		t.Errorf("the order is %s", got)
	}
	_, s, err := set.Lookup("a")
	if err != nil || s.Effects != session.Unsafe || s.Timeout != DefaultTimeout || !json.Valid(s.Parameters) {
		t.Errorf("Lookup = %+v, %v", s, err)
	}
	if _, s, _ := set.Lookup("c-1_X"); s.Effects != session.ReadOnly || s.Timeout != 5 {
		t.Errorf("Lookup = %+v", s)
	}
}

func TestAnUnknownNameIsAnsweredWithTheNamesThereAre(t *testing.T) {
	set, err := NewSet(named("clock"), named("notes_read"))
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = set.Lookup("time\"\x00")
	var told *Error
	if !errors.Is(err, ErrUnknownTool) || !errors.As(err, &told) || told.Code != CodeUnknownTool || !strings.Contains(told.Message, "clock, notes_read") {
		t.Errorf("Lookup = %v", err)
	}
	var none *Set
	if _, _, err := none.Lookup("clock"); !errors.Is(err, ErrUnknownTool) || none.Len() != 0 || none.Specs() != nil {
		t.Errorf("a nil set answers %v", err)
	}
}

func TestASetRefusesWhatAProviderWouldRefuse(t *testing.T) {
	for why, tools := range map[string][]Tool{
		"taken":            {named("a"), named("a")},
		"must match":       {named("a b")},
		"match":            {named("")},
		"must match ^":     {named(strings.Repeat("a", 65))},
		"nil":              {nil},
		"effects":          {fixed{spec: Spec{Name: "a", Effects: "harmless"}}},
		"negative":         {fixed{spec: Spec{Name: "a", Timeout: -1}}},
		"type object":      {fixed{spec: Spec{Name: "a", Parameters: json.RawMessage(`{"type":"string"}`)}}},
		"the type object":  {fixed{spec: Spec{Name: "a", Parameters: json.RawMessage(`{}`)}}},
		"parameters: JSON": {fixed{spec: Spec{Name: "a", Parameters: json.RawMessage(`{`)}}},
	} {
		if _, err := NewSet(tools...); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("NewSet = %v, which should hold %q", err, why)
		}
	}
}
