package modeltest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/model"
)

// ends: PS-01, a stream that closes without a finish is never an answer.
func (h Harness) ends(t *testing.T) {
	each(t, map[string][]fakellm.Step{
		"PS-01 clean end in the middle of text": {fakellm.Text("The total is 12"), fakellm.CleanEOF()},
		"PS-01 nothing at all":                  {fakellm.Headers(), fakellm.CleanEOF()},
		"PS-01 only the beginning":              {fakellm.Begin(), fakellm.CleanEOF()},
		"PS-01 end inside a frame":              {fakellm.Text("The total is 12"), fakellm.EOFInsideFrame()},
		"PS-01 end after a tool's name":         {fakellm.Fragments(fakellm.Fragment{ID: "call_A", Name: "pay"}), fakellm.CleanEOF()},
		"PS-01 end inside a call's arguments":   {fakellm.Fragments(fakellm.Fragment{ID: "call_A", Name: "pay", Args: `{"cents":4`}), fakellm.CleanEOF()},
		"PS-01 connection closed":               {fakellm.Text("The total is 12"), fakellm.Cut()},
		"PS-01 connection reset":                {fakellm.Text("The total is 12"), fakellm.Reset()},
	}, func(t *testing.T, _ string, steps []fakellm.Step) {
		b := h.start(t, fakellm.Reply(steps...))
		b.fails(b.ask(), model.CodeIncomplete, true)
		b.asked(1)
	})
	t.Run("AnEndMarkWithoutAFinishReasonIsNoEnd", func(t *testing.T) {
		for _, mark := range []string{"data: [DONE]\n\n", "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"} {
			b := h.start(t, fakellm.Reply(fakellm.Text("The total is 12"), fakellm.RawFrame(mark), fakellm.CleanEOF()))
			if a := b.ask(); a.Err == nil || a.Finish.Reason != "" {
				t.Errorf("%q ends an answer: %v", mark, a)
			}
		}
	})
	t.Run("AProviderThatCannotBeReachedIsUnavailable", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		b := bench{T: t, model: h.at(t, "http://"+l.Addr().String())}
		b.fails(b.ask(), model.CodeUnavailable, true)
	})
	t.Run("AConnectionThatIsResetBeforeTheAnswerIsUnavailable", func(t *testing.T) {
		b := h.start(t, fakellm.Reply(fakellm.Reset()))
		b.fails(b.ask(), model.CodeUnavailable, true)
		b.asked(1)
	})
}

// silence: PS-03, through [model.Watch].
func (h Harness) silence(t *testing.T) {
	const idle = 300 * time.Millisecond
	silent := map[string][]fakellm.Step{
		"PS-03 headers then silence":        {fakellm.Headers(), fakellm.Stall()},
		"PS-03 two deltas then silence":     {fakellm.Text("one", "two"), fakellm.Stall()},
		"PS-03 half a frame then silence":   {fakellm.HalfFrame(), fakellm.Stall()},
		"PS-03 comments only":               {fakellm.PingEvery(idle / 10)},
		"PS-03 the wire's own pings":        {fakellm.Text("one"), fakellm.Ping(), fakellm.Ping(), fakellm.Stall()},
		"PS-03 accepts and never answers":   {fakellm.BlackHole()},
		"PS-03 silence after a tool's name": {fakellm.Fragments(fakellm.Fragment{ID: "call_A", Name: "pay"}), fakellm.Stall()},
	}
	each(t, silent, func(t *testing.T, _ string, steps []fakellm.Step) {
		b := h.start(t, fakellm.Reply(steps...))
		b.model = model.Watch(b.model, idle)
		began := time.Now()
		b.fails(b.ask(), model.CodeStalled, true)
		if waited := time.Since(began); waited < idle {
			t.Errorf("stalled after %s, before the limit of %s", waited, idle)
		}
		if r, err := b.llm.WaitClosed(b.context(), 1); err != nil || !r.ClientLeft {
			t.Errorf("the connection was not closed by us: %+v, %v", r.ClientLeft, err)
		}
		b.asked(1)
	})
	for name, steps := range silent {
		t.Run(strings.Replace(name, "PS-03", "CancelDuring", 1), func(t *testing.T) {
			t.Parallel()
			b := h.start(t, fakellm.Reply(steps...))
			b.model = model.Watch(b.model, time.Hour)
			why := errors.New("someone pressed stop")
			ctx, cancel := context.WithCancelCause(b.context())
			go func() {
				b.llm.WaitRequest(ctx, 1)
				cancel(why)
			}()
			a := Collect(b, b.model.Stream(ctx, model.Request{Messages: []model.Message{user("Hello?")}}))
			if !errors.Is(a.Err, why) || a.Code() != "" {
				t.Errorf("got %v, want what wraps the cause and is no failure of the provider", a.Err)
			}
			if r, err := b.llm.WaitClosed(b.context(), 1); err != nil || !r.ClientLeft {
				t.Errorf("the connection was not closed by us: %v, %v", r.ClientLeft, err)
			}
		})
	}
	t.Run("PS-03 slow but steady", func(t *testing.T) {
		t.Parallel()
		steps := []fakellm.Step{}
		for range 12 {
			steps = append(steps, fakellm.Pause(100*time.Millisecond), fakellm.Text("x"))
		}
		b := h.start(t, fakellm.Reply(steps...))
		b.model = model.Watch(b.model, time.Second) // The whole takes longer.
		if a := b.ask(); a.Err != nil || a.Text != strings.Repeat("x", 12) {
			t.Errorf("got %v", a)
		}
	})
}

