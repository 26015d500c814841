package builtin

import (
	"errors"
	"fmt"
	"math/big"
)

// functions are those an expression may call, by their lower-case names.
var functions = map[string]func(args []value) (value, error){
	"abs":       one(func(v value) (value, error) { return fit(new(big.Rat).Abs(v.rat), v) }),
	"floor":     one(func(v value) (value, error) { return fit(new(big.Rat).SetInt(floor(v.rat)), v) }),
	"ceil":      one(func(v value) (value, error) { return fit(new(big.Rat).SetInt(ceil(v.rat)), v) }),
	"sqrt":      one(sqrt),
	"factorial": one(factorial),
	"round":     round,
	"min":       func(args []value) (value, error) { return choose(args, -1) },
	"max":       func(args []value) (value, error) { return choose(args, 1) },
	"sum":       sum,
	"mean":      mean,
}

func one(f func(value) (value, error)) func([]value) (value, error) {
	return func(args []value) (value, error) {
		if len(args) != 1 {
			return value{}, fmt.Errorf("it takes one argument, not %d", len(args))
		}
		return f(args[0])
	}
}

func floor(r *big.Rat) *big.Int {
	// Euclidean division by a positive denominator rounds down.
	return new(big.Int).Div(r.Num(), r.Denom())
}

func ceil(r *big.Rat) *big.Int {
	return new(big.Int).Neg(floor(new(big.Rat).Neg(r)))
}

// round rounds half away from zero, to a number of decimals if given.
func round(args []value) (value, error) {
	digits := int64(0)
	switch len(args) {
	case 1:
	case 2:
		if !args[1].rat.IsInt() || args[1].rat.Num().CmpAbs(big.NewInt(1000)) > 0 {
			return value{}, errors.New("the number of digits must be whole and at most 1000")
		}
		digits = args[1].rat.Num().Int64()
	default:
		return value{}, fmt.Errorf("it takes one or two arguments, not %d", len(args))
	}
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(max(digits, -digits)), nil)
	scale := new(big.Rat).SetInt(power)
	if digits < 0 {
		scale.Inv(scale)
	}
	scaled := new(big.Rat).Mul(new(big.Rat).Abs(args[0].rat), scale)
	whole := new(big.Rat).SetInt(floor(scaled.Add(scaled, big.NewRat(1, 2))))
	whole.Quo(whole, scale)
	if args[0].rat.Sign() < 0 {
		whole.Neg(whole)
	}
	return fit(whole, args[0])
}

// sqrt is exact for squares of rational numbers, else near to sqrtBits.
func sqrt(v value) (value, error) {
	if v.rat.Sign() < 0 {
		return value{}, errors.New("a negative number has no real root")
	}
	num, denom := new(big.Int).Sqrt(v.rat.Num()), new(big.Int).Sqrt(v.rat.Denom())
	exact := new(big.Rat).SetFrac(num, denom)
	if new(big.Rat).Mul(exact, exact).Cmp(v.rat) == 0 {
		return fit(exact, v)
	}
	root := new(big.Float).SetPrec(sqrtBits).SetRat(v.rat)
	near, _ := root.Sqrt(root).Rat(nil)
	return fit(near, v, value{rounded: true})
}

func factorial(v value) (value, error) {
	if !v.rat.IsInt() || v.rat.Sign() < 0 || v.rat.Num().Cmp(big.NewInt(maxFactorial)) > 0 {
		return value{}, fmt.Errorf("it takes a whole number from 0 to %d", maxFactorial)
	}
	return fit(new(big.Rat).SetInt(new(big.Int).MulRange(1, v.rat.Num().Int64())), v)
}

// choose gives the argument that is furthest in the direction of sign.
func choose(args []value, sign int) (value, error) {
	best := args[0]
	for _, v := range args[1:] {
		if v.rat.Cmp(best.rat) == sign {
			best = v
		}
	}
	return fit(best.rat, args...)
}

func sum(args []value) (value, error) {
	total := value{rat: new(big.Rat)}
	for _, v := range args {
		var err error
		if total, err = fit(new(big.Rat).Add(total.rat, v.rat), total, v); err != nil {
			return value{}, err
		}
	}
	return total, nil
}

func mean(args []value) (value, error) {
	total, err := sum(args)
	if err != nil {
		return value{}, err
	}
	return fit(total.rat.Quo(total.rat, big.NewRat(int64(len(args)), 1)), total)
}
