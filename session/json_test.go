package session_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/session"
)

func TestCleanJSONKeepsEveryByteOfGoodJSON(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		raw := aJSON(rt, 4)
		got, err := session.CleanJSON(raw)
		if err != nil {
			rt.Fatalf("%s was refused: %v", raw, err)
		}
		if string(got) != string(raw) {
			rt.Fatalf("%s became %s", raw, got)
		}
	})
}

func TestCleanJSONMendsHalfEmoji(t *testing.T) {
	for raw, want := range map[string]string{
		`"\ud83d"`:                `"\ufffd"`,
		`"\ude00"`:                `"\ufffd"`,
		`"\uD83D\uD83D\uDE00"`:    `"\ufffd\uD83D\uDE00"`,
		`"\ud83dx\ude00"`:         `"\ufffdx\ufffd"`,
		`"\ude00\ud83d"`:          `"\ufffd\ufffd"`,
		`"\\ud83d"`:               `"\\ud83d"`,
		`"\\\ud83d"`:              `"\\\ufffd"`,
		`"\ud83d\u0041"`:          `"\ufffd\u0041"`,
		`"\ud83d\n"`:              `"\ufffd\n"`,
		`{"\udc00":"\ud99c x"}`:   `{"\ufffd":"\ufffd x"}`,
		` [ 1 , "a  b" ] `:        `[1,"a  b"]`,
		"\"\xff\xfe\"":            "\"\uFFFD\"",
		"\"a\xed\xa0\xbdb\"":      "\"a\uFFFDb\"",
		`{"a":1.10,"a":1e2}`:      `{"a":1.10,"a":1e2}`,
		`"\u0000"`:                `"\u0000"`,
		`2512292042121000001`:     `2512292042121000001`,
		"\t{\"k\":\r\n\"\\/\"}\n": `{"k":"\/"}`,
	} {
		got, err := session.CleanJSON([]byte(raw))
		if err != nil || string(got) != want {
			t.Errorf("%s became %s (%v), not %s", raw, got, err, want)
		}
	}
}

func TestCleanJSONRefusesWhatIsNotOneValue(t *testing.T) {
	for _, raw := range []string{"", "  ", "{", "{}}", `{"a":1}<|call|>`, "null null", `"a`, `"\u12"`, "NaN", "'a'", "[1,]", "01", "\x00"} {
		if got, err := session.CleanJSON([]byte(raw)); err == nil {
			t.Errorf("%q became %s", raw, got)
		}
	}
}

func TestCleanJSONBoundsHowDeepAValueNests(t *testing.T) {
	nested := func(n int) []byte { return []byte(strings.Repeat(`[{"a":`, n/2) + "1" + strings.Repeat("}]", n/2)) }
	if _, err := session.CleanJSON(nested(session.MaxJSONDepth)); err != nil {
		t.Errorf("%d levels were refused: %v", session.MaxJSONDepth, err)
	}
	for _, n := range []int{session.MaxJSONDepth + 2, 10_000, 100_000} {
		if _, err := session.CleanJSON(nested(n)); err == nil {
			t.Errorf("%d levels were taken", n)
		}
	}
	brackets := `"` + strings.Repeat("[", 1000) + `"`
	if _, err := session.CleanJSON([]byte(brackets)); err != nil {
		t.Errorf("brackets in a string were counted: %v", err)
	}
}

// FuzzCleanJSON: what comes out is one compact value of valid UTF-8 without half
// surrogates, says what went in as far as Go can read that, and cleaning it again changes nothing.
func FuzzCleanJSON(f *testing.F) {
	for _, seed := range []string{`{"a":[1,"\ud83d\ude00",null]}`, `"\ud83d"`, "\"\xff\"", `"\\\ud83d\\"`, `[1e400]`, `"\ud83d\ud83d\ude00"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := session.CleanJSON(raw)
		if err != nil {
			return
		}
		cleaned(t, raw, got)
	})
}

func TestCleanJSONOfAnythingIsCleanOrRefused(t *testing.T) {
	pieces := rapid.SampledFrom([]string{
		`"`, `"`, `\`, `\u`, `\ud83d`, `\ude00`, `\\`, `\"`, "d83d", "{", "}", "[", "]", ":", ",", "1", "e9", " ", "\xff", "\xed\xa0", "😀", "\u2028", "null",
	})
	rapid.Check(t, func(rt *rapid.T) {
		raw := []byte(strings.Join(rapid.SliceOfN(pieces, 0, 12).Draw(rt, "pieces"), ""))
		if rapid.Bool().Draw(rt, "in a string") {
			raw = []byte(`"` + strings.ReplaceAll(string(raw), `"`, "") + `"`)
		}
		if got, err := session.CleanJSON(raw); err == nil {
			cleaned(rt, raw, got)
		} else if json.Valid([]byte(session.CleanText(string(raw)))) {
			rt.Fatalf("valid JSON was refused: %s: %v", raw, err)
		}
	})
}

