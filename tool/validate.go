package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast/session"
)

// Validate turns the argument text that a model wrote into the JSON object that
// a person approves and the tool receives: compact, with numbers and key order
// byte for byte as written, and fitting spec.Parameters.
//
// Nothing is repaired. Text that is cut off, is not an object, repeats a key at
// any depth, nests deeper than [session.MaxJSONDepth], or has more behind the
// object is refused. Empty text means {}, which passes only if the tool has no
// required parameters: that is how providers write a call without arguments.
// The one change is to text that no UTF-8 encoder can carry: a lone surrogate
// or a broken sequence becomes U+FFFD.
//
// A refusal is an *[Error] with [CodeInvalidArguments] whose message tells the
// model what to correct. Any other error means that spec.Parameters is no JSON Schema.
func Validate(spec Spec, raw []byte) (json.RawMessage, error) {
	s, err := compiled.get(spec.parameters())
	if err != nil {
		return nil, err
	}
	empty := len(bytes.TrimSpace(raw)) == 0
	if empty {
		raw = []byte("{}")
	}
	args, err := session.CleanJSON(raw)
	if err != nil {
		return nil, refuseArguments(spec, "%s", whyNotJSON(raw, err))
	}
	if args[0] != '{' {
		return nil, refuseArguments(spec, "they must be a JSON object, not %s", kindOf(args))
	}
	value, err := decode(args)
	if err != nil {
		return nil, refuseArguments(spec, "%s", err.Error())
	}
	if err := s.check(value); err != nil {
		if empty {
			return nil, refuseArguments(spec, "there are none, but the tool has required parameters (%s)", err.Error())
		}
		return nil, refuseArguments(spec, "%s", err.Error())
	}
	return args, nil
}

func refuseArguments(spec Spec, format string, args ...any) *Error {
	e := Errorf(CodeInvalidArguments, format, args...)
	e.Message = "The arguments of " + trim(spec.Name, 64) + " cannot be used: " + e.Message + ". The tool was not run. Call it again with corrected arguments."
	return e
}

// whyNotJSON tells the ways apart in which JSON text goes wrong. cause is what
// [session.CleanJSON] said of it.
func whyNotJSON(raw []byte, cause error) string {
	raw = bytes.TrimSpace([]byte(session.CleanText(string(raw))))
	dec := json.NewDecoder(bytes.NewReader(raw))
	var first json.RawMessage
	err := dec.Decode(&first)
	var syntax *json.SyntaxError
	switch {
	case err == nil && dec.InputOffset() < int64(len(raw)):
		return "there is more text after the JSON value: " + quote(raw[dec.InputOffset():])
	case err == nil:
		return cause.Error() // it nests too deep
	case !errors.As(err, &syntax):
		return "the JSON text is cut off before its end"
	case strings.Contains(syntax.Error(), "max depth"): // encoding/json's own limit
		return fmt.Sprintf("JSON is nested deeper than %d levels", session.MaxJSONDepth)
	}
	return "not valid JSON: " + syntax.Error() + ", at " + quote(raw[max(0, min(syntax.Offset, int64(len(raw)))-1):])
}

func quote(text []byte) string {
	quoted := trim(string(text), 40)
	if len(quoted) < len(text) {
		quoted += "…"
	}
	return string(session.JSONString(quoted))
}

func kindOf(value json.RawMessage) string {
	switch value[0] {
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	}
	return "a number"
}

// trim bounds text that goes into a message.
func trim(s string, limit int) string { return session.TrimText(session.CleanText(s), limit) }
