package tool

import (
	"log/slog"
	"maps"
	"slices"
)

// Source gives tools that come and go while the process lives: those of an MCP
// server, say. It is safe for concurrent use.
type Source interface {
	// Tools are the tools of this moment, in an order that does not change by itself.
	Tools() []Tool
	// Absent tells the model why the source does not have a tool now that it may
	// have at another time. It is nil for a name that is not the source's.
	Absent(name string) *Error
}

// With is the set with the tools of sources behind its own: see [Set.Now].
func (s *Set) With(sources ...Source) *Set {
	all := &Set{sources: sources}
	if s != nil {
		all = &Set{specs: s.specs, byName: s.byName, sources: slices.Concat(s.sources, sources)}
	}
	return all
}

// Now is the set with the tools that its sources have at this moment. It does
// not change any more: whoever holds it has one consistent list. A source's tool that no
// set would take, or whose name is taken, is left out.
func (s *Set) Now() *Set {
	if s == nil || len(s.sources) == 0 {
		return s
	}
	now := &Set{specs: slices.Clone(s.specs), byName: maps.Clone(s.byName), sources: s.sources}
	if now.byName == nil {
		now.byName = map[string]member{}
	}
	for _, source := range s.sources {
		for _, t := range source.Tools() {
			if err := now.add(t); err != nil {
				slog.Warn("a tool is left out", slog.Any("error", err))
			}
		}
	}
	return now
}

// absent is what the sources say of a name that the set does not have.
func (s *Set) absent(name string) *Error {
	if s != nil {
		for _, source := range s.sources {
			if told := source.Absent(name); told != nil {
				return told
			}
		}
	}
	return nil
}
