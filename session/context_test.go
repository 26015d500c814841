package session_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/session"
)

func TestACompactionHoldsOnTheBranchesThatHaveItsMessages(t *testing.T) {
	h := newHistory(t)
	for _, m := range []string{"m1", "m2"} {
		h.submit(m)
		h.claim("r_" + m)
		h.carry("r_"+m, session.StepStarted{Message: "o_" + m, Context: &session.StepContext{Counted: 100, Tokens: 100}},
			session.ModelCompleted{Message: "o_" + m, Parts: text("so"), Finish: "stop", Usage: session.Usage{InputTokens: 150, OutputTokens: 1}},
			session.StepCompleted{})
		h.end("r_"+m, session.RunCompleted{Usage: h.run("r_" + m).Usage})
	}
	h.submit("m3")
	h.claim("r_m3")
	h.carry("r_m3", session.ContextCompacted{UpTo: &session.Mark{Message: "o_m1"}, Shortened: &session.Mark{Message: "o_m1"}, Usage: session.Usage{InputTokens: 7, OutputTokens: 2}})
	h.carry("r_m3", session.ContextCompacted{UpTo: &session.Mark{Message: "o_m1"}, Shortened: &session.Mark{Message: "o_m2", Step: 1}, Window: 9})
	if u := h.run("r_m3").Usage; u.InputTokens != 7 || u.OutputTokens != 2 {
		t.Errorf("the run used %+v", u)
	}
	s := h.state
	for name, c := range map[string]struct {
		path   []string
		window int
		found  bool
	}{
		"the branch it was made on":        {s.Path("o_m3"), 9, true},
		"before its last mark":             {s.Path("o_m1"), 0, true},
		"another answer to the first":      {[]string{"m1", "o_other"}, 0, false},
		"nothing":                          {nil, 0, false},
		"another second turn":              {[]string{"m1", "o_m1", "m_other", "o_other"}, 0, true},
		"a branch that goes on from there": {append(s.Path("o_m3"), "m4"), 9, true},
	} {
		got := s.Compaction(c.path)
		if (got != nil) != c.found || got != nil && got.Window != c.window {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if m := s.Measures[h.run("r_m1").Agent]; m != (session.Measure{Counted: 100, Reported: 150}) || len(s.Measures) != 1 {
		t.Errorf("measured is %+v", s.Measures)
	}
	if again, err := session.Load([]byte(asJSON(t, s))); err != nil || asJSON(t, again.Compactions) != asJSON(t, s.Compactions) || asJSON(t, again.Measures) != asJSON(t, s.Measures) {
		t.Errorf("it is not kept: %v", err)
	}
}
