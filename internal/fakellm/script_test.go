package fakellm_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/fakellm"
)

// say asks with a user text and returns the answer's text.
func say(t *testing.T, llm *fakellm.Server, text string) string {
	t.Helper()
	_, got, err := exchange(t, llm, fakellm.Chat, ask(fakellm.Chat, text, true))
	if err != nil {
		t.Fatal(err)
	}
	return listen(t, fakellm.Chat, got).text
}

func answer(text string) fakellm.Turn { return fakellm.Reply(fakellm.Text(text)) }

func TestTurnsAnswerInTheirOrderThenTheDefault(t *testing.T) {
	llm := fakellm.Start(t, fakellm.Options{Default: func(r fakellm.Request) fakellm.Turn { return answer("default for " + r.LastUser()) }})
	llm.Script(answer("one"), answer("two"))
	for _, want := range []string{"one", "two", "default for q"} {
		if got := say(t, llm, "q"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	llm.SetDefault(func(fakellm.Request) fakellm.Turn { return answer("other") })
	if got := say(t, llm, "q"); got != "other" {
		t.Errorf("got %q", got)
	}
}

func TestATurnAnswersTheFirstRequestThatMatches(t *testing.T) {
	llm := fakellm.Start(t, fakellm.Options{})
	llm.Script(
		answer("for b").To("b"),
		answer("for the wire").On(fakellm.Match{Wire: fakellm.Messages}),
		answer("for the model").On(fakellm.Match{Model: "other"}),
		answer("for the body").On(fakellm.Match{Body: `"content":"c"`}),
		answer("for the func").On(fakellm.Match{Func: func(r fakellm.Request) bool { return r.LastUser() == "d" }}),
		answer("for any"),
	)
	for _, c := range []struct{ ask, want string }{
		{"d", "for the func"}, {"c", "for the body"}, {"a", "for any"}, {"a", `You said "a".`}, {"abc", "for b"},
	} {
		if got := say(t, llm, c.ask); got != c.want {
			t.Errorf("%q got %q, want %q", c.ask, got, c.want)
		}
	}
	if n := llm.Unplayed(); n != 2 {
		t.Errorf("%d turns are left", n)
	}
	llm.DropScript()
	if n := llm.Unplayed(); n != 0 {
		t.Errorf("%d turns are left after they were dropped", n)
	}
}

func TestATurnRepeatsAsOftenAsItSays(t *testing.T) {
	llm := fakellm.Start(t, fakellm.Options{})
	llm.Script(answer("twice").Times(2), answer("always").To("q").Times(fakellm.Forever))
	for _, want := range []string{"twice", "twice", "always", "always", "always"} {
		if got := say(t, llm, "q"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if n := llm.Unplayed(); n != 1 {
		t.Errorf("%d turns are left", n)
	}
}

func TestARefusedRequestUsesUpNoTurn(t *testing.T) {
	llm := fakellm.Start(t, fakellm.Options{})
	llm.Script(answer("kept"))
	if status, _, _ := exchange(t, llm, fakellm.Chat, `{"model":"m","messages":[]}`); status != 400 {
		t.Errorf("status %d", status)
	}
	if got := say(t, llm, "q"); got != "kept" {
		t.Errorf("got %q", got)
	}
}

func TestEveryStepSurvivesTheTripThroughJSON(t *testing.T) {
	turn := fakellm.Reply(
		fakellm.Headers(), fakellm.Begin(), fakellm.Ping(), fakellm.ByteByByte(),
		fakellm.Text("a", "b"), fakellm.EscapedText(`\ud83d`), fakellm.Paced(time.Second, "t"),
		fakellm.Reasoning("hm"), fakellm.HiddenReasoning("xx"),
		fakellm.Call{ID: "1", Name: "f", Args: "{}", Every: 2},
		fakellm.Fragments(fakellm.Fragment{Index: 1, ID: "x"}, fakellm.Fragment{NoIndex: true, Args: "{"}),
		fakellm.Stamped(3, 50, 21), fakellm.Pause(300*time.Millisecond), fakellm.PingEvery(time.Second),
		fakellm.WaitGate("g"), fakellm.OpenGate("h"),
		fakellm.Status{Code: 429, RetryAfter: "2", Header: http.Header{"X-A": {"b"}}, Body: "{}"},
		fakellm.InBandError("overloaded_error", "busy"), fakellm.RawFrame("data: x\n\n"),
		fakellm.Finish{Reason: "length", Usage: &fakellm.Usage{Input: 1, Output: 2}, NoEnd: true},
		fakellm.HalfFrame(), fakellm.Stall(), fakellm.BlackHole(), fakellm.Cut(), fakellm.Reset(), fakellm.CleanEOF(), fakellm.EOFInsideFrame(),
	).On(fakellm.Match{LastUser: "u", Body: "b", Model: "m", Wire: fakellm.Chat}).Times(3)
	data, err := json.Marshal(turn)
	if err != nil {
		t.Fatal(err)
	}
	var back fakellm.Turn
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	if !reflect.DeepEqual(turn, back) {
		t.Errorf("%s\nbecame %+v", data, back)
	}
}

func TestWhatCannotLeaveTheProcessHasNoJSON(t *testing.T) {
	for name, turn := range map[string]fakellm.Turn{
		"wait": fakellm.Reply(fakellm.Wait(nil)),
		"do":   fakellm.Reply(fakellm.Do(func() {})),
		"func": fakellm.Reply().On(fakellm.Match{Func: func(fakellm.Request) bool { return true }}),
	} {
		if data, err := json.Marshal(turn); err == nil {
			t.Errorf("%s: %s", name, data)
		}
	}
}

func TestAScriptFromOutsideIsPlayedAndABadOneRefused(t *testing.T) {
	llm := fakellm.Start(t, fakellm.Options{})
	for body, want := range map[string]int{
		`{"turns":[{"steps":[{"text":["x"]}]}]}`:   200,
		`{"turns":[{"steps":[{"texts":["x"]}]}]}`:  400,
		`{"turns":[{"steps":[{"text":"x"}]}]}`:     400,
		`{"turns":[{"steps":[{}]}]}`:               400,
		`{"turns":[{"steps":[{"pause":"soon"}]}]}`: 400,
		`{"turn":[]}`: 400,
	} {
		response, err := client.Post(llm.URL()+"/_script", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: status %d, want %d", body, response.StatusCode, want)
		}
	}
	if got := say(t, llm, "q"); got != "x" {
		t.Errorf("got %q", got)
	}
	llm.Script(answer("never"))
	request, _ := http.NewRequest(http.MethodDelete, llm.URL()+"/_script", nil)
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != 204 || llm.Unplayed() != 0 {
		t.Errorf("status %d, %d turns left", response.StatusCode, llm.Unplayed())
	}
}

// state asks for GET /_requests.
func state(t *testing.T, llm *fakellm.Server, query string) (s fakellm.State, status int) {
	t.Helper()
	response, err := client.Get(llm.URL() + "/_requests" + query)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	if response.StatusCode == 200 {
		if err := json.Unmarshal(body, &s); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
	}
	return s, response.StatusCode
}

// gate waits for a gate (GET) or opens it (POST).
func gate(t *testing.T, llm *fakellm.Server, method, name string) (status int) {
	t.Helper()
	request, err := http.NewRequest(method, llm.URL()+"/_gates/"+name, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

func TestATestInAnotherProcessSeesTheRequestsAndHoldsTheStream(t *testing.T) {
	llm := fakellm.Start(t, fakellm.Options{})
	if s, _ := state(t, llm, ""); s.Requests == nil || len(s.Requests) != 0 {
		t.Errorf("at first: %+v", s)
	}
	llm.Script(fakellm.Reply(fakellm.Text("begun"), fakellm.OpenGate("begun"), fakellm.WaitGate("on"), fakellm.Text("done")))
	got := make(chan string, 1)
	go func() { got <- say(t, llm, "q") }()
	if _, status := state(t, llm, "?count=1"); status != 200 {
		t.Fatalf("status %d", status)
	}
	if status := gate(t, llm, http.MethodGet, "begun"); status != 204 {
		t.Fatalf("status %d", status)
	}
	s, _ := state(t, llm, "")
	if len(s.Requests) != 1 || s.Open != 1 || s.MaxOpen != 1 || s.Requests[0].LastUser() != "q" || s.Requests[0].Closed() {
		t.Errorf("in the middle: %+v", s)
	}
	if _, status := state(t, llm, "?closed=1&wait=1ms"); status != http.StatusGatewayTimeout {
		t.Errorf("an early wait got %d", status)
	}
	if status := gate(t, llm, http.MethodPost, "on"); status != 204 {
		t.Fatalf("status %d", status)
	}
	if text := <-got; text != "begundone" {
		t.Errorf("text %q", text)
	}
	s, _ = state(t, llm, "?closed=1")
	if s.Open != 0 || !s.Requests[0].Closed() || string(s.Requests[0].Body) != ask(fakellm.Chat, "q", true) {
		t.Errorf("at the end: %+v", s)
	}
	if s, _ := state(t, llm, "?from=2"); len(s.Requests) != 0 {
		t.Errorf("from 2: %+v", s)
	}
	for _, query := range []string{"?count=x", "?from=x", "?wait=x"} {
		if _, status := state(t, llm, query); status != 400 {
			t.Errorf("%s got %d", query, status)
		}
	}
	for name, want := range map[string]int{"shut?wait=1ms": 504, "shut?wait=x": 400} {
		if status := gate(t, llm, http.MethodGet, name); status != want {
			t.Errorf("%s: status %d", name, status)
		}
	}
}

func TestAnyServerCanHostTheProvider(t *testing.T) {
	llm := fakellm.New(fakellm.Options{})
	host := httptest.NewServer(llm)
	defer host.Close()
	response, err := client.Post(host.URL+"/v1/responses", "application/json", strings.NewReader(`{"model":"m","input":"hi"}`))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(response.Body)
	response.Body.Close()
	if !strings.Contains(string(body), `You said \"hi\".`) {
		t.Errorf("%s", body)
	}
	llm.Close()
	if response, err := client.Post(host.URL+"/v1/responses", "application/json", strings.NewReader(`{"model":"m","input":"hi"}`)); err == nil {
		response.Body.Close()
		t.Error("a closed provider answers")
	}
}
