package protocol_test

import (
	"encoding/json"
	"time"

	"github.com/holdfast-run/holdfast/session"
)

// scripts are the conversations of cases/, by name.
var scripts = map[string]struct {
	about string
	play  func(*script)
}{
	"plain":              {"A question and an answer that streams. A state after every event.", plain},
	"reasoning":          {"Reasoning streams before the text; the answer brings a signature.", reasoning},
	"parallel-tools":     {"Three calls in one step, with progress; their results come in another order; a second step says the answer.", parallelTools},
	"approval-approve":   {"A call waits for a person, who approves it.", approvalApprove},
	"approval-deny":      {"Two calls wait; one is denied with a note, one approved, each decision in its own time.", approvalDeny},
	"approval-edited":    {"A person approves with other arguments.", approvalEdited},
	"approval-expired":   {"Nobody decides in time.", approvalExpired},
	"approval-cancelled": {"A run that waits for a person is cancelled: the approval is voided, the call closed.", approvalCancelled},
	"retry":              {"An attempt is cut off in the middle of its text and its arguments; after a wait the next one replaces it.", retry},
	"retry-exhausted":    {"Every attempt fails: the run fails, and what the last one said is kept, marked as failed.", retryExhausted},
	"cancel-text":        {"Cancelled in the middle of a text: what was said is kept, arguments half written are not.", cancelText},
	"cancel-overdue":     {"The worker of a cancelled run is deaf: the server ends the run after its deadline.", cancelOverdue},
	"cancel-queued":      {"Cancelled before anybody carried it.", cancelQueued},
	"crash":              {"The worker is lost in the middle of a text; another carries on.", crash},
	"crash-limit":        {"A run that loses its workers again and again fails at the limit.", crashLimit},
	"compacted":          {"The context is compacted before a second turn; a summary costs tokens.", compacted},
	"drain":              {"A worker shuts down and hands the run over.", drain},
	"unknown-outcome":    {"A call with side effects had started when its worker was lost; a person says what happened.", unknownOutcome},
	"deferred":           {"Two calls are worked on by others, a subagent's run and a service: the run waits, and each tells how its call ended.", deferred},
	"inbox-enqueue":      {"Three messages wait; one is edited, one taken back, one delivered.", inboxEnqueue},
	"inbox-steer":        {"Two steers are told to a run between its steps.", inboxSteer},
	"inbox-steer-late":   {"A steer outlives its run and gets a run of its own.", inboxSteerLate},
	"inbox-interrupt":    {"A message interrupts the run and goes before those that wait.", inboxInterrupt},
	"inbox-rollback":     {"A message takes the place of the one that is being answered.", inboxRollback},
	"branches":           {"A message is edited, an answer made again, and the head moved between the branches.", branches},
	"retry-from-step":    {"A retry goes on with the step that failed: its message begins with the one before.", retryFromStep},
	"fork":               {"A session begins as a copy of another one, and goes on.", fork},
	"background":         {"A background run goes beside the foreground run.", background},
	"session":            {"A session begins without a message; title and metadata change.", sessionAlone},
	"folded":             {"Deltas of ended runs were folded away: the facts say the same.", folded},
	"unknown-types":      {"Events and fields of a later version, and events about things that are not there: carried, and without effect.", unknownTypes},
	"text":               {"Emoji, NUL, line separators, control characters, numbers beyond 2^53, repeated keys and hostile names.", oddText},
}

func deferred(s *script) {
	s.submit("1", "Look into it and file a ticket.", func(c *session.Submit) {
		c.Child = &session.ChildOf{Parent: session.ParentCall{Session: "ses_0", Run: "run_0", Call: "call_0"}, Depth: 1, TokenLimit: 9000}
	})
	s.claim("run_1", "wrk_a")
	s.step("run_1", "")
	s.calls("run_1",
		call{"research", `{"task":"Look"}`, session.Idempotent, false}, call{"ticket", `{"title":"It"}`, session.Idempotent, false})
	s.tool("run_1", "research", func(m, id string) session.Data {
		return session.ToolStarted{
			Message: m, Call: id, Try: 1, Key: "run_1." + id,
			Child: &session.Child{Session: "ses_2", Run: "run_2", Agent: "researcher"},
		}
	})
	s.starts("run_1", "ticket")
	s.tool("run_1", "research", func(m, id string) session.Data { return session.ToolDeferred{Message: m, Call: id} })
	until := s.clock.Add(time.Hour)
	s.tool("run_1", "ticket", func(m, id string) session.Data {
		return session.ToolDeferred{Message: m, Call: id, Until: &until}
	})
	s.carry("run_1", session.RunWaiting{Reason: session.WaitChildRun, Until: &until})
	s.mark()
	s.pass(10 * time.Minute)
	s.do(session.CompleteCall{
		Run: "run_1", Call: "call_ticket", Completed: session.ToolCompleted{Result: json.RawMessage(`{"number":7}`)},
	}.Decide)
	s.mark()
	s.do(session.CompleteCall{
		Run: "run_1", Call: "call_research", Error: &session.Failure{Code: "child_failed", Message: "the subagent found nothing"},
		Usage: &session.Usage{InputTokens: 100, OutputTokens: 20, CachedTokens: 5},
	}.Decide)
	s.claim("run_1", "wrk_b")
	s.carry("run_1", session.StepCompleted{})
	s.step("run_1", "")
	s.says("run_1", "stop", text("Ticket 7.")...)
	s.carry("run_1", session.StepCompleted{})
	s.end("run_1", session.RunCompleted{Usage: s.run("run_1").Usage})
}