// refusals: PS-04, errors by status and inside a stream.
func (h Harness) refusals(t *testing.T) {
	type status struct {
		fakellm.Status
		code      model.Code
		retryable bool
		after     time.Duration
	}
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	cases := map[string]status{
		"429 with seconds":           {fakellm.Status{Code: 429, RetryAfter: "2"}, model.CodeRateLimited, true, 2 * time.Second},
		"429 with a date":            {fakellm.Status{Code: 429, RetryAfter: in(90 * time.Second)}, model.CodeRateLimited, true, 90 * time.Second},
		"429 with a date gone by":    {fakellm.Status{Code: 429, RetryAfter: in(-time.Hour)}, model.CodeRateLimited, true, 0},
		"429 with nonsense":          {fakellm.Status{Code: 429, RetryAfter: "soon"}, model.CodeRateLimited, true, 0},
		"429 with milliseconds":      {fakellm.Status{Code: 429, Header: http.Header{"Retry-After-Ms": {"250"}}}, model.CodeRateLimited, true, 250 * time.Millisecond},
		"429 without money":          {fakellm.Status{Code: 429, Body: `{"error":{"type":"insufficient_quota","message":"You exceeded your current quota"}}`}, model.CodeRateLimited, false, 0},
		"529":                        {fakellm.Status{Code: 529}, model.CodeOverloaded, true, 0},
		"503":                        {fakellm.Status{Code: 503, RetryAfter: "1"}, model.CodeOverloaded, true, time.Second},
		"500":                        {fakellm.Status{Code: 500}, model.CodeUnavailable, true, 0},
		"502 with a web page":        {fakellm.Status{Code: 502, Header: http.Header{"Content-Type": {"text/html"}}, Body: "<html>nginx</html>"}, model.CodeUnavailable, true, 0},
		"504 with nothing":           {fakellm.Status{Code: 504, Body: " "}, model.CodeUnavailable, true, 0},
		"408":                        {fakellm.Status{Code: 408}, model.CodeUnavailable, true, 0},
		"409":                        {fakellm.Status{Code: 409}, model.CodeUnavailable, true, 0},
		"400":                        {fakellm.Status{Code: 400}, model.CodeInvalidRequest, false, 0},
		"404":                        {fakellm.Status{Code: 404}, model.CodeInvalidRequest, false, 0},
		"413":                        {fakellm.Status{Code: 413}, model.CodeInvalidRequest, false, 0},
		"422 of another shape":       {fakellm.Status{Code: 422, Body: `{"detail":[{"loc":["body"],"msg":"field required","input":{"secret":1}}]}`}, model.CodeInvalidRequest, false, 0},
		"401 that repeats the key":   {fakellm.Status{Code: 401, Body: `{"error":{"message":"bad key ` + apiKey + `"}}`}, model.CodeUnauthorized, false, 0},
		"403":                        {fakellm.Status{Code: 403}, model.CodeUnauthorized, false, 0},
		"500 that says not to retry": {fakellm.Status{Code: 500, Header: http.Header{"X-Should-Retry": {"false"}}}, model.CodeUnavailable, false, 0},
		"308 to elsewhere":           {fakellm.Status{Code: 308, Header: http.Header{"Location": {"https://example.com/"}}, Body: " "}, model.CodeInvalidRequest, false, 0},
	}
	each(t, cases, func(t *testing.T, _ string, c status) {
		b := h.start(t, fakellm.Reply(c.Status))
		e := b.fails(b.ask(), c.code, c.retryable)
		if e.Status != c.Code {
			t.Errorf("status %d, want %d", e.Status, c.Code)
		}
		if off := e.RetryAfter - c.after; off < -2*time.Second || off > time.Second || c.after == 0 && off != 0 {
			t.Errorf("retry after %s, want %s", e.RetryAfter, c.after)
		}
		if e.Message == "" || strings.Contains(e.Message, "secret") {
			t.Errorf("message %q", e.Message)
		}
		b.asked(1) // A retry is for the caller to decide.
	})
	for _, before := range [][]fakellm.Step{nil, {fakellm.Text("Hel")}} {
		for kind, want := range map[string]struct {
			code      model.Code
			retryable bool
		}{
			"overloaded_error":      {model.CodeOverloaded, true},
			"api_error":             {model.CodeUnavailable, true},
			"timeout_error":         {model.CodeUnavailable, true},
			"rate_limit_error":      {model.CodeRateLimited, true},
			"a_new_one":             {model.CodeUnavailable, true},
			"invalid_request_error": {model.CodeInvalidRequest, false},
			"authentication_error":  {model.CodeUnauthorized, false},
		} {
			t.Run(fmt.Sprintf("PS-04 %s inside the stream after %d deltas", kind, len(before)), func(t *testing.T) {
				t.Parallel()
				b := h.start(t, fakellm.Reply(append(before, fakellm.InBandError(kind, "so it goes, "+apiKey))...))
				a := b.ask()
				e := b.fails(a, want.code, want.retryable)
				if a.Text != map[int]string{0: "", 1: "Hel"}[len(before)] {
					t.Errorf("text %q", a.Text)
				}
				if e.Status != 0 || !strings.Contains(e.Message, "so it goes") {
					t.Errorf("status %d, message %q", e.Status, e.Message)
				}
				b.asked(1)
			})
		}
	}
}

