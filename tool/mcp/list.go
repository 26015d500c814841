package mcp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

// What is taken of a server's list.
const (
	maxTools       = 256
	maxPages       = 100
	maxToolName    = 256      // bytes, as the server names it
	maxDescription = 8 << 10  // bytes
	maxSchema      = 64 << 10 // bytes
)

// list reads the server's tools and says how many of them cannot be used.
func (c *connection) list(ctx context.Context) (tools []tool.Tool, left int, err error) {
	if res := c.session.InitializeResult(); res != nil && res.Capabilities != nil && res.Capabilities.Tools == nil {
		return []tool.Tool{}, 0, nil
	}
	tools = []tool.Tool{}
	taken := map[string]bool{}
	params := &sdk.ListToolsParams{}
	for page := 1; ; page++ {
		res, err := c.session.ListTools(ctx, params)
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return nil, 0, c.link.lost(err)
		}
		for _, t := range res.Tools {
			if !c.server.config.wants(t.Name) {
				continue
			}
			made, err := c.server.use(t, taken, len(tools))
			if err != nil {
				left++
				if left <= 20 {
					c.server.log.Warn("a tool of an MCP server is left out", slog.String("tool", bounded(t.Name, 100)), slog.Any("error", err))
				}
				continue
			}
			taken[made.Spec().Name] = true
			tools = append(tools, made)
		}
		if res.NextCursor == "" || len(tools) >= maxTools && left > 0 {
			return tools, left, nil
		}
		if page == maxPages {
			return nil, 0, fmt.Errorf("the list has more than %d pages", maxPages)
		}
		params.Cursor = res.NextCursor
	}
}

// use makes a tool of what the server says of one.
func (s *Server) use(t *sdk.Tool, taken map[string]bool, n int) (tool.Tool, error) {
	switch {
	case n >= maxTools:
		return nil, fmt.Errorf("the server has more than %d tools: name those to use in only", maxTools)
	case t.Name == "" || len(t.Name) > maxToolName:
		return nil, fmt.Errorf("a name has 1 to %d bytes", maxToolName)
	}
	parameters, err := schemaText(t.InputSchema)
	if err != nil {
		return nil, fmt.Errorf("its input schema: %w", err)
	}
	own := s.config.Tools[t.Name]
	made := &remote{server: s, name: t.Name, spec: tool.Spec{
		Name: toolName(s.name, t.Name), Description: describe(t), Parameters: parameters,
		Effects: effects(own.Effects, s.config.Effects, t.Annotations), Approval: tool.UnlessReadOnly, Timeout: s.config.Timeout,
	}}
	if own.Timeout > 0 {
		made.spec.Timeout = own.Timeout
	}
	if s.config.Approval != nil {
		made.spec.Approval = *s.config.Approval
	}
	if own.Approval != nil {
		made.spec.Approval = *own.Approval
	}
	if taken[made.spec.Name] {
		return nil, errors.New("the server names two tools so")
	}
	if _, err := tool.NewSet(made); err != nil {
		return nil, err
	}
	if t.OutputSchema != nil {
		if made.output, err = resolve(t.OutputSchema); err != nil { // the result can still be read
			s.log.Warn("the results of a tool cannot be checked", slog.String("tool", bounded(t.Name, 100)), slog.Any("error", err))
		}
	}
	return made, nil
}

// effects is the strictest that is said: of the tool and of the server in the
// configuration, then by the server's own hints.
func effects(ofTool, ofServer session.Effects, hints *sdk.ToolAnnotations) session.Effects {
	switch {
	case ofTool != "":
		return ofTool
	case ofServer != "":
		return ofServer
	case hints != nil && hints.ReadOnlyHint:
		return session.ReadOnly
	case hints != nil && hints.IdempotentHint:
		return session.Idempotent
	}
	return session.Unsafe
}

var unnameable = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

// toolName is server_tool, as every provider takes it. What had to be changed or
// cut ends in a part of its hash, so that two tools never become one.
func toolName(server, name string) string {
	const limit = 64
	full := server + "_" + unnameable.ReplaceAllString(name, "_")
	if len(full) <= limit && !unnameable.MatchString(name) {
		return full
	}
	sum := sha256.Sum256([]byte(name))
	suffix := "_" + hex.EncodeToString(sum[:4])
	return full[:min(len(full), limit-len(suffix))] + suffix
}

// describe is what the model is told of a tool: text that a person can see as well.
func describe(t *sdk.Tool) string {
	text := t.Description
	if text == "" {
		text = t.Title
	}
	if text == "" && t.Annotations != nil {
		text = t.Annotations.Title
	}
	return bounded(strings.TrimSpace(visible(text)), maxDescription)
}

// schemaText is a schema as text. No schema means any arguments.
func schemaText(schema any) (json.RawMessage, error) {
	if schema == nil {
		return json.RawMessage(`{"type":"object"}`), nil
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(schema); err != nil {
		return nil, err
	}
	if text.Len() > maxSchema {
		return nil, fmt.Errorf("it has %d bytes; %d are taken", text.Len(), maxSchema)
	}
	return session.CleanJSON(text.Bytes())
}

func resolve(schema any) (*jsonschema.Resolved, error) {
	text, err := schemaText(schema)
	if err != nil {
		return nil, err
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	return s.Resolve(nil)
}

// visible is text without broken encoding, control characters and the characters
// that a reader does not see but a model does.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Cf, r)) {
			return -1
		}
		return r
	}, session.CleanText(text))
}

func bounded(text string, limit int) string { return session.TrimText(session.CleanText(text), limit) }

// compare says which names came, went, and mean something else now.
func compare(before, after []tool.Tool) (added, removed, changed []string) {
	was := map[string]tool.Spec{}
	for _, t := range before {
		was[t.Spec().Name] = t.Spec()
	}
	for _, t := range after {
		now := t.Spec()
		then, known := was[now.Name]
		switch {
		case !known:
			added = append(added, now.Name)
		case then.Description != now.Description || then.Effects != now.Effects || string(then.Parameters) != string(now.Parameters):
			changed = append(changed, now.Name)
		}
		delete(was, now.Name)
	}
	for name := range was {
		removed = append(removed, name)
	}
	slices.Sort(removed)
	return added, removed, changed
}

// names are the first few names, for the log.
func names(list []string) string {
	const some = 20
	if more := len(list) - some; more > 0 {
		return strings.Join(list[:some], " ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(list, " ")
}
