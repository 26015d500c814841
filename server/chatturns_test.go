package server_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/server/aisdk"
	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// decided is the body that useChat sends when its questions were answered:
// approval, true or false, and so on.
func decided(chat, message string, answers ...any) string {
	var parts []any
	for i := 0; i+1 < len(answers); i += 2 {
		parts = append(parts, map[string]any{
			"type": "tool-charge", "toolCallId": "call_" + answers[i].(string), "state": "approval-responded", "input": map[string]any{},
			"approval": map[string]any{"id": answers[i], "approved": answers[i+1], "reason": "so it be"},
		})
	}
	raw, err := json.Marshal(map[string]any{
		"id": chat, "trigger": "submit-message", "messageId": message,
		"messages": []any{
			map[string]any{"id": "u1", "role": "user", "parts": []any{map[string]any{"type": "text", "text": "hello"}}},
			map[string]any{"id": message, "role": "assistant", "parts": parts},
		},
	})
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// goesOn lets a run that waited say what its call gave, and end.
func (w *world) goesOn(approval, output, text string) store.Lease {
	w.t.Helper()
	lease := w.claim()
	run, err := w.store.Run(w.t.Context(), lease.Run)
	if err != nil {
		w.t.Fatal(err)
	}
	second := func(d session.Data) session.Event {
		return session.Event{Run: lease.Run, Step: 2, Attempt: 1, Data: d}
	}
	var result session.Data = session.ToolCompleted{Message: run.Message, Call: "call_" + approval, Result: json.RawMessage(output)}
	if output == "" {
		result = session.ToolDenied{Message: run.Message, Call: "call_" + approval}
	}
	w.append(lease.Session, at(lease, result), at(lease, session.StepCompleted{}),
		second(session.StepStarted{Message: run.Message}),
		second(session.ModelCompleted{Message: run.Message, Finish: "stop", Parts: []session.Part{{Type: session.PartText, Text: text}}}))
	w.end(lease, session.RunCompleted{})
	return lease
}

func TestAnApprovalGoesOnInTheSameMessageAndRun(t *testing.T) {
	w := newWorld(t, worldOptions{})
	page := w.chat(user("c1", "u1", "hello"))
	w.ask(w.claim(), "apr_1", `{"cents":5}`)
	asked := page.finish()
	if types(asked) != "start start-step tool-input-start tool-input-available tool-approval-request finish-step finish" || asked[len(asked)-1].FinishReason != "tool-calls" {
		t.Fatalf("the page is asked %s", types(asked))
	}
	message := asked[0].MessageID
	h := w.chatHistory("c1")
	if got := shape(h.Messages); got != "u1: hello; "+message+": step-start, approval-requested" || h.ActiveStreamID != "" {
		t.Errorf("the history is %s, %q", got, h.ActiveStreamID)
	}
	w.do("GET", "/api/chat/c1/stream", nil).is(204)

	on := w.chat(decided("c1", message, "apr_1", true))
	if got := on.until("start"); got[0].MessageID != message {
		t.Errorf("it goes on as %+v", got)
	}
	if h := w.chatHistory("c1"); shape(h.Messages) != "u1: hello" || h.ActiveStreamID == "" {
		t.Errorf("while it goes on the history is %+v", h)
	}
	reloaded := w.open("GET", "/api/chat/c1/stream", "")
	w.goesOn("apr_1", `{"sent":true}`, "Done.")
	got := on.finish()
	if types(got) != "tool-output-available start-step text-start text-delta text-end finish-step finish" || string(got[0].Output) != `{"sent":true}` {
		t.Errorf("it goes on with %+v", got)
	}
	whole := reloaded.finish()
	if types(whole) != "start start-step tool-input-start tool-input-available finish-step tool-output-available start-step text-start text-delta text-end finish-step finish" {
		t.Errorf("a page that was loaded again is told %s", types(whole))
	}
	h = w.chatHistory("c1")
	if got := shape(h.Messages); got != "u1: hello; "+message+": step-start, output-available, step-start, Done." {
		t.Errorf("the history is %s", got)
	}
	if a := h.Messages[1].Parts[1].Approval; a == nil || a.ID != "apr_1" || !*a.Approved || a.Reason != "so it be" {
		t.Errorf("its approval is %+v", a)
	}
	// The same decision again, and another one, late: nothing is decided anew.
	for _, approved := range []bool{true, false} {
		if got := w.chat(decided("c1", message, "apr_1", approved)).finish(); types(got) != "start tool-output-available start-step text-start text-delta text-end finish-step finish" {
			t.Errorf("decided again it is %s", types(got))
		}
	}
	if a, err := w.store.Approval(t.Context(), "apr_1"); err != nil || a.Status != session.StatusApproved {
		t.Errorf("the approval is %+v, %v", a, err)
	}
}

func TestADeniedCallIsTold(t *testing.T) {
	w := newWorld(t, worldOptions{})
	page := w.chat(user("c1", "u1", "hello"))
	w.ask(w.claim(), "apr_1", `{}`)
	message := page.finish()[0].MessageID
	on := w.chat(decided("c1", message, "apr_1", false))
	on.until("start")
	w.goesOn("apr_1", "", "As you wish.")
	if got := on.finish(); types(got) != "tool-output-denied start-step text-start text-delta text-end finish-step finish" {
		t.Errorf("it goes on with %s", types(got))
	}
	a := w.chatHistory("c1").Messages[1].Parts[1].Approval
	if a == nil || *a.Approved || a.Reason != "so it be" {
		t.Errorf("the history says %+v", a)
	}
	if got := types(w.open("GET", "/api/chat/c1/stream?startIndex=0", "").finish()); !strings.Contains(got, "tool-approval-request tool-output-denied") {
		t.Errorf("a replay is %s", got)
	}
}

func TestSeveralQuestionsOfOneStepAreDecidedTogether(t *testing.T) {
	w := newWorld(t, worldOptions{})
	page := w.chat(user("c1", "u1", "hello"))
	lease := w.claim()
	run, err := w.store.Run(t.Context(), lease.Run)
	if err != nil {
		t.Fatal(err)
	}
	events := []session.Event{at(lease, session.StepStarted{Message: run.Message})}
	for _, id := range []string{"apr_1", "apr_2"} {
		events = append(events,
			at(lease, session.ToolCalled{Message: run.Message, Call: "call_" + id, Name: "charge", Arguments: json.RawMessage(`{}`), Approval: id}),
			at(lease, session.ApprovalRequested{Approval: session.Approval{ID: id, Session: "c1", Run: run.ID, Message: run.Message, Call: "call_" + id, Name: "charge", Arguments: json.RawMessage(`{}`)}}))
	}
	w.append("c1", append(events, at(lease, session.RunWaiting{Reason: session.WaitApproval}))...)
	message := page.finish()[0].MessageID
	w.chat(decided("c1", message, "apr_1", true, "apr_2", false)).until("start")
	var decisions []string
	for _, e := range w.events("c1") {
		if d, ok := e.Data.(session.ApprovalDecided); ok {
			decisions = append(decisions, fmt.Sprint(d.ID, " ", d.Decision, " ", d.Note))
		}
		if _, ok := e.Data.(session.RunResumed); ok {
			t.Error("it went on before all was decided")
		}
	}
	if !slices.Equal(decisions, []string{"apr_1 approve so it be", "apr_2 deny so it be"}) {
		t.Errorf("decided is %q", decisions)
	}
}

func TestADecisionMadeElsewhereIsFollowedByAPageThatAsks(t *testing.T) {
	w := newWorld(t, worldOptions{})
	page := w.chat(user("c1", "u1", "hello"))
	w.ask(w.claim(), "apr_1", `{}`)
	message := page.finish()[0].MessageID
	w.do("GET", "/api/chat/c1/stream", nil).is(204)
	w.do("POST", "/v1/approvals/apr_1", `{"decision":"approve"}`).is(200) // in Holdfast's own page
	again := w.open("GET", "/api/chat/c1/stream", "")
	late := w.chat(decided("c1", message, "apr_1", false)) // here it is denied, too late
	late.until("start")
	w.goesOn("apr_1", `true`, "Done.")
	if got := again.finish(); got[0].MessageID != message || words(got) != "Done." {
		t.Errorf("it is told %+v", got)
	}
	if got := late.finish(); types(got) != "tool-output-available start-step text-start text-delta text-end finish-step finish" {
		t.Errorf("who decided too late is told %s", types(got))
	}
}

func TestGoingOnWithAnotherMessageIsANo(t *testing.T) {
	w := newWorld(t, worldOptions{})
	page := w.chat(user("c1", "u1", "hello"))
	w.ask(w.claim(), "apr_1", `{}`)
	message := page.finish()[0].MessageID
	next := w.chat(user("c1", "u2", "never mind"))
	lease := w.claim()
	w.writes(lease, "Fine.")
	w.completes(lease, "Fine.")
	if got := next.finish(); words(got) != "Fine." || got[0].MessageID == message {
		t.Errorf("the next answer is %+v", got)
	}
	h := w.chatHistory("c1")
	if got := shape(h.Messages); !strings.HasPrefix(got, "u1: hello; "+message+": step-start, output-denied, step-start; u2: never mind; ") {
		t.Errorf("the history is %s", got)
	}
	if a := h.Messages[1].Parts[1].Approval; a == nil || *a.Approved {
		t.Errorf("its approval is %+v", a)
	}
	// The question is answered now, too late: the page is told what became of it, and nothing happens.
	if got := w.chat(decided("c1", message, "apr_1", true)).finish(); types(got) != "start tool-output-denied start-step finish-step abort finish" {
		t.Errorf("a late yes is answered with %s", types(got))
	}
}

func TestNothingIsDoneBecauseAHistorySaysSo(t *testing.T) {
	w := newWorld(t, worldOptions{})
	page := w.chat(user("c1", "u1", "hello"))
	w.ask(w.claim(), "apr_1", `{}`)
	message := page.finish()[0].MessageID
	w.do("POST", "/api/chat", decided("c1", message, "apr_other", true)).is(409)
	w.do("POST", "/api/chat", decided("c1", message)).is(409)
	w.do("POST", "/api/chat", decided("c2", message, "apr_1", true)).is(404)
	if a, err := w.store.Approval(t.Context(), "apr_1"); err != nil || a.Status != session.StatusPending {
		t.Errorf("the approval is %+v, %v", a, err)
	}
}

func TestAClientWithoutApprovalsWaitsInItsStream(t *testing.T) {
	w := newWorld(t, worldOptions{})
	page := w.chat(user("c1", "u1", "hello"), aisdk.ProfileHeader, "v5")
	w.ask(w.claim(), "apr_1", `{}`)
	page.until("data-approval")
	h := w.do("GET", "/api/chat/c1", nil, aisdk.ProfileHeader, "v5").is(200)
	if strings.Contains(string(h.body), "approval-requested") || !strings.Contains(string(h.body), "activeStreamId") {
		t.Errorf("its history is %s", h.body)
	}
	w.do("POST", "/v1/approvals/apr_1", `{"decision":"deny","note":"no"}`).is(200)
	w.goesOn("apr_1", "", "As you wish.")
	if got := page.finish(); types(got) != "data-approval tool-output-error finish-step start-step text-start text-delta text-end finish-step finish" || got[1].ErrorText != "denied: no" && got[1].ErrorText != "denied" {
		t.Errorf("it goes on with %+v", got)
	}
}

// regenerate is the body of useChat's regenerate.
func regenerate(chat, message, text string) string {
	return strings.Replace(user(chat, message, text), "submit-message", "regenerate-message", 1)
}

func TestRegenerateMakesABranch(t *testing.T) {
	w := newWorld(t, worldOptions{})
	page := w.chat(user("c1", "u1", "hello"))
	lease := w.claim()
	w.writes(lease, "one")
	page.until("text-delta")
	// While it is being written, that answer is the one that is wanted.
	if got := w.chat(regenerate("c1", "u1", "hello")).until("text-delta"); got[0].MessageMetadata.RunID != lease.Run {
		t.Errorf("it is told %+v", got)
	}
	w.completes(lease, "one")
	first := page.finish()
	other := w.chat(regenerate("c1", "u1", "hello"))
	lease = w.claim()
	w.writes(lease, "two")
	if got := other.until("start"); got[0].MessageMetadata.RunID != lease.Run {
		t.Errorf("it is told %+v", got)
	}
	w.completes(lease, "two")
	if got := words(other.finish()); got != "two" {
		t.Errorf("the other answer is %q", got)
	}
	if got := shape(w.chatHistory("c1").Messages); !strings.HasPrefix(got, "u1: hello; ") || !strings.HasSuffix(got, "step-start, two") || strings.Contains(got, "one") {
		t.Errorf("the history is %s", got)
	}
	var snap struct{ Messages []session.Message }
	w.do("GET", "/v1/sessions/c1", nil).into(200, &snap)
	if got := snap.Messages[1].Siblings; len(got) != 2 || got[0] == got[1] {
		t.Errorf("the answers are %q, the first was %+v", got, first)
	}
	// A message that never came here is said.
	if got := w.chat(regenerate("c2", "u9", "lost")); got.res.StatusCode != 200 {
		t.Errorf("it is answered %d", got.res.StatusCode)
	}
	w.claim()
}

func TestAnEditedMessageKeepsItsIDAndBeginsABranch(t *testing.T) {
	w := newWorld(t, worldOptions{})
	edited := func(text string) string {
		return strings.Replace(user("c1", "u1", text), `"trigger"`, `"messageId":"u1","trigger"`, 1)
	}
	answer := func(page *sse, text string) {
		t.Helper()
		lease := w.claim()
		w.writes(lease, text)
		w.completes(lease, text)
		if got := words(page.finish()); got != text {
			t.Errorf("the page hears %q", got)
		}
	}
	answer(w.chat(user("c1", "u1", "hello")), "one")
	answer(w.chat(edited("hello there")), "two")
	if got := shape(w.chatHistory("c1").Messages); !strings.HasPrefix(got, "u1: hello there; ") || !strings.HasSuffix(got, ", two") {
		t.Errorf("the history is %s", got)
	}
	// The same edit again, while it is answered, is the same edit; afterwards it is another one.
	page := w.chat(edited("hello at last"))
	twice := w.chat(edited("hello at last"))
	lease := w.claim()
	w.writes(lease, "three")
	w.completes(lease, "three")
	if a, b := words(page.finish()), words(twice.finish()); a != "three" || b != "three" {
		t.Errorf("they hear %q and %q", a, b)
	}
	answer(w.chat(regenerate("c1", "u1", "hello at last")), "four")
	answer(w.chat(user("c1", "u2", "and")), "five")
	got := shape(w.chatHistory("c1").Messages)
	if !strings.HasPrefix(got, "u1: hello at last; ") || !strings.Contains(got, ", four; u2: and; ") || !strings.HasSuffix(got, ", five") {
		t.Errorf("the history is %s", got)
	}
	// An edit in mid-answer: nobody wants to hear that one any more.
	page = w.chat(user("c1", "u3", "so"))
	lease = w.claim()
	w.writes(lease, "six")
	page.until("text-delta")
	last := w.chat(edited("hello again"))
	w.end(lease, session.RunCancelled{})
	answer(last, "seven")
	if got := types(page.finish()); !strings.HasSuffix(got, "abort finish") {
		t.Errorf("the first page is told %s", got)
	}
	if got := shape(w.chatHistory("c1").Messages); !strings.HasPrefix(got, "u1: hello again; ") || !strings.HasSuffix(got, ", seven") || strings.Contains(got, "u2") {
		t.Errorf("the history is %s", got)
	}
}

func TestTwoFirstMessagesAtOnceAreBothAnswered(t *testing.T) {
	w := newWorld(t, worldOptions{})
	pages := make([]*sse, 8)
	var g sync.WaitGroup
	for i := range pages {
		g.Go(func() { pages[i] = w.chat(user("c1", fmt.Sprint("u", i/2), "hello")) })
	}
	g.Wait()
	for range len(pages) / 2 {
		lease := w.claim()
		w.writes(lease, "hi")
		w.completes(lease, "hi")
	}
	for _, page := range pages {
		if got := words(page.finish()); got != "hi" {
			t.Errorf("a page hears %q", got)
		}
	}
}

func TestOfAHugeHistoryOnlyTheLastMessageIsTaken(t *testing.T) {
	w := newWorld(t, worldOptions{})
	old := fmt.Sprintf(`{"id":"a0","role":"assistant","parts":[{"type":"text","text":%q}],"__proto__":{"x":[[[]]]}}`, strings.Repeat("old ", 1000))
	body := `{"messages":[` + strings.Repeat(old+",", 4000) + `{"id":"u1","role":"user","parts":[{"type":"text","text":"new"}]}],"id":"c1","theirs":{"deep":[{}]}}`
	if len(body) < 15<<20 {
		t.Fatal("that is not huge")
	}
	page := w.chat(body)
	lease := w.claim()
	w.writes(lease, "hi")
	w.completes(lease, "hi")
	page.finish()
	if got := shape(w.chatHistory("c1").Messages); !strings.HasPrefix(got, "u1: new; ") || len(got) > 200 {
		t.Errorf("the history is %s", got)
	}
	w.do("POST", "/api/chat", `{"id":"c1","messages":[`+strings.Repeat(old+",", 9000)+`{}]}`).is(413)
	large := strings.Repeat("x", 9<<20)
	w.do("POST", "/api/chat", user("c1", "u2", large)).is(413)
}

func TestRequestsThatAreNoneAreRefusedInWords(t *testing.T) {
	w := newWorld(t, worldOptions{})
	for body, want := range map[string]int{
		``: 400, `[]`: 400, `{`: 400, `{"id":"c1"}`: 422, `{"id":"c1","messages":[]}`: 422, `{"id":"c1","messages":null}`: 422, `{"id":"c1","messages":{}}`: 400,
		`{"id":7,"messages":[]}`: 400, `{"id":"a b","messages":[{"id":"u1","role":"user","parts":[]}]}`: 400, user("c1", "u 1", "x"): 400,
		`{"messages":[{"role":"user","parts":[{"type":"text","text":"x"}]}]}`:                                                                               400,
		`{"id":"c1","messages":[{"id":"u1","role":"user","parts":[]}]}`:                                                                                     422,
		`{"id":"c1","messages":[{"id":"u1","role":"user","parts":[{"type":"text","text":""}]}]}`:                                                            422,
		`{"id":"c1","messages":[{"id":"u1","role":"user","parts":[{"type":"step-start"}]}]}`:                                                                422,
		`{"id":"c1","messages":[{"id":"u1","role":"system","parts":[]}]}`:                                                                                   422,
		`{"id":"c1","messages":[{"id":"u1","role":"user","parts":[{"type":"file","mediaType":"text/html","url":"javascript:alert(1)"}]}]}`:                  422,
		`{"id":"c1","messages":[{"id":"u1","role":"user","parts":[{"type":"file","url":"https://example.com/a"}]}]}`:                                        422,
		`{"id":"c1","messages":[{"id":"u1","role":"user","parts":[{"type":"data-x","data":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}]}]}`: 422,
		user("c1", "u1", "x") + "{}": 400,
	} {
		a := w.do("POST", "/api/chat", body).is(want)
		if kind := a.header.Get("Content-Type"); kind != "text/plain; charset=utf-8" || len(a.body) < 10 || a.body[0] == '{' {
			t.Errorf("%.60s is answered with %s: %s", body, kind, a.body)
		}
		w.do("POST", "/api/chat", body, "Accept", "application/json").problem(want, problemCode(want, a.body))
	}
	if a := w.do("GET", "/api/chat/c1", nil); !strings.Contains(string(a.body), `"messages":[]`) {
		t.Errorf("something was said: %s", a.body)
	}
}

// problemCode is the code of a status of these requests.
func problemCode(status int, body []byte) api.Code {
	switch {
	case status == 422:
		return api.Invalid
	case strings.Contains(string(body), "to be an id"):
		return api.InvalidID
	}
	return api.Malformed
}

func TestTextThatIsNoTextIsMended(t *testing.T) {
	w := newWorld(t, worldOptions{})
	page := w.chat(`{"id":"c1","messages":[{"id":"u1","role":"user","parts":[{"type":"text","text":"a\u0000b \ud83d c"},{"type":"data-x","id":"d","data":{"__proto__":{"y":1},"n":null}}]}]}`)
	lease := w.claim()
	run, err := w.store.Run(t.Context(), lease.Run)
	if err != nil {
		t.Fatal(err)
	}
	hostile := `{"__proto__":{"x":1},"constructor":{"prototype":{"y":1},"name":"n"},"a":null,"big":12345678901234567890}`
	w.append("c1",
		at(lease, session.StepStarted{Message: run.Message}),
		at(lease, session.ModelCompleted{Message: run.Message, Finish: "tool_calls", Parts: []session.Part{{Type: session.PartTool, Tool: &session.ToolCall{ID: "call_1", Name: "look"}}}}),
		at(lease, session.ToolCalled{Message: run.Message, Call: "call_1", Name: "look", Arguments: json.RawMessage(`{"\u005f_proto__":1}`)}),
		at(lease, session.ToolCompleted{Message: run.Message, Call: "call_1", Result: json.RawMessage(hostile)}))
	w.end(lease, session.RunCompleted{})
	tame := `{"[__proto__]":{"x":1},"constructor":{"[prototype]":{"y":1},"name":"n"},"a":null,"big":12345678901234567890}`
	for _, c := range page.finish() {
		if c.Type == "tool-output-available" && string(c.Output) != tame {
			t.Errorf("the output is told as %s", c.Output)
		}
	}
	a := w.do("GET", "/api/chat/c1", nil).is(200)
	for _, want := range []string{`"output":` + tame, `"input":{"[__proto__]":1}`, `"text":"a\u0000b � c"`, `{"type":"data-x","id":"d","data":{"[__proto__]":{"y":1},"n":null}}`} {
		if !strings.Contains(string(a.body), want) {
			t.Errorf("the history has no %s: %s", want, a.body)
		}
	}
}

func TestALargeFileIsKeptAndComesBackByItsAddress(t *testing.T) {
	w := newWorld(t, worldOptions{})
	picture := strings.Repeat("picture", 20_000)
	file := `{"type":"file","mediaType":"image/png","filename":"a.png","url":"` + "data:image/png;base64," + base64.StdEncoding.EncodeToString([]byte(picture)) + `"}`
	page := w.chat(`{"id":"c1","messages":[{"id":"u1","role":"user","parts":[` + file + `,{"type":"text","text":"what is this?"}]}]}`)
	lease := w.claim()
	w.writes(lease, "a")
	w.completes(lease, "a")
	page.finish()
	part := w.chatHistory("c1").Messages[0].Parts[0]
	if part.Type != "file" || part.Filename != "a.png" || part.MediaType != "image/png" || !strings.HasPrefix(part.URL, "/v1/sessions/c1/blobs/") {
		t.Fatalf("it is kept as %+v", part)
	}
	if got := w.do("GET", part.URL, nil).is(200); string(got.body) != picture {
		t.Errorf("its address gives %d bytes", len(got.body))
	}
	// It is sent along again, and is the same.
	raw, err := json.Marshal(part)
	if err != nil {
		t.Fatal(err)
	}
	page = w.chat(`{"id":"c1","messages":[{"id":"u2","role":"user","parts":[` + string(raw) + `]}]}`)
	lease = w.claim()
	w.completes(lease, "b")
	page.finish()
	if again := w.chatHistory("c1").Messages[2].Parts[0]; again.URL != part.URL {
		t.Errorf("it came again as %+v", again)
	}
	w.do("POST", "/api/chat", `{"id":"c2","messages":[{"id":"u2","role":"user","parts":[`+string(raw)+`]}]}`).is(422)
}