// calls: PS-05, fragments of parallel calls, and PS-07, arguments that are no
// JSON.
func (h Harness) calls(t *testing.T) {
	const a, b = `{"t":"A"}`, `{"t":"B"}`
	var interleaved, idsOnly []fakellm.Fragment
	interleaved = append(interleaved, fakellm.Fragment{Index: 0, ID: "A", Name: "a"}, fakellm.Fragment{Index: 1, ID: "B", Name: "b"})
	idsOnly = append(idsOnly, fakellm.Fragment{NoIndex: true, ID: "A", Name: "a"}, fakellm.Fragment{NoIndex: true, ID: "B", Name: "b"})
	for i := range a {
		interleaved = append(interleaved, fakellm.Fragment{Index: 0, Args: a[i : i+1]}, fakellm.Fragment{Index: 1, Args: b[i : i+1]})
		idsOnly = append(idsOnly, fakellm.Fragment{NoIndex: true, ID: "A", Args: a[i : i+1]}, fakellm.Fragment{NoIndex: true, ID: "B", Args: b[i : i+1]})
	}
	type fragments struct {
		all []fakellm.Fragment
		// sure says that every provider must read it rightly: the wire leaves no doubt.
		sure bool
	}
	each(t, map[string]fragments{
		"PS-05 (1) index on all, id on the first": {[]fakellm.Fragment{
			{Index: 0, ID: "A", Name: "a"}, {Index: 1, ID: "B", Name: "b"}, {Index: 0, Args: a}, {Index: 1, Args: b},
		}, true},
		"PS-05 (2) index 0 on both, with ids": {[]fakellm.Fragment{
			{Index: 0, ID: "A", Name: "a", Args: a}, {Index: 0, ID: "B", Name: "b", Args: b},
		}, false},
		"PS-05 (3) no index, ids only": {[]fakellm.Fragment{
			{NoIndex: true, ID: "A", Name: "a", Args: a}, {NoIndex: true, ID: "B", Name: "b", Args: b},
		}, false},
		"PS-05 (4) bytes interleaved by index": {interleaved, true},
		"PS-05 (4) bytes interleaved by id":    {idsOnly, false},
		"PS-05 index 0 on both, one after the other, id on the first": {[]fakellm.Fragment{
			{Index: 0, ID: "A", Name: "a"},
			{Index: 0, Args: a[:4]},
			{Index: 0, Args: a[4:]},
			{Index: 0, ID: "B", Name: "b"},
			{Index: 0, Args: b[:4]},
			{Index: 0, Args: b[4:]},
		}, false},
		"PS-05 index 0 on both, mixed": {[]fakellm.Fragment{
			{Index: 0, ID: "A", Name: "a"}, {Index: 0, ID: "B", Name: "b"}, {Index: 0, Args: a}, {Index: 0, Args: b},
		}, false},
		"PS-05 one id for both": {[]fakellm.Fragment{
			{Index: 0, ID: "A", Name: "a", Args: a}, {Index: 1, ID: "A", Name: "b", Args: b},
		}, false},
	}, func(t *testing.T, _ string, c fragments) {
		bench := h.start(t, fakellm.Reply(fakellm.Fragments(c.all...)))
		answer := bench.ask()
		if !c.sure && answer.Code() == model.CodeProtocol {
			for _, call := range answer.Calls {
				if !strings.HasPrefix(map[string]string{"a": a, "b": b}[call.Name], call.Arguments) {
					t.Errorf("a mixed call before the error: %v", call)
				}
			}
			return
		}
		if want := []Called{{"A", "a", a}, {"B", "b", b}}; answer.Err != nil || !equal(answer.Calls, want) {
			t.Errorf("got %v, %v; want %v", answer.Calls, answer.Err, want)
		}
	})
	each(t, map[string]string{
		"empty": "", "a bracket": "{", "null": "null", "a list": "[]", "too many brackets": "{}}", "a string": `"str"`,
		"spaces": ` { "a" : 1 } `, "big integers": `{"id":9007199254740993,"x":1.0,"y":1e3}`, "cut inside a string": `{"path":"/etc/hosts","content":"127.0.0.1 loc`,
		"a letter written as an escape": `{"q":"\u00e9é\/<&>"}`,
	}, func(t *testing.T, _, text string) {
		for _, reason := range []string{fakellm.ToolCalls, fakellm.Length} {
			b := h.start(t, fakellm.Reply(fakellm.Call{ID: "call_A", Name: "write", Args: text, Every: 2}, fakellm.Finish{Reason: reason}))
			a := b.ask()
			if a.Err != nil || string(a.Finish.Reason) != reason || !equal(a.Calls, []Called{{"call_A", "write", text}}) {
				t.Errorf("PS-07 %s: got %v %q, %v; want the raw text %q", reason, a.Finish.Reason, a.Calls, a.Err, text)
			}
		}
	})
}

