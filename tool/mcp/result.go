package mcp

import (
	"encoding/json"
	"fmt"
	"mime"
	"path"
	"reflect"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

// What is taken of the files of one result.
const (
	maxFiles     = 32
	maxFileBytes = 16 << 20 // of all together
)

// result is what a call gave. Structured content is the value if there is any;
// else the value is the text. Images, audio and binary resources are files.
func (r *remote) result(res *sdk.CallToolResult) (tool.Result, error) {
	if res.NeedsInput() || len(res.InputRequests) > 0 {
		return tool.Result{}, tool.Errorf("input_needed", "The tool asks for more than its arguments, which cannot be given here. Do without it.")
	}
	var g gathered
	for _, content := range res.Content {
		g.add(content)
	}
	text := strings.Join(g.text, "\n")
	if res.IsError {
		if strings.TrimSpace(text) == "" {
			text = "The tool failed and did not say why."
		}
		return tool.Result{}, tool.Errorf(tool.CodeFailed, "%s", text)
	}
	if res.StructuredContent == nil {
		if r.output != nil {
			return tool.Result{}, r.misfit("it has none")
		}
		return tool.Result{Value: session.JSONString(text), Files: g.files}, nil
	}
	if r.output != nil {
		if err := r.output.Validate(res.StructuredContent); err != nil {
			return tool.Result{}, r.misfit(bounded(err.Error(), 500))
		}
	}
	value, err := structured(res.StructuredContent, text)
	if err != nil {
		return tool.Result{}, r.misfit(bounded(err.Error(), 500))
	}
	return tool.Result{Value: value, Files: g.files}, nil
}

func (r *remote) misfit(why string) *tool.Error {
	return tool.Errorf(tool.CodeInvalidResult, "The tool was run, but its structured result does not fit its output schema: %s.", why)
}

// structured is the JSON value. Most servers give it as text as well, as the
// protocol asks them to: that text has each digit and key as the server wrote it.
// Other text is kept beside the value.
func structured(value any, text string) (json.RawMessage, error) {
	var same any
	if json.Unmarshal([]byte(text), &same) == nil && reflect.DeepEqual(same, value) {
		return json.RawMessage(text), nil
	}
	if strings.TrimSpace(text) == "" {
		return json.Marshal(value)
	}
	return json.Marshal(map[string]any{"structuredContent": value, "text": text})
}

// gathered is a result's content, put in order.
type gathered struct {
	text  []string
	files []tool.File
	bytes int
}

func (g *gathered) add(content sdk.Content) {
	switch c := content.(type) {
	case *sdk.TextContent:
		g.text = append(g.text, c.Text)
	case *sdk.ImageContent:
		g.file("image", "", c.MIMEType, c.Data)
	case *sdk.AudioContent:
		g.file("audio", "", c.MIMEType, c.Data)
	case *sdk.ResourceLink:
		text := fmt.Sprintf("[resource %s: %s", c.URI, bounded(c.Name, 200))
		if c.MIMEType != "" {
			text += ", " + bounded(c.MIMEType, 100)
		}
		if c.Description != "" {
			text += ": " + bounded(c.Description, 1000)
		}
		g.text = append(g.text, text+"]")
	case *sdk.EmbeddedResource:
		if c.Resource == nil {
			return
		}
		if c.Resource.Blob != nil {
			g.file("resource "+bounded(c.Resource.URI, 500), path.Base(c.Resource.URI), c.Resource.MIMEType, c.Resource.Blob)
			return
		}
		g.text = append(g.text, "[resource "+bounded(c.Resource.URI, 500)+"]\n"+c.Resource.Text)
	default:
		g.text = append(g.text, "[content of an unknown kind]")
	}
}

// file keeps a file and says in the text where it came, or that there is no room for it.
func (g *gathered) file(what, name, mediaType string, content []byte) {
	if kind, _, err := mime.ParseMediaType(mediaType); err == nil && strings.Contains(kind, "/") && len(kind) <= 100 {
		mediaType = kind
	} else {
		mediaType = "application/octet-stream"
	}
	told := fmt.Sprintf("[%s: %s, %d bytes", what, mediaType, len(content))
	if len(g.files) == maxFiles || g.bytes+len(content) > maxFileBytes {
		g.text = append(g.text, told+", not kept: the result has too many or too large files]")
		return
	}
	g.bytes += len(content)
	g.files = append(g.files, tool.File{Name: bounded(visible(name), 200), MediaType: mediaType, Content: content})
	g.text = append(g.text, told+"]")
}
