package demo_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/model/demo"
)

// answer is what the demo model said to one request.
type answer struct {
	text   string
	calls  []model.Part
	finish model.FinishReason
	err    error
}

func ask(t *testing.T, m model.Model, messages []model.Message, tools ...string) answer {
	t.Helper()
	req := model.Request{Messages: messages}
	for _, name := range tools {
		req.Tools = append(req.Tools, model.Tool{Name: name})
	}
	var a answer
	blocks := map[int]*model.Part{}
	var order []int
	for c, err := range m.Stream(t.Context(), req) {
		if err != nil {
			a.err = err
			return a
		}
		switch {
		case c.Finish != nil:
			a.finish = c.Finish.Reason
		case c.Kind == model.TextChunk:
			a.text += c.Text
		case c.Kind == model.CallChunk:
			if blocks[c.Block] == nil {
				blocks[c.Block] = &model.Part{Kind: model.CallPart, Call: c.Call, Name: c.Name}
				order = append(order, c.Block)
			}
			blocks[c.Block].Arguments = append(blocks[c.Block].Arguments, c.Text...)
		}
	}
	for _, i := range order {
		if !json.Valid(blocks[i].Arguments) {
			t.Errorf("%s is called with %s", blocks[i].Name, blocks[i].Arguments)
		}
		a.calls = append(a.calls, *blocks[i])
	}
	return a
}

func TestTheDemoSharesWorkOutToSubagents(t *testing.T) {
	m, err := fast().Model("demo")
	if err != nil {
		t.Fatal(err)
	}
	user := model.Message{Role: model.User, Parts: []model.Part{{Kind: model.TextPart, Text: "Delegate to subagents"}}}
	first := ask(t, m, []model.Message{user}, "helper")
	if len(first.calls) != 3 || first.calls[0].Name != "helper" {
		t.Fatalf("the calls are %+v", first.calls)
	}
	if alone := ask(t, m, []model.Message{user}); len(alone.calls) != 0 || !strings.Contains(alone.text, "helper") {
		t.Errorf("without a subagent it says %q and calls %v", alone.text, alone.calls)
	}
	said, results := model.Message{Role: model.Assistant}, model.Message{Role: model.ToolRole}
	for i, c := range first.calls {
		said.Parts = append(said.Parts, c)
		results.Parts = append(results.Parts, model.Part{Kind: model.ResultPart, Call: c.Call, Name: "helper", Text: fmt.Sprint("answer ", i)})
	}
	if last := ask(t, m, []model.Message{user, said, results}, "helper"); !strings.Contains(last.text, "answer 2") {
		t.Errorf("at the end it says %q", last.text)
	}
}

func fast() *demo.Provider {
	p := demo.New()
	p.Pace = 1e6
	return p
}

func user(text string) model.Message {
	return model.Message{Role: model.User, Parts: []model.Part{{Kind: model.TextPart, Text: text}}}
}

// converse answers every call by results until the model stops, and gives all its answers.
func converse(t *testing.T, text string, results func(call model.Part) (string, bool), tools ...string) []answer {
	t.Helper()
	m := fast()
	messages := []model.Message{user(text)}
	var answers []answer
	for range 8 {
		a := ask(t, m, messages, tools...)
		answers = append(answers, a)
		if a.finish != model.ToolCalls {
			return answers
		}
		said := model.Message{Role: model.Assistant, Parts: a.calls}
		told := model.Message{Role: model.ToolRole}
		for _, c := range a.calls {
			out, failed := results(c)
			told.Parts = append(told.Parts, model.Part{Kind: model.ResultPart, Call: c.Call, Name: c.Name, Text: out, Failed: failed})
		}
		messages = append(messages, said, told)
	}
	t.Fatalf("it never stops: %+v", answers)
	return nil
}

func TestItCountsEveryNumberOnce(t *testing.T) {
	a := ask(t, fast(), []model.Message{user("count to 500 slowly")})
	var want []string
	for i := 1; i <= 500; i++ {
		want = append(want, fmt.Sprint(i))
	}
	if a.text != strings.Join(want, " ") || a.finish != model.Stop {
		t.Errorf("it says %.60q… and ends with %s", a.text, a.finish)
	}
}

