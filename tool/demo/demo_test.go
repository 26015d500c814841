package demo

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

func use(ctx context.Context, t tool.Tool, call tool.Call, args string) (string, error) {
	clean, err := tool.Validate(t.Spec(), []byte(args))
	if err != nil {
		return "", err
	}
	call.Arguments = clean
	result, err := tool.Run(ctx, t, call)
	var text string
	if err == nil {
		err = json.Unmarshal(result.Value, &text)
	}
	return text, err
}

func TestTheToolsAreFoundByTheirNames(t *testing.T) {
	for _, name := range []string{"weather_sample", "long_task", "flaky"} {
		tl, ok := ByName(name)
		if !ok || tl.Spec().Name != name || tl.Spec().Effects != session.ReadOnly {
			t.Errorf("%s is %+v, %v", name, tl, ok)
		}
		if _, err := tool.NewSet(tl); err != nil {
			t.Error(err)
		}
	}
	if tl, ok := ByName("weather"); ok || tl != nil {
		t.Errorf("there is a tool for a name that is none: %v", tl)
	}
}

func TestTheWeatherIsPlainlySampleDataAndAlwaysTheSame(t *testing.T) {
	first, err := use(t.Context(), Weather(), tool.Call{}, `{"city":"Lisbon"}`)
	if err != nil || !strings.HasPrefix(first, "Lisbon: ") || !strings.Contains(first, "sample data") {
		t.Errorf("the weather is %s, %v", first, err)
	}
	again, _ := use(t.Context(), Weather(), tool.Call{}, `{"city":"Lisbon"}`)
	other, _ := use(t.Context(), Weather(), tool.Call{}, `{"city":"Oslo"}`)
	if again != first || strings.TrimPrefix(other, "Oslo") == strings.TrimPrefix(first, "Lisbon") {
		t.Errorf("Lisbon again: %s; Oslo: %s", again, other)
	}
}

func TestALongTaskTakesItsTimeAndTellsHowFarItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reports []session.Progress
		start := time.Now()
		text, err := use(t.Context(), LongTask(), tool.Call{Progress: func(p session.Progress) { reports = append(reports, p) }}, `{"seconds":12}`)
		if err != nil || !strings.Contains(text, "12 seconds") || time.Since(start) != 12*time.Second {
			t.Errorf("%s, %v after %s", text, err, time.Since(start))
		}
		if n := len(reports); n != 49 || reports[0].Fraction != 0 || reports[24].Fraction != 0.5 || reports[24].Message != "second 6 of 12" || reports[n-1].Fraction != 1 {
			t.Errorf("%d reports: %+v", n, reports)
		}
	})
}

func TestALongTaskStopsWhenToldTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped := errors.New("stopped")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(3*time.Second+time.Millisecond, func() { cancel(stopped) })
		start := time.Now()
		_, err := use(ctx, LongTask(), tool.Call{}, `{"seconds":300}`)
		if !errors.Is(err, stopped) || errors.Is(err, tool.ErrAbandoned) || time.Since(start) > 4*time.Second {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}

func TestALongTaskHasABound(t *testing.T) {
	for _, args := range []string{`{"seconds":0}`, `{"seconds":301}`, `{"seconds":-1}`, `{"seconds":1.5}`, ``} {
		if _, err := use(t.Context(), LongTask(), tool.Call{}, args); tool.FailureOf(err).Code != tool.CodeInvalidArguments {
			t.Errorf("%s: %v", args, err)
		}
	}
}

func TestAFlakyTaskFailsOnceInARun(t *testing.T) {
	flaky := Flaky()
	for i, c := range []struct {
		run, task string
		attempt   int
		fails     bool
	}{
		{"run_1", "a", 1, true},
		{"run_1", "a", 1, false},
		{"run_1", "a", 1, false}, // called again by the model
		{"run_1", "b", 1, true},
		{"run_1", "b", 2, false}, // the same call made again
		{"run_2", "a", 1, true},
		{"run_3", "a", 2, false}, // the first try was in a process that is gone
	} {
		_, err := use(t.Context(), flaky, tool.Call{Run: c.run, Attempt: c.attempt}, `{"task":"`+c.task+`"}`)
		if failed := err != nil; failed != c.fails || failed && tool.FailureOf(err).Code != "temporary" {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

func TestALetterIsOnlySentWhenAPersonAgrees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mail, ok := ByName("mail_sample")
		spec := mail.Spec()
		if !ok || spec.Effects != session.Unsafe || !spec.Approval.Needs(spec, json.RawMessage(`{}`)) {
			t.Errorf("mail_sample is %+v, %v", spec, ok)
		}
		start := time.Now()
		text, err := use(t.Context(), mail, tool.Call{}, `{"to":"ada@example.com","text":"hi"}`)
		if err != nil || !strings.Contains(text, "ada@example.com would be sent") || time.Since(start) != mailTime {
			t.Errorf("%s, %v after %s", text, err, time.Since(start))
		}
	})
}
