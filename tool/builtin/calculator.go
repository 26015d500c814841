package builtin

import (
	"context"
	"math/big"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

type calculatorInput struct {
	Expression string `json:"expression" jsonschema:"for example (3 + 4.5) * 2 ^ 10 / 7"`
}

// roundedDigits is how many significant digits are given of a value that is not exact.
const roundedDigits = 30

// Calculator is the tool calculator: exact arithmetic with numbers of any size
// within stated bounds.
func Calculator() tool.Tool {
	return tool.New("calculator", "Computes exactly: + - * / parentheses, % (remainder, with the sign of the divisor), ^ (power with a whole exponent), "+
		"abs, sqrt, floor, ceil, round(x, digits), min, max, sum, mean, factorial. Write numbers as 1234.5 or 1.2e6, without thousands separators.",
		func(_ context.Context, in calculatorInput, _ tool.Call) (string, error) {
			value, err := evaluate(in.Expression)
			if err != nil {
				return "", tool.Errorf("invalid_expression", "The expression cannot be computed: %s.", err.Error())
			}
			return value.String(), nil
		}, tool.WithEffects(session.ReadOnly), tool.WithTimeout(10*time.Second))
}

// String is the value as a decimal number. One that is not exact says so, and
// gives the fraction if there is a short one.
func (v value) String() string {
	digits, terminates := v.rat.FloatPrec()
	if !v.rounded && terminates {
		return v.rat.FloatString(digits)
	}
	near := new(big.Float).SetPrec(maxBits).SetRat(v.rat).Text('g', roundedDigits)
	if fraction := v.rat.RatString(); !v.rounded && len(fraction) <= 80 {
		return near + " (rounded; exactly " + fraction + ")"
	}
	return near + " (rounded)"
}
