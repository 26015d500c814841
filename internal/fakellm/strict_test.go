package fakellm_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/internal/fakellm"
)

// A history is a body of which only the list of messages matters, or one that
// is given whole. Rule is what refuses it; "" accepts it.
type history struct {
	name     string
	messages string // the elements of messages or input
	body     string // in place of messages
	rule     string
}

// check sends each history and looks at the answer and at the record.
func check(t *testing.T, wire fakellm.Wire, frame string, histories []history) {
	llm := fakellm.Start(t, fakellm.Options{})
	lenient := fakellm.Start(t, fakellm.Options{Lenient: true})
	for i, h := range histories {
		t.Run(h.name, func(t *testing.T) {
			body := h.body
			if body == "" {
				body = fmt.Sprintf(frame, h.messages)
			}
			status, text, err := exchange(t, llm, wire, body)
			if err != nil {
				t.Fatal(err)
			}
			r, err := llm.WaitClosed(soon(t), i+1)
			if err != nil || r.Rule != h.rule || r.Status != status {
				t.Errorf("%v; the record has rule %q (%s) and status %d, want rule %q", err, r.Rule, r.Refusal, r.Status, h.rule)
			}
			if h.rule == "" {
				if status != http.StatusOK {
					t.Errorf("refused: %d %s", status, text)
				}
				return
			}
			var answer struct {
				Type  string
				Error struct{ Type, Message string }
			}
			if err := json.Unmarshal([]byte(text), &answer); err != nil {
				t.Fatalf("%v in %s", err, text)
			}
			if status != http.StatusBadRequest || answer.Error.Type != "invalid_request_error" || !strings.Contains(answer.Error.Message, "["+h.rule+"]") {
				t.Errorf("status %d, %s", status, text)
			}
			if wire == fakellm.Messages && answer.Type != "error" {
				t.Errorf("not the provider's shape: %s", text)
			}
			if h.rule == fakellm.RuleJSON {
				return // nobody can answer that
			}
			if status, text, _ := exchange(t, lenient, wire, body); status != http.StatusOK {
				t.Errorf("a lenient server answers %d %s", status, text)
			}
		})
	}
	if got, want := len(llm.Refused()), countRefused(histories); got != want {
		t.Errorf("%d requests are listed as refused, want %d", got, want)
	}
}

func countRefused(histories []history) (n int) {
	for _, h := range histories {
		if h.rule != "" {
			n++
		}
	}
	return n
}

// tools are definitions as both OpenAI wires may have them, by what is wrong.
func toolHistories(frame func(name, schema string) string) []history {
	long := strings.Repeat("n", 65)
	return []history{
		{name: "a tool", body: frame("get_weather-2", `{"type":"object","properties":{"c":{"type":"array","items":{}},"d":true}}`)},
		{name: "tool name with a dot", body: frame("get.weather", `{"type":"object"}`), rule: fakellm.RuleToolName},
		{name: "tool name too long", body: frame(long, `{"type":"object"}`), rule: fakellm.RuleToolName},
		{name: "tool name empty", body: frame("", `{"type":"object"}`), rule: fakellm.RuleToolName},
		{name: "schema of a string", body: frame("f", `{"type":"string"}`), rule: fakellm.RuleToolSchema},
		{name: "schema without type", body: frame("f", `{"properties":{}}`), rule: fakellm.RuleToolSchema},
		{name: "schema is a list", body: frame("f", `[]`), rule: fakellm.RuleToolSchema},
		{name: "schema is true", body: frame("f", `true`), rule: fakellm.RuleToolSchema},
		{name: "properties are a list", body: frame("f", `{"type":"object","properties":[]}`), rule: fakellm.RuleToolSchema},
		{name: "array without items", body: frame("f", `{"type":"object","properties":{"o":{"type":"object","properties":{"a":{"type":"array"}}}}}`), rule: fakellm.RuleToolSchema},
		{name: "property is a number", body: frame("f", `{"type":"object","properties":{"a":5}}`), rule: fakellm.RuleToolSchema},
	}
}

