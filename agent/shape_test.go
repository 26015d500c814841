package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

// aBranch is any branch, with texts and results of any size up to most bytes.
func aBranch(t *rapid.T, most int) []session.Message {
	size := rapid.Custom(func(t *rapid.T) int {
		return rapid.IntRange(1, rapid.SampledFrom([]int{20, 2_000, most}).Draw(t, "about")).Draw(t, "bytes")
	})
	long := func(of string) string { n := size.Draw(t, "size"); return strings.Repeat(of, n/len(of)+1) }
	var branch []session.Message
	calls := 0
	for i := range rapid.IntRange(1, 8).Draw(t, "turns") {
		for range rapid.IntRange(1, 2).Draw(t, "user messages") {
			parts := rapid.SliceOfN(userPart(), 1, 2).Draw(t, "said")
			branch = append(branch, session.Message{
				ID: fmt.Sprint("u", len(branch)), Role: session.RoleUser, Status: session.MessageWhole,
				Parts: append(parts, session.Part{Type: session.PartText, Text: long("what is said ")}),
			})
		}
		m := session.Message{ID: fmt.Sprint("a", i), Role: session.RoleAssistant, Status: session.MessageWhole}
		steps := rapid.IntRange(0, 5).Draw(t, "steps")
		for step := 1; step <= steps; step++ {
			m.Parts = append(m.Parts, session.Part{Type: session.PartStep, Step: step})
			for range rapid.IntRange(0, 3).Draw(t, "parts") {
				p := assistantPart(t, step, &calls)
				if p.Tool != nil && rapid.Bool().Draw(t, "large") {
					p.Tool.Status = session.CallCompleted
					p.Tool.Result, _ = json.Marshal(long("0123456789 lines\n"))
					p.Tool.Arguments = json.RawMessage(`{"text":"` + long("write this ") + `"}`)
				}
				m.Parts = append(m.Parts, p)
			}
		}
		if rapid.IntRange(0, 4).Draw(t, "from the background") == 0 {
			m.Background = &session.Background{Run: "r", Title: "look"}
		}
		branch = append(branch, m)
	}
	return branch
}

// aMark is a place on a branch, or now and then on none.
func aMark(t *rapid.T, branch []session.Message) *session.Mark {
	if rapid.IntRange(0, 3).Draw(t, "no mark") == 0 {
		return nil
	}
	m := session.Mark{Message: branch[rapid.IntRange(0, len(branch)-1).Draw(t, "message")].ID, Step: rapid.IntRange(0, 5).Draw(t, "step")}
	if rapid.IntRange(0, 9).Draw(t, "elsewhere") == 0 {
		m.Message = "elsewhere"
	}
	return &m
}

// Whatever a branch went through, however it was compacted and however small the
// window is, the model is told a history that nobody refuses and that fits.
func TestNoCompactionAndNoWindowMakeAHistoryThatIsRefusedOrTooLarge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := anAgent(t)
		if rapid.Bool().Draw(t, "no tools any more") {
			a.Tools = nil
		}
		branch := aBranch(t, 100_000)
		v := agent.View{Branch: branch, Message: branch[len(branch)-1].ID, Step: rapid.IntRange(1, 6).Draw(t, "step")}
		if rapid.Bool().Draw(t, "compacted") {
			v.Compaction = &session.ContextCompacted{
				UpTo: aMark(t, branch), Told: aMark(t, branch), Shortened: aMark(t, branch),
				Summary: rapid.SampledFrom([]string{"", "They talked.", strings.Repeat("They talked on. ", 1000)}).Draw(t, "summary"),
			}
		}
		v.Room = rapid.IntRange(1_536, 100_000).Draw(t, "room")
		seen := a.See(v)
		if err := strict(seen.Request); err != nil {
			raw, _ := json.MarshalIndent(seen.Request.Messages, "", " ")
			t.Fatalf("%v\n%.20000s", err, raw)
		}
		if seen.Counted > v.Room {
			t.Fatalf("it is counted at %d and has room for %d", seen.Counted, v.Room)
		}
		b := a.Budget(v.Room*4/3, session.Measure{})
		plan, due := a.Draft(v).Compact(b, rapid.Bool().Draw(t, "refused"))
		if !due {
			return
		}
		if plan.Request != nil {
			if err := strict(*plan.Request); err != nil {
				t.Fatalf("the request for a summary: %v", err)
			}
		}
		for _, d := range []session.ContextCompacted{
			plan.Shortened(), plan.Summarised("They talked.", session.Usage{}), plan.Unsummarised(session.Failure{}, session.Usage{}),
		} {
			v.Compaction, v.Room = &d, plan.Budget.Room
			after := a.See(v)
			if err := strict(after.Request); err != nil {
				t.Fatalf("after the compaction: %v", err)
			}
			if after.Counted > v.Room {
				t.Fatalf("after the compaction it is counted at %d and has room for %d", after.Counted, v.Room)
			}
		}
	})
}