func TestItPlansATripInThreeStepsWithParallelCalls(t *testing.T) {
	answers := converse(t, "plan a trip to New York", func(c model.Part) (string, bool) {
		if c.Name == "weather_sample" {
			return "weather for " + string(c.Arguments), false
		}
		return "590", false
	}, "weather_sample", "calculator", "notes_write")
	if len(answers) != 3 || len(answers[0].calls) != 3 || len(answers[1].calls) != 1 {
		t.Fatalf("it takes %d steps: %+v", len(answers), answers)
	}
	if last := answers[2].text; !strings.Contains(last, "New York") || !strings.Contains(last, `weather for {"city":"New York"}`) || !strings.Contains(last, "590") {
		t.Errorf("it ends with %s", last)
	}
}

func TestItDeletesOnlyWhatAPersonAllowed(t *testing.T) {
	for _, denied := range []bool{false, true} {
		answers := converse(t, "delete the old reports", func(c model.Part) (string, bool) {
			if c.Name == "notes_delete" && denied {
				return "The call was not allowed by the person. keep it", true
			}
			return "ok", false
		}, "notes_list", "notes_write", "notes_delete")
		last := answers[len(answers)-1].text
		if denied != strings.Contains(last, "did not delete") || denied && !strings.Contains(last, "keep it") {
			t.Errorf("denied %v: it ends with %q", denied, last)
		}
	}
}

func TestItFailsOnceAndThenAnswers(t *testing.T) {
	m := fast()
	first := ask(t, m, []model.Message{user("show me a retry")})
	var failure *model.Error
	if !errors.As(first.err, &failure) || !failure.Retryable || failure.RetryAfter <= 0 || first.text == "" {
		t.Fatalf("the first try says %q and fails with %v", first.text, first.err)
	}
	if second := ask(t, m, []model.Message{user("show me a retry")}); second.err != nil || second.finish != model.Stop {
		t.Errorf("the second try fails with %v", second.err)
	}
}

func TestItAnswersWhateverItIsAsked(t *testing.T) {
	for _, text := range []string{"", " ", "hello", "what is 12 * 7?", "what time is it", "long task", "weather in Oslo", "break", "think", "flaky", "markdown", strings.Repeat("x", 10_000), "count to 0", "count to 99999999999999999999"} {
		for _, tools := range [][]string{nil, {"clock", "calculator", "long_task", "flaky", "weather_sample"}} {
			a := ask(t, fast(), []model.Message{user(text)}, tools...)
			if a.err == nil && a.finish == "" || a.text == "" && len(a.calls) == 0 {
				t.Errorf("%.20q: %+v", text, a)
			}
		}
	}
}

func TestTheCheckScenesAreWhatAClientIsCheckedWith(t *testing.T) {
	all := []string{"long_task", "mail_sample"}
	given := func(model.Part) (string, bool) { return "given", false }
	for prompt, want := range map[string]struct {
		text, tool string
		answers    int
	}{
		"check: short": {"A few words, and no more.", "", 1}, "check: long": {"word80", "", 1},
		"check: tool": {"word20", "long_task", 2}, "check: approval": {"I was told: given", "mail_sample", 2}, "write a letter": {"I was told: given", "mail_sample", 2},
	} {
		answers := converse(t, prompt, given, all...)
		last := answers[len(answers)-1]
		if len(answers) != want.answers || !strings.Contains(last.text, want.text) || want.tool != "" && answers[0].calls[0].Name != want.tool {
			t.Errorf("%s is answered with %+v", prompt, answers)
		}
	}
	if denied := converse(t, "check: approval", func(model.Part) (string, bool) { return "no", true }, all...); !strings.Contains(denied[1].text, "not sent. I was told: no") {
		t.Errorf("a denial is answered with %+v", denied)
	}
	failed := converse(t, "check: error", given, all...)[0]
	var cause *model.Error
	if !errors.As(failed.err, &cause) || cause.Retryable || failed.text == "" {
		t.Errorf("it fails with %v after %q", failed.err, failed.text)
	}
	for _, prompt := range []string{"check: tool", "check: approval"} {
		if got := converse(t, prompt, given); !strings.Contains(got[0].text, "does not have them all") {
			t.Errorf("%s without the tool is answered with %+v", prompt, got)
		}
	}
}