func TestStrictChat(t *testing.T) {
	const user = `{"role":"user","content":"hi"}`
	call := func(ids ...string) string {
		var calls []string
		for _, id := range ids {
			calls = append(calls, fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}`, id))
		}
		return `{"role":"assistant","content":null,"tool_calls":[` + strings.Join(calls, ",") + `]}`
	}
	args := func(arguments string) string {
		return user + `,{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":` + arguments + `}}]},{"role":"tool","tool_call_id":"a","content":"ok"}`
	}
	result := func(id string) string { return fmt.Sprintf(`{"role":"tool","tool_call_id":%q,"content":"ok"}`, id) }
	histories := []history{
		{name: "one question", messages: user},
		{name: "system, developer and parts", messages: `{"role":"system","content":"s"},{"role":"developer","content":"d"},{"role":"user","content":[{"type":"text","text":"hi"},{"type":"image_url","image_url":{"url":"data:"}}]}`},
		{name: "call and result", messages: join(user, call("a"), result("a"))},
		{name: "results in another order", messages: join(user, call("a", "b"), result("b"), result("a"), user)},
		{name: "the same id in a later turn", messages: join(user, call("call_1"), result("call_1"), user, call("call_1"), result("call_1"))},
		{name: "two assistant messages", messages: join(user, `{"role":"assistant","content":"a"},{"role":"assistant","content":"b"}`, user)},
		{name: "an empty result", messages: join(user, call("a"), `{"role":"tool","tool_call_id":"a","content":""}`)},
		{name: "a refusal", messages: join(user, `{"role":"assistant","content":null,"refusal":"no"}`, user)},
		{name: "an escaped NUL and a whole pair", messages: `{"role":"user","content":"a\u0000b \ud83d\ude00 \\ud83d"}`},

		{name: "no messages", messages: ``, rule: fakellm.RuleNoMessages},
		{name: "no model", body: `{"messages":[` + user + `]}`, rule: fakellm.RuleModel},
		{name: "not JSON", body: `{"model":`, rule: fakellm.RuleJSON},
		{name: "a list", body: `[]`, rule: fakellm.RuleJSON},
		{name: "an empty body", body: ` `, rule: fakellm.RuleJSON},
		{name: "messages of the wrong type", body: `{"model":"m","messages":"hi"}`, rule: fakellm.RuleShape},
		{name: "invalid UTF-8", messages: "{\"role\":\"user\",\"content\":\"\xff\"}", rule: fakellm.RuleUTF8},
		{name: "a high surrogate alone", messages: `{"role":"user","content":"x\ud83d y"}`, rule: fakellm.RuleLoneSurrogate},
		{name: "a high surrogate at the end", messages: `{"role":"user","content":"x\ud83d"}`, rule: fakellm.RuleLoneSurrogate},
		{name: "a low surrogate alone", messages: `{"role":"user","content":"\udc00"}`, rule: fakellm.RuleLoneSurrogate},
		{name: "two high surrogates", messages: `{"role":"user","content":"\ud83d\ud83d\ude00"}`, rule: fakellm.RuleLoneSurrogate},
		{name: "a surrogate inside arguments", messages: args(`"{\"q\":\"\\ud99c x\"}"`), rule: fakellm.RuleLoneSurrogate},
		{name: "unknown role", messages: `{"role":"function","content":"x"}`, rule: fakellm.RuleShape},
		{name: "unknown part", messages: `{"role":"user","content":[{"type":"input_text","text":"x"}]}`, rule: fakellm.RuleShape},
		{name: "an image said by the assistant", messages: join(user, `{"role":"assistant","content":[{"type":"image_url"}]}`), rule: fakellm.RuleShape},
		{name: "an empty question", messages: `{"role":"user","content":""}`, rule: fakellm.RuleEmptyContent},
		{name: "no content", messages: `{"role":"user","content":null}`, rule: fakellm.RuleEmptyContent},
		{name: "an empty part", messages: `{"role":"user","content":[{"type":"text","text":""}]}`, rule: fakellm.RuleEmptyText},
		{name: "an empty assistant message", messages: join(user, `{"role":"assistant","content":""}`, user), rule: fakellm.RuleEmptyAssistant},
		{name: "an assistant message of null", messages: join(user, `{"role":"assistant","content":null}`, user), rule: fakellm.RuleEmptyAssistant},
		{name: "an empty list of calls", messages: join(user, `{"role":"assistant","content":"x","tool_calls":[]}`, user), rule: fakellm.RuleShape},
		{name: "a call without result at the end", messages: join(user, call("a")), rule: fakellm.RuleResultMissing},
		{name: "a call without result before a question", messages: join(user, call("a"), user), rule: fakellm.RuleResultMissing},
		{name: "one of three results is missing", messages: join(user, call("a", "b", "c"), result("a"), result("c"), user), rule: fakellm.RuleResultMissing},
		{name: "the result comes too late", messages: join(user, call("a"), user, result("a")), rule: fakellm.RuleResultMissing},
		{name: "a result without call", messages: join(user, result("a")), rule: fakellm.RuleResultOrphan},
		{name: "a result of another call", messages: join(user, call("a"), result("b")), rule: fakellm.RuleResultOrphan},
		{name: "a result after the turn", messages: join(user, call("a"), result("a"), user, result("a")), rule: fakellm.RuleResultOrphan},
		{name: "two results", messages: join(user, call("a"), result("a"), result("a")), rule: fakellm.RuleResultTwice},
		{name: "a result without content", messages: join(user, call("a"), `{"role":"tool","tool_call_id":"a"}`), rule: fakellm.RuleEmptyContent},
		{name: "two calls of one id", messages: join(user, call("a", "a"), result("a")), rule: fakellm.RuleCallIDTwice},
		{name: "an empty id", messages: join(user, call(""), result("")), rule: fakellm.RuleCallID},
		{name: "a long id", messages: join(user, call(strings.Repeat("a", 41)), result(strings.Repeat("a", 41))), rule: fakellm.RuleCallID},
		{name: "a call of no type", messages: join(user, `{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]}`, result("a")), rule: fakellm.RuleShape},
		{name: "a call of a bad name", messages: join(user, `{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f.g","arguments":"{}"}}]}`, result("a")), rule: fakellm.RuleToolName},
		{name: "stream options without stream", body: `{"model":"m","stream_options":{"include_usage":true},"messages":[` + user + `]}`, rule: fakellm.RuleStreamOptions},
		{name: "an empty list of tools", body: `{"model":"m","tools":[],"messages":[` + user + `]}`, rule: fakellm.RuleShape},
		{name: "a choice without tools", body: `{"model":"m","tool_choice":"required","messages":[` + user + `]}`, rule: fakellm.RuleShape},
		{name: "a tool of no type", body: `{"model":"m","tools":[{"function":{"name":"f"}}],"messages":[` + user + `]}`, rule: fakellm.RuleShape},
		{name: "a tool without parameters", body: `{"model":"m","tools":[{"type":"function","function":{"name":"f"}}],"messages":[` + user + `]}`},
		{name: "two tools of one name", body: `{"model":"m","tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}],"messages":[` + user + `]}`, rule: fakellm.RuleToolTwice},
	}
	for _, bad := range []string{`""`, `"{"`, `"null"`, `"[]"`, `"\"s\""`, `"{}}"`, `"{\"a\":1}<|call|>"`, `{"a":1}`, `null`} {
		histories = append(histories, history{name: "arguments " + bad, messages: args(bad), rule: fakellm.RuleArguments})
	}
	histories = append(histories, toolHistories(func(name, schema string) string {
		return fmt.Sprintf(`{"model":"m","tools":[{"type":"function","function":{"name":%q,"parameters":%s}}],"messages":[%s]}`, name, schema, user)
	})...)
	check(t, fakellm.Chat, `{"model":"m","messages":[%s]}`, histories)
}

func TestStrictResponses(t *testing.T) {
	const user = `{"role":"user","content":"hi"}`
	call := func(id string) string {
		return fmt.Sprintf(`{"type":"function_call","call_id":%q,"name":"f","arguments":"{}"}`, id)
	}
	result := func(id string) string {
		return fmt.Sprintf(`{"type":"function_call_output","call_id":%q,"output":"ok"}`, id)
	}
	const thought = `{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"x"}`
	histories := []history{
		{name: "a string", body: `{"model":"m","instructions":"be kind","input":"hi"}`},
		{name: "typed messages and parts", messages: `{"type":"message","role":"developer","content":"d"},{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"},{"type":"input_image","image_url":"data:"}]},{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"x"},{"type":"refusal","refusal":"no"}]}`},
		{name: "parallel calls", messages: join(user, call("a"), call("b"), result("b"), result("a"), user)},
		{name: "calls one after another", messages: join(user, call("a"), result("a"), call("b"), result("b"))},
		{name: "a text after a call of the same turn", messages: join(user, call("a"), `{"role":"assistant","content":"x"}`, result("a"))},
		{name: "a thought before a call", messages: join(user, thought, call("a"), result("a"))},
		{name: "two thoughts before an answer", messages: join(user, thought, thought, `{"role":"assistant","content":"x"}`)},
		{name: "a list as output", messages: join(user, call("a"), `{"type":"function_call_output","call_id":"a","output":[{"type":"input_text","text":"x"},{"type":"input_file"}]}`)},
		{name: "an empty output", messages: join(user, call("a"), `{"type":"function_call_output","call_id":"a","output":""}`)},
		{name: "a tool of the provider's own", body: `{"model":"m","tools":[{"type":"web_search"}],"input":"hi"}`},

		{name: "no input", body: `{"model":"m"}`, rule: fakellm.RuleNoMessages},
		{name: "an empty string", body: `{"model":"m","input":""}`, rule: fakellm.RuleEmptyContent},
		{name: "no model", body: `{"input":"hi"}`, rule: fakellm.RuleModel},
		{name: "half a pair", body: `{"model":"m","input":"\ude00"}`, rule: fakellm.RuleLoneSurrogate},
		{name: "something stored", body: `{"model":"m","input":"hi","previous_response_id":"resp_1"}`, rule: fakellm.RuleStateless},
		{name: "a reference", messages: join(user, `{"type":"item_reference","id":"msg_1"}`), rule: fakellm.RuleStateless},
		{name: "unknown item", messages: join(user, `{"type":"tool_result"}`), rule: fakellm.RuleShape},
		{name: "unknown role", messages: `{"role":"tool","content":"x"}`, rule: fakellm.RuleShape},
		{name: "said as if told", messages: join(user, `{"role":"assistant","content":[{"type":"input_text","text":"x"}]}`), rule: fakellm.RuleShape},
		{name: "told as if said", messages: `{"role":"user","content":[{"type":"output_text","text":"x"}]}`, rule: fakellm.RuleShape},
		{name: "an empty message", messages: join(user, `{"role":"assistant","content":[]}`), rule: fakellm.RuleEmptyContent},
		{name: "an empty part", messages: `{"role":"user","content":[{"type":"input_text","text":""}]}`, rule: fakellm.RuleEmptyText},
		{name: "a call without output at the end", messages: join(user, call("a")), rule: fakellm.RuleResultMissing},
		{name: "a call without output before a message", messages: join(user, call("a"), user, result("a")), rule: fakellm.RuleResultMissing},
		{name: "half of the outputs before an answer", messages: join(user, call("a"), call("b"), result("a"), `{"role":"assistant","content":"x"}`, result("b")), rule: fakellm.RuleResultMissing},
		{name: "half of the outputs before the next call", messages: join(user, call("a"), call("b"), result("a"), call("c"), result("b"), result("c")), rule: fakellm.RuleResultMissing},
		{name: "an output without call", messages: join(user, result("a")), rule: fakellm.RuleResultOrphan},
		{name: "two outputs", messages: join(user, call("a"), result("a"), result("a")), rule: fakellm.RuleResultTwice},
		{name: "two calls of one id", messages: join(user, call("a"), call("a"), result("a")), rule: fakellm.RuleCallIDTwice},
		{name: "a call without id", messages: join(user, call(""), result("")), rule: fakellm.RuleCallID},
		{name: "a long id", messages: join(user, call(strings.Repeat("a", 65)), result(strings.Repeat("a", 65))), rule: fakellm.RuleCallID},
		{name: "no output", messages: join(user, call("a"), `{"type":"function_call_output","call_id":"a"}`), rule: fakellm.RuleEmptyContent},
		{name: "arguments no object", messages: join(user, `{"type":"function_call","call_id":"a","name":"f","arguments":"[]"}`, result("a")), rule: fakellm.RuleArguments},
		{name: "arguments no string", messages: join(user, `{"type":"function_call","call_id":"a","name":"f","arguments":{}}`, result("a")), rule: fakellm.RuleArguments},
		{name: "a bad name", messages: join(user, `{"type":"function_call","call_id":"a","name":"f g","arguments":"{}"}`, result("a")), rule: fakellm.RuleToolName},
		{name: "a call's own id", messages: join(user, `{"type":"function_call","id":"call_1","call_id":"a","name":"f","arguments":"{}"}`, result("a")), rule: fakellm.RuleItemID},
		{name: "a message's own id", messages: join(user, `{"role":"assistant","id":"x","content":"x"}`), rule: fakellm.RuleItemID},
		{name: "a thought at the end", messages: join(user, thought), rule: fakellm.RuleReasoningAlone},
		{name: "a thought before a question", messages: join(user, thought, user), rule: fakellm.RuleReasoningAlone},
		{name: "a thought that is not kept", body: `{"model":"m","store":false,"input":[` + join(user, `{"type":"reasoning","id":"rs_1","summary":[]}`, call("a"), result("a")) + `]}`, rule: fakellm.RuleReasoningKept},
		{name: "a thought that is carried", body: `{"model":"m","store":false,"input":[` + join(user, thought, call("a"), result("a")) + `]}`},
	}
	histories = append(histories, toolHistories(func(name, schema string) string {
		return fmt.Sprintf(`{"model":"m","tools":[{"type":"function","name":%q,"parameters":%s}],"input":"hi"}`, name, schema)
	})...)
	check(t, fakellm.Responses, `{"model":"m","input":[%s]}`, histories)
}

func TestStrictMessages(t *testing.T) {
	const user = `{"role":"user","content":"hi"}`
	said := func(blocks ...string) string {
		return `{"role":"assistant","content":[` + strings.Join(blocks, ",") + `]}`
	}
	told := func(blocks ...string) string { return `{"role":"user","content":[` + strings.Join(blocks, ",") + `]}` }
	call := func(id string) string { return fmt.Sprintf(`{"type":"tool_use","id":%q,"name":"f","input":{}}`, id) }
	result := func(id string) string {
		return fmt.Sprintf(`{"type":"tool_result","tool_use_id":%q,"content":"ok"}`, id)
	}
	text := func(s string) string { return fmt.Sprintf(`{"type":"text","text":%q}`, s) }
	input := func(in string) string {
		return join(user, said(`{"type":"tool_use","id":"a","name":"f","input":`+in+`}`), told(result("a")))
	}
	long := func(fields string) string { return `{"model":"m",` + fields + `"messages":[` + user + `]}` }
	histories := []history{
		{name: "one question", messages: user},
		{name: "two questions", messages: join(user, user)},
		{name: "call and result, then text", messages: join(user, said(text("ok"), call("a")), told(result("a"), text("go on")))},
		{name: "parallel calls", messages: join(user, said(call("a"), call("b")), told(result("b"), result("a")))},
		{name: "the same id in a later turn", messages: join(user, said(call("toolu_1")), told(result("toolu_1")), said(call("toolu_1")), told(result("toolu_1")))},
		{name: "a result of parts, or without content", messages: join(user, said(call("a"), call("b")), told(`{"type":"tool_result","tool_use_id":"a","is_error":true,"content":[{"type":"text","text":"x"},{"type":"image"}]}`, `{"type":"tool_result","tool_use_id":"b"}`))},
		{name: "a signed thought", messages: join(user, said(`{"type":"thinking","thinking":"hm","signature":"sig"}`, `{"type":"redacted_thinking","data":"x"}`, call("a")), told(result("a")))},
		{name: "a beginning to go on from", messages: join(user, `{"role":"assistant","content":"The answer is"}`)},
		{name: "an empty beginning", messages: join(user, said())},
		{name: "system blocks", body: long(`"max_tokens":5,"system":[{"type":"text","text":"a"},{"type":"text","text":"b"}],`)},
		{name: "four cache marks", body: long(`"max_tokens":5,"system":[` + cacheMarks(4) + `],`)},
		{name: "five cache marks", body: long(`"max_tokens":5,"system":[` + cacheMarks(5) + `],`), rule: fakellm.RuleTooManyCacheMark},

		{name: "no max_tokens", body: long(""), rule: fakellm.RuleMaxTokens},
		{name: "max_tokens 0", body: long(`"max_tokens":0,`), rule: fakellm.RuleMaxTokens},
		{name: "a budget beyond max_tokens", body: long(`"max_tokens":1024,"thinking":{"type":"enabled","budget_tokens":1024},`), rule: fakellm.RuleMaxTokens},
		{name: "no model", body: `{"max_tokens":5,"messages":[` + user + `]}`, rule: fakellm.RuleModel},
		{name: "no messages", messages: ``, rule: fakellm.RuleNoMessages},
		{name: "half a pair", messages: `{"role":"user","content":"\ud83d"}`, rule: fakellm.RuleLoneSurrogate},
		{name: "half a pair in the input", messages: input(`{"q":"\ud99c x"}`), rule: fakellm.RuleLoneSurrogate},
		{name: "the assistant is first", messages: join(`{"role":"assistant","content":"x"}`, user), rule: fakellm.RuleFirstUser},
		{name: "a system message", messages: join(user, `{"role":"system","content":"x"}`), rule: fakellm.RuleShape},
		{name: "an empty question", messages: `{"role":"user","content":""}`, rule: fakellm.RuleEmptyContent},
		{name: "no blocks", messages: `{"role":"user","content":[]}`, rule: fakellm.RuleEmptyContent},
		{name: "an empty answer in the middle", messages: join(user, said(), user), rule: fakellm.RuleEmptyContent},
		{name: "an empty text", messages: told(text("")), rule: fakellm.RuleEmptyText},
		{name: "a blank text", messages: told(text(" \n")), rule: fakellm.RuleEmptyText},
		{name: "a blank question", messages: `{"role":"user","content":"  "}`, rule: fakellm.RuleEmptyText},
		{name: "an empty text in a result", messages: join(user, said(call("a")), told(`{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":""}]}`)), rule: fakellm.RuleEmptyText},
		{name: "an empty system block", body: long(`"max_tokens":5,"system":[{"type":"text","text":""}],`), rule: fakellm.RuleEmptyText},
		{name: "a space at the very end", messages: join(user, `{"role":"assistant","content":"The answer is "}`), rule: fakellm.RuleTrailingSpace},
		{name: "a space at the end in the middle", messages: join(user, `{"role":"assistant","content":"x "}`, user)},
		{name: "a thought without signature", messages: join(user, said(`{"type":"thinking","thinking":"hm"}`, text("x")), user), rule: fakellm.RuleSignature},
		{name: "a thought of the user", messages: told(`{"type":"thinking","thinking":"hm","signature":"s"}`), rule: fakellm.RuleShape},
		{name: "a call of the user", messages: told(call("a")), rule: fakellm.RuleShape},
		{name: "a result of the assistant", messages: join(user, said(result("a"))), rule: fakellm.RuleShape},
		{name: "unknown block in a result", messages: join(user, said(call("a")), told(`{"type":"tool_result","tool_use_id":"a","content":[{"type":"output_text","text":"x"}]}`)), rule: fakellm.RuleShape},
		{name: "unknown block", messages: told(`{"type":"input_text","text":"x"}`), rule: fakellm.RuleShape},
		{name: "redacted without data", messages: join(user, said(`{"type":"redacted_thinking"}`, text("x")), user), rule: fakellm.RuleShape},
		{name: "a call without result at the end", messages: join(user, said(call("a"))), rule: fakellm.RuleResultMissing},
		{name: "a call without result", messages: join(user, said(call("a")), user), rule: fakellm.RuleResultMissing},
		{name: "one of two results", messages: join(user, said(call("a"), call("b")), told(result("a")), told(result("b"))), rule: fakellm.RuleResultMissing},
		{name: "the answer goes on before the result", messages: join(user, said(call("a")), said(text("x")), told(result("a"))), rule: fakellm.RuleResultMissing},
		{name: "the result is not first", messages: join(user, said(call("a")), told(text("x"), result("a"))), rule: fakellm.RuleResultsFirst},
		{name: "a result without call", messages: told(result("a")), rule: fakellm.RuleResultOrphan},
		{name: "a result of an older call", messages: join(user, said(call("a")), told(result("a")), said(call("b")), told(result("b"), result("a"))), rule: fakellm.RuleResultOrphan},
		{name: "two results", messages: join(user, said(call("a")), told(result("a"), result("a"))), rule: fakellm.RuleResultTwice},
		{name: "two calls of one id", messages: join(user, said(call("a"), call("a")), told(result("a"))), rule: fakellm.RuleCallIDTwice},
		{name: "an id with a colon", messages: join(user, said(call("f:0")), told(result("f:0"))), rule: fakellm.RuleCallID},
		{name: "a bad name", messages: join(user, said(`{"type":"tool_use","id":"a","name":"f.g","input":{}}`), told(result("a"))), rule: fakellm.RuleToolName},
		{name: "input null", messages: input("null"), rule: fakellm.RuleArguments},
		{name: "input a string", messages: input(`"{}"`), rule: fakellm.RuleArguments},
		{name: "input a list", messages: input(`[]`), rule: fakellm.RuleArguments},
		{name: "a tool without schema", body: long(`"max_tokens":5,"tools":[{"name":"f"}],`), rule: fakellm.RuleToolSchema},
		{name: "a tool of the provider's own", body: long(`"max_tokens":5,"tools":[{"type":"web_search_20250305","name":"web_search"}],`)},
	}
	histories = append(histories, toolHistories(func(name, schema string) string {
		return fmt.Sprintf(`{"model":"m","max_tokens":5,"tools":[{"name":%q,"input_schema":%s}],"messages":[%s]}`, name, schema, user)
	})...)
	check(t, fakellm.Messages, `{"model":"m","max_tokens":5,"messages":[%s]}`, histories)
}

func join(messages ...string) string { return strings.Join(messages, ",") }

func cacheMarks(n int) string {
	mark := `{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}`
	return strings.TrimSuffix(strings.Repeat(mark+",", n), ",")
}

func TestAnthropicWantsItsVersionHeader(t *testing.T) {
	llm := fakellm.Start(t, fakellm.Options{})
	response, err := client.Post(llm.URL()+"/v1/messages", "application/json", strings.NewReader(ask(fakellm.Messages, "hi", false)))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	if response.StatusCode != 400 || !strings.Contains(string(body), fakellm.RuleVersion) {
		t.Errorf("status %d, %s", response.StatusCode, body)
	}
}

// What the fake model thought must come back as it was, as the real one checks.
func TestAThoughtThatWasChangedIsRefused(t *testing.T) {
	llm := fakellm.Start(t, fakellm.Options{})
	llm.Script(fakellm.Reply(fakellm.Reasoning("first ", "think\x00"), fakellm.Text("x")))
	h := listen(t, fakellm.Messages, stream(t, llm, fakellm.Messages))
	for thought, want := range map[string]int{`first think\u0000`: 200, `first think`: 400} {
		body := fmt.Sprintf(`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"},
			{"role":"assistant","content":[{"type":"thinking","thinking":"%s","signature":%q},{"type":"text","text":"x"}]},{"role":"user","content":"go on"}]}`,
			thought, h.signature)
		if status, text, _ := exchange(t, llm, fakellm.Messages, body); status != want {
			t.Errorf("%q: status %d, %s", thought, status, text)
		}
	}
}

// A thought that was asked for in encrypted form can be carried back.
func TestEncryptedReasoningIsGivenToThoseWhoAsk(t *testing.T) {
	llm := fakellm.Start(t, fakellm.Options{})
	llm.Script(fakellm.Reply(fakellm.Reasoning("hm"), fakellm.Text("x")))
	_, text, _ := exchange(t, llm, fakellm.Responses, `{"model":"m","store":false,"include":["reasoning.encrypted_content"],"input":"hi"}`)
	var answer struct{ Output []json.RawMessage }
	if err := json.Unmarshal([]byte(text), &answer); err != nil || len(answer.Output) != 2 {
		t.Fatalf("%v in %s", err, text)
	}
	body := fmt.Sprintf(`{"model":"m","store":false,"input":[{"role":"user","content":"hi"},%s,%s,{"role":"user","content":"go on"}]}`, answer.Output[0], answer.Output[1])
	if status, text, _ := exchange(t, llm, fakellm.Responses, body); status != 200 {
		t.Errorf("status %d, %s", status, text)
	}
}
