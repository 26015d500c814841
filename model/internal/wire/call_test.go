package wire

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func at(i int) *int { return &i }

// TestFragmentsAreJoinedRightOrRefused plays calls in every way in which
// providers tie fragments to calls, in every order, and checks that what comes
// out is what was said, or the beginning of it and an error. What it takes for
// granted is that a call is over when its object is whole: white space that
// trails behind, without id or index, is anybody's.
func TestFragmentsAreJoinedRightOrRefused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "calls")
		// How fragments are tied to their call.
		index := rapid.SampledFrom([]string{"own", "zero", "none"}).Draw(t, "index")
		id := rapid.SampledFrom([]string{"first", "all", "none"}).Draw(t, "id")
		nameOnAll := rapid.Bool().Draw(t, "name on all")
		mixed := rapid.Bool().Draw(t, "mixed")

		want := make([]string, n)
		queues := make([][]Fragment, n)
		for i := range n {
			want[i] = rapid.SampledFrom([]string{
				`{}`, `{"a":1}`, `{"a":{"b":[{}]}}`, ` {"s":"}{\"] "}`, `{"n":"` + strings.Repeat("x", i) + `"}`, "",
			}).Draw(t, "arguments")
			first := true
			for rest := want[i]; first || rest != ""; first = false {
				size := rapid.IntRange(0, len(rest)).Draw(t, "size")
				if !first && size == 0 {
					size = len(rest)
				}
				f := Fragment{Arguments: rest[:size]}
				rest = rest[size:]
				if first || nameOnAll {
					f.Name = fmt.Sprintf("tool%d", i)
				}
				if id == "all" || id == "first" && first {
					f.ID = fmt.Sprintf("id%d", i)
				}
				switch index {
				case "own":
					f.Index = at(i)
				case "zero":
					f.Index = at(0)
				}
				queues[i] = append(queues[i], f)
			}
		}

		var calls Calls
		got := map[string]string{} // by name
		var failed error
		for failed == nil {
			var open []int
			for i, q := range queues {
				if len(q) > 0 {
					open = append(open, i)
				}
			}
			if len(open) == 0 {
				failed = calls.Close()
				break
			}
			i := open[0]
			if mixed {
				i = rapid.SampledFrom(open).Draw(t, "next")
			}
			f := queues[i][0]
			queues[i] = queues[i][1:]
			call, _, err := calls.Add(f)
			if err != nil {
				failed = err
				break
			}
			got[call.Name] += f.Arguments
		}
		for i := range n {
			text := got[fmt.Sprintf("tool%d", i)]
			if !strings.HasPrefix(want[i], text) || failed == nil && text != want[i] {
				t.Fatalf("call %d has arguments %q, want %q (error %v)", i, text, want[i], failed)
			}
		}
		sure := index == "own" || id == "all" // The wire leaves no doubt.
		if failed != nil && sure {
			t.Fatalf("refused: %v", failed)
		}
	})
}

func TestFragmentsWithoutIDsGetDistinctIDs(t *testing.T) {
	var calls Calls
	a, begun, err := calls.Add(Fragment{Name: "look", Arguments: "{}"})
	if err != nil || !begun {
		t.Fatal(begun, err)
	}
	b, begun, err := calls.Add(Fragment{Name: "look", Arguments: "{}"})
	if err != nil || !begun || a == b || a.ID == b.ID || a.ID == "" {
		t.Errorf("%+v %+v %v %v", a, b, begun, err)
	}
}

func TestACallWhoseNameComesLateBeginsWithIt(t *testing.T) {
	var calls Calls
	if _, begun, err := calls.Add(Fragment{Index: at(0), ID: "A"}); begun || err != nil {
		t.Error(begun, err)
	}
	if calls.Close() == nil {
		t.Error("a call without a name is accepted")
	}
	if call, begun, err := calls.Add(Fragment{Index: at(0), Name: "look", Arguments: "{"}); !begun || err != nil || call.ID != "A" {
		t.Error(call, begun, err)
	}
	if call, begun, err := calls.Add(Fragment{Index: at(0), Arguments: "}"}); begun || err != nil || call.Name != "look" {
		t.Error(call, begun, err)
	}
	if err := calls.Close(); err != nil {
		t.Error(err)
	}
}

func TestFragmentsThatBreakTheProtocolAreRefused(t *testing.T) {
	for name, fragments := range map[string][]Fragment{
		"belongs to nobody":          {{Index: at(0), Arguments: "{}"}},
		"arguments before the name":  {{Index: at(0), ID: "A", Arguments: "{}"}},
		"two names":                  {{Index: at(0), ID: "A", Name: "a", Arguments: "{"}, {Index: at(0), ID: "A", Name: "b"}},
		"two names without ids":      {{Name: "a", Arguments: "{"}, {Name: "b", Arguments: "{}"}},
		"one id at two indexes":      {{Index: at(0), ID: "A", Name: "a"}, {Index: at(1), ID: "A", Name: "a"}},
		"welded":                     {{Index: at(0), ID: "A", Name: "a", Arguments: "{}"}, {Index: at(0), Arguments: "{}"}},
		"welded in one":              {{Index: at(0), ID: "A", Name: "a", Arguments: `{"t":"A"}{"t":"B"}`}},
		"whose, of two in one place": {{ID: "A", Name: "a"}, {ID: "B", Name: "b"}, {Arguments: "{}"}},
	} {
		var calls Calls
		var err error
		for _, f := range fragments {
			if err == nil {
				_, _, err = calls.Add(f)
			}
		}
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestArgumentsThatAreNoJSONPass(t *testing.T) {
	for _, text := range []string{"", "{", "{}}", "}", "null", "[]", `"str"`, "12", `{"a":`, "]{}", "\\", `{"a":"\`, "{} trailing"} {
		var a Arguments
		for i := range len(text) {
			if !a.Add(text[i : i+1]) {
				t.Errorf("%q is refused at %d", text, i)
			}
		}
	}
}
