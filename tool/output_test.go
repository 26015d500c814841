package tool

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/session"
)

func TestOddButLegalResultsStayWhatTheyAre(t *testing.T) {
	for _, value := range []string{
		`null`, `""`, `0`, `false`, `[]`, `{}`, `"null"`, `-0.0`, `1e400`, `9007199254740993`,
		`{"__proto__":{"x":1},"constructor":1}`, `{"type":"finish"}`, `{"a":1,"a":2}`, `"a\u0000b"`, `"\\u0000"`,
	} {
		got, cut, err := Bound(json.RawMessage(value), 0)
		if err != nil || cut != 0 || string(got) != value {
			t.Errorf("Bound(%s) = %s, %d, %v", value, got, cut, err)
		}
		if inline, whole := Inline(got); string(inline) != value || whole != nil {
			t.Errorf("Inline(%s) = %s, %s", value, inline, whole)
		}
	}
	if got, cut, err := Bound(nil, 0); err != nil || cut != 0 || string(got) != "null" {
		t.Errorf("Bound(nil) = %s, %d, %v", got, cut, err)
	}
}

func TestAResultThatIsNoJSONIsAClearError(t *testing.T) {
	deep := strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)
	for value, says := range map[string]string{deep: "nested deeper than 200", "[" + deep + "]": "nested deeper than 200", `{"a":`: "cut off", `1 2`: "more text after", `plain`: "not valid JSON"} {
		_, _, err := Bound(json.RawMessage(value), 0)
		var told *Error
		if !errors.As(err, &told) || told.Code != CodeInvalidResult || !strings.Contains(told.Message, says) || !strings.Contains(told.Message, "was run") {
			t.Errorf("Bound(%.20s) = %v", value, err)
		}
	}
}

func TestBytesOfACommandBecomeText(t *testing.T) {
	got, cut, err := Bound(Text("\xff\xfe\x00A\xc3(\x1b[31m").Value, 0)
	if want := `"` + "\uFFFD" + `\u0000A` + "\uFFFD" + `(\u001b[31m"`; err != nil || cut != 0 || string(got) != want {
		t.Errorf("Bound = %s, %v; want %s", got, err, want)
	}
}

func TestALongTextIsCutBetweenCharacters(t *testing.T) {
	const limit = 100
	for _, c := range []struct {
		text string
		kept int
	}{
		{strings.Repeat("a", limit), limit},
		{strings.Repeat("a", limit+1), limit},
		{strings.Repeat("a", limit-1) + "\U0001F600", limit - 1},
		{strings.Repeat("a", limit-4) + "\U0001F600", limit},
		{strings.Repeat("\n", limit), limit / 2},
		{strings.Repeat("\x00", limit), limit / 6},
		{strings.Repeat(`"\`, limit), limit / 2},
		{strings.Repeat("<>&", limit), limit},
	} {
		got, cut, err := Bound(Text(c.text).Value, limit)
		var back string
		if err != nil || json.Unmarshal(got, &back) != nil || back != c.text[:c.kept] || cut != int64(len(c.text)-c.kept) {
			t.Errorf("Bound(%q) keeps %d, cuts %d, %v; want %d kept", c.text, len(back), cut, err, c.kept)
		}
	}
}

func TestTenMebibytesAreKeptWholeAndPreviewed(t *testing.T) {
	text := strings.Repeat("a", DefaultOutputLimit)
	value, cut, err := Bound(Text(text).Value, 0)
	if err != nil || cut != 0 || len(value) != len(text)+2 {
		t.Fatalf("kept %d, cut %d, %v", len(value), cut, err)
	}
	inline, whole := Inline(value)
	if string(inline) != `"`+text[:PreviewLimit]+`"` || string(whole) != string(value) {
		t.Errorf("the preview has %d bytes, the blob %d", len(inline), len(whole))
	}
}

func TestAValueThatIsTooLargeBecomesTheBeginningOfItsText(t *testing.T) {
	value := `{"list":[1,2,3],"text":"` + strings.Repeat("é", 100) + `"}`
	got, cut, err := Bound(json.RawMessage(value), 50)
	var back string
	if err != nil || json.Unmarshal(got, &back) != nil || !strings.HasPrefix(value, back) || cut != int64(len(value)-len(back)) || len(got) > 52 {
		t.Errorf("Bound = %s, %d, %v", got, cut, err)
	}
}

func TestEveryBoundedValueIsWellFormedAndWithinItsLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		value := session.JSONString(text)
		if rapid.Bool().Draw(t, "object") {
			value, _ = json.Marshal(map[string]any{"k": text, "n": []int{1, 2}})
		}
		limit := rapid.Int64Range(1, 200).Draw(t, "limit")
		got, cut, err := Bound(value, limit)
		if err != nil || !json.Valid(got) || !utf8.Valid(got) || int64(len(got)) > limit+2 || cut < 0 {
			t.Fatalf("Bound(%s, %d) = %s, %d, %v", value, limit, got, cut, err)
		}
		if cut == 0 && string(got) != string(value) {
			t.Fatalf("nothing cut, but %s became %s", value, got)
		}
		if again, more, err := Bound(got, limit); err != nil || more != 0 || string(again) != string(got) {
			t.Fatalf("bounding twice: %s, %d, %v", again, more, err)
		}
	})
}
