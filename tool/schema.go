package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
)

// schema is a JSON Schema (draft 2020-12 or draft-07) ready to validate.
type schema struct {
	root     *jsonschema.Schema
	resolved *jsonschema.Resolved
}

// compile prepares a schema. References to other documents are refused.
func compile(text json.RawMessage) (*schema, error) {
	raw, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("JSON Schema: %w", err)
	}
	root := &jsonschema.Schema{}
	if err := json.Unmarshal(text, root); err != nil {
		return nil, fmt.Errorf("JSON Schema: %w", err)
	}
	restoreNumbers(root, raw)
	resolved, err := root.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("JSON Schema: %w", err)
	}
	return &schema{root: root, resolved: resolved}, nil
}

// check says why a value made by [decode] does not fit, in one bounded line.
func (s *schema) check(value any) error {
	err := s.resolved.Validate(value)
	if err == nil {
		return nil
	}
	// Each level of the schema wraps the reason in "validating PATH: ".
	at := ""
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		at = strings.TrimSuffix(strings.TrimPrefix(err.Error(), "validating "), ": "+inner.Error())
		err = inner
	}
	reason := strings.Join(strings.Fields(trim(err.Error(), 500)), " ")
	if at == "" || at == "root" {
		return errors.New(reason)
	}
	return fmt.Errorf("at %s: %s", strings.ReplaceAll(at, "/properties/", "/"), reason)
}

// decode reads one JSON value as the validator wants it: integers that fit 64
// bits stay exact, other numbers become float64. A repeated key is refused, since
// two readers of it may see two different values.
func decode(text []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	value, err := decodeValue(dec)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more text after the JSON value")
	}
	return value, nil
}

func decodeValue(dec *json.Decoder) (any, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Number:
		return number(t.String())
	case json.Delim:
		if t == '[' {
			list := []any{}
			for dec.More() {
				item, err := decodeValue(dec)
				if err != nil {
					return nil, err
				}
				list = append(list, item)
			}
			_, err := dec.Token()
			return list, err
		}
		object := map[string]any{}
		for dec.More() {
			token, err := dec.Token()
			if err != nil {
				return nil, err
			}
			key, _ := token.(string)
			if _, twice := object[key]; twice {
				return nil, fmt.Errorf("the key %q is there twice", trim(key, 100))
			}
			if object[key], err = decodeValue(dec); err != nil {
				return nil, err
			}
		}
		_, err := dec.Token()
		return object, err
	}
	return token, nil
}

func number(text string) (any, error) {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i, nil
	}
	if u, err := strconv.ParseUint(text, 10, 64); err == nil {
		return u, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, fmt.Errorf("the number %s is out of range", trim(text, 50))
	}
	return f, nil
}

// restoreNumbers puts the integers of enum and const back as the schema's text
// has them: the library reads them through float64, which loses those over 2^53.
func restoreNumbers(s *jsonschema.Schema, raw any) {
	object, ok := raw.(map[string]any)
	if s == nil || !ok {
		return
	}
	if list, ok := object["enum"].([]any); ok && s.Enum != nil {
		s.Enum = list
	}
	if value, ok := object["const"]; ok && s.Const != nil {
		s.Const = &value
	}
	for keyword, sub := range map[string]*jsonschema.Schema{
		"items": s.Items, "additionalItems": s.AdditionalItems, "contains": s.Contains, "unevaluatedItems": s.UnevaluatedItems,
		"additionalProperties": s.AdditionalProperties, "propertyNames": s.PropertyNames, "unevaluatedProperties": s.UnevaluatedProperties,
		"not": s.Not, "if": s.If, "then": s.Then, "else": s.Else,
	} {
		restoreNumbers(sub, object[keyword])
	}
	for keyword, subs := range map[string][]*jsonschema.Schema{
		"items": s.ItemsArray, "prefixItems": s.PrefixItems, "allOf": s.AllOf, "anyOf": s.AnyOf, "oneOf": s.OneOf,
	} {
		list, _ := object[keyword].([]any)
		for i, sub := range subs {
			if i < len(list) {
				restoreNumbers(sub, list[i])
			}
		}
	}
	for keyword, subs := range map[string]map[string]*jsonschema.Schema{
		"$defs": s.Defs, "definitions": s.Definitions, "properties": s.Properties, "patternProperties": s.PatternProperties,
		"dependentSchemas": s.DependentSchemas, "dependencies": s.DependencySchemas,
	} {
		members, _ := object[keyword].(map[string]any)
		for name, sub := range subs {
			restoreNumbers(sub, members[name])
		}
	}
}

// compiled remembers schemas by their text, so that whoever holds a [Spec] can
// validate without a handle to carry. It only saves time.
var compiled = schemaCache{byText: map[string]*schema{}}

const maxCompiled = 1024

type schemaCache struct {
	mu     sync.Mutex
	byText map[string]*schema // guarded by mu
}

func (c *schemaCache) get(text json.RawMessage) (*schema, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.byText[string(text)]; s != nil {
		return s, nil
	}
	s, err := compile(text)
	if err != nil {
		return nil, err
	}
	if len(c.byText) >= maxCompiled {
		clear(c.byText)
	}
	c.byText[string(text)] = s
	return s, nil
}
