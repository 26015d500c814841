package wire

import (
	"crypto/rand"
	"fmt"
)

// Fragment is one delta of a tool call as the chat completions wire has it: any
// of its fields may be missing.
type Fragment struct {
	Index     *int
	ID        string
	Name      string
	Arguments string
}

// Call is a tool call that is being streamed.
type Call struct {
	ID, Name string
	// Block is for the provider to number it.
	Block int
	// slot is the index on the wire, or noIndex.
	slot      int
	arguments Arguments
}

const noIndex = -1

// Calls joins the fragments of an answer's tool calls. Providers differ in what
// ties a fragment to its call: an index, an id, both, or only the order. Calls
// takes what cannot be misread, and refuses the rest: two calls are never mixed.
// It relies on two things that no provider is known to break: a call is over when
// its object is whole, and calls of one tool that have neither ids nor indexes do
// not interleave.
type Calls struct {
	all []*Call
}

// Any reports whether there was a call.
func (c *Calls) Any() bool { return len(c.all) > 0 }

// Add finds the call of a fragment, or begins one. A call without a name is one
// whose name is still to come; begun reports that it has its name since now. The
// error says how the fragments break the protocol.
func (c *Calls) Add(f Fragment) (call *Call, begun bool, err error) {
	call, err = c.find(f)
	if err != nil {
		return nil, false, err
	}
	if call == nil {
		if f.ID == "" && f.Name == "" {
			return nil, false, fmt.Errorf("a tool call fragment belongs to no call")
		}
		call = &Call{ID: f.ID, slot: f.slot()}
		if call.ID == "" {
			call.ID = "call_" + rand.Text()
		}
		c.all = append(c.all, call)
	}
	if call.Name == "" && f.Name != "" {
		call.Name = f.Name
		begun = true
	}
	if call.Name == "" && f.Arguments != "" {
		return nil, false, fmt.Errorf("the arguments of tool call %q come before its name", call.ID)
	}
	if !call.arguments.Add(f.Arguments) {
		return nil, false, fmt.Errorf("the arguments of two calls are welded together in tool call %q", call.ID)
	}
	return call, begun, nil
}

// Close reports a call that never got its name.
func (c *Calls) Close() error {
	for _, call := range c.all {
		if call.Name == "" {
			return fmt.Errorf("tool call %q has no name", call.ID)
		}
	}
	return nil
}

// find gives the call that f continues, nil if f begins one.
func (c *Calls) find(f Fragment) (*Call, error) {
	if f.ID != "" {
		return c.byID(f)
	}
	last := c.last(f.slot())
	switch {
	case last == nil, last.Name == "":
		return last, nil
	case f.Name != "" && last.arguments.Whole(), f.Name != "" && f.Name != last.Name && last.arguments.Empty():
		return nil, nil // The next call, of a provider that gives no ids.
	case f.Name != "" && f.Name != last.Name:
		return nil, fmt.Errorf("the name of tool call %q changes from %q to %q", last.ID, last.Name, f.Name)
	case c.shared(last):
		return nil, fmt.Errorf("a tool call fragment could belong to any of several calls")
	}
	return last, nil
}

func (c *Calls) byID(f Fragment) (*Call, error) {
	for _, call := range c.all {
		if call.ID != f.ID {
			continue
		}
		if f.Index != nil && *f.Index != call.slot {
			return nil, fmt.Errorf("two tool calls have the id %q", f.ID)
		}
		if f.Name != "" && call.Name != "" && f.Name != call.Name {
			return nil, fmt.Errorf("the name of tool call %q changes from %q to %q", f.ID, call.Name, f.Name)
		}
		return call, nil
	}
	return nil, nil
}

// last is the call that began last in a slot, or nil.
func (c *Calls) last(slot int) *Call {
	for i := len(c.all) - 1; i >= 0; i-- {
		if c.all[i].slot == slot {
			return c.all[i]
		}
	}
	return nil
}

// shared reports whether another call in the slot of this one may still grow.
func (c *Calls) shared(this *Call) bool {
	for _, call := range c.all {
		if call != this && call.slot == this.slot && !call.arguments.Whole() {
			return true
		}
	}
	return false
}

func (f Fragment) slot() int {
	if f.Index == nil {
		return noIndex
	}
	return *f.Index
}

// Arguments follows the raw argument text of one call, just far enough to know
// where a JSON object or array ends. It judges nothing else: text that is no
// JSON passes, for whoever runs the tool to refuse.
type Arguments struct {
	seen     bool
	whole    bool
	depth    int
	inString bool
	escaped  bool
}

// Empty reports that nothing but white space has come.
func (a *Arguments) Empty() bool { return !a.seen }

// Whole reports that a whole object or array has come.
func (a *Arguments) Whole() bool { return a.whole }

// Add takes the next fragment. It is false when a second object begins after a
// whole one: no model writes that, only two calls taken for one.
func (a *Arguments) Add(fragment string) bool {
	for i := 0; i < len(fragment); i++ {
		switch b := fragment[i]; {
		case b == ' ', b == '\n', b == '\t', b == '\r':
			a.escaped = false
			continue
		case a.whole:
			if b == '{' {
				return false
			}
		case a.escaped:
			a.escaped = false
		case a.inString:
			a.escaped = b == '\\'
			a.inString = b != '"'
		case b == '"':
			a.inString = true
		case b == '{', b == '[':
			a.depth++
		case a.depth > 0 && (b == '}' || b == ']'):
			a.depth--
			a.whole = a.depth == 0
		}
		a.seen = true
	}
	return true
}
