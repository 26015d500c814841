package server_test

import (
	"encoding/json"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
)

func TestAnApprovalIsDecidedOnce(t *testing.T) {
	bothWays(t, worldOptions{}, func(t *testing.T, w *world) {
		w.say("ses_1", "msg_1", "charge")
		w.ask(w.claim(), "apr_1", `{"cents":4200}`)
		var list api.ApprovalList
		w.do("GET", "/v1/approvals?status=pending", nil).into(200, &list)
		if len(list.Items) != 1 || list.Items[0].ID != "apr_1" {
			t.Fatalf("pending: %+v", list)
		}
		w.do("POST", "/v1/approvals/apr_1", `{"decision":"deny","arguments":{}}`).problem(422, api.Invalid)
		w.do("POST", "/v1/approvals/apr_1", `{"decision":"approve","arguments":{"euros":1}}`).problem(422, api.Invalid)
		w.do("POST", "/v1/approvals/apr_1", `{"decision":"approve","arguments":null}`).problem(422, api.Invalid)

		var won int
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				d := api.DecideApproval{Decision: session.Approve, Note: "go"}
				if i%2 == 1 {
					d = api.DecideApproval{Decision: session.Deny}
				}
				a := w.do("POST", "/v1/approvals/apr_1", d)
				mu.Lock()
				defer mu.Unlock()
				switch a.status {
				case 200:
					won++
				case 409:
					p := a.problem(409, "approval_decided")
					if p.Approval == nil || p.Approval.ID != "apr_1" || p.Approval.Status == session.StatusPending {
						t.Errorf("the loser is told %+v", p)
					}
				default:
					t.Errorf("%d %s", a.status, a.body)
				}
			})
		}
		all.Wait()
		if won != 10 {
			t.Errorf("%d of 20 were told that they decided", won)
		}
		var a session.Approval
		w.do("GET", "/v1/approvals/apr_1", nil).into(200, &a)
		decisions := 0
		for _, e := range w.events("ses_1") {
			if e.Type() == "approval.decided" {
				decisions++
			}
		}
		if decisions != 1 || a.Status == session.StatusPending || a.By != "local" {
			t.Errorf("%d decisions: %+v", decisions, a)
		}
	})
}

func TestAnApprovalOfARunThatWasCancelledIsGone(t *testing.T) {
	w := newWorld(t, worldOptions{})
	w.say("ses_1", "msg_1", "charge")
	lease := w.claim()
	w.ask(lease, "apr_1", `{"cents":4200}`)
	w.do("POST", "/v1/runs/"+lease.Run+"/cancel", nil).is(200)
	p := w.do("POST", "/v1/approvals/apr_1", api.DecideApproval{Decision: session.Approve}).problem(409, "approval_gone")
	if p.Approval == nil || p.Approval.Status != session.StatusVoided {
		t.Errorf("told %+v", p)
	}
	var list api.ApprovalList
	w.do("GET", "/v1/approvals?status=pending", nil).into(200, &list)
	if len(list.Items) != 0 {
		t.Errorf("still pending: %+v", list)
	}
}

func TestEditedArgumentsArePassedOnByteForByte(t *testing.T) {
	w := newWorld(t, worldOptions{})
	w.say("ses_1", "msg_1", "charge")
	w.ask(w.claim(), "apr_1", `{"cents":4200}`)
	var done api.ApprovalDone
	w.do("POST", "/v1/approvals/apr_1", `{"decision":"approve", "arguments": { "cents": 12345678901234567890 } }`).into(200, &done)
	if got := string(done.Approval.Edited); got != `{"cents":12345678901234567890}` {
		t.Errorf("edited to %s", got)
	}
}

func TestAnUnknownOutcomeIsResolvedOnce(t *testing.T) {
	for _, result := range []string{`false`, `0`, `""`, `null`, `{}`, `[12345678901234567890,1e999,"\u0000"]`} {
		t.Run(result, func(t *testing.T) {
			w := newWorld(t, worldOptions{})
			w.say("ses_1", "msg_1", "charge")
			lease := w.claim()
			run, err := w.store.Run(t.Context(), lease.Run)
			if err != nil {
				t.Fatal(err)
			}
			event := func(d session.Data) session.Event {
				return session.Event{Run: run.ID, Step: 1, Attempt: 1, Data: d}
			}
			w.append("ses_1",
				event(session.StepStarted{Message: run.Message}),
				event(session.ToolCalled{Message: run.Message, Call: "call_1", Name: "charge", Arguments: json.RawMessage(`{}`), Effects: session.Unsafe}),
				event(session.ToolStarted{Message: run.Message, Call: "call_1", Try: 1, Key: "k"}),
				event(session.ToolUnknown{Message: run.Message, Call: "call_1"}),
				event(session.RunWaiting{Reason: session.WaitToolOutcome}))
			path := "/v1/runs/" + run.ID + "/tools/"
			w.do("POST", path+"call_2", `{"outcome":"failed"}`).problem(404, api.NotFound)
			w.do("POST", path+"call_1", `{"outcome":"did_not","result":1}`).problem(422, api.Invalid)
			w.do("POST", path+"call_1", `{"outcome":"happened","result":`+result+`}`).is(200)
			w.do("POST", path+"call_1", `{"outcome":"happened"}`).problem(409, "tool_outcome_known")
			for _, e := range w.events("ses_1") {
				if done, ok := e.Data.(session.ToolCompleted); ok && string(done.Result) != result {
					t.Errorf("the result became %s", done.Result)
				}
			}
		})
	}
}
