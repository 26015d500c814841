package builtin

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/session"
)

// The bounds of an expression. They keep any computation within milliseconds.
const (
	maxExpression = 4096  // bytes of text
	maxDepth      = 100   // parentheses, calls and signs inside each other
	maxBits       = 16384 // of a numerator and its denominator together: about 4,900 digits
	maxFactorial  = 1000
	maxExponent   = 4096 // of a decimal literal: 1e4096
	sqrtBits      = 256  // of a root that is not exact
)

// value is a number of an expression. rounded says that it is near the true
// value, not equal to it: a root went into it.
type value struct {
	rat     *big.Rat
	rounded bool
}

// evaluate computes an arithmetic expression with exact rational numbers:
//
//	sum     = product { ("+" | "-") product }
//	product = sign { ("*" | "/" | "%") sign }
//	sign    = { "+" | "-" } power
//	power   = atom [ ("^" | "**") sign ]
//	atom    = number | "(" sum ")" | name "(" sum { "," sum } ")"
func evaluate(expression string) (value, error) {
	if len(expression) > maxExpression {
		return value{}, fmt.Errorf("it is longer than %d bytes", maxExpression)
	}
	p := &parser{rest: expression}
	v, err := p.sum()
	if err != nil {
		return value{}, err
	}
	if p.peek() != "" {
		return value{}, p.unexpected()
	}
	return v, nil
}

type parser struct {
	rest  string
	depth int
}

// peek gives the next token without taking it; "" is the end.
func (p *parser) peek() string {
	p.rest = strings.TrimLeftFunc(p.rest, unicode.IsSpace)
	if p.rest == "" {
		return ""
	}
	if strings.HasPrefix(p.rest, "**") {
		return "**"
	}
	first, size := utf8.DecodeRuneInString(p.rest)
	end := size
	switch {
	case isDigit(first) || first == '.':
		end = numberEnd(p.rest)
	case unicode.IsLetter(first):
		for end < len(p.rest) && isNamePart(rune(p.rest[end])) {
			end++
		}
	}
	return p.rest[:end]
}

func isDigit(r rune) bool { return r >= '0' && r <= '9' }
func isNamePart(r rune) bool {
	return isDigit(r) || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_'
}

// numberEnd is where the decimal literal at the start of s ends.
func numberEnd(s string) int {
	i := 0
	for i < len(s) && (isDigit(rune(s[i])) || s[i] == '.') {
		i++
	}
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		j := i + 1
		if j < len(s) && (s[j] == '+' || s[j] == '-') {
			j++
		}
		if j < len(s) && isDigit(rune(s[j])) {
			for i = j; i < len(s) && isDigit(rune(s[i])); i++ {
			}
		}
	}
	return i
}

// take consumes the next token if it is one of those given, and gives it or "".
func (p *parser) take(tokens ...string) string {
	next := p.peek()
	for _, token := range tokens {
		if next == token {
			p.rest = p.rest[len(next):]
			return next
		}
	}
	return ""
}

func (p *parser) unexpected() error {
	next := p.peek()
	if next == "" {
		return errors.New("it ends too early")
	}
	return fmt.Errorf("%q was not expected here: %q", session.TrimText(session.CleanText(next), 40), session.TrimText(session.CleanText(p.rest), 40))
}

// enter bounds recursion; the caller leaves with p.depth--.
func (p *parser) enter() error {
	if p.depth++; p.depth > maxDepth {
		return fmt.Errorf("it nests deeper than %d levels", maxDepth)
	}
	return nil
}

func (p *parser) sum() (value, error) {
	left, err := p.product()
	for err == nil {
		op := p.take("+", "-", "−")
		if op == "" {
			return left, nil
		}
		var right value
		if right, err = p.product(); err == nil {
			if op == "+" {
				left, err = fit(new(big.Rat).Add(left.rat, right.rat), left, right)
			} else {
				left, err = fit(new(big.Rat).Sub(left.rat, right.rat), left, right)
			}
		}
	}
	return value{}, err
}

func (p *parser) product() (value, error) {
	left, err := p.sign()
	for err == nil {
		op := p.take("*", "×", "·", "/", "÷", "%")
		if op == "" {
			return left, nil
		}
		var right value
		if right, err = p.sign(); err == nil {
			left, err = combine(op, left, right)
		}
	}
	return value{}, err
}

func combine(op string, left, right value) (value, error) {
	switch op {
	case "/", "÷", "%":
		if right.rat.Sign() == 0 {
			return value{}, errors.New("it divides by zero")
		}
		quotient := new(big.Rat).Quo(left.rat, right.rat)
		if op != "%" {
			return fit(quotient, left, right)
		}
		whole := new(big.Rat).SetInt(floor(quotient))
		return fit(whole.Sub(left.rat, whole.Mul(whole, right.rat)), left, right)
	}
	return fit(new(big.Rat).Mul(left.rat, right.rat), left, right)
}

