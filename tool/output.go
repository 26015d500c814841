package tool

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/session"
)

const (
	// DefaultOutputLimit bounds what is kept of one result, in bytes.
	DefaultOutputLimit = 10 << 20
	// InlineLimit is the largest value an event carries itself, in bytes. A larger
	// one is kept as a blob and the event has a preview of it.
	InlineLimit = 64 << 10
	// PreviewLimit bounds the text of a preview, in bytes.
	PreviewLimit = 32 << 10
)

// Bound makes any result one well-formed value of at most limit bytes, and says
// how many bytes were cut. A limit under 1 means [DefaultOutputLimit].
//
// No value is null. A string that is too long keeps its beginning; any other
// value that is too large becomes a string that holds the beginning of its JSON
// text. The cut never splits a character. The limit is on the encoded text without
// its two quotes; cut counts bytes of the text itself. Keys, repeated ones
// included, and numbers stay as they are.
//
// The error, an *[Error] with [CodeInvalidResult], says that value is not one
// JSON value or nests deeper than [session.MaxJSONDepth].
func Bound(value json.RawMessage, limit int64) (bounded json.RawMessage, cut int64, err error) {
	if limit < 1 {
		limit = DefaultOutputLimit
	}
	if len(value) == 0 {
		return json.RawMessage("null"), 0, nil
	}
	clean, err := session.CleanJSON(value)
	if err != nil {
		return nil, 0, refuseResult(value, err)
	}
	if int64(len(clean)) <= limit || clean[0] == '"' && int64(len(clean)) <= limit+2 {
		return clean, 0, nil
	}
	text := textOf(clean)
	kept := prefix(text, limit)
	return session.JSONString(kept), int64(len(text) - len(kept)), nil
}

func refuseResult(value []byte, cause error) *Error {
	return Errorf(CodeInvalidResult, "The tool was run, but its result cannot be used: %s.", whyNotJSON(value, cause))
}

// Inline says how an event carries a value that [Bound] gave: as it is, with a
// nil whole, or, over [InlineLimit], as a JSON string with the first
// [PreviewLimit] bytes of its text, and the whole value to keep as a blob of
// media type application/json.
func Inline(value json.RawMessage) (inline, whole json.RawMessage) {
	if len(value) <= InlineLimit {
		return value, nil
	}
	return session.JSONString(prefix(textOf(value), PreviewLimit)), value
}

// textOf is what a person would read of a value: a string's text, else the JSON.
func textOf(value json.RawMessage) string {
	var text string
	if value[0] == '"' && json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}

// prefix is the longest beginning of text, in whole characters, whose JSON
// encoding has at most limit bytes without the quotes.
func prefix(text string, limit int64) string {
	var used int64
	for i, r := range text {
		switch {
		case r == '"', r == '\\', r == '\n', r == '\r', r == '\t', r == '\b', r == '\f':
			used += 2
		case r < 0x20, r == 0x2028, r == 0x2029:
			used += 6
		default:
			used += int64(utf8.RuneLen(r))
		}
		if used > limit {
			return text[:i]
		}
	}
	return text
}
