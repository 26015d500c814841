package builtin

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestTheCalculatorIsExact(t *testing.T) {
	for expression, want := range map[string]string{
		"0.1 + 0.2":                          "0.3",
		"1":                                  "1",
		"-0":                                 "0",
		"2 + 3 * 4":                          "14",
		"(2 + 3) * 4":                        "20",
		"8 / 4 / 2":                          "1",
		"10 - 4 - 3":                         "3",
		"-2 ^ 2":                             "-4",
		"(-2) ^ 3":                           "-8",
		"2 ^ 3 ^ 2":                          "512",
		"2 ** -2":                            "0.25",
		"2 ^ - 1":                            "0.5",
		"--5":                                "5",
		"6 × 7 ÷ 2 − 1":                      "20",
		"7 % 3":                              "1",
		"-7 % 3":                             "2",
		"7 % -3":                             "-2",
		"5.5 % 2":                            "1.5",
		"9007199254740993 * 1":               "9007199254740993",
		"2512292042121000001 + 1":            "2512292042121000002",
		"1e3 + .5":                           "1000.5",
		"1.20E-2":                            "0.012",
		"3 * 120 + 2 * 85 + 60":              "590",
		"12*7":                               "84",
		"2^100":                              "1267650600228229401496703205376",
		"0^0":                                "1",
		"(-1)^99999999999999999999":          "-1",
		"0^99999999999999999999":             "0",
		"1/3":                                "0.333333333333333333333333333333 (rounded; exactly 1/3)",
		"1/3*3":                              "1",
		"-2/3":                               "-0.666666666666666666666666666667 (rounded; exactly -2/3)",
		"sqrt(16/9) * 3":                     "4",
		"sqrt(2)":                            "1.41421356237309504880168872421 (rounded)",
		"sqrt(2)^2":                          "2 (rounded)",
		"abs(-3) + floor(-1.5) + ceil(-1.5)": "0",
		"round(2.5)":                         "3",
		"round(-2.5)":                        "-3",
		"round(1234.5678, 2)":                "1234.57",
		"round(1250, -2)":                    "1300",
		"MAX(1, 2, 3) - min(4, -5)":          "8",
		"sum(1, 2, 3.5)":                     "6.5",
		"mean(1, 2, 4)":                      "2.33333333333333333333333333333 (rounded; exactly 7/3)",
		"factorial(20)":                      "2432902008176640000",
		"factorial(0)":                       "1",
	} {
		args, _ := json.Marshal(map[string]string{"expression": expression})
		if got := useText(t, Calculator(), string(args)); got != want {
			t.Errorf("%s = %s, want %s", expression, got, want)
		}
	}
}

func TestAnExpressionThatCannotBeComputedSaysWhy(t *testing.T) {
	for expression, says := range map[string]string{
		"":                               "ends too early",
		"   ":                            "ends too early",
		"1 +":                            "ends too early",
		"(1":                             `a ")" is missing`,
		"1)":                             "not expected",
		"1 2":                            "not expected",
		"1,000":                          "not expected",
		"max()":                          "not expected",
		"1 // 2":                         "not expected",
		"$5":                             "not expected",
		"1.2.3":                          "not a number",
		".":                              "not a number",
		"1 / 0":                          "divides by zero",
		"5 % (1 - 1)":                    "divides by zero",
		"0 ^ -1":                         "divides by zero",
		"2 ^ 0.5":                        "use sqrt",
		"sqrt(-1)":                       "no real root",
		"sqrt(1, 2)":                     "one argument, not 2",
		"round(1, 2, 3)":                 "one or two arguments",
		"round(1, 0.5)":                  "must be whole",
		"factorial(1001)":                "from 0 to 1000",
		"factorial(-1)":                  "from 0 to 1000",
		"factorial(0.5)":                 "from 0 to 1000",
		"exec(1)":                        `"exec" is not known`,
		"π":                              `"π" is not known`,
		"sqrt 4":                         "in parentheses",
		"9^9^9":                          "too large",
		"2^(2^63)":                       "too large",
		"(10^4000)^4000":                 "too large",
		"1e999999999":                    "exponent of 1e999999999",
		"1e4096 * 1e4096":                "too large",
		strings.Repeat("(", 5000):        "longer than 4096 bytes",
		strings.Repeat("(", 4000):        "nests deeper",
		strings.Repeat("-", 4000) + "1":  "nests deeper",
		strings.Repeat("2^", 2000) + "1": "nests deeper",
		strings.Repeat("abs(", 1000):     "nests deeper",
	} {
		args, _ := json.Marshal(map[string]string{"expression": expression})
		_, err := use(t.Context(), Calculator(), string(args))
		if codeOf(err) != "invalid_expression" || !strings.Contains(err.Error(), says) || len(err.Error()) > 300 {
			t.Errorf("%.60s gives %v, which should hold %q", expression, err, says)
		}
	}
}

func TestTheCalculatorAgreesWithBigNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64().Draw(t, "a"), rapid.Int64().Draw(t, "b")
		op := rapid.SampledFrom([]string{"+", "-", "*"}).Draw(t, "op")
		x, y := big.NewInt(a), big.NewInt(b)
		want := map[string]*big.Int{"+": new(big.Int).Add(x, y), "-": new(big.Int).Sub(x, y), "*": new(big.Int).Mul(x, y)}[op]
		got, err := evaluate(x.String() + op + "(" + y.String() + ")")
		if err != nil || got.String() != want.String() {
			t.Fatalf("%d %s %d = %v, %v; want %s", a, op, b, got, err, want)
		}
	})
}

func FuzzAnyExpressionEndsInAValueOrAReason(f *testing.F) {
	for _, seed := range []string{"1+1", "2^-3^2", "round(1/3, 5)", "sqrt(2)", "9^9^9", "1e9", "max(1,2", "−1", "\xff", "factorial(9)%7"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		v, err := evaluate(expression)
		if err != nil {
			if !utf8.ValidString(err.Error()) || len(err.Error()) > 500 {
				t.Fatalf("%q is refused with %q", expression, err)
			}
			return
		}
		if text := v.String(); len(text) > 2*maxBits || !utf8.ValidString(text) {
			t.Fatalf("%q = %q", expression, text)
		}
	})
}
