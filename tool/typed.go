package tool

import (
	"bytes"
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/holdfast-run/holdfast/session"
)

// New makes a tool of a Go function. The parameters' JSON Schema comes from In,
// a struct or a map with string keys: a field's name and optionality come from
// its json tag (omitempty and omitzero make it optional), its description from its
// jsonschema tag. The arguments are decoded without losing a digit; a number in
// a field of type any is a [json.Number].
//
// Out is any type that encodes as JSON. A string, or a type of kind string,
// becomes a JSON string with broken UTF-8 replaced; a [Result] is taken as it is.
//
// New panics if no schema can be made of In: the program is wrong.
func New[In, Out any](name, description string, fn func(ctx context.Context, in In, call Call) (Out, error), options ...Option) Tool {
	parameters, err := schemaOf[In]()
	if err != nil {
		panic(fmt.Sprintf("tool.New(%q): %v", name, err))
	}
	spec := Spec{Name: name, Description: description, Parameters: parameters}
	for _, option := range options {
		option(&spec)
	}
	return typed[In, Out]{spec, fn}
}

// Option changes the spec of a tool.
type Option func(*Spec)

// WithEffects says what a call does to the world.
func WithEffects(effects session.Effects) Option { return func(s *Spec) { s.Effects = effects } }

// WithApproval says when a person must agree first.
func WithApproval(policy Policy) Option { return func(s *Spec) { s.Approval = policy } }

// WithTimeout bounds one call.
func WithTimeout(timeout time.Duration) Option { return func(s *Spec) { s.Timeout = timeout } }

// WithParameters replaces the JSON Schema, to say more than a Go type can.
func WithParameters(schema json.RawMessage) Option {
	return func(s *Spec) { s.Parameters = schema }
}

// With is t with another spec: a policy from the configuration, say.
func With(t Tool, options ...Option) Tool {
	spec := t.Spec()
	for _, option := range options {
		option(&spec)
	}
	return changed{t, spec}
}

type changed struct {
	Tool
	spec Spec
}

func (c changed) Spec() Spec { return c.spec }

type typed[In, Out any] struct {
	spec Spec
	fn   func(ctx context.Context, in In, call Call) (Out, error)
}

func (t typed[In, Out]) Spec() Spec { return t.spec }

func (t typed[In, Out]) Call(ctx context.Context, call Call) (Result, error) {
	var in In
	dec := json.NewDecoder(bytes.NewReader(call.Arguments))
	dec.UseNumber()
	if err := dec.Decode(&in); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return Result{}, refuseArguments(t.spec, "%s must be of type %s, not %s", wrong.Field, wrong.Type, trim(wrong.Value, 100))
		}
		return Result{}, refuseArguments(t.spec, "%s", trim(err.Error(), 500))
	}
	out, err := t.fn(ctx, in, call)
	if err != nil {
		return Result{}, err
	}
	return resultOf(out)
}

func resultOf(out any) (Result, error) {
	switch v := out.(type) {
	case Result:
		return v, nil
	case json.Number, json.Marshaler, encoding.TextMarshaler:
	default:
		if s := reflect.ValueOf(out); s.Kind() == reflect.String {
			return Text(s.String()), nil
		}
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(out); err != nil {
		return Result{}, Errorf(CodeInvalidResult, "The tool was run, but its result cannot be encoded: %s.", trim(err.Error(), 500))
	}
	return Result{Value: text.Bytes()}, nil
}

// schemaOf makes the schema of In's JSON form.
func schemaOf[In any]() (json.RawMessage, error) {
	s, err := jsonschema.For[In](nil)
	if err != nil {
		return nil, err
	}
	if s.Type != "object" {
		return nil, fmt.Errorf("%s is no struct and no map with string keys", reflect.TypeFor[In]())
	}
	if s.Properties == nil && reflect.TypeFor[In]().Kind() == reflect.Struct {
		s.Properties = map[string]*jsonschema.Schema{} // some providers insist on the word
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(text.Bytes()), nil
}
