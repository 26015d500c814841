package simtest

import "testing"

// A worker dies before and after each write that it makes, one life for each.
// What it was in the middle of is carried on by another as if nothing had been.
func TestAWorkerMayDieAtAnyWrite(t *testing.T) {
	skipForSeed(t)
	lives, failed := 0, 0
	live := func(p *plan) *world {
		lives++
		w, findings := lifetime(t, p, broken{})
		for _, f := range findings {
			t.Errorf("seed %d, death at write %d (after it: %v): %s", p.seed, p.crash.at, p.crash.after, shorten(f))
		}
		if len(findings) > 0 {
			failed++
			t.Logf("the story:\n%s", w.story.tell())
		}
		return w
	}
	for _, p := range busyPlans(2) {
		writes := live(p).fleet.find("w1").link.writes
		if writes < 20 {
			t.Errorf("seed %d has a worker with %d writes only", p.seed, writes)
		}
		step := 1
		if raceDetector || testing.Short() {
			step = 5
		}
		for at := 1; at <= writes && failed < 3; at += step {
			for _, after := range []bool{false, true} {
				dying := *p
				dying.crash = crash{at, after}
				live(&dying)
			}
		}
	}
	t.Logf("%d lives", lives)
}

// busyPlans are plans in which nothing goes wrong by itself, and one worker has much to do.
func busyPlans(n int) (plans []*plan) {
	for seed := int64(1); len(plans) < n; seed++ {
		p := newPlan(seed)
		if !p.calm {
			continue
		}
		p.workers, p.slots, p.runTime = 1, 0, 1<<40
		p.temper = temper{calls: 0.7, fails: 0.1}
		plans = append(plans, p)
	}
	return plans
}
