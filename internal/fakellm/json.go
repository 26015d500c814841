package fakellm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// escaped is the inside of a JSON string. Answers are kept so, since it can hold
// what a Go string cannot.
type escaped string

// escape writes text as providers do: UTF-8 as it is, < and > too.
func escape(text string) escaped {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(text); err != nil {
		panic(err) // A string can always be encoded.
	}
	quoted := b.Bytes()
	return escaped(quoted[1 : len(quoted)-2]) // without the quotes and the newline
}

func escapeAll(texts []string) []escaped {
	all := make([]escaped, len(texts))
	for i, text := range texts {
		all[i] = escape(text)
	}
	return all
}

// unescape is as good as a Go string can do: U+FFFD for what it cannot hold.
func unescape(e escaped) string {
	var text string
	if err := json.Unmarshal([]byte(`"`+string(e)+`"`), &text); err != nil {
		return string(e)
	}
	return text
}

// raw is JSON that is written as it is.
type raw []byte

// object writes pairs of key and value as a JSON object in the given order,
// which providers keep and a Go map does not. A value may be a string, escaped,
// raw, []raw, int, int64, bool or nil.
func object(pairs ...any) raw {
	b := make([]byte, 0, 256)
	b = append(b, '{')
	for i := 0; i < len(pairs); i += 2 {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = append(b, pairs[i].(string)...)
		b = append(b, '"', ':')
		b = appendValue(b, pairs[i+1])
	}
	return append(b, '}')
}

func appendValue(b []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(b, "null"...)
	case string:
		return appendQuoted(b, escape(v))
	case escaped:
		return appendQuoted(b, v)
	case raw:
		return append(b, v...)
	case []raw:
		return append(b, array(v)...)
	case bool:
		return strconv.AppendBool(b, v)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case int64:
		return strconv.AppendInt(b, v, 10)
	}
	panic(fmt.Sprintf("object: a value of type %T", value))
}

func appendQuoted(b []byte, e escaped) []byte {
	b = append(b, '"')
	b = append(b, e...)
	return append(b, '"')
}

func array(items []raw) raw {
	b := raw{'['}
	for i, item := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, item...)
	}
	return append(b, ']')
}

// objectOr returns text if it is a JSON object, else the empty object.
func objectOr(text string) raw {
	if isObject([]byte(text)) {
		return raw(text)
	}
	return raw("{}")
}

func isObject(b []byte) bool {
	trimmed := bytes.TrimLeft(b, " \t\r\n")
	return len(trimmed) > 0 && trimmed[0] == '{' && json.Valid(b)
}
