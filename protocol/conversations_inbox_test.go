package protocol_test

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast/session"
)

func inboxEnqueue(s *script) {
	s.submit("1", "One.")
	s.claim("run_1", "wrk_a")
	s.step("run_1", "")
	s.submit("2", "Two.")
	s.submit("3", "Three.")
	s.submit("4", "Four, on its own.", after(""))
	s.mark()
	s.do(session.EditInbox{ID: "msg_2", Parts: text("Two, but better."), By: "local"}.Decide)
	s.do(session.RemoveInbox{ID: "msg_3", By: "local", At: s.clock}.Decide)
	s.mark()
	s.stream("run_1", 0, "First.")
	s.says("run_1", "stop", text("First.")...)
	s.carry("run_1", session.StepCompleted{})
	s.end("run_1", session.RunCompleted{Usage: s.run("run_1").Usage})
	s.mark()
	s.claim("run_2", "wrk_a")
	s.answer("run_2", "Second.")
	s.mark()
	s.claim("run_4", "wrk_a")
	s.answer("run_4", "Fourth.")
}

func inboxSteer(s *script) {
	s.submit("1", "Plan a trip.")
	s.claim("run_1", "wrk_a")
	s.step("run_1", "")
	s.calls("run_1", call{"search", `{}`, session.ReadOnly, false})
	s.starts("run_1", "search")
	s.submit("2", "By train, please.", onBusy(session.Steer))
	s.submit("3", "And cheap.", onBusy(session.Steer))
	s.mark()
	s.gives("run_1", "search", `["Rome"]`)
	s.carry("run_1", session.StepCompleted{})
	s.do(session.Carry("run_1", 1, func(st *session.State, run *session.Run) ([]session.Event, error) {
		return st.DeliverSteers(run), nil
	}))
	s.mark()
	s.answer("run_1", "By train to Rome, for little.")
}

func inboxSteerLate(s *script) {
	s.submit("1", "Plan a trip.")
	s.claim("run_1", "wrk_a")
	s.submit("2", "What else?")
	s.submit("3", "By train, please.", onBusy(session.Steer))
	s.mark()
	s.answer("run_1", "To Rome.")
	s.mark()
	s.claim("run_2", "wrk_a")
	s.answer("run_2", "To Oslo.")
	s.mark()
	s.claim("run_3", "wrk_a")
	s.answer("run_3", "By train, then.")
}

func inboxInterrupt(s *script) {
	s.submit("1", "Write a novel.")
	s.claim("run_1", "wrk_a")
	s.step("run_1", "")
	s.stream("run_1", 0, "Chapter one")
	s.submit("2", "And then?")
	s.submit("3", "Stop: a poem!", onBusy(session.Interrupt))
	s.mark()
	run := s.run("run_1")
	s.end("run_1", session.RunCancelled{By: run.CancelBy, Reason: run.CancelReason, Usage: run.Usage})
	s.mark()
	s.submit("4", "No: a song!", onBusy(session.Interrupt)) // nobody carries run_3 yet
	s.mark()
	s.claim("run_4", "wrk_a")
	s.answer("run_4", "La la.")
	s.mark()
	s.claim("run_2", "wrk_a")
	s.answer("run_2", "And then silence.")
}

func inboxRollback(s *script) {
	s.submit("1", "Hello.")
	s.claim("run_1", "wrk_a")
	s.answer("run_1", "Hello!")
	s.submit("2", "Whut is this?")
	s.claim("run_2", "wrk_a")
	s.step("run_2", "")
	s.stream("run_2", 0, "What is what?")
	s.submit("3", "What is this?", onBusy(session.Rollback))
	s.mark()
	run := s.run("run_2")
	s.end("run_2", session.RunCancelled{By: run.CancelBy, Reason: run.CancelReason, Usage: run.Usage})
	s.mark()
	s.claim("run_3", "wrk_a")
	s.answer("run_3", "A conversation.")
}

func branches(s *script) {
	s.submit("1", "A question.")
	s.claim("run_1", "wrk_a")
	s.answer("run_1", "An answer.")
	s.submit("2", "Another.")
	s.claim("run_2", "wrk_a")
	s.answer("run_2", "Yes.")
	s.mark()
	s.submit("3", "Another, said better.", after("ans_1"))
	s.mark()
	s.claim("run_3", "wrk_a")
	s.answer("run_3", "Better, yes.")
	s.mark()
	s.do(session.Retry{Run: "run_3", ID: "run_again", Output: "ans_again"}.Decide)
	s.mark()
	s.claim("run_again", "wrk_a")
	s.answer("run_again", "Much better, yes.")
	s.mark()
	head := "ans_2"
	s.do(session.Update{Head: &head}.Decide)
	s.mark()
	s.submit("4", "A new beginning.", after(""))
	s.claim("run_4", "wrk_a")
	s.end("run_4", session.RunFailed{Error: session.Failure{Code: "invalid_request", Message: "the provider refused it"}})
}

