package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
)

// matter is something that only a person can decide: an approval, or the
// outcome of a call that nobody knows.
type matter struct {
	approval *session.Approval
	run      string
	call     *session.ToolCall
}

// id tells matters apart.
func (m matter) id() string {
	if m.approval != nil {
		return m.approval.ID
	}
	return m.run + "/" + m.call.ID
}

// matters are what waits for a person in the conversation, the oldest first.
func (m mirror) matters() []matter {
	var all []matter
	for _, a := range m.Approvals {
		if a.Status == session.StatusPending && m.foreground(a.Run) {
			copied := *a
			all = append(all, matter{approval: &copied, run: a.Run})
		}
	}
	for _, run := range m.Open() {
		if run.Background || run.CancelRequestedAt != nil {
			continue
		}
		for _, c := range m.calls(run, session.CallUnknown) {
			copied := *c
			all = append(all, matter{run: run.ID, call: &copied})
		}
	}
	return all
}

// word is what a person said about a matter.
type word struct {
	decide  *api.DecideApproval
	resolve *api.ResolveTool
}

// errLater says that the person wants to decide at another time.
var errLater = errors.New("decided later")

// introduce is what a person has to know to decide.
func (m matter) introduce(width int) []string {
	if m.approval != nil {
		what := map[session.Effects]string{
			session.ReadOnly: "it changes nothing", session.Idempotent: "repeating it changes nothing more", session.Unsafe: "it cannot be repeated safely",
		}[m.approval.Effects]
		return append([]string{fmt.Sprintf("%s wants to run (%s):", oneLine(m.approval.Name, 64), what)},
			shown(m.approval.Arguments, width)...)
	}
	return append([]string{fmt.Sprintf("%s had started when its worker was lost. Did it happen?", oneLine(m.call.Name, 64))},
		shown(m.call.Arguments, width)...)
}

// shown is JSON to decide on: whole, unless it is very long.
func shown(raw json.RawMessage, width int) []string {
	const most = 40
	var lines []string
	text := string(raw)
	if len(text) > width {
		var pretty bytes.Buffer
		if json.Indent(&pretty, raw, "", "  ") == nil {
			text = pretty.String()
		}
	}
	for _, l := range strings.Split(text, "\n") {
		if len(lines) == most {
			return append(lines, fmt.Sprintf("  … %d bytes in all", len(raw)))
		}
		lines = append(lines, "  "+Printable(l))
	}
	return lines
}

// put asks a person. The error is errLater, io.EOF when they want to leave, or
// the cause of ctx.
func (q *question) put(ctx context.Context, m matter) (word, error) {
	if m.approval != nil {
		d, err := q.decide(ctx, m.approval)
		return word{decide: d}, err
	}
	r, err := q.resolve(ctx)
	return word{resolve: r}, err
}

// decide asks about an approval.
func (q *question) decide(ctx context.Context, a *session.Approval) (*api.DecideApproval, error) {
	prompt := "  Allow it? [y]es, [n]o, [e]dit the arguments, [l]ater: "
	for {
		text, err := q.Ask(ctx, prompt, "")
		if err != nil {
			return nil, err
		}
		choice, rest, _ := strings.Cut(text, " ")
		rest = strings.TrimSpace(rest)
		switch strings.ToLower(choice) {
		case "y", "yes":
			return &api.DecideApproval{Decision: session.Approve, Note: rest}, nil
		case "n", "no":
			if rest == "" {
				if rest, err = q.Ask(ctx, "  Why not? The model reads it (Enter: no reason): ", ""); err != nil {
					return nil, err
				}
			}
			return &api.DecideApproval{Decision: session.Deny, Note: rest}, nil
		case "e", "edit":
			edited, err := q.edit(ctx, a.Arguments)
			if err != nil {
				return nil, err
			}
			if edited != nil {
				return &api.DecideApproval{Decision: session.Approve, Arguments: edited}, nil
			}
		case "l", "later":
			return nil, errLater
		}
	}
}

// edit lets the arguments be changed; nil: it was given up.
func (q *question) edit(ctx context.Context, arguments json.RawMessage) (json.RawMessage, error) {
	text := string(arguments)
	prompt := "  Arguments (empty: back): "
	for {
		var err error
		if text, err = q.Ask(ctx, prompt, text); err != nil || text == "" {
			return nil, err
		}
		clean, err := session.CleanJSON([]byte(text))
		if err == nil && clean[0] == '{' {
			return clean, nil
		}
		prompt = "  Not a JSON object. Arguments: "
	}
}

// resolve asks what a call did.
func (q *question) resolve(ctx context.Context) (*api.ResolveTool, error) {
	for {
		text, err := q.Ask(ctx, "  It [h]appened, it [d]id not (run it), it [f]ailed, [l]ater: ", "")
		if err != nil {
			return nil, err
		}
		choice, rest, _ := strings.Cut(text, " ")
		rest = strings.TrimSpace(rest)
		switch strings.ToLower(choice) {
		case "h", "happened":
			result, err := q.Ask(ctx, "  With which result? The model reads it (JSON or text; Enter: none): ", rest)
			if err != nil {
				return nil, err
			}
			return &api.ResolveTool{Outcome: session.Happened, Result: asJSON(result)}, nil
		case "d", "did", "did_not":
			return &api.ResolveTool{Outcome: session.DidNot}, nil
		case "f", "failed":
			if rest == "" {
				if rest, err = q.Ask(ctx, "  How? The model reads it (Enter: no reason): ", ""); err != nil {
					return nil, err
				}
			}
			return &api.ResolveTool{Outcome: session.OutcomeFail, Note: rest}, nil
		case "l", "later":
			return nil, errLater
		}
	}
}

// asJSON is a text as JSON: as it is if it is JSON, else as a string.
func asJSON(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	if raw, err := session.CleanJSON([]byte(text)); err == nil {
		return raw
	}
	return session.JSONString(text)
}

// isLeaving says that the person wants to leave the chat.
func isLeaving(err error) bool { return errors.Is(err, io.EOF) }
