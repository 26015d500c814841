package app

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// source is the text of a configuration, to say where something stands in it.
// It never shows the text: there may be keys in it.
type source struct {
	path string
	raw  []byte
}

// at says where the value at a path such as "agents[0].model" stands, or where
// the nearest thing around it does.
func (s source) at(path string) string {
	if s.raw == nil {
		return path
	}
	file, err := parser.ParseBytes(s.raw, 0)
	if err != nil {
		return s.path + ": " + path
	}
	for p := path; p != ""; p = p[:max(strings.LastIndexAny(p, ".["), 0)] {
		where, err := yaml.PathString("$." + p)
		if err != nil {
			continue
		}
		if node, err := where.FilterFile(file); err == nil && node != nil {
			return fmt.Sprintf("%s:%d: %s", s.path, node.GetToken().Position.Line, path)
		}
	}
	return s.path + ": " + path
}

var (
	position    = regexp.MustCompile(`^\[(\d+):(\d+)\] `)
	quotedValue = regexp.MustCompile(`"([^"]+)"`)
)

// mistake is an error of the decoder with its place.
func (s source) mistake(err error) error {
	text := yaml.FormatError(err, false, false)
	if m := position.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("%s:%s:%s: %s", s.path, m[1], m[2], text[len(m[0]):])
	}
	// Errors of other packages know no place, but quote the value.
	if m := quotedValue.FindStringSubmatch(text); m != nil {
		if line := s.lineOf(m[1]); line > 0 {
			return fmt.Errorf("%s:%d: %s", s.path, line, text)
		}
	}
	return fmt.Errorf("%s: %s", s.path, text)
}

// lineOf is the line of the first value that is this text, or 0.
func (s source) lineOf(value string) int {
	file, err := parser.ParseBytes(s.raw, 0)
	if err != nil {
		return 0
	}
	find := &finder{value: value}
	for _, doc := range file.Docs {
		ast.Walk(find, doc)
	}
	return find.line
}

// finder looks for a value.
type finder struct {
	value string
	line  int
}

// Visit looks at a node.
func (f *finder) Visit(node ast.Node) ast.Visitor {
	if text, ok := node.(*ast.StringNode); ok && f.line == 0 && text.Value == f.value {
		f.line = text.GetToken().Position.Line
	}
	return f
}
