package wire

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/model"
)

func TestHistoryKeepsArgumentsButForHalfAPair(t *testing.T) {
	for raw, want := range map[string]string{
		``:                                         `{}`,
		"  \n":                                     `{}`,
		`{ "id" : 9007199254740993 }` + "\n":       `{ "id" : 9007199254740993 }` + "\n",
		`{"q":"\ud99c x"}`:                         `{"q":"\ufffd x"}`,
		`{"q":"\udc00"}`:                           `{"q":"\ufffd"}`,
		`{"q":"\ud83d\ude00"}`:                     `{"q":"\ud83d\ude00"}`,
		`{"q":"\uD83D\uDE00\uD83D"}`:               `{"q":"\uD83D\uDE00\ufffd"}`,
		`{"q":"\ud83d\ud83d\ude00"}`:               `{"q":"\ufffd\ud83d\ude00"}`,
		`{"q":"\\ud99c \\\ud99c"}`:                 `{"q":"\\ud99c \\\ufffd"}`,
		`{"q":"\u00e9\n\"\ud99c"}`:                 `{"q":"\u00e9\n\"\ufffd"}`,
		"{\"q\":\"\xed\xa0\xbd\xff\"}":             "{\"q\":\"\uFFFD\"}",
		`{"\ud99c":{"a":["\udfff"]},"b":"\u0000"}`: `{"\ufffd":{"a":["\ufffd"]},"b":"\u0000"}`,
	} {
		in := json.RawMessage(raw)
		got, err := History(model.Part{Arguments: in})
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v; want %s", raw, got, err, want)
		}
		if string(in) != raw {
			t.Errorf("%s: the log's own bytes were changed to %s", raw, in)
		}
	}
}

func TestHistoryGivesWhatAStrictReaderTakes(t *testing.T) {
	pieces := []string{`\ud83d`, `\ude00`, `\uD83D`, `\\`, `\"`, `\u0041`, `a`, "\xff", "\xed\xa0\x80", "é", "u"}
	rapid.Check(t, func(t *rapid.T) {
		raw := `{"q":"` + strings.Join(rapid.SliceOf(rapid.SampledFrom(pieces)).Draw(t, "pieces"), "") + `"}`
		got, err := History(model.Part{Arguments: json.RawMessage(raw)})
		if err != nil {
			t.Fatal(err)
		}
		if !utf8.Valid(got) || !json.Valid(got) {
			t.Fatalf("%q became %q", raw, got)
		}
		// The decoder makes U+FFFD of every half pair that is left: then nothing
		// may differ but what was replaced before.
		var was, is map[string]string
		json.Unmarshal([]byte(raw), &was)
		json.Unmarshal(got, &is)
		if strings.ReplaceAll(was["q"], "\uFFFD", "") != strings.ReplaceAll(is["q"], "\uFFFD", "") {
			t.Fatalf("%q became %q", was["q"], is["q"])
		}
		for rest := string(got); rest != ""; {
			unit, ok := escape([]byte(rest))
			switch {
			case !ok && rest[0] == '\\':
				rest = rest[2:]
			case !ok:
				rest = rest[1:]
			case unit >= 0xD800 && unit < 0xDC00:
				if low, ok := escape([]byte(rest[6:])); !ok || low < 0xDC00 || low > 0xDFFF {
					t.Fatalf("half a pair is left in %q", got)
				}
				rest = rest[12:]
			case unit >= 0xDC00 && unit < 0xE000:
				t.Fatalf("half a pair is left in %q", got)
			default:
				rest = rest[6:]
			}
		}
	})
}

func TestASignatureIsKnownWhereItWasIssuedOnly(t *testing.T) {
	s := Sign("anthropic", "api.anthropic.com", "Er@ x==")
	if data, ok := Signed(s, "anthropic", "api.anthropic.com"); !ok || data != "Er@ x==" {
		t.Errorf("%q, %v", data, ok)
	}
	for _, other := range [][2]string{{"anthropic", "localhost:1"}, {"anthropic-redacted", "api.anthropic.com"}, {"reasoning_content", "api.anthropic.com"}} {
		if data, ok := Signed(s, other[0], other[1]); ok {
			t.Errorf("%v takes %q", other, data)
		}
	}
}