// talk is a conversation of one agent that is carried on as an engine does it.
type talk struct {
	agent      agent.Agent
	window     int
	branch     []session.Message
	compaction *session.ContextCompacted
	compacted  int
	summaries  []model.Request
	requests   []model.Request
	fresh      []bool // whether a request is the first after a compaction
}

// ask makes the model call of a step of the last message.
func (c *talk) ask(t *testing.T, step int) {
	t.Helper()
	b := c.agent.Budget(c.window, session.Measure{})
	v := agent.View{Branch: c.branch, Message: c.branch[len(c.branch)-1].ID, Step: step, Compaction: c.compaction, Room: b.Room}
	plan, due := c.agent.Draft(v).Compact(b, false)
	if due {
		d := plan.Shortened()
		if plan.Request != nil {
			c.summaries = append(c.summaries, *plan.Request)
			d = plan.Summarised(fmt.Sprintf("Summary %d: they talked.", len(c.summaries)), session.Usage{})
		}
		c.compaction, v.Compaction = &d, &d
		c.compacted++
	}
	seen := c.agent.See(v)
	if err := strict(seen.Request); err != nil {
		t.Fatal(err)
	}
	if seen.Counted > b.Room {
		t.Fatalf("step %d is counted at %d and has room for %d", step, seen.Counted, b.Room)
	}
	c.requests, c.fresh = append(c.requests, seen.Request), append(c.fresh, due)
}

func (c *talk) say(step int, text, result string) {
	m := &c.branch[len(c.branch)-1]
	m.Parts = append(m.Parts, session.Part{Type: session.PartStep, Step: step}, session.Part{Type: session.PartText, Step: step, Text: text})
	if result != "" {
		raw, _ := json.Marshal(result)
		m.Parts = append(m.Parts, session.Part{Type: session.PartTool, Step: step, Tool: &session.ToolCall{
			ID: fmt.Sprintf("call_%d_%d", len(c.branch), step), Name: "look", Status: session.CallCompleted, Arguments: json.RawMessage(`{}`), Result: raw,
		}})
	}
}

func (c *talk) turn(t *testing.T, text string, results ...string) {
	t.Helper()
	n := len(c.branch)
	c.branch = append(c.branch,
		session.Message{ID: fmt.Sprint("u", n), Role: session.RoleUser, Parts: []session.Part{{Type: session.PartText, Text: text}}},
		session.Message{ID: fmt.Sprint("a", n), Role: session.RoleAssistant})
	for i, r := range results {
		c.ask(t, i+1)
		c.say(i+1, "let me look", r)
	}
	c.ask(t, len(results)+1)
	c.say(len(results)+1, "So it is. "+text, "")
}

// prompt is a request as the bytes that a provider's cache compares.
func prompt(t *testing.T, r model.Request) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, part := range []any{r.System, r.Tools} {
		raw, err := json.Marshal(part)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(raw)
	}
	for _, m := range r.Messages {
		raw, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(raw)
	}
	return b.Bytes()
}

func TestARequestBeginsWithTheOneBeforeItButAtCompactions(t *testing.T) {
	c := &talk{agent: anAgent(t), window: 16_000}
	for i := range 60 {
		c.turn(t, fmt.Sprintf("Question %d?", i), strings.Repeat("a line of output\n", 40*(i%5)), strings.Repeat("more\n", 300))
	}
	if c.compacted < 3 || c.compacted > 60 {
		t.Errorf("%d requests took %d compactions", len(c.requests), c.compacted)
	}
	for i := 1; i < len(c.requests); i++ {
		if !c.fresh[i] && !bytes.HasPrefix(prompt(t, c.requests[i]), prompt(t, c.requests[i-1])) {
			t.Fatalf("request %d does not begin with request %d, and nothing was compacted between them", i, i-1)
		}
	}
	if len(c.summaries) == 0 {
		t.Fatal("nothing was summarised")
	}
	for _, s := range c.summaries {
		last := s.Messages[len(s.Messages)-1]
		if last.Role != model.User || !strings.Contains(last.Parts[0].Text, "summary") {
			t.Errorf("a summary is asked for with %q", last.Parts[0].Text)
		}
	}
	if got := c.requests[len(c.requests)-1].Messages[0].Parts[0].Text; !strings.Contains(got, "they talked") {
		t.Errorf("the summary is told as %q", got)
	}
}

