package httptool

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"
	"regexp"
	"strings"

	"golang.org/x/net/html/charset"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

// What is taken of an answer, in bytes after decompression.
const (
	maxAnswer  = 16 << 20
	maxProblem = 64 << 10 // of one that is no success
)

var errTooLong = fmt.Errorf("it is longer than %d bytes", maxAnswer)

// readBody reads an answer. What is read of a broken one comes with the error.
func readBody(resp *http.Response) ([]byte, error) {
	limit := int64(maxAnswer)
	if resp.StatusCode/100 != 2 {
		limit = maxProblem
	}
	content, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if int64(len(content)) > limit {
		return content[:limit], errTooLong
	}
	return content, err
}

// resultOf is the result that a successful answer gives.
func resultOf(resp *http.Response, content []byte) (tool.Result, error) {
	kind, declared := mediaType(resp, content)
	switch {
	case len(content) == 0:
		return tool.Result{}, nil
	case isJSON(kind):
		value, err := session.CleanJSON(content)
		if err != nil {
			return tool.Result{}, tool.Errorf(tool.CodeInvalidResult, "The service did what was asked, but its answer says that it is JSON and is not: %s.", err)
		}
		return tool.Result{Value: value}, nil
	case strings.HasPrefix(kind, "text/"):
		return tool.Text(text(content, declared)), nil
	}
	file := tool.File{Name: fileName(resp), MediaType: kind, Content: content}
	told := tool.Text(fmt.Sprintf("[file %s: %s, %d bytes]", file.Name, kind, len(content)))
	return tool.Result{Value: told.Value, Files: []tool.File{file}}, nil
}

// mediaType is what the content is, as the service says or as it looks.
func mediaType(resp *http.Response, content []byte) (kind, declared string) {
	declared = resp.Header.Get("Content-Type")
	if declared == "" {
		declared = http.DetectContentType(content)
		if json.Valid(content) {
			declared = "application/json"
		}
	}
	kind, _, err := mime.ParseMediaType(declared)
	if err != nil || !strings.Contains(kind, "/") || len(kind) > 100 {
		return "application/octet-stream", declared
	}
	return kind, declared
}

func isJSON(kind string) bool { return kind == "application/json" || strings.HasSuffix(kind, "+json") }

// text is UTF-8, whatever encoding the service says it is in.
func text(content []byte, declared string) string {
	encoding, _, _ := charset.DetermineEncoding(content, declared)
	decoded, err := encoding.NewDecoder().Bytes(content)
	if err != nil {
		decoded = content
	}
	return session.CleanText(string(decoded))
}

// fileName is the last part of the name that the service gives, if it gives one.
func fileName(resp *http.Response) string {
	_, params, err := mime.ParseMediaType(resp.Header.Get("Content-Disposition"))
	if err != nil || params["filename"] == "" {
		return ""
	}
	name := path.Base(strings.ReplaceAll(params["filename"], `\`, "/"))
	return session.TrimText(session.CleanText(strings.Map(visible, name)), 200)
}

func visible(r rune) rune {
	if r < ' ' || r == 0x7f {
		return -1
	}
	return r
}

var codePattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,100}$`)

// problemOf is the failure that an answer tells: its own words if it has some, as
// RFC 9457 has them or as they are common.
func problemOf(resp *http.Response, content []byte) error {
	status := resp.StatusCode
	code, detail := fmt.Sprintf("http_%d", status), ""
	kind, declared := mediaType(resp, content)
	switch {
	case isJSON(kind):
		var own string
		if own, detail = words(content); codePattern.MatchString(own) {
			code = own
		}
	case kind == "text/plain":
		detail = strings.TrimSpace(text(content, declared))
	}
	told := fmt.Sprintf("The service answered HTTP %d %s", status, http.StatusText(status))
	if status/100 == 3 {
		told += ", and redirects that are not to the same host are not followed"
	}
	if detail != "" {
		told += ": " + session.TrimText(session.CleanText(detail), 4<<10)
	}
	return tool.Errorf(code, "%s", told)
}

// words are a code and a text for people out of a JSON object. What is not like
// any that is known is told whole.
func words(content []byte) (code, detail string) {
	clean, err := session.CleanJSON(content)
	if err != nil {
		return "", ""
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(clean, &object) != nil {
		return "", string(clean)
	}
	if inner := object["error"]; len(inner) > 0 && inner[0] == '{' {
		if code, detail = words(inner); detail != "" {
			return code, detail
		}
	}
	text := func(names ...string) string {
		for _, name := range names {
			var value string
			if json.Unmarshal(object[name], &value) == nil && value != "" {
				return value
			}
		}
		return ""
	}
	if detail = text("detail", "message", "error", "title"); detail == "" {
		detail = string(clean)
	}
	return text("code"), detail
}