func retryFromStep(s *script) {
	s.submit("1", "Pay and tell me.")
	s.claim("run_1", "wrk_a")
	s.step("run_1", "")
	s.calls("run_1", call{name: "pay", effects: session.Unsafe, args: `{"cents":9007199254740993}`})
	s.starts("run_1", "pay")
	s.gives("run_1", "pay", `{"paid":true}`)
	s.carry("run_1", session.StepCompleted{})
	s.step("run_1", "")
	s.stream("run_1", 0, "It is")
	s.end("run_1", session.RunFailed{Error: session.Failure{Code: "unauthorized", Message: "the key is not valid"}})
	s.mark()
	old := s.run("run_1")
	s.do(session.Retry{Run: "run_1", ID: "run_again", Output: "ans_again", Done: session.FinishedOf(old, s.state.Message(old.Message))}.Decide)
	s.mark()
	s.claim("run_again", "wrk_a")
	s.step("run_again", "")
	s.stream("run_again", 0, "It is paid.")
	s.mark()
	s.says("run_again", "stop", text("It is paid.")...)
	s.carry("run_again", session.StepCompleted{})
	s.end("run_again", session.RunCompleted{Usage: s.run("run_again").Usage})
}

func fork(s *script) {
	s.do(session.Fork{
		From: session.Origin{Session: "ses_0", Message: "ans_0"}, Tenant: "local", Owner: "local", Title: "Before (fork)", Agent: "demo",
		Messages: []session.Message{
			{ID: "msg_0", Role: session.RoleUser, Parts: text("What was before?"), Status: session.MessageWhole, Run: "run_0"},
			{ID: "ans_0", Role: session.RoleAssistant, Parent: "msg_0", Parts: text("This, bef"), Status: session.MessageCut, Reason: "cancelled", Run: "run_0"},
		},
	}.Decide)
	s.mark()
	s.submit("1", "And what comes?")
	s.claim("run_1", "wrk_a")
	s.answer("run_1", "That.")
}

func background(s *script) {
	s.submit("1", "A long task.")
	s.claim("run_1", "wrk_a")
	s.step("run_1", "")
	s.stream("run_1", 0, "Working")
	s.submit("2", "Look something up meanwhile.", func(c *session.Submit) { c.Background = true })
	s.claim("run_2", "wrk_b")
	s.step("run_2", "")
	s.stream("run_2", 0, "Look")
	s.mark()
	s.stream("run_2", 0, "ed")
	s.submit("3", "And then?")
	s.says("run_2", "stop", text("Looked up.")...)
	s.carry("run_2", session.StepCompleted{})
	s.end("run_2", session.RunCompleted{Usage: s.run("run_2").Usage}) // what it said waits for the first run's end
	s.mark()
	s.says("run_1", "stop", text("Working is done.")...)
	s.carry("run_1", session.StepCompleted{})
	s.end("run_1", session.RunCompleted{Usage: s.run("run_1").Usage})
	s.mark()
	s.claim("run_3", "wrk_a")
	s.answer("run_3", "Then this.")
	s.submit("4", "Once more, in vain.", func(c *session.Submit) { c.Background = true })
	s.claim("run_4", "wrk_b")
	s.step("run_4", "")
	s.end("run_4", session.RunFailed{Error: session.Failure{Code: "unauthorized", Message: "the key is not valid"}})
}

func sessionAlone(s *script) {
	s.markAll = true
	s.do(session.Create{Tenant: "local", Owner: "local", Title: "Mine", Agent: "helper", Metadata: json.RawMessage(`{"colour":"blue"}`)}.Decide)
	title := ""
	s.do(session.Update{Title: &title, Metadata: json.RawMessage(`{"colour":"red","n":9007199254740993}`)}.Decide)
	title = "Yours"
	s.do(session.Update{Title: &title}.Decide)
	s.submit("1", "Hello.", func(c *session.Submit) {
		c.Parts = append(c.Parts,
			session.Part{Type: session.PartFile, File: &session.File{Name: "a.png", MediaType: "image/png", URL: "https://example.org/a.png"}},
			session.Part{Type: session.PartData, Data: json.RawMessage(`{"from":"a form","amount":1.10}`)})
	})
}

func folded(s *script) {
	s.submit("1", "One.")
	s.claim("run_1", "wrk_a")
	s.step("run_1", "")
	s.stream("run_1", 0, "Half")
	s.carry("run_1", session.AttemptFailed{Message: "ans_1", Error: session.Failure{Code: "stream_cut", Message: "cut"}, Parts: s.state.Message("ans_1").Streamed()})
	s.mark()
	s.step("run_1", "retry")
	s.stream("run_1", 0, "Half", " a", " word.")
	s.calls("run_1", call{"clock", `{}`, session.ReadOnly, false})
	s.starts("run_1", "clock")
	s.tool("run_1", "clock", func(m, id string) session.Data {
		return session.ToolProgress{Message: m, Call: id, Progress: session.Progress{Fraction: 0.5}}
	})
	s.gives("run_1", "clock", `"noon"`)
	s.carry("run_1", session.StepCompleted{})
	s.mark()
	s.answer("run_1", "It is noon.")
	s.mark()
	s.submit("2", "Two.")
	s.claim("run_2", "wrk_a")
	s.step("run_2", "")
	s.carry("run_2", session.ReasoningDelta{Message: "ans_2", Part: 0, Text: "Well"})
	s.stream("run_2", 1, "Not", " all")
	s.do(session.Cancel{Run: "run_2", By: "local", At: s.clock, Grace: 5 * time.Second}.Decide)
	s.pass(6 * time.Second)
	s.do(session.CancelOverdue{Run: "run_2", At: s.clock}.Decide)
	s.retain()
}