// sizes: PS-08, long lines.
func (h Harness) sizes(t *testing.T) {
	for _, n := range []int{65_535, 65_537, 1_048_577, 5_000_000} {
		t.Run(fmt.Sprintf("PS-08 a line of %d bytes", n), func(t *testing.T) {
			b := h.start(t,
				fakellm.Reply(fakellm.Text(fakellm.Filler(n), "!")),
				fakellm.Reply(fakellm.Call{ID: "call_A", Name: "write", Args: `{"x":"` + fakellm.Filler(n) + `"}`}))
			if a := b.ask(); a.Err != nil || a.Text != strings.Repeat("x", n)+"!" {
				t.Errorf("text of %d bytes, %v", len(a.Text), a.Err)
			}
			a := b.ask()
			if want := (Called{"call_A", "write", `{"x":"` + strings.Repeat("x", n) + `"}`}); a.Err != nil || !equal(a.Calls, []Called{want}) {
				t.Errorf("%d calls, %v", len(a.Calls), a.Err)
			}
		})
	}
	t.Run("PS-08 a line of 300 MB", func(t *testing.T) {
		b := h.start(t, fakellm.Reply(fakellm.Text(fakellm.Filler(300_000_000))))
		b.bounded(func() { b.fails(b.ask(), model.CodeTooLarge, false) })
	})
	t.Run("PS-08 an event of 300 MB in short lines", func(t *testing.T) {
		steps := []fakellm.Step{fakellm.Text("x")}
		for range 300 {
			steps = append(steps, fakellm.RawFrame("data: "+fakellm.Filler(1_000_000)+"\n"))
		}
		b := h.start(t, fakellm.Reply(steps...))
		b.bounded(func() { b.fails(b.ask(), model.CodeTooLarge, false) })
	})
}

