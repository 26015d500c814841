// Package models is what backends share about the read models: what they are
// made of, how lists are paged, and how they are compared with the log.
package models

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// Marshal is json.Marshal without HTML escapes, so that raw JSON inside stays as it was.
func Marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte{'\n'}), nil
}

// CopyMessage gives a message as it is now: nothing is shared with m that the fold changes.
func CopyMessage(m *session.Message) session.Message {
	c := *m
	c.Parts = slices.Clone(m.Parts)
	for i := range c.Parts {
		if tool := c.Parts[i].Tool; tool != nil {
			t := *tool
			c.Parts[i].Tool = &t
		}
	}
	return c
}

// SizeOf is roughly how many bytes a state takes in memory.
func SizeOf(s *session.State) int64 {
	if !s.Exists() {
		return 0
	}
	size := 1024 + len(s.Metadata)
	for _, m := range s.Messages {
		size += 320 + partsSize(m.Parts)
	}
	for _, r := range s.Runs {
		size += 640 + 192*len(r.Steps)
	}
	for _, a := range s.Approvals {
		size += 512 + len(a.Arguments)
	}
	for _, item := range s.Inbox {
		size += 512 + partsSize(item.Message.Parts)
	}
	return int64(size + 192*len(s.Submissions))
}

func partsSize(parts []session.Part) int {
	size := 0
	for i := range parts {
		p := &parts[i]
		size += 224 + len(p.Text) + len(p.Data)
		if t := p.Tool; t != nil {
			size += 384 + len(t.Arguments) + len(t.RawArguments) + len(t.Result)
		}
	}
	return size
}

// Place is where a row stands in a list, and as text the cursor behind it.
type Place struct {
	At int64 // milliseconds
	ID string
}

func (p Place) String() string { return strconv.FormatInt(p.At, 10) + "." + p.ID }

// ParsePlace reads a cursor. The empty one is the beginning of a list.
func ParsePlace(cursor string) (Place, error) {
	if cursor == "" {
		return Place{At: 1 << 62}, nil
	}
	ms, id, ok := strings.Cut(cursor, ".")
	at, err := strconv.ParseInt(ms, 10, 64)
	if !ok || err != nil {
		return Place{}, &session.Error{Code: session.Invalid, Field: "cursor", Message: "the cursor is not one that a list gave"}
	}
	return Place{at, id}, nil
}

// PageLimit is how many rows a page has.
func PageLimit(limit int) int {
	if limit <= 0 {
		limit = 50
	}
	return min(limit, 200)
}

// Cut makes a page of one row more than fit, if there are that many.
func Cut[T any](rows []T, limit int, placeOf func(T) Place) store.Page[T] {
	p := store.Page[T]{Items: rows}
	if len(rows) > limit {
		p.Items = rows[:limit]
		p.Next = placeOf(p.Items[limit-1]).String()
	}
	return p
}