func cleaned(t tester, raw []byte, got json.RawMessage) {
	t.Helper()
	var compact bytes.Buffer
	if err := json.Compact(&compact, got); err != nil || compact.String() != string(got) {
		t.Fatalf("%q became %q, which is not compact JSON", raw, got)
	}
	if !utf8.Valid(got) {
		t.Fatalf("%q became %q, which is not valid UTF-8", raw, got)
	}
	if at := halfSurrogate(got); at >= 0 {
		t.Fatalf("%q became %q, with half a surrogate pair at %d", raw, got, at)
	}
	if again, err := session.CleanJSON(got); err != nil || string(again) != string(got) {
		t.Fatalf("%q became %q, and that %q (%v)", raw, got, again, err)
	}
	if diff := cmp.Diff(decoded(t, []byte(session.CleanText(string(raw)))), decoded(t, got)); diff != "" {
		t.Fatalf("%q became %q, which says something else:\n%s", raw, got, diff)
	}
}

// halfSurrogate finds an escape that is half a pair, or gives -1. It reads the
// escapes as UTF-16, as a strict reader in another language does.
func halfSurrogate(b []byte) int {
	escape := func(i int) rune {
		if i+6 > len(b) || b[i] != '\\' || b[i+1] != 'u' {
			return -1
		}
		var r rune
		for _, c := range b[i+2 : i+6] {
			r = r<<4 | rune(strings.IndexByte("0123456789abcdef", c|0x20)&15)
			if c >= '0' && c <= '9' {
				r = r&^15 | rune(c-'0')
			}
		}
		return r
	}
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			continue
		}
		r := escape(i)
		if r < 0 {
			i++
			continue
		}
		if utf16.IsSurrogate(r) {
			if utf16.DecodeRune(r, escape(i+6)) == utf8.RuneError {
				return i
			}
			i += 6
		}
		i += 5
	}
	return -1
}

func TestCleanTextIsValidAndLeavesValidTextAlone(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		valid := rapid.String().Draw(rt, "valid")
		if got := session.CleanText(valid); got != valid {
			rt.Fatalf("%q became %q", valid, got)
		}
		raw := string(rapid.SliceOf(rapid.Byte()).Draw(rt, "bytes"))
		got := session.CleanText(raw)
		if !utf8.ValidString(got) || session.CleanText(got) != got {
			rt.Fatalf("%q became %q", raw, got)
		}
		if utf8.ValidString(raw) && got != raw {
			rt.Fatalf("%q is valid and became %q", raw, got)
		}
	})
	if got := session.CleanText("a\x00b\xff\xed\xa0\xbd."); got != "a\x00b\uFFFD." {
		t.Errorf("NUL and broken bytes became %q", got)
	}
}

func TestTrimTextNeverSplitsACharacter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := rapid.String().Draw(rt, "text")
		limit := rapid.IntRange(-1, len(s)+2).Draw(rt, "limit")
		got := session.TrimText(s, limit)
		switch {
		case !strings.HasPrefix(s, got), !utf8.ValidString(got), len(got) > max(limit, 0):
			rt.Fatalf("%q cut to %d bytes is %q", s, limit, got)
		case len(s) <= limit && got != s:
			rt.Fatalf("%q fits %d bytes and became %q", s, limit, got)
		case len(got) < min(limit, len(s))-3:
			rt.Fatalf("%q cut to %d bytes lost more than a character: %q", s, limit, got)
		}
	})
	if got := session.TrimText("aaa😀", 5); got != "aaa" {
		t.Errorf("half an emoji is %q", got)
	}
}

func TestJSONStringIsTheTextAndNothingElse(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := rapid.String().Draw(rt, "text")
		var got string
		if err := json.Unmarshal(session.JSONString(s), &got); err != nil || got != s {
			rt.Fatalf("%q became %s (%v)", s, session.JSONString(s), err)
		}
	})
	if got := string(session.JSONString("<&>\xff")); got != "\"<&>\uFFFD\"" {
		t.Errorf("markup is escaped: %s", got)
	}
}
