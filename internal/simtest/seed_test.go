package simtest

import (
	"regexp"
	"strings"
	"testing"
)

// One seed makes one plan, and nearly always one history: what differs is who was
// first where several goroutines were ready at one instant, which is Go's to say.
func TestASeedMakesTheSameHistoryAgain(t *testing.T) {
	skipForSeed(t)
	if raceDetector {
		t.Skip("the race detector shuffles goroutines on purpose")
	}
	const seeds = 30
	same := 0
	for seed := int64(1); seed <= seeds; seed++ {
		var told [2]string
		for i := range told {
			w, _ := lifetime(t, newPlan(seed), broken{})
			told[i] = w.logs()
		}
		if told[0] == told[1] {
			same++
			continue
		}
		la, lb := strings.Split(told[0], "\n"), strings.Split(told[1], "\n")
		for i := range min(len(la), len(lb)) {
			if la[i] != lb[i] {
				t.Logf("seed %d differs at line %d of %d:\n%.250s\n%.250s", seed, i+1, len(la), la[i], lb[i])
				break
			}
		}
	}
	t.Logf("%d of %d seeds made the same history again", same, seeds)
	if same < seeds*3/4 {
		t.Error("too many differ")
	}
}

// logs are all logs of the world as text, with short ids.
func (w *world) logs() string {
	var b strings.Builder
	for _, h := range w.histories() {
		for _, f := range h.frames {
			b.Write(f.JSON)
			b.WriteByte('\n')
		}
	}
	return digest.ReplaceAllString(shorten(b.String()), "")
}

// digest is the fingerprint of a submission, which may name a generated id, and
// what a context with generated ids was counted at.
var digest = regexp.MustCompile(`"digest":"[0-9a-f]*",?|"tokens":\d+,"counted":\d+,|"room":\d+,`)
