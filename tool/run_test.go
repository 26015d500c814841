package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/session"
)

func acting(call func(context.Context, Call) (Result, error)) Tool {
	return fixed{Spec{Name: "act", Timeout: time.Minute}, call}
}

func TestRunGivesACleanResult(t *testing.T) {
	for value, want := range map[string]string{``: `null`, ` { "a" : 1 } `: `{"a":1}`, `"ok \ud83d"`: `"ok \ufffd"`} {
		got, err := Run(t.Context(), acting(func(context.Context, Call) (Result, error) {
			return Result{Value: json.RawMessage(value)}, nil
		}), Call{})
		if err != nil || string(got.Value) != want {
			t.Errorf("Run with the value %s = %s, %v; want %s", value, got.Value, err, want)
		}
	}
	_, err := Run(t.Context(), acting(func(context.Context, Call) (Result, error) { return Result{Value: json.RawMessage(`{`)}, nil }), Call{})
	if FailureOf(err).Code != CodeInvalidResult {
		t.Errorf("a broken result gives %v", err)
	}
}

func TestACrashOfAToolIsAnErrorOfTheCall(t *testing.T) {
	for name, crash := range map[string]func(){
		"panic":    func() { panic("the floor gave way \xff") },
		"index":    func() { _ = strings.Fields("")[0] },
		"nilpanic": func() { panic(nil) },
		"goexit":   func() { runtime.Goexit() },
	} {
		_, err := Run(t.Context(), acting(func(context.Context, Call) (Result, error) {
			crash()
			return Text("not reached"), nil
		}), Call{Name: "act"})
		if f := FailureOf(err); f.Code != CodeCrash || !utf8.ValidString(f.Message) {
			t.Errorf("%s gives %v", name, err)
		}
	}
}

func TestATimeoutSaysThatTheToolMayHaveActed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := acting(func(ctx context.Context, _ Call) (Result, error) {
			<-ctx.Done()
			return Result{}, fmt.Errorf("fetch: %w", ctx.Err())
		})
		start := time.Now()
		_, err := Run(t.Context(), slow, Call{})
		if f := FailureOf(err); f.Code != CodeTimeout || !strings.Contains(f.Message, "1m0s") || !strings.Contains(f.Message, "may have acted") {
			t.Errorf("Run = %v", err)
		}
		if took := time.Since(start); took != time.Minute {
			t.Errorf("Run took %s", took)
		}
		if _, err := Run(t.Context(), With(slow, WithEffects(session.ReadOnly)), Call{}); strings.Contains(err.Error(), "may have acted") {
			t.Errorf("a tool that only reads: %v", err)
		}
	})
}

var errStopping = errors.New("the worker is stopping")

func TestTheEndOfTheContextIsToldByItsCause(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := Run(ctx, acting(func(ctx context.Context, _ Call) (Result, error) {
		cancel(errStopping)
		<-ctx.Done()
		return Result{}, ctx.Err()
	}), Call{})
	if !errors.Is(err, errStopping) || errors.Is(err, ErrAbandoned) {
		t.Errorf("Run = %v", err)
	}
}

func TestAToolThatFinishesInSpiteOfACancelKeepsItsOutcome(t *testing.T) {
	for _, want := range []error{nil, errors.New("the card was declined")} {
		ctx, cancel := context.WithCancelCause(t.Context())
		got, err := Run(ctx, acting(func(context.Context, Call) (Result, error) {
			cancel(errStopping)
			return Text("paid"), want
		}), Call{})
		if err != want || want == nil && string(got.Value) != `"paid"` {
			t.Errorf("Run = %s, %v; want %v", got.Value, err, want)
		}
	}
}

func TestADeafToolIsLeftBehindAndHeardNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reports := 0
		release := make(chan struct{})
		returned := make(chan struct{})
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errStopping)
		start := time.Now()
		_, err := Run(ctx, acting(func(_ context.Context, call Call) (Result, error) {
			defer close(returned)
			call.Progress(session.Progress{Message: "deaf"})
			<-release
			call.Progress(session.Progress{Message: "too late"})
			return Text("too late"), nil
		}), Call{Progress: func(session.Progress) { reports++ }})
		if !errors.Is(err, ErrAbandoned) || !errors.Is(err, errStopping) || time.Since(start) != StopGrace {
			t.Errorf("Run = %v after %s", err, time.Since(start))
		}
		close(release)
		<-returned
		if reports != 1 {
			t.Errorf("%d reports, want 1", reports)
		}
	})
}

func TestProgressIsAlwaysEncodable(t *testing.T) {
	var got []session.Progress
	_, err := Run(t.Context(), acting(func(_ context.Context, call Call) (Result, error) {
		for _, p := range []session.Progress{
			{Message: "half \xff", Fraction: 0.5, Data: json.RawMessage(`{ "done": 9007199254740993 }`)},
			{Fraction: math.NaN(), Data: json.RawMessage(`{`)},
			{Fraction: math.Inf(1), Message: strings.Repeat("é", 4000), Data: session.JSONString(strings.Repeat("x", 1<<20))},
			{Fraction: -1},
		} {
			call.Progress(p)
		}
		return Result{}, nil
	}), Call{Progress: func(p session.Progress) { got = append(got, p) }})
	text, encErr := json.Marshal(got)
	want := `[{"message":"half ` + "\uFFFD" + `","fraction":0.5,"data":{"done":9007199254740993}},{},{"message":"` + strings.Repeat("é", 512) + `","fraction":1},{}]`
	if err != nil || encErr != nil || string(text) != want {
		t.Errorf("reports are %s, %v, %v", text, err, encErr)
	}
	if _, err := Run(t.Context(), acting(func(_ context.Context, call Call) (Result, error) {
		call.Progress(session.Progress{})
		return Result{}, nil
	}), Call{}); err != nil {
		t.Errorf("with nobody listening: %v", err)
	}
}

func TestAFailureIsBoundedTextWithACode(t *testing.T) {
	for _, c := range []struct {
		err  error
		want session.Failure
	}{
		{errors.New("no route \xff"), session.Failure{Code: CodeFailed, Message: "no route \uFFFD"}},
		{fmt.Errorf("read: %w", Errorf("not_found", "no note %q", "a")), session.Failure{Code: "not_found", Message: `read: no note "a"`}},
		{&Error{}, session.Failure{Code: CodeFailed, Message: "The tool failed and did not say why."}},
	} {
		if got := FailureOf(c.err); got != c.want {
			t.Errorf("FailureOf(%v) = %+v", c.err, got)
		}
	}
	if got := FailureOf(errors.New(strings.Repeat("é", 1<<20))); len(got.Message) > maxErrorText || !utf8.ValidString(got.Message) {
		t.Errorf("the failure has %d bytes", len(got.Message))
	}
}