func unknownTypes(s *script) {
	line := func(rest string) {
		s.pass(137 * time.Millisecond)
		s.line(fmt.Sprintf(`{"session":"ses_1","seq":%d,"at":%q,%s}`, s.state.Seq+1, s.clock.Format("2006-01-02T15:04:05.999Z"), rest))
	}
	s.submit("1", "Hello.")
	s.claim("run_1", "wrk_a")
	s.mark()
	line(`"type":"moon.rose","data":{"phase":"full","big":2512292042121000001,"a":1,"a":2}`)
	s.mark()
	line(`"type":"run.dreamed","run":"run_1","step":1,"attempt":1,"data":null,"colour":"red"`)
	line(`"type":"step.started","run":"run_1","step":1,"attempt":1,"data":{"message":"ans_1","mood":"good"},"later":{"a":[]}`)
	line(`"type":"text.delta","run":"run_1","step":1,"attempt":1,"data":{"message":"ans_1","part":0,"text":"Hi","speed":3}`)
	s.mark()
	line(`"type":"text.delta","run":"run_1","step":1,"attempt":1,"data":{"message":"ans_nobody","part":0,"text":"lost"}`)
	line(`"type":"tool.completed","run":"run_1","step":1,"attempt":1,"data":{"message":"ans_1","call":"call_nobody","result":1}`)
	line(`"type":"run.completed","run":"run_nobody","data":{"usage":{"inputTokens":1,"outputTokens":1}}`)
	line(`"type":"approval.decided","run":"run_1","data":{"id":"apr_nobody","decision":"approve","by":"local"}`)
	line(`"type":"inbox.removed","data":{"id":"msg_nobody"}`)
	line(`"type":"message.completed","run":"run_1","data":{"message":"ans_nobody"}`)
	s.mark()
	s.says("run_1", "stop", session.Part{Type: session.PartText, Text: "Hi."}, session.Part{Type: "hologram", Data: json.RawMessage(`{"x":1}`)})
	s.carry("run_1", session.StepCompleted{})
	s.end("run_1", session.RunCompleted{Usage: s.run("run_1").Usage})
}

func oddText(s *script) {
	odd := "a\x00b \\u0000 😀\u2028\u2029 \x1b[31m\t\r\n\x7f <b>&amp;</b> \"quoted\" \uFFFD é e\u0301 👩‍👩‍👧"
	s.submit("1", odd)
	s.claim("run_1", "wrk_a")
	s.step("run_1", "")
	s.stream("run_1", 0, "😀", "\x00", odd, "<&>")
	s.mark()
	args := `{"id":2512292042121000001,"x":1e2,"y":1.10,"b":true,"a":1,"a":2,"__proto__":{"x":1},"constructor":{"prototype":{}},"s":"\u0000\ud83d\ude00<","":null}`
	s.calls("run_1", call{"echo", args, session.ReadOnly, false})
	s.starts("run_1", "echo")
	s.gives("run_1", "echo", `{"big":9007199254740993,"neg":-0,"huge":1E400,"type":"finish","deep":[[[[[]]]]]}`)
	s.mark()
	s.carry("run_1", session.StepCompleted{})
	s.step("run_1", "")
	s.carry("run_1",
		session.ModelCompleted{Message: "ans_1", Finish: "tool_calls", Parts: []session.Part{{Type: session.PartTool, Tool: &session.ToolCall{ID: "call_cut", Name: "write"}}}},
		session.ToolCalled{Message: "ans_1", Call: "call_cut", Name: "write", RawArguments: `{"path":"/etc/hosts","content":"127.0.0.1 loc`, Effects: session.Unsafe},
		session.ToolFailed{Message: "ans_1", Call: "call_cut", Error: session.Failure{Code: "invalid_arguments", Message: "the arguments are no JSON object"}},
		session.StepCompleted{})
	s.mark()
	for _, falsy := range []string{`null`, `false`, `0`, `""`, `[]`, `{}`} {
		name := fmt.Sprintf("f%d", s.state.Seq)
		s.step("run_1", "")
		s.calls("run_1", call{name, `{}`, session.ReadOnly, false})
		s.starts("run_1", name)
		s.gives("run_1", name, falsy)
		s.carry("run_1", session.StepCompleted{})
	}
	s.answer("run_1", odd)
}
