package tool

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/session"
)

type order struct {
	ID     int64          `json:"id" jsonschema:"the order's number"`
	Amount json.Number    `json:"amount,omitempty"`
	Tags   []string       `json:"tags,omitempty"`
	Extra  map[string]any `json:"extra,omitempty"`
}

func echo(t *testing.T) Tool {
	t.Helper()
	return New("echo", "Gives back what it got.", func(_ context.Context, in order, _ Call) (order, error) { return in, nil },
		WithEffects(session.ReadOnly), WithTimeout(7))
}

func TestAGoTypeGivesTheParameters(t *testing.T) {
	s := echo(t).Spec()
	if s.Name != "echo" || s.Effects != session.ReadOnly || s.Timeout != 7 {
		t.Errorf("the spec is %+v", s)
	}
	var schema struct {
		Type                 string
		Required             []string
		AdditionalProperties *bool
		Properties           map[string]struct{ Description string }
	}
	if err := json.Unmarshal(s.Parameters, &schema); err != nil {
		t.Fatal(err)
	}
	if schema.Type != "object" || strings.Join(schema.Required, " ") != "id" || schema.AdditionalProperties == nil || *schema.AdditionalProperties ||
		schema.Properties["id"].Description != "the order's number" {
		t.Errorf("the schema is %s", s.Parameters)
	}
	none := New("none", "", func(context.Context, struct{}, Call) (string, error) { return "", nil })
	if want := `{"type":"object","properties":{},"additionalProperties":false}`; string(none.Spec().Parameters) != want {
		t.Errorf("no parameters are %s, want %s", none.Spec().Parameters, want)
	}
}

func TestNumbersPassThroughAGoFunctionWithoutLosingADigit(t *testing.T) {
	tl := echo(t)
	args, err := Validate(tl.Spec(), []byte(`{"id":2512292042121000001,"extra":{"big":9007199254740993,"y":1.10,"html":"<&>"}}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Run(t.Context(), tl, Call{Arguments: args})
	if err != nil || string(got.Value) != `{"id":2512292042121000001,"extra":{"big":9007199254740993,"html":"<&>","y":1.10}}` {
		t.Errorf("Run = %s, %v", got.Value, err)
	}
}

func TestANumberTooLargeForTheGoTypeIsRefusedNotRounded(t *testing.T) {
	tl := echo(t)
	args, err := Validate(tl.Spec(), []byte(`{"id":9223372036854775808}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = Run(t.Context(), tl, Call{Arguments: args}); FailureOf(err).Code != CodeInvalidArguments {
		t.Errorf("Run = %v", err)
	}
}

type city string

func TestEveryKindOfGoResultIsOneJSONValue(t *testing.T) {
	for want, fn := range map[string]func() (any, error){
		`"a<b` + "\uFFFD" + `"`: func() (any, error) { return "a<b\xff\xfe", nil },
		`"Oslo"`:                func() (any, error) { return city("Oslo"), nil },
		`null`:                  func() (any, error) { return nil, nil },
		`[]`:                    func() (any, error) { return []string{}, nil },
		`{"b":1,"a":2}`:         func() (any, error) { return json.RawMessage(`{"b":1, "a":2}`), nil },
		`"as it is"`:            func() (any, error) { return Text("as it is"), nil },
		`{"a":1,"a":2}`:         func() (any, error) { return Result{Value: json.RawMessage(`{"a":1,"a":2}`)}, nil },
		`1.50`:                  func() (any, error) { return json.Number("1.50"), nil },
	} {
		tl := New("t", "", func(context.Context, struct{}, Call) (any, error) { return fn() })
		got, err := Run(t.Context(), tl, Call{Arguments: json.RawMessage(`{}`)})
		if err != nil || string(got.Value) != want {
			t.Errorf("Run = %s, %v; want %s", got.Value, err, want)
		}
	}
	tl := New("t", "", func(context.Context, struct{}, Call) (float64, error) { return math.NaN(), nil })
	if _, err := Run(t.Context(), tl, Call{Arguments: json.RawMessage(`{}`)}); FailureOf(err).Code != CodeInvalidResult {
		t.Errorf("NaN gives %v", err)
	}
}

func TestAnErrorOfAGoFunctionComesBackAsItIs(t *testing.T) {
	want := errors.New("no")
	tl := New("t", "", func(context.Context, struct{}, Call) (string, error) { return "", want })
	if _, err := Run(t.Context(), tl, Call{Arguments: json.RawMessage(`{}`)}); err != want {
		t.Errorf("Run = %v", err)
	}
}

func TestAToolCanBeGivenAnotherPolicy(t *testing.T) {
	tl := echo(t)
	strict := With(tl, WithApproval(Always))
	if !strict.Spec().Approval.Needs(strict.Spec(), nil) || tl.Spec().Approval.Needs(tl.Spec(), nil) || strict.Spec().Name != "echo" {
		t.Errorf("with approval: %+v, without: %+v", strict.Spec(), tl.Spec())
	}
}

func TestInputThatIsNoObjectIsAMistakeOfTheProgram(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("New took a string as input")
		}
	}()
	New("t", "", func(context.Context, string, Call) (string, error) { return "", nil })
}
