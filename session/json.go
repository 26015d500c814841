package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxJSONDepth bounds how deep a JSON value from outside may nest.
const MaxJSONDepth = 200

// CleanText makes s valid UTF-8: each broken sequence, lone surrogates
// included, becomes U+FFFD. NUL stays: JSON carries it as an escape.
func CleanText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// JSONString is s as a JSON string, cleaned by [CleanText], without HTML escapes.
func JSONString(s string) json.RawMessage {
	b, err := marshal(CleanText(s))
	if err != nil {
		panic(err) // a string always marshals
	}
	return b
}

// CleanJSON checks that raw is exactly one JSON value nested at most
// [MaxJSONDepth] deep and gives it back compact, with every lone surrogate
// escape and broken UTF-8 sequence replaced by U+FFFD. Numbers, key order and
// repeated keys stay byte for byte as they were.
func CleanJSON(raw []byte) (json.RawMessage, error) {
	raw = []byte(CleanText(string(raw)))
	var out bytes.Buffer
	if err := json.Compact(&out, raw); err != nil {
		return nil, fmt.Errorf("not valid JSON: %w", err)
	}
	if out.Len() == 0 {
		return nil, fmt.Errorf("not valid JSON: empty")
	}
	b := out.Bytes()
	depth, inString := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inString && c == '\\':
			if b[i+1] == 'u' {
				i = mendSurrogate(b, i)
			} else {
				i++
			}
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > MaxJSONDepth {
				return nil, fmt.Errorf("JSON is nested deeper than %d levels", MaxJSONDepth)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return b, nil
}

// mendSurrogate looks at the \uXXXX escape at b[i], replaces it by \ufffd in
// place if it is half a surrogate pair, and returns the index of its last byte
// (of the pair's last byte if it is whole).
func mendSurrogate(b []byte, i int) int {
	first := hex4(b[i+2 : i+6])
	if first < 0xD800 || first > 0xDFFF {
		return i + 5
	}
	if first < 0xDC00 && i+11 < len(b) && b[i+6] == '\\' && b[i+7] == 'u' {
		if second := hex4(b[i+8 : i+12]); second >= 0xDC00 && second <= 0xDFFF {
			return i + 11
		}
	}
	copy(b[i:], `\ufffd`)
	return i + 5
}

func hex4(b []byte) rune {
	var r rune
	for _, c := range b {
		switch {
		case c <= '9':
			r = r<<4 | rune(c-'0')
		default:
			r = r<<4 | rune(c|0x20-'a'+10)
		}
	}
	return r
}

// TrimText cuts s to at most limit bytes without splitting a character.
func TrimText(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	limit = max(limit, 0)
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// marshal is json.Marshal without HTML escapes.
func marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}