// bounded checks that f allocates far less than what it is sent. All that was
// ever allocated is at least what was held at one time.
func (b bench) bounded(f func()) {
	b.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if got := (after.TotalAlloc - before.TotalAlloc) >> 20; got > 250 {
		b.Errorf("%d MiB were allocated for an answer of 300 MB", got)
	}
}

// encoding: EN-02, half a surrogate pair.
func (h Harness) encoding(t *testing.T) {
	t.Run("EN-02 half a pair becomes a replacement character", func(t *testing.T) {
		b := h.start(t, fakellm.Reply(fakellm.EscapedText(`a\ud99c b`, `\ud83d`, `\ude00`, `\ud83d\ude00`, `\u0000`)))
		if a := b.ask(); a.Err != nil || a.Text != "a\uFFFD b\uFFFD\uFFFD😀\x00" {
			t.Errorf("got %q, %v", a.Text, a.Err)
		}
	})
	t.Run("EN-02 half a pair in arguments is kept as written and not sent back", func(t *testing.T) {
		const raw = `{"q":"\ud99c x","ok":"\ud83d\ude00","text":"\\ud99c"}`
		b := h.start(t, fakellm.Reply(fakellm.Call{ID: "call_A", Name: "look", Args: raw}), fakellm.Reply(fakellm.Text("done")))
		a := b.ask()
		if a.Err != nil || !equal(a.Calls, []Called{{"call_A", "look", raw}}) {
			t.Fatalf("got %v, %v", a.Calls, a.Err)
		}
		next := b.send(model.Request{Messages: []model.Message{
			user("Hello?\xff"), a.Message(), result("call_A", "look", "ok \xed\xa0\xbd", false),
		}})
		if next.Err != nil {
			t.Fatalf("the history is refused: %v", next.Err)
		}
		const want = `{"q":"\ufffd x","ok":"\ud83d\ude00","text":"\\ud99c"}`
		sent := b.llm.Requests()[1]
		if got := callsOf(sent); len(got) != 1 || got[0].Args != want {
			t.Errorf("sent back %v, want %s", got, want)
		}
		if got := sent.LastUser(); got != "Hello?\uFFFD" {
			t.Errorf("sent %q", got)
		}
	})
	t.Run("EN-02 bytes that are not UTF-8 become replacement characters", func(t *testing.T) {
		b := h.start(t, fakellm.Reply(fakellm.EscapedText("a\xffb")))
		if a := b.ask(); a.Err != nil || a.Text != "a\uFFFDb" {
			t.Errorf("got %q, %v", a.Text, a.Err)
		}
	})
}

// leaving: who goes closes the connection.
func (h Harness) leaving(t *testing.T) {
	t.Run("BreakingOutOfTheLoopClosesTheConnection", func(t *testing.T) {
		b := h.start(t, fakellm.Reply(fakellm.Text("one", "two"), fakellm.Call{Name: "look", Args: "{}"}, fakellm.Stall()))
		for _, err := range b.model.Stream(t.Context(), model.Request{Messages: []model.Message{user("Hello?")}}) {
			if err != nil {
				t.Fatal(err)
			}
			break // Its context lives on, so nothing but this closes anything.
		}
		if r, err := b.llm.WaitClosed(b.context(), 1); err != nil || !r.ClientLeft {
			t.Errorf("client left %v, %v", r.ClientLeft, err)
		}
	})
	t.Run("ACallWhoseContextIsOverAsksNobody", func(t *testing.T) {
		b := h.start(t)
		why := errors.New("too late")
		ctx, cancel := context.WithCancelCause(b.context())
		cancel(why)
		if a := Collect(b, b.model.Stream(ctx, model.Request{Messages: []model.Message{user("Hello?")}})); !errors.Is(a.Err, why) {
			t.Errorf("got %v", a.Err)
		}
		b.asked(0)
	})
}
