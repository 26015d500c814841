package tool

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func spec(parameters string) Spec {
	return Spec{Name: "write_file", Parameters: json.RawMessage(parameters)}
}

const anyObject = `{"type":"object"}`

func TestArgumentsStayByteForByteAsTheModelWroteThem(t *testing.T) {
	for _, args := range []string{
		`{"id":2512292042121000001,"x":1e2,"y":1.10,"b":true}`,
		`{"z":1,"a":2,"m":{"y":-0.0,"b":18446744073709551615}}`,
		`{"big":123456789012345678901234567890}`,
		`{"__proto__":{"x":1},"constructor":1}`,
		`{"nul":"a\u0000b","text":"\\u0000","html":"<a href='x'>&</a>"}`,
	} {
		got, err := Validate(spec(anyObject), []byte(args))
		if err != nil || string(got) != args {
			t.Errorf("Validate(%s) = %s, %v", args, got, err)
		}
	}
}

func TestArgumentsAreMadeCompactAndEncodable(t *testing.T) {
	got, err := Validate(spec(anyObject), []byte(" {\n \"q\": \"\\ud99c x\", \"r\": \"\xff\", \"s\": \"\\ud83d\\ude00\"\n} "))
	if want := `{"q":"\ufffd x","r":"` + "\uFFFD" + `","s":"\ud83d\ude00"}`; err != nil || string(got) != want {
		t.Errorf("Validate = %s, %v; want %s", got, err, want)
	}
}

func TestBrokenArgumentsAreRefusedWithTheReasonAndNeverRepaired(t *testing.T) {
	deep := `{"a":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`
	for _, c := range []struct{ args, says string }{
		{`{"path":"/etc/hosts","content":"127.0.0.1 loc`, "cut off before its end"},
		{`{`, "cut off before its end"},
		{`{"a":1`, "cut off before its end"},
		{`{"a":tru`, "cut off before its end"},
		{`null`, "not null"},
		{`[]`, "not an array"},
		{`"str"`, "not a string"},
		{`7`, "not a number"},
		{`true`, "not a boolean"},
		{`{}}`, `more text after the JSON value: "}"`},
		{`{"a":1}<|call|>`, `more text after the JSON value: "<|call|>"`},
		{`{"a":1}{"a":2}`, "more text after the JSON value"},
		{`{'a':1}`, "not valid JSON"},
		{`{"a":1,}`, "not valid JSON"},
		{`{"a":NaN}`, "not valid JSON"},
		{"\x00", "not valid JSON"},
		{`{"a":1,"a":2}`, `the key "a" is there twice`},
		{`{"n":[{"a":1,"\u0061":2}]}`, `the key "a" is there twice`},
		{`{"n":1e400}`, "out of range"},
		{deep, "nested deeper than 200"},
	} {
		got, err := Validate(spec(anyObject), []byte(c.args))
		var told *Error
		if !errors.As(err, &told) || told.Code != CodeInvalidArguments || got != nil {
			t.Errorf("Validate(%.60s) = %s, %v; want a refusal", c.args, got, err)
			continue
		}
		if !strings.Contains(told.Message, c.says) || !strings.Contains(told.Message, "was not run") || len(told.Message) > 1000 || !utf8.ValidString(told.Message) {
			t.Errorf("Validate(%.60s) says %q, which should hold %q", c.args, told.Message, c.says)
		}
	}
}

func TestNoArgumentTextMeansAnEmptyObjectOnlyIfNothingIsRequired(t *testing.T) {
	for _, parameters := range []string{``, anyObject, `{"type":"object","properties":{"a":{"type":"string"}}}`} {
		for _, raw := range []string{"", " \n"} {
			if got, err := Validate(spec(parameters), []byte(raw)); err != nil || string(got) != "{}" {
				t.Errorf("Validate(%q, %q) = %s, %v", parameters, raw, got, err)
			}
		}
	}
	for _, raw := range []string{"", "{}"} {
		_, err := Validate(spec(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`), []byte(raw))
		if err == nil || !strings.Contains(err.Error(), `"city"`) {
			t.Errorf("Validate(%q) with a required parameter = %v", raw, err)
		}
	}
}

func TestArgumentsThatDoNotFitTheSchemaAreRefusedWithThePlace(t *testing.T) {
	s := spec(`{"type":"object","required":["n"],"additionalProperties":false,"properties":{
		"n":{"type":"integer","minimum":0.1,"maximum":9223372036854775807},
		"id":{"enum":[2512292042121000001]},
		"tags":{"type":"array","items":{"type":"string","maxLength":3}}}}`)
	for args, says := range map[string]string{
		`{"n":"1"}`:                        "at /n: ",
		`{"n":1.5}`:                        "at /n: ",
		`{"n":0}`:                          "minimum",
		`{"n":1,"other":2}`:                `"other"`,
		`{"n":1,"tags":["ok","long"]}`:     "at /tags/items: ",
		`{"n":1,"id":2512292042121000002}`: "at /id: ",
	} {
		_, err := Validate(s, []byte(args))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Validate(%s) = %v, which should hold %q", args, err, says)
		}
	}
	for _, args := range []string{`{"n":1}`, `{"n":1.0}`, `{"n":1e2}`, `{"n":9223372036854775807}`, `{"n":1,"id":2512292042121000001}`} {
		if _, err := Validate(s, []byte(args)); err != nil {
			t.Errorf("Validate(%s): %v", args, err)
		}
	}
}

func TestARefusalIsBoundedHoweverLargeTheArguments(t *testing.T) {
	large := strings.Repeat("é<", 1<<20)
	for _, args := range []string{`{"n":"` + large + `"}`, `{"` + large + `":1}`, `{} ` + large} {
		_, err := Validate(spec(`{"type":"object","additionalProperties":false,"properties":{"n":{"type":"integer"}}}`), []byte(args))
		if err == nil || len(err.Error()) > 1000 || !utf8.ValidString(err.Error()) {
			t.Errorf("the refusal is %d bytes", len(err.Error()))
		}
	}
}

func TestParametersThatAreNoSchemaAreNotTheModelsFault(t *testing.T) {
	for _, parameters := range []string{`{"type":7}`, `{"$ref":"https://example.com/schema"}`, `{"a":1,"a":2}`, `{"pattern":"("}`, `nonsense`} {
		_, err := Validate(spec(parameters), []byte(`{}`))
		var told *Error
		if err == nil || errors.As(err, &told) {
			t.Errorf("Validate with parameters %s = %v", parameters, err)
		}
	}
}

func FuzzValidateGivesAnObjectThatIsStableOrRefuses(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":1}<|call|>`, `{"a":"\ud83d"}`, `{"a":[1e2,{}]}`, `{"a":1,"a":1}`, "{\"\xff\":0}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := Validate(spec(anyObject), raw)
		if err != nil {
			var told *Error
			if !errors.As(err, &told) || !utf8.ValidString(told.Message) {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		if !json.Valid(got) || got[0] != '{' || !utf8.Valid(got) {
			t.Fatalf("accepted %q", got)
		}
		again, err := Validate(spec(anyObject), got)
		if err != nil || string(again) != string(got) {
			t.Fatalf("second pass: %q, %v; first %q", again, err, got)
		}
	})
}