func plain(s *script) {
	s.markAll = true
	s.submit("1", "What is the capital of France?")
	s.claim("run_1", "wrk_a")
	s.step("run_1", "")
	s.stream("run_1", 0, "The capital", " of France", " is Paris.")
	s.says("run_1", "stop", text("The capital of France is Paris.")...)
	s.carry("run_1", session.StepCompleted{})
	s.end("run_1", session.RunCompleted{Usage: s.run("run_1").Usage})
}

func compacted(s *script) {
	s.submit("1", "What is the capital of France?")
	s.claim("run_1", "wrk_a")
	s.step("run_1", "")
	s.says("run_1", "stop", text("Paris.")...)
	s.carry("run_1", session.StepCompleted{})
	s.end("run_1", session.RunCompleted{Usage: s.run("run_1").Usage})
	s.submit("2", "And of Italy?")
	s.claim("run_2", "wrk_a")
	s.mark()
	s.carry("run_2", session.ContextCompacted{
		UpTo: &session.Mark{Message: "ans_1"}, Summary: "They spoke of capitals.", Because: "window", Before: 9000, After: 300,
		Usage: session.Usage{InputTokens: 8000, OutputTokens: 6, CachedTokens: 7000},
	})
	s.mark()
	s.step("run_2", "")
	s.says("run_2", "stop", text("Rome.")...)
	s.carry("run_2", session.StepCompleted{})
	s.end("run_2", session.RunCompleted{Usage: s.run("run_2").Usage})
}

func reasoning(s *script) {
	s.submit("1", "Think first.")
	s.claim("run_1", "wrk_a")
	s.step("run_1", "")
	for _, p := range []string{"Let me", " think."} {
		s.carry("run_1", session.ReasoningDelta{Message: "ans_1", Part: 0, Text: p})
	}
	s.mark()
	s.stream("run_1", 1, "I thought", " about it.")
	s.mark()
	s.says("run_1", "stop",
		session.Part{Type: session.PartReasoning, Text: "Let me think.", Signature: "c2lnbmF0dXJl"},
		session.Part{Type: session.PartText, Text: "I thought about it."},
		session.Part{Type: session.PartSource, Data: json.RawMessage(`{"url":"https://example.org/","title":"A source"}`)})
	s.mark()
	s.carry("run_1", session.StepCompleted{})
	s.end("run_1", session.RunCompleted{Usage: session.Usage{InputTokens: 12, OutputTokens: 34, ReasoningTokens: 20, CachedTokens: 8}})
}

