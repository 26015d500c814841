package engine

import (
	"cmp"
	"math/rand/v2"
	"time"
)

// Backoff spaces tries: First, then twice as long each time, at most Max, each
// up to a fifth shorter or longer by chance so that many do not come back together.
type Backoff struct {
	First time.Duration // default: 500 ms
	Max   time.Duration // default: 30 seconds
	// Chance gives numbers in [0, 1), also to several callers at once. Default: rand.Float64.
	Chance func() float64
}

// After is the wait after the n-th failure, n from 1.
func (b Backoff) After(n int) time.Duration {
	first, most := cmp.Or(b.First, 500*time.Millisecond), cmp.Or(b.Max, 30*time.Second)
	wait := first << min(n-1, 20)
	if wait <= 0 || wait > most {
		wait = most
	}
	chance := b.Chance
	if chance == nil {
		chance = rand.Float64
	}
	return time.Duration(float64(wait) * (0.8 + 0.4*chance()))
}
