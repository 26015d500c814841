package simtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

// hands are the tools, and the ledger of what they did, which the runtime does not see.
type hands struct {
	world *world

	mu     sync.Mutex // guards what follows
	ledger []*deed
}

// deed is one call of a tool as the tool saw it.
type deed struct {
	call    tool.Call
	effects session.Effects
	at      time.Duration
	acted   time.Duration // when it had its effect; 0: it had none
	ended   bool
	result  json.RawMessage // what it gave, unless it failed
	failed  bool
}

func newHands(w *world) *hands { return &hands{world: w} }

// arguments are those of every tool.
type arguments struct {
	Turn   string `json:"turn"`
	N      int    `json:"n"`
	Pad    string `json:"pad,omitempty"`
	Edited string `json:"edited,omitempty"`
}

// guarded are the tools that a person must approve.
var guarded = map[string]bool{"ask": true, "wipe": true}

func (h *hands) set() *tool.Set {
	set, err := tool.NewSet(
		h.tool("look", session.ReadOnly, tool.Never),
		h.tool("put", session.Idempotent, tool.Never),
		h.tool("pay", session.Unsafe, tool.Never),
		h.tool("ask", session.Unsafe, tool.Always),
		h.tool("wipe", session.Idempotent, tool.UnlessReadOnly),
	)
	if err != nil {
		panic(err)
	}
	return set
}

func (h *hands) tool(name string, effects session.Effects, approval tool.Policy) tool.Tool {
	act := func(ctx context.Context, _ arguments, c tool.Call) (tool.Result, error) {
		return h.act(ctx, effects, c)
	}
	return tool.New(name, "A tool of the world.", act,
		tool.WithEffects(effects), tool.WithApproval(approval), tool.WithTimeout(15*time.Second))
}

// act is what every tool does: it waits, has its effect, waits again, and answers.
func (h *hands) act(ctx context.Context, effects session.Effects, c tool.Call) (tool.Result, error) {
	h.world.acts.Add(1)
	defer h.world.acts.Done()
	d := roll(h.world.plan.seed, "tool", c.Name, string(c.Arguments), c.Attempt)
	time.Sleep(d.span(0, time.Millisecond)) // calls that are started together do not come at one instant
	deed := &deed{call: c, effects: effects, at: h.world.since()}
	h.mu.Lock()
	h.ledger = append(h.ledger, deed)
	h.mu.Unlock()
	h.world.story.note("tool", "%s %s try %d begins", c.Name, c.ID, c.Attempt)
	result, err := h.perform(ctx, d, deed)
	h.mu.Lock()
	deed.ended, deed.result, deed.failed = true, result.Value, err != nil
	acted := deed.acted
	h.mu.Unlock()
	h.world.story.note("tool", "%s %s try %d ends, acted at %s, %v", c.Name, c.ID, c.Attempt, acted, err)
	return result, err
}

func (h *hands) perform(ctx context.Context, d dice, deed *deed) (tool.Result, error) {
	temper := h.world.plan.temper
	before, after := d.span(0, 300*time.Millisecond), d.span(0, 300*time.Millisecond)
	if d.chance(temper.slow) {
		before = d.span(0, 12*time.Second)
	}
	if d.chance(temper.slow) {
		after = d.span(0, 12*time.Second)
	}
	deaf := d.chance(temper.deaf)
	wait := func(long time.Duration) error {
		for pieces := 1 + d.upTo(2); pieces > 0; pieces-- {
			if deaf {
				time.Sleep(long / 2)
			} else if err := pause(ctx, long/2); err != nil {
				return err
			}
			deed.call.Progress(session.Progress{Message: "on the way", Fraction: d.Float64()})
		}
		return nil
	}
	if err := wait(before); err != nil {
		return tool.Result{}, err
	}
	if d.chance(temper.fails / 2) {
		return tool.Result{}, pick(d, error(tool.Errorf("full", "There is no room.")), errors.New("it did not work\xff"), errors.New(""))
	}
	h.mu.Lock()
	deed.acted = h.world.since()
	h.mu.Unlock()
	if err := wait(after); err != nil {
		return tool.Result{}, err
	}
	switch {
	case d.chance(temper.fails / 4):
		panic("the tool breaks")
	case d.chance(temper.large):
		return tool.Text(strings.Repeat("much ", d.IntN(60_000))), nil
	case d.chance(temper.odd / 2):
		return pick(d, tool.Result{}, tool.Text(""), tool.Text(" \n"), tool.Result{Value: json.RawMessage(`{"a":[1,2.50,null]}`)}, tool.Result{Value: json.RawMessage(`{`)}), nil
	}
	return tool.Text(fmt.Sprintf("done %s try %d", deed.call.ID, deed.call.Attempt)), nil
}

// deeds are what the tools did.
func (h *hands) deeds() []deed {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]deed, len(h.ledger))
	for i, d := range h.ledger {
		list[i] = *d
	}
	return list
}
