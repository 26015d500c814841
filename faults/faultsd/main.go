// Command faultsd is the real holdfast binary with tools that misbehave when
// told to. Only the fault tests run it.
//
// Each tool appends one line to the file named by LEDGER at the moment of its
// effect, so that a test can count what really happened.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-run/holdfast/cmd/holdfast/app"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "mcp" {
		serveMCP()
	}
	tools := map[string]tool.Tool{}
	for _, t := range []tool.Tool{
		act("look", tool.WithEffects(session.ReadOnly)),
		act("put", tool.WithEffects(session.Idempotent)),
		act("charge", tool.WithEffects(session.Unsafe)),
		act("pay", tool.WithEffects(session.Unsafe), tool.WithApproval(tool.Always)),
		act("boom", tool.WithEffects(session.Idempotent)),
		act("deaf", tool.WithEffects(session.Unsafe), tool.WithTimeout(time.Second)),
		echo(), output(),
	} {
		tools[t.Spec().Name] = t
	}
	os.Exit(app.Main(app.App{Version: "faults", Tools: tools}, os.Args[1:]))
}

// wish is what a test wants of a call. All of it is optional.
type wish struct {
	Note   string          `json:"note,omitempty" jsonschema:"goes into the ledger"`
	MS     int             `json:"ms,omitempty" jsonschema:"how long the call takes after its effect, in milliseconds"`
	Before int             `json:"before,omitempty" jsonschema:"how long it takes before its effect, in milliseconds"`
	Gate   string          `json:"gate,omitempty" jsonschema:"wait before the effect until this URL has answered"`
	Die    string          `json:"die,omitempty" jsonschema:"kill the process: before or after the effect; once or always after it"`
	Fail   string          `json:"fail,omitempty" jsonschema:"fail with this message"`
	Result json.RawMessage `json:"result,omitempty" jsonschema:"the result, as JSON text in a string or as a value"`
}

// act is a tool with an effect. The name "deaf" makes it ignore its context.
func act(name string, options ...tool.Option) tool.Tool {
	schema := json.RawMessage(`{"type":"object","properties":{"note":{"type":"string"},"ms":{"type":"integer"},"before":{"type":"integer"},"gate":{"type":"string"},"die":{"type":"string"},"fail":{"type":"string"},"result":{}}}`)
	return tool.New(name, "A tool of the fault tests.", func(ctx context.Context, raw map[string]json.RawMessage, call tool.Call) (tool.Result, error) {
		var w wish
		all, err := json.Marshal(raw)
		if err == nil {
			err = json.Unmarshal(all, &w)
		}
		if err != nil {
			return tool.Result{}, err
		}
		if err := rest(ctx, w.Before, name == "deaf"); err != nil {
			return tool.Result{}, err
		}
		if err := pass(ctx, w.Gate); err != nil {
			return tool.Result{}, err
		}
		if w.Die == "before" {
			die()
		}
		first, err := ledger(name, w.Note, call)
		if err != nil {
			return tool.Result{}, err
		}
		if w.Die == "after" || w.Die == "always" || w.Die == "once" && first {
			die()
		}
		if err := rest(ctx, w.MS, name == "deaf"); err != nil {
			return tool.Result{}, err
		}
		if w.Fail != "" {
			return tool.Result{}, tool.Errorf("failed", "%s", w.Fail)
		}
		if w.Result == nil {
			return tool.Text(name + " done"), nil
		}
		var text string
		if json.Unmarshal(w.Result, &text) == nil && json.Valid([]byte(text)) && text != "" {
			return tool.Result{Value: json.RawMessage(text)}, nil
		}
		return tool.Result{Value: w.Result}, nil
	}, append([]tool.Option{tool.WithParameters(schema)}, options...)...)
}

func rest(ctx context.Context, ms int, deaf bool) error {
	if deaf {
		ctx = context.WithoutCancel(ctx)
	}
	timer := time.NewTimer(time.Duration(ms) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pass waits until the URL of a gate has answered. Without one it does nothing.
func pass(ctx context.Context, gate string) error {
	if gate == "" {
		return nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, gate, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// die is a crash: nothing is flushed, nothing is closed.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// ledger writes one line, durably, and says whether it is this key's first.
func ledger(name, note string, call tool.Call) (first bool, err error) {
	path := os.Getenv("LEDGER")
	before, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return false, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, "%s %s %s\n", name, call.IdempotencyKey, strings.ReplaceAll(note, "\n", " ")); err != nil {
		return false, err
	}
	return !strings.Contains(string(before), " "+call.IdempotencyKey+" "), f.Sync()
}

// echo gives its arguments back as they came.
func echo() tool.Tool {
	return tool.New("echo", "Gives its arguments back.", func(_ context.Context, _ map[string]json.RawMessage, call tool.Call) (tool.Result, error) {
		return tool.Result{Value: call.Arguments}, nil
	}, tool.WithParameters(json.RawMessage(`{"type":"object"}`)), tool.WithEffects(session.ReadOnly))
}

// output gives a text of many letters, or bytes that are no text.
func output() tool.Tool {
	type in struct {
		Letters int    `json:"letters,omitempty" jsonschema:"how many letters a"`
		Then    string `json:"then,omitempty" jsonschema:"what follows them"`
		Bytes   bool   `json:"bytes,omitempty" jsonschema:"bytes that are no UTF-8"`
		Fail    bool   `json:"fail,omitempty" jsonschema:"as an error"`
	}
	return tool.New("output", "Gives a long or broken text.", func(_ context.Context, in in, _ tool.Call) (string, error) {
		text := strings.Repeat("a", in.Letters) + in.Then
		if in.Bytes {
			text = "\xff\xfe\x00A\xc3(\x1b[31m" + text
		}
		if in.Fail {
			return "", tool.Errorf("failed", "%s", text)
		}
		return text, nil
	}, tool.WithEffects(session.ReadOnly))
}