// FAULTS: a repair of orphans must not mark results as missing that are there.
func TestALongRunOfOneTurnKeepsItsQuestionAndEveryResultAtItsCall(t *testing.T) {
	c := &talk{agent: anAgent(t), window: 8_000}
	var results []string
	for i := range 60 {
		results = append(results, strings.Repeat(fmt.Sprintf("result %d of the long run\n", i), 150))
	}
	c.turn(t, "Go through all of them.", results...)
	for i, r := range c.requests {
		if !slices.ContainsFunc(r.Messages, func(m model.Message) bool {
			return m.Role == model.User && m.Parts[0].Text == "Go through all of them."
		}) {
			t.Fatalf("request %d does not hold what the run is about", i)
		}
		if last := r.Messages[len(r.Messages)-1]; i > 0 && last.Role == model.ToolRole && !strings.HasPrefix(last.Parts[0].Text, fmt.Sprintf("result %d of", i-1)) {
			t.Fatalf("request %d ends with %.60q", i, last.Parts[0].Text)
		}
	}
	if len(c.summaries) == 0 {
		t.Error("sixty results fit without a summary")
	}
}

func TestASmallContextIsLeftAlone(t *testing.T) {
	c := &talk{agent: anAgent(t), window: 32_000}
	for i := range 5 {
		c.turn(t, fmt.Sprint("Question ", i), "short")
	}
	if c.compacted != 0 || c.compaction != nil {
		t.Errorf("it was compacted %d times", c.compacted)
	}
}

func TestWhatWasLeftOutWithoutASummaryIsToldByTheNext(t *testing.T) {
	a := anAgent(t)
	c := &talk{agent: a, window: 8_000}
	for i := range 12 {
		c.branch = append(c.branch,
			session.Message{ID: fmt.Sprint("u", i), Role: session.RoleUser, Parts: []session.Part{{Type: session.PartText, Text: fmt.Sprintf("fact %d. ", i) + strings.Repeat("and so on ", 200)}}},
			session.Message{ID: fmt.Sprint("a", i), Role: session.RoleAssistant})
		c.say(1, "noted", "")
	}
	b := a.Budget(4_000, session.Measure{})
	v := agent.View{Branch: c.branch, Room: b.Room}
	plan, due := a.Draft(v).Compact(b, false)
	if !due || plan.Request == nil {
		t.Fatalf("due %v, %+v", due, plan)
	}
	lost := plan.Unsummarised(session.Failure{Code: "unavailable"}, session.Usage{})
	if !lost.Lost() || lost.Error == nil {
		t.Fatalf("it says %+v", lost)
	}
	v.Compaction = &lost
	told := a.See(v).Request.Messages[0].Parts[0].Text
	if !strings.Contains(told, "not shown any more") || strings.Contains(told, "summary") {
		t.Errorf("in its place is %q", told)
	}
	plan, due = a.Draft(v).Compact(b, true)
	if !due || plan.Request == nil {
		t.Fatalf("due %v, %+v", due, plan)
	}
	if first := plan.Request.Messages[0].Parts[0].Text; strings.Contains(first, "fact 11") {
		t.Errorf("the summary is made of %.100q", first)
	}
	whole := plan.Summarised("All facts.", session.Usage{})
	if whole.Lost() || whole.Window == 0 || whole.Window >= b.Window {
		t.Errorf("it says %+v", whole)
	}
}

func TestASummaryThatIsNoneIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		called bool
		finish model.FinishReason
		want   string
	}{
		"good":     {"They talked.", false, model.Stop, ""},
		"empty":    {" \n", false, model.Stop, "summary_empty"},
		"cut":      {"They t", false, model.Length, "summary_too_long"},
		"long":     {strings.Repeat("x", 17<<10), false, model.Stop, "summary_too_long"},
		"tools":    {"They talked.", true, model.ToolCalls, "summary_called_tools"},
		"withheld": {"They", false, model.ContentFilter, "summary_refused"},
	} {
		got := ""
		if f := agent.CheckSummary(c.text, c.called, c.finish); f != nil {
			got = f.Code
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestTheDigestIsOfWhatTheModelIsTold(t *testing.T) {
	a := anAgent(t)
	same, other, more := a, a, a
	other.Instructions = "Be brief."
	set, err := tool.NewSet(tool.New("look", "Looks.", func(context.Context, struct{}, tool.Call) (string, error) { return "", nil }))
	if err != nil {
		t.Fatal(err)
	}
	more.Tools = set
	if a.Digest() == "" || a.Digest() != same.Digest() || a.Digest() == other.Digest() || a.Digest() == more.Digest() {
		t.Errorf("%s, %s, %s, %s", a.Digest(), same.Digest(), other.Digest(), more.Digest())
	}
}
