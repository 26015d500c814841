package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/holdfast-run/holdfast/server"
)

// document is the OpenAPI document, to hold answers against.
type document struct {
	paths   map[string]map[string]operation
	schemas map[string]any
	cache   sync.Map // of *jsonschema.Resolved, by schema text
}

type operation struct {
	OperationID string              `json:"operationId"`
	Responses   map[string]response `json:"responses"`
}

type response struct {
	Content map[string]struct {
		Schema json.RawMessage `json:"schema"`
	} `json:"content"`
}

func parseDocument(raw []byte) (*document, error) {
	var doc struct {
		OpenAPI    string                          `json:"openapi"`
		Paths      map[string]map[string]operation `json:"paths"`
		Components struct {
			Schemas map[string]any `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1.") {
		return nil, fmt.Errorf("this is OpenAPI %s", doc.OpenAPI)
	}
	for _, s := range doc.Components.Schemas {
		// Readers ignore what they do not know. The test does not: what is sent is to be described.
		if object, ok := s.(map[string]any); ok && object["properties"] != nil {
			object["additionalProperties"] = false
		}
	}
	return &document{paths: doc.Paths, schemas: doc.Components.Schemas}, nil
}

// find gives the operation of a request.
func (d *document) find(method, path string) (operation, bool) {
	path, _, _ = strings.Cut(path, "?")
	if method == "HEAD" {
		method = "GET"
	}
	for pattern, item := range d.paths {
		op, ok := item[strings.ToLower(method)]
		re := regexp.MustCompile(`^` + regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(regexp.QuoteMeta(pattern), `[^/]+`) + `$`)
		if ok && re.MatchString(path) {
			return op, true
		}
	}
	return operation{}, false
}

// check holds an answer against what the document says of it.
func (d *document) check(method, path string, a answer) error {
	op, ok := d.find(method, path)
	if !ok {
		if a.status >= 400 || method == "OPTIONS" {
			return nil
		}
		return fmt.Errorf("%s %s is not in the document", method, path)
	}
	described, ok := op.Responses[fmt.Sprint(a.status)]
	if !ok && a.status >= 400 {
		described, ok = op.Responses["default"]
	}
	if !ok {
		return fmt.Errorf("%s does not describe the status %d", op.OperationID, a.status)
	}
	kind, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	if len(a.body) == 0 || described.Content["*/*"].Schema != nil && a.status < 300 || kind == "text/event-stream" {
		return nil
	}
	content, ok := described.Content[kind]
	if !ok {
		return fmt.Errorf("%s does not describe %d as %s", op.OperationID, a.status, kind)
	}
	if kind == "text/plain" {
		return nil
	}
	schema, err := d.resolve(content.Schema)
	if err != nil {
		return fmt.Errorf("%s: %w", op.OperationID, err)
	}
	var value any
	dec := json.NewDecoder(bytes.NewReader(a.body))
	dec.UseNumber()
	if err := dec.Decode(&value); err != nil {
		return err
	}
	value = floats(value)
	if err := schema.Validate(value); err != nil {
		return fmt.Errorf("%s: %w", op.OperationID, err)
	}
	return nil
}

// floats makes numbers what the validator takes, those beyond a float 0.
func floats(value any) any {
	switch v := value.(type) {
	case json.Number:
		f, _ := v.Float64()
		if math.IsInf(f, 0) {
			f = 0
		}
		return f
	case []any:
		for i := range v {
			v[i] = floats(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = floats(v[k])
		}
	}
	return value
}

func (d *document) resolve(raw json.RawMessage) (*jsonschema.Resolved, error) {
	if known, ok := d.cache.Load(string(raw)); ok {
		return known.(*jsonschema.Resolved), nil
	}
	var root map[string]any
	if err := json.Unmarshal(raw, &root); err != nil {
		return nil, err
	}
	root["$defs"] = d.schemas
	text, err := json.Marshal(root)
	if err != nil {
		return nil, err
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), "#/components/schemas/", "#/$defs/")), &schema); err != nil {
		return nil, err
	}
	resolved, err := schema.Resolve(nil)
	if err == nil {
		d.cache.Store(string(raw), resolved)
	}
	return resolved, err
}

// routesOfProtocol reads the table of routes in PROTOCOL.md.
func routesOfProtocol(t *testing.T) []string {
	t.Helper()
	raw, err := os.ReadFile("../protocol/PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(raw), "| route | what it does | answers |")
	table, _, ok2 := strings.Cut(table, "\n\n")
	if !ok || !ok2 {
		t.Fatal("PROTOCOL.md has no table of routes")
	}
	var routes []string
	word := regexp.MustCompile("GET|POST|PATCH|DELETE|PUT|/[^`, ]+")
	for row := range strings.Lines(table) {
		cells := strings.Split(row, "|")
		if len(cells) < 3 {
			continue
		}
		var methods []string
		for _, w := range word.FindAllString(cells[1], -1) {
			if !strings.HasPrefix(w, "/") {
				methods = append(methods, w)
				continue
			}
			for _, m := range methods {
				routes = append(routes, m+" "+w)
			}
			if len(methods) == 1 && strings.Count(cells[1], methods[0]) > 1 {
				methods = nil
			}
		}
	}
	slices.Sort(routes)
	return slices.Compact(routes)
}

func TestTheOpenAPIDocumentAndTheWirePageNameTheSameRoutes(t *testing.T) {
	w := newWorld(t, worldOptions{})
	var documented []string
	for path, item := range w.doc.paths {
		for method := range item {
			documented = append(documented, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(documented)
	written := routesOfProtocol(t)
	if len(written) < 20 {
		t.Fatalf("read only %q from the page", written)
	}
	for _, r := range written {
		if !slices.Contains(documented, r) {
			t.Errorf("%s is in PROTOCOL.md and not in the document", r)
		}
	}
	for _, r := range documented {
		if !slices.Contains(written, r) {
			t.Errorf("%s is in the document and not in PROTOCOL.md", r)
		}
	}
}

func TestTheDocumentDescribesNothingThatIsNotUsed(t *testing.T) {
	w := newWorld(t, worldOptions{})
	text := string(w.do("GET", "/v1/openapi.json", nil).is(200).body)
	for name := range w.doc.schemas {
		if !strings.Contains(text, `"#/components/schemas/`+name+`"`) {
			t.Errorf("nothing refers to %s", name)
		}
	}
	if strings.Contains(text, `"null"`) {
		t.Error("something may be null")
	}
}

func TestEveryDocumentedRouteIsServed(t *testing.T) {
	w := newWorld(t, worldOptions{})
	for path, item := range w.doc.paths {
		for method := range item {
			concrete := strings.NewReplacer("{id}", "x", "{message}", "x", "{call}", "x", "{hash}", strings.Repeat("a", 64)).Replace(path)
			a := w.do(strings.ToUpper(method), concrete, nil)
			if a.status == 405 || strings.Contains(string(a.body), "no such route") {
				t.Errorf("%s %s: %d %s", method, path, a.status, a.body)
			}
		}
	}
}

func TestEveryErrorCodeOfTheWirePageHasItsStatus(t *testing.T) {
	raw, err := os.ReadFile("../protocol/PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(raw), "| code | status |")
	table, _, _ = strings.Cut(table, "\n\n")
	written := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (\\d+) \\|").FindAllStringSubmatch(table, -1) {
		written[m[1]] = m[2]
	}
	served := map[string]string{}
	for code, status := range server.Statuses {
		served[string(code)] = fmt.Sprint(status)
	}
	for code, status := range written {
		if served[code] != status {
			t.Errorf("%s is %s in PROTOCOL.md and %q here", code, status, served[code])
		}
	}
	for code := range served {
		if written[code] == "" {
			t.Errorf("%s is not in PROTOCOL.md", code)
		}
	}
}
