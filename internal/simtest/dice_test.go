package simtest

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// dice are chance that a seed decides. Each thing that needs chance rolls its
// own, from the seed and its name, so that what one does moves nothing else.
// They are for one goroutine.
type dice struct{ *rand.Rand }

func roll(seed int64, about ...any) dice {
	h := fnv.New64a()
	fmt.Fprint(h, about...)
	return dice{rand.New(rand.NewPCG(uint64(seed), h.Sum64()))}
}

// chance is true with probability p.
func (d dice) chance(p float64) bool { return d.Float64() < p }

// span is a duration from least on and below most.
func (d dice) span(least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(d.Int64N(int64(most-least)))
}

// upTo is a number from 0 to n.
func (d dice) upTo(n int) int { return d.IntN(n + 1) }

// pick chooses one of several.
func pick[T any](d dice, from ...T) T { return from[d.IntN(len(from))] }

// window is a time in a history, from its beginning.
type window struct{ from, to time.Duration }

func (w window) holds(at time.Duration) bool { return w.from <= at && at < w.to }

// window is a time that begins in the first length and lasts as long as said.
func (d dice) window(length, least, most time.Duration) window {
	from := d.span(0, length)
	return window{from, from + d.span(least, most)}
}
