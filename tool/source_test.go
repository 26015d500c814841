package tool

import (
	"context"
	"errors"
	"testing"
)

// comings is a source whose tools a test changes.
type comings struct{ names []string }

func (c *comings) Tools() []Tool {
	var tools []Tool
	for _, name := range c.names {
		tools = append(tools, New(name, "", func(context.Context, struct{}, Call) (string, error) { return name, nil }))
	}
	return tools
}

func (c *comings) Absent(name string) *Error {
	if name == "late" {
		return Errorf("unavailable", "It comes later.")
	}
	return nil
}

func TestASetHasTheToolsOfItsSourcesAsTheyAreWhenItIsAsked(t *testing.T) {
	own, err := NewSet((&comings{names: []string{"own"}}).Tools()...)
	if err != nil {
		t.Fatal(err)
	}
	c := &comings{names: []string{"a", "own", "no name", "a"}}
	set := own.With(c)
	before := set.Now()
	c.names = []string{"b"}
	after := set.Now()
	for name, want := range map[string]struct{ before, after bool }{"own": {true, true}, "a": {true, false}, "b": {false, true}} {
		_, _, err := before.Lookup(name)
		_, _, err2 := after.Lookup(name)
		if (err == nil) != want.before || (err2 == nil) != want.after {
			t.Errorf("%s: %v, then %v", name, err, err2)
		}
	}
	if before.Len() != 2 || after.Len() != 2 || own.Len() != 1 {
		t.Errorf("there are %d, %d and %d tools", before.Len(), after.Len(), own.Len())
	}
	_, _, err = after.Lookup("late")
	var told *Error
	if !errors.Is(err, ErrUnknownTool) || !errors.As(err, &told) || told.Code != "unavailable" {
		t.Errorf("a tool that is not there yet: %v", err)
	}
	if (*Set)(nil).Now() != nil || (*Set)(nil).With(c).Now().Len() != 1 {
		t.Error("a set without tools of its own")
	}
}
