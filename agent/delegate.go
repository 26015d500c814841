package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

// Delegate is an agent as a tool of another: a call is a task, and its work a run
// of the agent in a session of its own. The engine begins that run; nobody holds
// anything until it has ended.
type Delegate struct{ name, description string }

// taskSchema is what a subagent is asked for.
const taskSchema = `{"type":"object","properties":{"task":{"type":"string","minLength":1,"description":"The whole task, with everything that is needed to do it: the subagent sees nothing of this conversation."}},"required":["task"],"additionalProperties":false}`

// Spec describes it: the name is the agent's. A call may be made again: it is the same run then.
func (d Delegate) Spec() tool.Spec {
	description := strings.TrimSpace(d.description)
	if description == "" {
		description = fmt.Sprintf("The agent %s.", d.name)
	}
	return tool.Spec{
		Name: d.name, Effects: session.Idempotent, Parameters: json.RawMessage(taskSchema),
		Description: description + " Give it a task; its answer is the result. Several may work at the same time.",
	}
}

// Agent names the agent that does the work.
func (d Delegate) Agent() string { return d.name }

// Task is what a call asks for.
func (d Delegate) Task(arguments json.RawMessage) (string, error) {
	var asked struct{ Task string }
	err := json.Unmarshal(arguments, &asked)
	return asked.Task, err
}

// Call is never made: the engine begins a run instead.
func (d Delegate) Call(context.Context, tool.Call) (tool.Result, error) {
	return tool.Result{}, fmt.Errorf("agent: the run of the subagent %s is not begun by a call", d.name)
}

// join gives each agent its subagents as tools.
func (b *Book) join() error {
	for i := range b.agents {
		a := &b.agents[i]
		var subagents []tool.Tool
		for _, name := range a.Subagents {
			at := slices.IndexFunc(b.agents, func(to Agent) bool { return to.Name == name })
			if at < 0 {
				return fmt.Errorf("agent %s: there is no agent %q to be its subagent", a.Name, name)
			}
			subagents = append(subagents, Delegate{name: name, description: b.agents[at].Description})
		}
		var err error
		if a.Tools, err = a.Tools.And(subagents...); err != nil {
			return fmt.Errorf("agent %s: %w", a.Name, err)
		}
	}
	return nil
}