func (p *parser) sign() (value, error) {
	if err := p.enter(); err != nil {
		return value{}, err
	}
	defer func() { p.depth-- }()
	switch p.take("+", "-", "−") {
	case "":
		return p.power()
	case "+":
		return p.sign()
	}
	v, err := p.sign()
	if err != nil {
		return value{}, err
	}
	return value{new(big.Rat).Neg(v.rat), v.rounded}, nil
}

func (p *parser) power() (value, error) {
	base, err := p.atom()
	if err != nil || p.take("^", "**") == "" {
		return base, err
	}
	exponent, err := p.sign()
	if err != nil {
		return value{}, err
	}
	return raise(base, exponent)
}

// raise computes base^exponent for a whole exponent.
func raise(base, exponent value) (value, error) {
	if !exponent.rat.IsInt() {
		return value{}, errors.New("an exponent must be a whole number; for a root use sqrt")
	}
	n := new(big.Int).Abs(exponent.rat.Num())
	if exponent.rat.Sign() < 0 && base.rat.Sign() == 0 {
		return value{}, errors.New("it divides by zero")
	}
	one := big.NewInt(1)
	// 0, 1 and -1 stay small whatever the exponent.
	if base.rat.IsInt() && base.rat.Num().CmpAbs(one) <= 0 && n.Sign() > 0 {
		odd := new(big.Int).SetUint64(uint64(n.Bit(0)))
		result := new(big.Rat).Set(base.rat)
		if odd.Sign() == 0 {
			result.Abs(result)
		}
		return fit(result, base, exponent)
	}
	bits := base.rat.Num().BitLen() + base.rat.Denom().BitLen()
	if !n.IsInt64() || n.Int64() > maxBits || int64(bits-2)*n.Int64() > maxBits {
		return value{}, errTooLarge
	}
	result := new(big.Rat).SetFrac(new(big.Int).Exp(base.rat.Num(), n, nil), new(big.Int).Exp(base.rat.Denom(), n, nil))
	if exponent.rat.Sign() < 0 {
		result.Inv(result)
	}
	return fit(result, base, exponent)
}

func (p *parser) atom() (value, error) {
	token := p.peek()
	first, _ := utf8.DecodeRuneInString(token)
	switch {
	case token == "":
		return value{}, p.unexpected()
	case isDigit(first) || first == '.':
		p.rest = p.rest[len(token):]
		return literal(token)
	case p.take("(") != "":
		v, err := p.sum()
		if err == nil && p.take(")") == "" {
			err = p.missing(")")
		}
		return v, err
	case unicode.IsLetter(first):
		p.rest = p.rest[len(token):]
		return p.call(token)
	}
	return value{}, p.unexpected()
}

func (p *parser) missing(token string) error {
	if p.peek() == "" {
		return fmt.Errorf("a %q is missing at its end", token)
	}
	return p.unexpected()
}

// literal reads a decimal number exactly.
func literal(text string) (value, error) {
	if _, exponent, ok := strings.Cut(strings.ToLower(text), "e"); ok {
		n, ok := new(big.Int).SetString(exponent, 10)
		if !ok || n.CmpAbs(big.NewInt(maxExponent)) > 0 {
			return value{}, fmt.Errorf("the exponent of %s is over %d", session.TrimText(text, 40), maxExponent)
		}
	}
	rat, ok := new(big.Rat).SetString(text)
	if !ok {
		return value{}, fmt.Errorf("%q is not a number", session.TrimText(text, 40))
	}
	return fit(rat)
}

// call reads the arguments of a function, whose name has been taken, and applies it.
func (p *parser) call(name string) (value, error) {
	apply, known := functions[strings.ToLower(name)]
	if !known {
		return value{}, fmt.Errorf("%q is not known", session.TrimText(session.CleanText(name), 40))
	}
	if p.take("(") == "" {
		return value{}, fmt.Errorf("%s needs its arguments in parentheses", name)
	}
	var args []value
	for {
		v, err := p.sum()
		if err != nil {
			return value{}, err
		}
		args = append(args, v)
		if p.take(",") == "" {
			break
		}
	}
	if p.take(")") == "" {
		return value{}, p.missing(")")
	}
	v, err := apply(args)
	if err != nil {
		return value{}, fmt.Errorf("%s: %w", name, err)
	}
	return v, nil
}

var errTooLarge = fmt.Errorf("a number gets too large: over about %d digits", maxBits*3/10)

// fit bounds a number made from others.
func fit(rat *big.Rat, from ...value) (value, error) {
	if rat.Num().BitLen()+rat.Denom().BitLen() > maxBits {
		return value{}, errTooLarge
	}
	v := value{rat: rat}
	for _, f := range from {
		v.rounded = v.rounded || f.rounded
	}
	return v, nil
}