func parallelTools(s *script) {
	s.submit("1", "Compare three cities.")
	s.claim("run_1", "wrk_a")
	s.step("run_1", "")
	s.stream("run_1", 0, "I look them up.")
	for i, name := range []string{"paris", "rome", "oslo"} {
		s.carry("run_1", session.ToolInputDelta{Message: "ans_1", Part: i + 1, Call: "call_" + name, Name: name, Text: `{"ci`})
	}
	s.carry("run_1", session.ToolInputDelta{Message: "ans_1", Part: 2, Call: "call_rome", Name: "rome", Text: `ty":"Rome"}`})
	s.mark()
	s.calls("run_1", call{"paris", `{"city":"Paris"}`, session.ReadOnly, false}, call{"rome", `{"city":"Rome"}`, session.Idempotent, false},
		call{"oslo", `{"city":"Oslo"}`, session.ReadOnly, false})
	s.mark()
	for _, name := range []string{"paris", "rome", "oslo"} {
		s.starts("run_1", name)
	}
	s.tool("run_1", "rome", func(m, id string) session.Data {
		return session.ToolProgress{Message: m, Call: id, Progress: session.Progress{Message: "half way", Fraction: 0.5, Data: json.RawMessage(`{"rows":3}`)}}
	})
	s.mark()
	s.gives("run_1", "oslo", `{"people":717710}`)
	s.tool("run_1", "rome", func(m, id string) session.Data {
		return session.ToolFailed{Message: m, Call: id, Error: session.Failure{Code: "tool_error", Message: "no such table", Retryable: true}}
	})
	s.mark()
	s.tool("run_1", "paris", func(m, id string) session.Data {
		return session.ToolCompleted{
			Message: m, Call: id, Result: json.RawMessage(`"The beginning of a long"`), Cut: 12,
			Blob: &session.Blob{Hash: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", Size: 70_000, MediaType: "text/plain; charset=utf-8"},
			Files: []session.File{{Name: "paris.png", MediaType: "image/png", Blob: &session.Blob{
				Hash: "5df6e0e2761359d30a8275058e299fcc0381534545f55cf43e41983f5d4c9456", Size: 1200, MediaType: "image/png",
			}}},
		}
	})
	s.carry("run_1", session.StepCompleted{})
	s.mark()
	s.answer("run_1", "Oslo is the smallest.")
}

func approvalApprove(s *script) {
	s.submit("1", "Delete the old reports.")
	s.claim("run_1", "wrk_a")
	s.step("run_1", "")
	s.calls("run_1", call{"delete", `{"path":"reports/2024"}`, session.Unsafe, true})
	s.mark()
	s.carry("run_1", session.RunWaiting{Reason: session.WaitApproval})
	s.mark()
	s.pass(3 * time.Hour)
	s.do(session.DecideApproval{ID: "apr_delete", Decision: session.Approve, By: "local"}.Decide)
	s.mark()
	s.claim("run_1", "wrk_b")
	s.starts("run_1", "delete")
	s.mark()
	s.gives("run_1", "delete", `{"deleted":12}`)
	s.carry("run_1", session.StepCompleted{})
	s.answer("run_1", "Twelve reports are gone.")
}

func approvalDeny(s *script) {
	s.submit("1", "Pay both bills.")
	s.claim("run_1", "wrk_a")
	s.step("run_1", "")
	s.calls("run_1", call{"pay_two", `{"n":2}`, session.Unsafe, true}, call{"pay_three", `{"n":3}`, session.Unsafe, true})
	s.carry("run_1", session.RunWaiting{Reason: session.WaitApproval})
	s.mark()
	s.do(session.DecideApproval{ID: "apr_pay_three", Decision: session.Approve, By: "local"}.Decide)
	s.mark()
	s.claim("run_1", "wrk_a")
	s.starts("run_1", "pay_three")
	s.gives("run_1", "pay_three", `true`)
	s.carry("run_1", session.RunWaiting{Reason: session.WaitApproval})
	s.mark()
	s.do(session.DecideApproval{ID: "apr_pay_two", Decision: session.Deny, By: "local", Note: "It is paid already."}.Decide)
	s.mark()
	s.claim("run_1", "wrk_a")
	s.tool("run_1", "pay_two", func(m, id string) session.Data {
		return session.ToolDenied{Message: m, Call: id, By: "local", Note: "It is paid already."}
	})
	s.carry("run_1", session.StepCompleted{})
	s.answer("run_1", "One bill was paid.")
}

func approvalEdited(s *script) {
	s.submit("1", "Send it.")
	s.claim("run_1", "wrk_a")
	s.step("run_1", "")
	s.calls("run_1", call{"send", `{"to":"everybody"}`, session.Unsafe, true})
	s.carry("run_1", session.RunWaiting{Reason: session.WaitApproval})
	s.do(session.DecideApproval{ID: "apr_send", Decision: session.Approve, By: "local", Note: "Only to Ann.", Arguments: json.RawMessage(`{"to":"ann"}`)}.Decide)
	s.mark()
	s.claim("run_1", "wrk_a")
	s.starts("run_1", "send")
	s.gives("run_1", "send", `null`)
	s.carry("run_1", session.StepCompleted{})
	s.answer("run_1", "Sent to Ann.")
}

func approvalExpired(s *script) {
	s.submit("1", "Deploy it.")
	s.claim("run_1", "wrk_a")
	s.step("run_1", "")
	until := begin.Add(time.Hour)
	s.carry("run_1",
		session.ModelCompleted{Message: "ans_1", Finish: "tool_calls", Parts: []session.Part{{Type: session.PartTool, Tool: &session.ToolCall{ID: "call_deploy", Name: "deploy"}}}},
		session.ApprovalRequested{Approval: session.Approval{
			ID: "apr_deploy", Session: "ses_1", Run: "run_1", Message: "ans_1", Call: "call_deploy", Name: "deploy", Effects: session.Unsafe,
			Arguments: json.RawMessage(`{}`), ArgumentsHash: session.HashArguments(json.RawMessage(`{}`)), ExpiresAt: &until,
		}},
		session.ToolCalled{Message: "ans_1", Call: "call_deploy", Name: "deploy", Arguments: json.RawMessage(`{}`), Effects: session.Unsafe, Approval: "apr_deploy"})
	s.carry("run_1", session.RunWaiting{Reason: session.WaitApproval, Until: &until})
	s.mark()
	s.pass(2 * time.Hour)
	s.claim("run_1", "wrk_a")
	s.carry("run_1", session.ApprovalExpired{ID: "apr_deploy"},
		session.ToolDenied{Message: "ans_1", Call: "call_deploy", Note: "nobody decided in time"}, session.StepCompleted{})
	s.mark()
	s.answer("run_1", "It was not deployed.")
}

func approvalCancelled(s *script) {
	s.submit("1", "Charge the card.")
	s.claim("run_1", "wrk_a")
	s.step("run_1", "")
	s.stream("run_1", 0, "I will charge it.")
	s.calls("run_1", call{"charge", `{"cents":4200}`, session.Unsafe, true})
	s.carry("run_1", session.RunWaiting{Reason: session.WaitApproval})
	s.mark()
	s.do(session.Cancel{Run: "run_1", By: "local", Reason: "changed my mind", At: s.clock, Grace: 5 * time.Second}.Decide)
}

func retry(s *script) {
	s.submit("1", "What is six times seven?")
	s.claim("run_1", "wrk_a")
	s.step("run_1", "")
	s.stream("run_1", 0, "The answer", " is 4")
	s.carry("run_1", session.ToolInputDelta{Message: "ans_1", Part: 1, Call: "call_x", Name: "calculator", Text: `{"expr`})
	s.mark()
	failed := session.Failure{Code: "stream_cut", Message: "the model's answer broke off", Retryable: true}
	at := s.clock.Add(30 * time.Second)
	s.carry("run_1", session.AttemptFailed{Message: "ans_1", Error: failed, Parts: s.state.Message("ans_1").Streamed(), RetryAt: &at})
	s.mark()
	s.carry("run_1", session.RunWaiting{Reason: session.WaitRetry, Until: &at, Error: &failed})
	s.mark()
	s.pass(time.Minute)
	s.claim("run_1", "wrk_a")
	s.mark()
	s.step("run_1", "retry")
	s.mark()
	s.stream("run_1", 0, "The answer", " is 42.")
	s.mark()
	s.says("run_1", "stop", text("The answer is 42.")...)
	s.carry("run_1", session.StepCompleted{})
	s.end("run_1", session.RunCompleted{Usage: s.run("run_1").Usage})
}

func retryExhausted(s *script) {
	s.submit("1", "Hello?")
	s.claim("run_1", "wrk_a")
	failed := session.Failure{Code: "overloaded", Message: "the provider is overloaded", Retryable: true}
	s.step("run_1", "")
	s.carry("run_1", session.AttemptFailed{Message: "ans_1", Error: failed})
	s.step("run_1", "retry")
	s.stream("run_1", 0, "Hel")
	s.carry("run_1", session.AttemptFailed{Message: "ans_1", Error: failed, Parts: s.state.Message("ans_1").Streamed()})
	s.mark()
	s.end("run_1", session.RunFailed{Error: failed, Usage: s.run("run_1").Usage})
}

func cancelText(s *script) {
	s.submit("1", "Count to a thousand.")
	s.claim("run_1", "wrk_a")
	s.step("run_1", "")
	s.stream("run_1", 0, "1, 2, 3", ", 4")
	s.carry("run_1", session.ToolInputDelta{Message: "ans_1", Part: 1, Call: "call_x", Name: "count", Text: `{"pa`})
	s.mark()
	s.do(session.Cancel{Run: "run_1", By: "local", At: s.clock, Grace: 5 * time.Second}.Decide)
	s.mark()
	s.stream("run_1", 0, ", 5")
	run := s.run("run_1")
	s.end("run_1", session.RunCancelled{By: run.CancelBy, Reason: run.CancelReason, Usage: run.Usage})
}

func cancelOverdue(s *script) {
	s.submit("1", "Never mind me.")
	s.claim("run_1", "wrk_a")
	s.step("run_1", "")
	s.calls("run_1", call{"loop", `{}`, session.Idempotent, false})
	s.starts("run_1", "loop")
	s.do(session.Cancel{Run: "run_1", By: "local", At: s.clock, Grace: 5 * time.Second}.Decide)
	s.mark()
	s.pass(6 * time.Second)
	s.do(session.CancelOverdue{Run: "run_1", At: s.clock}.Decide)
}

func cancelQueued(s *script) {
	s.submit("1", "Oh, wait.")
	s.mark()
	s.do(session.Cancel{Run: "run_1", By: "local", At: s.clock, Grace: 5 * time.Second}.Decide)
	s.mark()
	s.submit("2", "This instead.")
	s.claim("run_2", "wrk_a")
	s.answer("run_2", "All right.")
}

func crash(s *script) {
	s.submit("1", "Tell me a story.")
	s.claim("run_1", "wrk_a")
	s.step("run_1", "")
	s.stream("run_1", 0, "Once upon", " a ti")
	s.mark()
	s.pass(15 * time.Second)
	s.reconcile("run_1", session.CauseLeaseExpired, "wrk_a did not renew its lease (fence 1), which ended at 2026-01-02T03:04:20Z")
	s.mark()
	s.pass(2 * time.Second)
	s.claim("run_1", "wrk_b")
	s.step("run_1", "crash")
	s.mark()
	s.stream("run_1", 0, "Once upon a time", " there was")
	s.mark()
	s.says("run_1", "stop", text("Once upon a time there was a log.")...)
	s.carry("run_1", session.StepCompleted{})
	s.mark()
	s.end("run_1", session.RunCompleted{Usage: s.run("run_1").Usage})
}

func crashLimit(s *script) {
	s.submit("1", "Divide by zero.")
	for range 3 {
		s.pass(time.Minute)
		s.claim("run_1", "wrk_a")
		because := "crash"
		if len(s.run("run_1").Steps) == 0 {
			because = ""
		}
		s.step("run_1", because)
		s.stream("run_1", 0, "Dividing")
		s.reconcile("run_1", session.CauseRestart, "wrk_a is gone")
		s.mark()
	}
}

func drain(s *script) {
	s.submit("1", "Take your time.")
	s.claim("run_1", "wrk_a")
	s.step("run_1", "")
	s.calls("run_1", call{"wait", `{}`, session.ReadOnly, false})
	s.starts("run_1", "wait")
	s.gives("run_1", "wait", `"done"`)
	s.carry("run_1", session.StepCompleted{})
	s.step("run_1", "")
	s.stream("run_1", 0, "It is")
	s.reconcile("run_1", session.CauseDrain, "wrk_a shuts down")
	s.mark()
	s.claim("run_1", "wrk_b")
	s.step("run_1", "crash")
	s.stream("run_1", 0, "It is done.")
	s.says("run_1", "stop", text("It is done.")...)
	s.carry("run_1", session.StepCompleted{})
	s.end("run_1", session.RunCompleted{Usage: s.run("run_1").Usage})
}

func unknownOutcome(s *script) {
	s.submit("1", "Send the three mails.")
	s.claim("run_1", "wrk_a")
	s.step("run_1", "")
	s.calls("run_1", call{"ann", `{}`, session.Unsafe, false}, call{"bob", `{}`, session.Unsafe, false}, call{"cy", `{}`, session.Unsafe, false})
	for _, name := range []string{"ann", "bob", "cy"} {
		s.starts("run_1", name)
	}
	s.tool("run_1", "bob", func(m, id string) session.Data {
		return session.ToolProgress{Message: m, Call: id, Progress: session.Progress{Message: "sending"}}
	})
	s.reconcile("run_1", session.CauseLeaseExpired, "wrk_a did not renew its lease (fence 1)")
	s.mark()
	word := func(call string, o session.Outcome, result, note string) {
		c := session.ResolveTool{Run: "run_1", Call: "call_" + call, Outcome: o, By: "local", Note: note}
		if result != "" {
			c.Result = json.RawMessage(result)
		}
		s.do(c.Decide)
		s.mark()
	}
	word("ann", session.Happened, `{"sent":true}`, "It is in her inbox.")
	word("bob", session.OutcomeFail, "", "")
	word("cy", session.DidNot, "", "He has nothing.")
	s.claim("run_1", "wrk_b")
	s.starts("run_1", "cy")
	s.mark()
	s.gives("run_1", "cy", `{"sent":true}`)
	s.carry("run_1", session.StepCompleted{})
	s.answer("run_1", "Two of three are sent.")
}
